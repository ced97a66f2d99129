"""The names that users of the Gemini API know, with the checks and helpers that the bare wire has not."""

import mimetypes
from base64 import b64encode
from pathlib import Path
from typing import Any, Self

from msgspec import field

from wasat.errors import ConfigError
from wasat.providers.gemini import declarations, wire
from wasat.providers.gemini.declarations import (
    CodeExecution,
    ComputerUse,
    FileSearch,
    GoogleMaps,
    GoogleSearch,
    GoogleSearchRetrieval,
    McpServer,
    Schema,
    ToolConfig,
    UrlContext,
)
from wasat.providers.gemini.wire import GenerationConfig, SafetySetting, ThinkingConfig

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

LARGEST_INLINE_BYTES = 20 * 1024 * 1024
"""What a whole request may weigh; a larger file has to be uploaded."""


class FunctionCall(wire.FunctionCall, frozen=True):
    """What the model wants called; `args` is empty where the wire has none."""

    args: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _demand("a function call", name=self.name)


class FunctionResponse(wire.FunctionResponse, frozen=True):
    """What came of a call, under the name of its function, and under its id if the server gave one."""

    def __post_init__(self) -> None:
        _demand("a function response", name=self.name)
        if not isinstance(self.response, dict):
            raise ConfigError(f"the response of {self.name} is {self.response!r}, but the API takes only objects")


class FunctionDeclaration(declarations.FunctionDeclaration, frozen=True):
    """A function as the model sees it."""

    def __post_init__(self) -> None:
        _demand("a function declaration", name=self.name, description=self.description)


class Tool(declarations.Tool, frozen=True):
    """Function declarations, or one of the tools that Google runs; an empty list is not sent."""

    function_declarations: list[declarations.FunctionDeclaration] = field(default_factory=list)


class Part(wire.Part, frozen=True):
    """A piece of a content: text, media, a call or a response."""

    @classmethod
    def from_text(cls, text: str) -> Self:
        return cls(text=text)

    @classmethod
    def from_bytes(cls, data: bytes, mime_type: str) -> Self:
        """Media sent along with the request."""
        if len(data) > LARGEST_INLINE_BYTES * 3 // 4:
            raise ConfigError(
                f"{len(data) / 2**20:.1f} MB of {mime_type} are too much to send inline (at most 15 MB, because base64 "
                "adds a third); upload the file with the Files API and give Part.from_uri(…)"
            )
        return cls(inline_data=wire.Blob(mime_type=mime_type, data=b64encode(data).decode()))

    @classmethod
    def from_file(cls, path: str | Path, mime_type: str | None = None) -> Self:
        """A file of this machine, sent along with the request."""
        mime_type = mime_type or mimetypes.guess_type(str(path))[0]
        if mime_type is None:
            raise ConfigError(f"of what kind {str(path)!r} is cannot be seen from its name; give mime_type=…")
        return cls.from_bytes(Path(path).read_bytes(), mime_type)

    @classmethod
    def from_uri(cls, file_uri: str, mime_type: str) -> Self:
        """Media that the API fetches: of the Files API, of Cloud Storage, or of the web."""
        return cls(file_data=wire.FileData(file_uri=file_uri, mime_type=mime_type))

    @classmethod
    def from_function_call(cls, name: str, args: dict[str, Any] | None = None, *, id: str | None = None) -> Self:
        return cls(function_call=FunctionCall(name=name, args=args or {}, id=id))

    @classmethod
    def from_function_response(cls, name: str, response: dict[str, Any], *, id: str | None = None) -> Self:
        return cls(function_response=FunctionResponse(name=name, response=response, id=id))


class Content(wire.Content, frozen=True):
    """One turn of a conversation."""

    @classmethod
    def text(cls, text: str, role: str = "user") -> Self:
        return cls(role=role, parts=[Part(text=text)])


def _demand(what: str, **fields: str | None) -> None:
    for name, value in fields.items():
        if not isinstance(value, str) or not value.strip():
            raise ConfigError(f"{what} needs a {name}")
