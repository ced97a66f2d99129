"""The types of the Gemini API, with checks and helpers, and how values that a caller passes become them.

A message is first checked by msgspec, strictly. Only what that rejects is looked at field by field, for the error.
"""

import mimetypes
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from os import PathLike
from pathlib import Path
from reprlib import Repr
from typing import Any, Self

import msgspec
from msgspec import field
from msgspec.structs import force_setattr

from midspan._types.parts import Blob
from midspan.errors import ConfigError, ResultError, SchemaError
from midspan.providers.gemini import wire
from midspan.providers.gemini.capabilities import MAX_FILE_BYTES, SCHEMA_TYPES
from midspan.providers.gemini.proto import AnyProto, Proto, dump, from_plain, known_fields, to_plain

_SIMILARITY = 0.85
"""How similar an unknown name must be to a known one to count as a typo; others may be fields of a newer API."""
_SCHEMA_KEYWORDS = frozenset(("$defs", "$ref", "examples"))
"""Keywords of JSON Schema that look like typos of the API's own keywords."""

_repr = Repr()
_repr.maxlevel, _repr.maxstring, _repr.maxother = 3, 80, 80
describe = _repr.repr
"""A short repr for error messages."""


class Schema(wire.Schema, frozen=True):
    """The subset of OpenAPI 3.0 in which parameters and answers can be described; `type` is required."""

    def __post_init__(self) -> None:
        if self.type is None and self.any_of is None and self.ref is None:
            raise SchemaError(f"a Schema needs a type: {', '.join(SCHEMA_TYPES)}")
        if self.type is not None and (not isinstance(self.type, str) or self.type.upper() not in SCHEMA_TYPES):
            raise SchemaError(f"unknown Schema type {describe(self.type)}; use one of {', '.join(SCHEMA_TYPES)}")


class FunctionCall(wire.FunctionCall, frozen=True):
    """A call that the model requests; `args` is empty if the server sent none."""

    args: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _require_text("a FunctionCall", name=self.name)
        if type(self.args) is not dict:  # the values in a dict are checked when it is sent
            args = {} if self.args is None else _to_object(self.args, f"the args of {self.name!r}")
            force_setattr(self, "args", args)


class FunctionResponse(wire.FunctionResponse, frozen=True):
    """The result of a call, with the name of its function, and with its id if the server gave one."""

    def __post_init__(self) -> None:
        _require_text("a FunctionResponse", name=self.name)
        if type(self.response) is not dict:
            force_setattr(self, "response", _to_object(self.response, f"the response of {self.name!r}"))


class FunctionDeclaration(wire.FunctionDeclaration, frozen=True):
    """A function as the model sees it."""

    def __post_init__(self) -> None:
        _require_text("a FunctionDeclaration", name=self.name, description=self.description)
        for name in ("parameters", "response"):
            check_schema(getattr(self, name), f"{self.name}.{name}")


class Tool(wire.Tool, frozen=True):
    """Function declarations, or one of the tools that Google runs. An empty list is not sent."""

    function_declarations: list[wire.FunctionDeclaration] = field(default_factory=list)


class Part(wire.Part, frozen=True):
    """A part of a content: text, media, a call or a response."""

    @classmethod
    def from_text(cls, text: str) -> Self:
        return cls(text=text)

    @classmethod
    def from_bytes(cls, data: bytes, mime_type: str) -> Self:
        """Media that is sent with the request."""
        blob = Blob.of(data, mime_type)
        if len(data) > MAX_FILE_BYTES:
            raise ConfigError(
                f"{len(data) / 2**20:.1f} MB of {mime_type} are too large to send inline (at most "
                f"{MAX_FILE_BYTES // 2**20} MB); upload the file with the Files API and pass Part.from_uri(…)"
            )
        return cls(inline_data=wire.Blob(mime_type=mime_type, data=blob.base64))

    @classmethod
    def from_file(cls, path: str | PathLike[str], mime_type: str | None = None) -> Self:
        """A local file that is sent with the request."""
        mime_type = mime_type or mimetypes.guess_type(str(path))[0]
        if mime_type is None:
            raise ConfigError(f"cannot guess the media type of {str(path)!r}; pass mime_type=…")
        try:
            with Path(path).open("rb") as file:
                return cls.from_bytes(file.read(MAX_FILE_BYTES + 1), mime_type)
        except (OSError, ValueError) as error:
            raise ConfigError(f"cannot read the file {describe(path)}: {getattr(error, 'strerror', error)}") from error

    @classmethod
    def from_uri(cls, file_uri: str, mime_type: str) -> Self:
        """Media that the API fetches: from the Files API, from Cloud Storage, or from the web."""
        Blob.of(b"", mime_type)  # checks the media type
        _require_text("Part.from_uri", file_uri=file_uri)
        return cls(file_data=wire.FileData(file_uri=file_uri, mime_type=mime_type))

    @classmethod
    def from_function_call(cls, name: str, args: dict[str, Any] | None = None, *, id: str | None = None) -> Self:
        return cls(function_call=FunctionCall(name=name, args={} if args is None else args, id=id))

    @classmethod
    def from_function_response(
        cls, name: str, response: Any, *, id: str | None = None, media: Iterable[wire.Part] = ()
    ) -> Self:
        """The result of a call, with the images or files that belong to it (`media`, for Gemini 3 and later)."""
        parts = [wire.FunctionResponsePart(inline_data=part.inline_data, file_data=part.file_data) for part in media]
        return cls(function_response=FunctionResponse(name=name, response=response, id=id, parts=parts or None))


class Content(wire.Content, frozen=True):
    """One turn of a conversation."""

    @classmethod
    def text(cls, text: str, role: str = "user") -> Self:
        return cls(role=role, parts=[Part.from_text(text)])


def check_schema(schema: Any, where: str) -> None:
    """Raise an error if a schema has an unknown type, at any depth."""
    if not isinstance(schema, Mapping | wire.Schema):
        return
    from midspan._schema.normalize import normalize  # loaded with the first schema

    try:
        normalize(to_json(schema, where))
    except SchemaError as error:
        raise SchemaError(f"{where}: {error}") from error


def _require_text(what: str, **fields: str | None) -> None:
    for name, value in fields.items():
        if not isinstance(value, str) or not value.strip():
            got = "" if value is None else f", got {describe(value)}"
            raise ConfigError(f"{what} needs a {name}{got}")


def _to_object(value: Any, what: str) -> dict[str, Any]:
    data = to_json(value, what)
    if isinstance(data, dict):
        return data
    raise ConfigError(f"{what} is {describe(value)}, but the API accepts only objects; pass a dict, as {{'result': …}}")


def to_json(value: Any, where: str) -> Any:
    """Return the value as JSON data: dicts, lists, strings, numbers. Dates, dataclasses and models are converted."""
    from midspan._schema.jsonable import to_jsonable  # loaded with the first dict

    try:
        return to_jsonable(to_plain(value))
    except ResultError as error:
        raise ConfigError(f"{f'{where}{error.path}'.lstrip('.')} cannot be sent: {error.problem}") from error
    except RecursionError as error:
        raise ConfigError(f"{where} cannot be sent: it is nested too deeply, or contains itself") from error


def read(form: type[AnyProto], value: Any, where: str) -> AnyProto:
    """Return the message that a caller passed, as such or as a dict of its fields, in either casing."""
    if isinstance(value, form) and is_valid(form, value):
        return value
    _check_form(form, value, where)
    message = from_plain(form, to_json(value, where))
    check(message, where)
    return message


def _check_form(form: type[Proto], value: Any, where: str) -> None:
    if not isinstance(value, form | Mapping):
        raise ConfigError(f"{where} cannot be {describe(value)}; pass a {form.__name__}, or a dict of its fields")


def is_valid(form: type[Proto], message: Proto) -> bool:
    """Whether all fields of a message are known and of their types; False if in doubt.

    Fields that are None are not written. So a null is a value of the caller, or a NaN, which is encoded as null.
    """
    try:
        data = dump(message)
        _strict_decoder(form).decode(data)
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError):
        return False
    return b"null" not in data


_strict_decoder = cache(msgspec.json.Decoder)


def set_fields(form: type[Proto], value: Any, where: str) -> dict[str, Any]:
    """Return the fields that a caller set, by the names of the attributes and unchecked; unknown names stay."""
    known = known_fields(form)
    _check_form(form, value, where)
    if isinstance(value, form):
        items = {field.attribute: getattr(value, field.attribute) for field in known.values()} | value.extra
    else:
        items = {known[name].attribute if name in known else name: item for name, item in value.items()}
        if len(items) < len(value):
            raise ConfigError(f"{where} has a field in both casings, camelCase and snake_case; pass it once")
    return {name: item for name, item in items.items() if item is not None and item is not msgspec.UNSET}


def check(message: Proto, where: str, *, types: bool = True) -> None:
    """Raise an error for a field that `from_plain` left in `extra`: its value has a wrong type, or its name a typo."""
    known = known_fields(type(message))
    for name, value in message.extra.items():
        if name in known and types:
            place = f"{where}.{known[name].attribute}".lstrip(".")
            try:
                msgspec.convert(value, known[name].hint)
            except (msgspec.ValidationError, RecursionError) as error:
                raise ConfigError(f"{place} cannot be {describe(value)}: {error}") from error
            raise ConfigError(f"{place} is given twice, in camelCase and in snake_case")
        if name not in known and name not in _SCHEMA_KEYWORDS:
            similar = get_close_matches(name, known, 1, _SIMILARITY)
            if similar:
                raise ConfigError(f"unknown field {name!r}{where and f' in {where}'}; did you mean {similar[0]}?")
    for step, inner in messages_in(message):
        check(inner, f"{where}{step}".lstrip("."), types=types)


def messages_in(message: Proto) -> Iterator[tuple[str, Proto]]:
    """Yield the messages within a message, each with its path."""
    for attribute in {each.attribute: None for each in known_fields(type(message)).values() if each.message}:
        match getattr(message, attribute):
            case Proto() as inner:
                yield f".{attribute}", inner
            case list() as items:
                yield from ((f".{attribute}[{at}]", item) for at, item in enumerate(items))
            case dict() as items:
                yield from ((f".{attribute}[{name!r}]", item) for name, item in items.items())
