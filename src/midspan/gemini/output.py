"""Structured answers: a Python type as the schema that the model gets, and its answer as a value of that type."""

import enum
import types
import typing
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from midspan.errors import ArgumentError, ConfigError, MalformedResponse, SchemaError
from midspan.gemini.checking import describe, read_json, to_json
from midspan.gemini.types import check_schema
from midspan.providers.gemini import wire
from midspan.providers.gemini.proto import Proto

if TYPE_CHECKING:
    from midspan._schema.dialects.dialect import AdaptedSchema
    from midspan._schema.output_type import OutputType

# `_schema` and `profile` are loaded with the first schema.

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
    parser = _parser_of(form, name)
    if isinstance(mime_type, str) and mime_type == _ENUM:
        from midspan._schema.dialects.adapt import adapt_schema
        from midspan.providers.gemini.profile import GEMINI_PARAMETERS

        return {"response_schema": adapt_schema(parser.output.schema, GEMINI_PARAMETERS, arguments=False).schema}
    return {"response_json_schema": parser.adapted.schema} if parser.adapted.schema else {}


def parameters_schema(form: Any, where: str) -> dict[str, Any]:
    """Return the JSON Schema of a type as the parameters of a function, which are an object."""
    from midspan._schema.dialects.adapt import adapt_schema
    from midspan.providers.gemini.profile import GEMINI_JSON_SCHEMA

    return adapt_schema(_parser_of(form, where).output.schema, GEMINI_JSON_SCHEMA).schema


def schema_field(schema: dict[str, Any], where: str, name: str, json_name: str) -> dict[str, Any]:
    """Return the schema under `name` if it has only keywords of the API's own schemas, else under `json_name`."""
    check_schema(schema, where)
    has_other_keywords = _has_unknown_fields(read_json(wire.Schema, schema, where, check_types=False))
    return {json_name if has_other_keywords else name: schema}


def _has_unknown_fields(schema: wire.Schema) -> bool:
    inner = [schema.items, *(schema.properties or {}).values(), *(schema.any_of or ()), *(schema.defs or {}).values()]
    return bool(schema.extra) or any(item is not None and _has_unknown_fields(item) for item in inner)


class _Parser(NamedTuple):
    """A type as the model gets it, and the conversion of JSON to its values."""

    output: "OutputType"
    adapted: "AdaptedSchema"


def _parser_of(form: Any, where: str) -> _Parser:
    if not is_type(form):
        raise SchemaError(f"{where} cannot be {describe(form)}; pass a type like list[int], a dataclass or a model")
    try:
        hash(form)
        make_parser = _parser
    except TypeError:  # metadata of Annotated may be unhashable
        make_parser = _parser.__wrapped__  # type: ignore[assignment]  # the same function without its cache
    try:
        return make_parser(form)
    except SchemaError as error:
        raise SchemaError(f"{where}: {error}") from error


@lru_cache(maxsize=128)
def _parser(form: Any) -> _Parser:
    from midspan._schema.dialects.adapt import adapt_schema
    from midspan._schema.output_type import OutputType
    from midspan.providers.gemini.profile import GEMINI_JSON_SCHEMA

    output = OutputType(form)
    return _Parser(output, adapt_schema(output.schema, GEMINI_JSON_SCHEMA, arguments=False))


def parse_answer(text: str, form: Any) -> Any:
    """Return the answer as JSON data, or as a value of a type; Any means JSON data."""
    parser = None if form is Any else _parser_of(form, "the requested type")
    if not text.strip():
        raise MalformedResponse("the answer has no text to read as JSON; see its finish_reason")
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        if not isinstance(form, type) or not issubclass(form, enum.Enum):
            raise MalformedResponse(f"the answer is not the requested JSON: {error}") from error
        value = text.strip()  # `text/x.enum` is not JSON
    if parser is None:
        return value
    try:
        return parser.output.parse(parser.adapted.restore_names(value))
    except ArgumentError as error:
        raise MalformedResponse(f"the answer is not the requested JSON: {error}") from error
