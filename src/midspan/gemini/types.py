"""The types of the Gemini API with checks and helpers, and how a caller's values become messages of the API."""

from collections.abc import Iterable, Mapping
from typing import Any, Self

import msgspec
from msgspec import field
from msgspec.structs import force_setattr

from midspan._schema.jsonable import to_jsonable
from midspan._schema.normalize import normalize
from midspan._types.parts import Blob
from midspan.errors import ConfigError, ResultError, SchemaError
from midspan.providers.gemini import wire
from midspan.providers.gemini.capabilities import MAX_FILE_BYTES, SCHEMA_TYPES
from midspan.providers.gemini.proto import AnyProto, Proto, fields_to_send, from_plain, known_fields, to_plain


class Schema(wire.Schema, frozen=True):
    """The subset of OpenAPI 3.0 in which parameters and answers can be described; `type` is required."""

    def __post_init__(self) -> None:
        if self.type is None and (self.any_of is not None or self.ref is not None):
            return
        if not isinstance(self.type, str) or self.type.upper() not in SCHEMA_TYPES:
            raise SchemaError(f"a Schema needs a type, one of {', '.join(SCHEMA_TYPES)}; got {self.type!r:.80}")


class FunctionCall(wire.FunctionCall, frozen=True):
    """A call that the model requests; `args` is empty if the server sent none."""

    args: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _require_text("a FunctionCall", name=self.name)
        if self.args is None:
            force_setattr(self, "args", {})


class FunctionResponse(wire.FunctionResponse, frozen=True):
    """The result of a call, with the name of its function, and with its id if the server gave one."""

    def __post_init__(self) -> None:
        _require_text("a FunctionResponse", name=self.name)
        if type(self.response) is not dict:  # the values in a dict are checked when it is sent
            response = to_json_data(self.response, f"the response of {self.name!r}")
            if not isinstance(response, dict):
                expected = f"the response of {self.name!r} must be an object, as {{'result': …}}"
                raise ConfigError(f"{expected}, got {self.response!r:.80}")
            force_setattr(self, "response", response)


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
    def from_uri(cls, file_uri: str, mime_type: str) -> Self:
        """Media that the API fetches: from the Files API, from Cloud Storage, or from the web."""
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


def check_schema(schema: Any, where: str) -> Any:
    """Return a schema as JSON data. Raise an error if it has an unknown type, at any depth. None is accepted."""
    plain = to_json_data(schema, where)
    try:
        normalize({} if plain is None else plain)
    except SchemaError as error:
        raise SchemaError(f"{where}: {error}") from error
    return plain


def _require_text(what: str, **fields: str | None) -> None:
    for name, value in fields.items():
        if not isinstance(value, str) or not value.strip():
            raise ConfigError(f"{what} needs a {name}")


def to_json_data(value: Any, where: str) -> Any:
    """Return the value as JSON data: dicts, lists, strings, numbers. Dates, dataclasses and models are converted."""
    try:
        return to_jsonable(to_plain(value))
    except RecursionError as error:
        raise ConfigError(f"{where} is nested too deeply, or it contains itself") from error
    except ResultError as error:
        raise ConfigError(f"{f'{where}{error.path}'.lstrip('.')} cannot be sent: {error.problem}") from error


def read(message_type: type[AnyProto], value: Any, where: str, *, strict: bool = True) -> AnyProto:
    """Return the message that a caller passed, as such or as a dict of its fields, in either casing."""
    fields = to_json_data(set_fields(message_type, value, where), where)
    try:
        return from_plain(message_type, fields, strict=strict)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}.{error}".lstrip(".")) from error


def set_fields(message_type: type[Proto], value: Any, where: str) -> dict[str, Any]:
    """Return the fields that a caller set, by the names of the attributes and unchecked; unknown names stay."""
    if not isinstance(value, message_type | Mapping):
        expected = f"pass a {message_type.__name__}, or a dict of its fields"
        raise ConfigError(f"{where} cannot be {value!r:.80}; {expected}")
    known, items = known_fields(message_type), value if isinstance(value, Mapping) else fields_to_send(value)
    return {known[name].attribute if name in known else name: item for name, item in items.items() if item is not None}
