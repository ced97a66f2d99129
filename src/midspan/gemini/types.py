"""The types of the Gemini API, with checks and helpers that the messages of `providers.gemini.wire` do not have."""

import mimetypes
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Self

from msgspec import field
from msgspec.structs import force_setattr

from midspan._types.parts import Blob
from midspan._types.texts import check_text
from midspan.errors import ConfigError, SchemaError
from midspan.gemini.checking import describe, to_json
from midspan.providers.gemini import wire
from midspan.providers.gemini.capabilities import MAX_FILE_BYTES

_SCHEMA_TYPES = ("STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL")


class Schema(wire.Schema, frozen=True):
    """The subset of OpenAPI 3.0 in which parameters and answers can be described; `type` is required."""

    def __post_init__(self) -> None:
        if self.type is None and self.any_of is None and self.ref is None:
            raise SchemaError(f"a Schema needs a type: {', '.join(_SCHEMA_TYPES)}")
        if self.type is not None and (not isinstance(self.type, str) or self.type.upper() not in _SCHEMA_TYPES):
            raise SchemaError(f"unknown Schema type {describe(self.type)}; use one of {', '.join(_SCHEMA_TYPES)}")


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
        check_text(text, "the text of a part")
        return cls(text=text)

    @classmethod
    def from_bytes(cls, data: bytes, mime_type: str) -> Self:
        """Media that is sent with the request."""
        blob = Blob.of(data, mime_type)
        if memoryview(data).nbytes > MAX_FILE_BYTES:
            raise _too_large(f"{memoryview(data).nbytes / 2**20:.1f} MB of {mime_type} are")
        return cls(inline_data=wire.Blob(mime_type=mime_type, data=blob.base64))

    @classmethod
    def from_file(cls, path: str | PathLike[str], mime_type: str | None = None) -> Self:
        """A local file that is sent with the request."""
        mime_type = mime_type or mimetypes.guess_type(str(path))[0]
        if mime_type is None:
            raise ConfigError(f"cannot guess the media type of {str(path)!r}; pass mime_type=…")
        try:
            with Path(path).open("rb") as file:
                data = file.read(MAX_FILE_BYTES + 1)
        except (OSError, TypeError, ValueError) as error:
            raise ConfigError(f"cannot read the file {describe(path)}: {getattr(error, 'strerror', error)}") from error
        if len(data) > MAX_FILE_BYTES:
            raise _too_large(f"the file {str(path)!r} is")
        return cls.from_bytes(data, mime_type)

    @classmethod
    def from_uri(cls, file_uri: str, mime_type: str) -> Self:
        """Media that the API fetches: from the Files API, from Cloud Storage, or from the web."""
        Blob.of(b"", mime_type)  # checks the media type
        check_text(file_uri, "file_uri")
        if not file_uri.strip():
            raise ConfigError("file_uri is empty; pass the URI from the Files API, gs://… or https://…")
        return cls(file_data=wire.FileData(file_uri=file_uri, mime_type=mime_type))

    @classmethod
    def from_function_call(cls, name: str, args: dict[str, Any] | None = None, *, id: str | None = None) -> Self:
        _check_id(id)
        return cls(function_call=FunctionCall(name=name, args={} if args is None else args, id=id))

    @classmethod
    def from_function_response(
        cls, name: str, response: Any, *, id: str | None = None, media: Iterable[wire.Part] = ()
    ) -> Self:
        """The result of a call, with the images or files that belong to it (`media`, for Gemini 3 and later)."""
        _check_id(id)
        parts = [_response_part(part, name) for part in media] or None
        return cls(function_response=FunctionResponse(name=name, response=response, id=id, parts=parts))


class Content(wire.Content, frozen=True):
    """One turn of a conversation."""

    @classmethod
    def text(cls, text: str, role: str = "user") -> Self:
        check_text(role, "role")
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


def _check_id(id: str | None) -> None:
    if id is not None:
        check_text(id, "the id of a call")


def _to_object(value: Any, what: str) -> dict[str, Any]:
    data = to_json(value, what)
    if isinstance(data, dict):
        return data
    raise ConfigError(f"{what} is {describe(value)}, but the API accepts only objects; pass a dict, as {{'result': …}}")


def _response_part(part: Any, name: str) -> wire.FunctionResponsePart:
    if isinstance(part, wire.Part) and (part.inline_data is not None or part.file_data is not None):
        return wire.FunctionResponsePart(inline_data=part.inline_data, file_data=part.file_data)
    raise ConfigError(
        f"media of the response of {describe(name)} cannot be {describe(part)}; "
        "pass Part.from_bytes(…) or Part.from_uri(…)"
    )


def _too_large(what: str) -> ConfigError:
    return ConfigError(
        f"{what} too large to send inline (at most {MAX_FILE_BYTES // 2**20} MB, because base64 adds a third); "
        "upload the file with the Files API and pass Part.from_uri(…)"
    )
