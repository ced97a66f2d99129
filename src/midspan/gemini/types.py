"""The names that users of the Gemini API know, with the checks and helpers that the bare wire has not."""

import mimetypes
import re
from base64 import b64encode
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import Any, Self

from msgspec import field
from msgspec.structs import force_setattr

from midspan.errors import ConfigError
from midspan.gemini.checking import check_text, plain, shown
from midspan.providers.gemini import wire
from midspan.providers.gemini.capabilities import MAX_FILE_BYTES
from midspan.providers.gemini.wire import (
    CodeExecution,
    ComputerUse,
    FileSearch,
    GenerationConfig,
    GoogleMaps,
    GoogleSearch,
    GoogleSearchRetrieval,
    McpServer,
    SafetySetting,
    Schema,
    ThinkingConfig,
    ToolConfig,
    UrlContext,
)

__all__ = [
    "CodeExecution",
    "ComputerUse",
    "Content",
    "FileSearch",
    "FunctionCall",
    "FunctionDeclaration",
    "FunctionResponse",
    "GenerationConfig",
    "GoogleMaps",
    "GoogleSearch",
    "GoogleSearchRetrieval",
    "McpServer",
    "Part",
    "SafetySetting",
    "Schema",
    "ThinkingConfig",
    "Tool",
    "ToolConfig",
    "UrlContext",
]


class FunctionCall(wire.FunctionCall, frozen=True):
    """What the model wants called; `args` is empty where the wire has none."""

    args: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _demand("a function call", name=self.name)
        if type(self.args) is not dict:  # what is in a dict is looked at when it is sent
            args = {} if self.args is None else _object(self.args, f"the args of {self.name!r}")
            force_setattr(self, "args", args)


class FunctionResponse(wire.FunctionResponse, frozen=True):
    """What came of a call, under the name of its function, and under its id if the server gave one."""

    def __post_init__(self) -> None:
        _demand("a function response", name=self.name)
        if type(self.response) is not dict:
            force_setattr(self, "response", _object(self.response, f"the response of {self.name!r}"))


class FunctionDeclaration(wire.FunctionDeclaration, frozen=True):
    """A function as the model sees it."""

    def __post_init__(self) -> None:
        _demand("a function declaration", name=self.name, description=self.description)


class Tool(wire.Tool, frozen=True):
    """Function declarations, or one of the tools that Google runs; an empty list is not sent."""

    function_declarations: list[wire.FunctionDeclaration] = field(default_factory=list)


class Part(wire.Part, frozen=True):
    """A piece of a content: text, media, a call or a response."""

    @classmethod
    def from_text(cls, text: str) -> Self:
        return cls(text=_text(text, "the text of a part"))

    @classmethod
    def from_bytes(cls, data: bytes, mime_type: str) -> Self:
        """Media sent along with the request."""
        _kind(mime_type)
        if not isinstance(data, bytes | bytearray | memoryview):
            raise ConfigError(f"the data of a part is bytes, not {shown(data)}; for a file give Part.from_file(path)")
        size = memoryview(data).nbytes
        if size > MAX_FILE_BYTES:
            raise ConfigError(
                f"{size / 2**20:.1f} MB of {mime_type} are too much to send inline (at most {MAX_FILE_BYTES // 2**20} "
                "MB, because base64 adds a third); upload the file with the Files API and give Part.from_uri(…)"
            )
        return cls(inline_data=wire.Blob(mime_type=mime_type, data=b64encode(data).decode()))

    @classmethod
    def from_file(cls, path: str | Path, mime_type: str | None = None) -> Self:
        """A file of this machine, sent along with the request."""
        if not isinstance(path, str | PathLike) or not str(path):
            raise ConfigError(f"{shown(path)} is no path of a file")
        if mime_type is None:
            mime_type = mimetypes.guess_type(str(path))[0]
        if mime_type is None:
            raise ConfigError(f"of what kind {str(path)!r} is cannot be seen from its name; give mime_type=…")
        try:
            with Path(path).open("rb") as file:
                data = file.read(MAX_FILE_BYTES + 1)  # never more of it than is needed to refuse it
        except (OSError, ValueError) as error:
            raise ConfigError(f"the file {str(path)!r} cannot be read: {_reason(error)}") from error
        if len(data) > MAX_FILE_BYTES:
            raise ConfigError(
                f"the file {str(path)!r} is too large to send inline (at most {MAX_FILE_BYTES // 2**20} MB, because "
                "base64 adds a third); upload it with the Files API and give Part.from_uri(…)"
            )
        return cls.from_bytes(data, mime_type)

    @classmethod
    def from_uri(cls, file_uri: str, mime_type: str) -> Self:
        """Media that the API fetches: of the Files API, of Cloud Storage, or of the web."""
        _kind(mime_type)
        if not _text(file_uri, "the uri of a file").strip():
            raise ConfigError("the uri of a file is empty; give the one that the Files API told, gs://… or https://…")
        return cls(file_data=wire.FileData(file_uri=file_uri, mime_type=mime_type))

    @classmethod
    def from_function_call(cls, name: str, args: dict[str, Any] | None = None, *, id: str | None = None) -> Self:
        made = FunctionCall(name=name, args={} if args is None else args, id=_id(id))
        return cls(function_call=made)

    @classmethod
    def from_function_response(
        cls, name: str, response: Any, *, id: str | None = None, media: Iterable[wire.Part] = ()
    ) -> Self:
        """What came of a call, with the images or files that belong to it (`media`, for Gemini 3 and later)."""
        parts = [_media(part, name) for part in media] if isinstance(media, Iterable) else [_media(media, name)]
        made = FunctionResponse(name=name, response=response, id=_id(id), parts=parts or None)
        return cls(function_response=made)


class Content(wire.Content, frozen=True):
    """One turn of a conversation."""

    @classmethod
    def text(cls, text: str, role: str = "user") -> Self:
        _text(role, "the role of a content")
        return cls(role=role, parts=[Part.from_text(text)])


def _demand(what: str, **fields: str | None) -> None:
    for name, value in fields.items():
        if not isinstance(value, str) or not value.strip():
            given = "" if value is None else f", not {shown(value)}"
            raise ConfigError(f"{what} needs a {name}{given}")


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{what} is a text, not {shown(value)}")
    return check_text(value, what)


def _kind(mime_type: Any) -> None:
    if not isinstance(mime_type, str) or not re.fullmatch(r"[\w.+-]+/[\w.+*-]+( *;.*)?", mime_type, re.ASCII):
        raise ConfigError(f"{shown(mime_type)} is no mime_type; write it like image/png")


def _id(id: Any) -> str | None:
    return None if id is None else _text(id, "the id of a call")


def _object(value: Any, what: str) -> dict[str, Any]:
    """A value that JSON says as an object, as such."""
    said = plain(value, what)
    if isinstance(said, dict):
        return said
    raise ConfigError(f"{what} is {shown(value)}, but the API takes only objects; give a dict, as {{'result': …}}")


def _media(part: Any, name: str) -> wire.FunctionResponsePart:
    if isinstance(part, wire.Part) and (part.inline_data is not None or part.file_data is not None):
        return wire.FunctionResponsePart(inline_data=part.inline_data, file_data=part.file_data)
    raise ConfigError(
        f"{shown(part)} is no media for the response of {shown(name)}; give Part.from_bytes(…) or Part.from_uri(…)"
    )


def _reason(error: OSError | ValueError) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)
