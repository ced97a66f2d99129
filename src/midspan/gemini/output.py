"""Structured answers: a Python type as the schema that the model gets, and its answer as a value of that type."""

import enum
import types
import typing
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from midspan.errors import ArgumentError, ConfigError, MalformedResponse, SchemaError
from midspan.gemini.checking import plain, read_plain, shown
from midspan.providers.gemini.proto import Proto
from midspan.providers.gemini.wire import Schema

if TYPE_CHECKING:
    from midspan._schema.dialects.dialect import AdaptedSchema
    from midspan._schema.output_type import OutputType

_ENUM = "text/x.enum"
_PLACES = ("response_schema", "responseSchema", "response_json_schema", "responseJsonSchema")


def form_of(request: Mapping[str, Any]) -> Any:
    """The Python type that a request asks its answer to be of; Any if it asks for none."""
    config = request.get("generation_config")
    for asked in (request, config if isinstance(config, Mapping) else {}):
        for place in _PLACES:
            if is_type(asked.get(place)):
                return asked[place]
    form = getattr(config, "response_schema", None)
    return form if is_type(form) else Any


def is_type(value: Any) -> bool:
    """Whether it is what can stand as a hint: a class, `list[int]`, a union, a Literal, an alias."""
    if value is None or isinstance(value, Proto | Mapping):
        return False
    own = type(value).__module__ in ("typing", "typing_extensions")
    return isinstance(value, type | types.GenericAlias | types.UnionType) or own or typing.get_origin(value) is not None


def output_fields(schema: Any, json_schema: Any, mime_type: Any) -> dict[str, Any]:
    """The fields of generationConfig with which an answer of this schema is asked for."""
    if schema is not None and json_schema is not None:
        raise ConfigError("response_schema and response_json_schema are both given; the API takes only one of them")
    name, given = ("response_json_schema", json_schema) if schema is None else ("response_schema", schema)
    if given is None:
        return {}
    made = _from_type(given, name, mime_type) if is_type(given) else _from_schema(given, name)
    return {"response_mime_type": "application/json" if mime_type is None else mime_type, **made}


def _from_type(form: Any, name: str, mime_type: Any) -> dict[str, Any]:
    reader = _reader_at(form, name)
    if isinstance(mime_type, str) and mime_type == _ENUM:
        from midspan._schema.dialects.adapt import adapt_schema
        from midspan.providers.gemini.profile import GEMINI_PARAMETERS

        return {"response_schema": adapt_schema(reader.shape.schema, GEMINI_PARAMETERS, arguments=False).schema}
    return {"response_json_schema": reader.lowered.schema} if reader.lowered.schema else {}


def schema_of(form: Any, where: str) -> dict[str, Any]:
    """The JSON Schema of a type as that of the parameters of a function, which are an object."""
    from midspan._schema.dialects.adapt import adapt_schema
    from midspan.providers.gemini.profile import GEMINI_JSON_SCHEMA  # loaded with the first tool

    return adapt_schema(_reader_at(form, where).shape.schema, GEMINI_JSON_SCHEMA).schema


def _reader_at(form: Any, where: str) -> "_Reader":
    try:
        return _reader_of(form)
    except SchemaError as error:
        raise SchemaError(f"{where}: {error}") from error


def _from_schema(given: Any, name: str) -> dict[str, Any]:
    if not isinstance(given, Schema | Mapping):
        raise ConfigError(f"{name} cannot be {shown(given)}; give a Schema, a dict, or a Python type such as list[int]")
    said = plain(given, name)
    return {name: said} if name != "response_schema" else told_as(said, name, "response_json_schema")


def told_as(said: dict[str, Any], typed: str, free: str) -> dict[str, Any]:
    """The schema under `typed`, which takes the API's own words; one that says more, as JSON Schema under `free`."""
    if not has_leftovers(read_plain(Schema, said, typed, kinds=False)):
        return {typed: said}
    from midspan._schema.dialects.adapt import adapt_schema
    from midspan.providers.gemini.profile import GEMINI_JSON_SCHEMA  # loaded with the first of these

    try:
        adapt_schema(said, GEMINI_JSON_SCHEMA, arguments=False)  # only to see that it is one
    except SchemaError as error:
        raise SchemaError(f"{typed}: {error}") from error
    return {free: said}


def has_leftovers(schema: Schema) -> bool:
    """Whether a schema, or one inside it, says what the API's own schemas have no word for."""
    inside = [schema.items, *(schema.properties or {}).values(), *(schema.any_of or ()), *(schema.defs or {}).values()]
    return bool(schema.extra) or any(one is not None and has_leftovers(one) for one in inside)


class _Reader(NamedTuple):
    """A type as the model is told of it, and the way from JSON to its values."""

    shape: "OutputType"
    lowered: "AdaptedSchema"

    def value(self, said: Any) -> Any:
        return self.shape.parse(self.lowered.restore_names(said))


def _reader_of(form: Any) -> _Reader:
    if not is_type(form):
        raise SchemaError(f"{shown(form)} is no type; give one, such as list[int], a dataclass or a model")
    try:
        hash(form)
    except TypeError:
        return _reader.__wrapped__(form)
    return _reader(form)


@lru_cache(maxsize=128)
def _reader(form: Any) -> _Reader:
    from midspan._schema.dialects.adapt import adapt_schema
    from midspan._schema.output_type import OutputType
    from midspan.providers.gemini.profile import GEMINI_JSON_SCHEMA  # both loaded with the first type

    shape = OutputType(form)
    return _Reader(shape, adapt_schema(shape.schema, GEMINI_JSON_SCHEMA, arguments=False))


def answer_of(text: str, form: Any) -> Any:
    """The answer read as JSON, and as a value of this type; Any leaves it plain."""
    reader = None if form is Any else _reader_of(form)
    if not text.strip():
        raise MalformedResponse("the answer has no text, so there is nothing to read as JSON; see its finish_reason")
    try:
        said = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        if not isinstance(form, type) or not issubclass(form, enum.Enum):
            raise MalformedResponse(f"the answer is not the JSON that was asked for: {error}") from error
        said = text.strip()  # of `text/x.enum`, which is no JSON
    if reader is None:
        return said
    try:
        return reader.value(said)
    except ArgumentError as error:
        raise MalformedResponse(f"the answer is not the JSON that was asked for: {error}") from error
