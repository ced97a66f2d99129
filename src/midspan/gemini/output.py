"""Structured answers: a Python type as the schema that the model gets, and its answer as a value of that type."""

import enum
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from midspan._schema.adapt import adapt_schema
from midspan.errors import ArgumentError, ConfigError, MalformedResponseError
from midspan.gemini.types import check_schema, to_json
from midspan.providers.gemini import wire
from midspan.providers.gemini.capabilities import GEMINI_JSON_SCHEMA, GEMINI_PARAMETERS
from midspan.providers.gemini.proto import from_plain, has_extra

if TYPE_CHECKING:
    from midspan._schema.output_type import OutputType


def output_fields(schema: Any, json_schema: Any, mime_type: str | None) -> dict[str, Any]:
    """Return the fields of generationConfig that ask for an answer of this schema, or of this type."""
    if schema is not None and json_schema is not None:
        raise ConfigError("response_schema and response_json_schema are both given; the API accepts only one of them")
    requested = json_schema if schema is None else schema
    if requested is None:
        return {}
    if is_type(requested):
        fields = _type_fields(requested, mime_type)
    elif schema is None:
        fields = {"response_json_schema": requested}
    else:
        fields = schema_field(requested, "response_schema", "response_schema", "response_json_schema")
    return {"response_mime_type": mime_type or "application/json", **fields}


def is_type(schema: Any) -> bool:
    """Whether it is a type hint, and not a schema."""
    return schema is not None and not isinstance(schema, wire.Schema | Mapping)


def _type_fields(form: Any, mime_type: str | None) -> dict[str, Any]:
    schema = _output_type(form).schema
    if mime_type == "text/x.enum":
        return {"response_schema": adapt_schema(schema, GEMINI_PARAMETERS, arguments=False).schema}
    adapted = adapt_schema(schema, GEMINI_JSON_SCHEMA, arguments=False).schema
    return {"response_json_schema": adapted} if adapted else {}


def parameters_schema(form: Any) -> dict[str, Any]:
    """Return the JSON Schema of a type as the parameters of a function, which are an object."""
    return adapt_schema(_output_type(form).schema, GEMINI_JSON_SCHEMA).schema


def schema_field(schema: Any, where: str, name: str, json_name: str) -> dict[str, Any]:
    """Return the schema under `name` if it has only keywords of the API's own schemas, else under `json_name`."""
    check_schema(schema, where)
    plain = to_json(schema, where)
    return {json_name if has_extra(from_plain(wire.Schema, plain)) else name: plain}


def _output_type(form: Any) -> "OutputType":
    try:
        return _cached_output_type(form)
    except TypeError:  # metadata of Annotated may be unhashable
        return _cached_output_type.__wrapped__(form)


@lru_cache(maxsize=128)
def _cached_output_type(form: Any) -> "OutputType":
    from midspan._schema.output_type import OutputType  # loaded with the first type

    return OutputType(form)


def parse_answer(text: str, form: Any) -> Any:
    """Return the answer as JSON data, or as a value of a type; Any means JSON data."""
    output = None if form is Any else _output_type(form)
    try:
        value = _parse_text(text, form)
        if output is None:
            return value
        return output.parse(adapt_schema(output.schema, GEMINI_JSON_SCHEMA, arguments=False).restore_names(value))
    except ArgumentError as error:
        raise MalformedResponseError(f"the answer is not the requested JSON: {error}") from error


def _parse_text(text: str, form: Any) -> Any:
    from midspan._schema.output_type import parse_json

    try:
        return parse_json(text)
    except ArgumentError:
        if isinstance(form, type) and issubclass(form, enum.Enum):
            return text.strip()  # `text/x.enum` is not JSON
        raise
