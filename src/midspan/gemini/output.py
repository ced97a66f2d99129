"""Structured answers: a Python type as the schema that the model gets, and its answer as a value of that type."""

from collections.abc import Mapping
from typing import Any

from midspan._schema.adapt import adapt_schema
from midspan.errors import ArgumentError, ConfigError, MalformedResponseError
from midspan.gemini.types import check_schema, to_json
from midspan.providers.gemini import wire
from midspan.providers.gemini.capabilities import GEMINI_JSON_SCHEMA
from midspan.providers.gemini.proto import from_plain, has_extra


def output_fields(schema: Any, json_schema: Any, mime_type: str | None) -> dict[str, Any]:
    """Return the fields of generationConfig that ask for an answer of this schema, or of this type."""
    if schema is not None and json_schema is not None:
        raise ConfigError("response_schema and response_json_schema are both given; the API accepts only one of them")
    requested = json_schema if schema is None else schema
    if requested is None:
        return {}
    if is_type(requested):
        adapted = json_schema_of(requested, arguments=False)
        fields = {"response_json_schema": adapted} if adapted else {}
    elif schema is None:
        fields = {"response_json_schema": requested}
    else:
        fields = schema_field(requested, "response_schema", "response_schema", "response_json_schema")
    return {"response_mime_type": mime_type or "application/json", **fields}


def is_type(schema: Any) -> bool:
    """Whether it is a type hint, and not a schema."""
    return schema is not None and not isinstance(schema, wire.Schema | Mapping)


def json_schema_of(form: Any, *, arguments: bool) -> dict[str, Any]:
    """Return the JSON Schema of a type: of an answer, or of the arguments of a function, which are an object."""
    from midspan._schema.output_type import OutputType  # loaded with the first type

    return adapt_schema(OutputType(form).schema, GEMINI_JSON_SCHEMA, arguments=arguments).schema


def schema_field(schema: Any, where: str, name: str, json_name: str) -> dict[str, Any]:
    """Return the schema under `name` if it has only keywords of the API's own schemas, else under `json_name`."""
    check_schema(schema, where)
    plain = to_json(schema, where)
    return {json_name if has_extra(from_plain(wire.Schema, plain)) else name: plain}


def parse_answer(text: str, form: Any) -> Any:
    """Return the answer as JSON data, or as a value of a type; Any means JSON data."""
    from midspan._schema.output_type import OutputType, parse_json  # loaded with the first type

    try:
        value = parse_json(text)
        if form is Any:
            return value
        output = OutputType(form)
        return output.parse(adapt_schema(output.schema, GEMINI_JSON_SCHEMA, arguments=False).restore_names(value))
    except ArgumentError as error:
        raise MalformedResponseError(f"the answer is not the requested JSON: {error}") from error
