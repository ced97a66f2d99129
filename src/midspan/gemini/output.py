"""Structured answers: a Python type as the schema that the model gets, and its answer as a value of that type."""

import enum
import types
import typing
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from midspan._schema.dialect import AdaptedSchema, SchemaDialect
from midspan.errors import ArgumentError, ConfigError, MalformedResponseError, SchemaError
from midspan.gemini.types import check, check_schema, describe, messages_in, to_json
from midspan.providers.gemini import wire
from midspan.providers.gemini.capabilities import GEMINI_JSON_SCHEMA, GEMINI_PARAMETERS
from midspan.providers.gemini.proto import Proto, from_plain

if TYPE_CHECKING:
    from midspan._schema.output_type import OutputType

_ENUM = "text/x.enum"
_SCHEMA_NAMES = ("response_schema", "responseSchema", "response_json_schema", "responseJsonSchema")


def requested_type(request: Mapping[str, Any]) -> Any:
    """Return the Python type that a request wants the answer to be of; Any if it wants none."""
    config = request.get("generation_config")
    for fields in (request, config if isinstance(config, Mapping) else {}):
        for name in _SCHEMA_NAMES:
            if is_type(fields.get(name)):
                return fields[name]
    schema = getattr(config, "response_schema", None)
    return schema if is_type(schema) else Any


def is_type(value: Any) -> bool:
    """Return whether it can be a type hint: a class, `list[int]`, a union, a Literal, an alias."""
    if value is None or isinstance(value, Proto | Mapping):
        return False
    is_typing = type(value).__module__ in ("typing", "typing_extensions") or typing.get_origin(value) is not None
    return isinstance(value, type | types.GenericAlias | types.UnionType) or is_typing


def output_fields(schema: Any, json_schema: Any, mime_type: Any) -> dict[str, Any]:
    """Return the fields of generationConfig that ask for an answer of this schema."""
    if schema is not None and json_schema is not None:
        raise ConfigError("response_schema and response_json_schema are both given; the API accepts only one of them")
    name, value = ("response_json_schema", json_schema) if schema is None else ("response_schema", schema)
    if value is None:
        return {}
    if is_type(value):
        fields = _type_fields(value, name, mime_type)
    elif not isinstance(value, wire.Schema | Mapping):
        raise ConfigError(f"{name} cannot be {describe(value)}; pass a Schema, a dict, or a Python type like list[int]")
    elif name == "response_schema":
        fields = schema_field(to_json(value, name), name, name, "response_json_schema")
    else:
        fields = {name: to_json(value, name)}
    return {"response_mime_type": "application/json" if mime_type is None else mime_type, **fields}


def _type_fields(form: Any, name: str, mime_type: Any) -> dict[str, Any]:
    schema = _output_type(form, name).schema
    if isinstance(mime_type, str) and mime_type == _ENUM:
        return {"response_schema": adapt(schema, GEMINI_PARAMETERS).schema}
    adapted = adapt(schema).schema
    return {"response_json_schema": adapted} if adapted else {}


def parameters_schema(form: Any, where: str) -> dict[str, Any]:
    """Return the JSON Schema of a type as the parameters of a function, which are an object."""
    return adapt(_output_type(form, where).schema, arguments=True).schema


def adapt(
    schema: dict[str, Any], dialect: SchemaDialect = GEMINI_JSON_SCHEMA, *, arguments: bool = False
) -> AdaptedSchema:
    """Return a JSON Schema with the keywords that the API accepts."""
    from midspan._schema.adapt import adapt_schema  # loaded with the first schema

    return adapt_schema(schema, dialect, arguments=arguments)


def schema_field(schema: dict[str, Any], where: str, name: str, json_name: str) -> dict[str, Any]:
    """Return the schema under `name` if it has only keywords of the API's own schemas, else under `json_name`."""
    check_schema(schema, where)
    message = from_plain(wire.Schema, schema)
    check(message, where, types=False)
    return {json_name if _has_unknown_fields(message) else name: schema}


def _has_unknown_fields(schema: Proto) -> bool:
    return bool(schema.extra) or any(_has_unknown_fields(inner) for _, inner in messages_in(schema))


def _output_type(form: Any, where: str) -> "OutputType":
    if not is_type(form):
        raise SchemaError(f"{where} cannot be {describe(form)}; pass a type like list[int], a dataclass or a model")
    try:
        return _cached_output_type(form)
    except TypeError:  # metadata of Annotated may be unhashable
        return _cached_output_type.__wrapped__(form)
    except SchemaError as error:
        raise SchemaError(f"{where}: {error}") from error


@lru_cache(maxsize=128)
def _cached_output_type(form: Any) -> "OutputType":
    from midspan._schema.output_type import OutputType

    return OutputType(form)


def parse_answer(text: str, form: Any) -> Any:
    """Return the answer as JSON data, or as a value of a type; Any means JSON data."""
    output = None if form is Any else _output_type(form, "the requested type")
    if not text.strip():
        raise MalformedResponseError("the answer has no text to read as JSON; see its finish_reason")
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        if not isinstance(form, type) or not issubclass(form, enum.Enum):
            raise MalformedResponseError(f"the answer is not the requested JSON: {error}") from error
        value = text.strip()  # `text/x.enum` is not JSON
    if output is None:
        return value
    try:
        return output.parse(adapt(output.schema).restore_names(value))
    except ArgumentError as error:
        raise MalformedResponseError(f"the answer is not the requested JSON: {error}") from error
