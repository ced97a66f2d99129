"""The format of recordings: one file per run, one JSON document per line.

A document that a provider sent comes back byte for byte. If it has line breaks, it is stored as a JSON string.
"""

import builtins
from collections.abc import Callable
from operator import is_
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from midspan import errors
from midspan._types.exchange import ModelResponse, PartEvent
from midspan._types.messages import Message
from midspan._types.parts import ToolCall, ToolResult
from midspan._types.specs import ToolSpec
from midspan.errors import CodecError, ConfigError, MidspanError, ProviderError, RunError

FORMAT = 2
"""The version of the format that is written and read."""


class RecordedError(Struct, frozen=True, omit_defaults=True, rename={"name": "type", "attributes": "carries"}):
    """An exception: the name of its class, its message and its other attributes."""

    name: str
    message: str
    attributes: dict[str, Any] = {}

    @classmethod
    def of(cls, error: BaseException) -> "RecordedError":
        values = {name: getattr(error, name, None) for name in _ATTRIBUTES if isinstance(error, MidspanError)}
        attributes = {name: value for name, value in values.items() if value not in (None, ())}
        return cls(type(error).__name__, str(error).encode(errors="replace").decode(), attributes)

    def to_exception(self) -> Exception:
        """Return an exception that the same `except` clauses catch and that prints the same."""
        error_class: Any = getattr(errors, self.name, getattr(builtins, self.name, None))
        if not isinstance(error_class, type) or not issubclass(error_class, Exception):
            error_class = Exception
        if issubclass(error_class, ProviderError | RunError):
            attributes = {name: _to_tuples(value) for name, value in self.attributes.items() if name in _ATTRIBUTES}
            return cast("Exception", error_class(self.message, **attributes))
        # The constructor may need more than the message, so it is not called.
        base = Exception if issubclass(error_class, BaseExceptionGroup) else error_class
        name = self.name if self.name.isidentifier() else "Exception"
        error_class = type(name, (base,), {"__str__": lambda _: self.message})
        return cast("Exception", error_class.__new__(error_class))


_ATTRIBUTES = ("status", "retry_delay_seconds", "details", "violations", "raw_finish_reason", "limit")


def _to_tuples(value: Any) -> Any:
    """Errors have tuples where JSON has lists: several details, or pairs of a field and what is wrong with it."""
    return tuple(tuple(item) if isinstance(item, list) else item for item in value) if type(value) is list else value


class RunLine(
    Struct, frozen=True, omit_defaults=True, tag_field="line", tag="run",
    rename={"version": "form", "unrecorded_options": "unsaid"},
):  # fmt: skip
    """The first line: which run this is, and what it was asked."""

    version: int
    run_id: str
    model: str
    recorded_at: str
    messages: tuple[Message, ...]
    options: dict[str, Any] = {}
    """The options of this run that JSON can express."""
    unrecorded_options: tuple[str, ...] = ()
    """The names of its other options."""


class ToolsLine(Struct, frozen=True, omit_defaults=True, tag_field="line", tag="tools"):
    """The tools of the run."""

    tools: tuple[ToolSpec, ...]


class RequestLine(Struct, frozen=True, omit_defaults=True, tag_field="line", tag="ask"):
    """A request as the provider sends it, if the provider can show that; otherwise Midspan's own values."""

    model: str
    stream: bool
    request: Raw
    path: str | None = None


class EventLine(Struct, frozen=True, omit_defaults=True, tag_field="line", tag="event"):
    """An event of a streamed response."""

    event: PartEvent


class ResponseLine(Struct, frozen=True, omit_defaults=True, tag_field="line", tag="answer"):
    """The whole response, with every document that the provider sent."""

    response: ModelResponse


class ErrorLine(Struct, frozen=True, omit_defaults=True, tag_field="line", tag="error"):
    """The error of a request."""

    error: RecordedError


class NoResponseLine(Struct, frozen=True, omit_defaults=True, tag_field="line", tag="silence"):
    """A stream ended without a response and without an error."""


class CallLine(Struct, frozen=True, omit_defaults=True, tag_field="line", tag="call"):
    """A call that has ended. Without result and error, its source returned something that is not a ToolResult."""

    call: ToolCall
    seconds: float
    result: ToolResult | None = None
    error: RecordedError | None = None


class EndLine(Struct, frozen=True, omit_defaults=True, tag_field="line", tag="end"):
    """The last line. A recording without it was cut off."""

    text: str = ""
    turns: int = 0
    calls: tuple[ToolCall, ...] = ()
    """In the order of `RunResult.tool_calls`."""
    error: RecordedError | None = None


Line = RunLine | ToolsLine | RequestLine | EventLine | ResponseLine | ErrorLine | NoResponseLine | CallLine | EndLine


def encode_line(line: Line) -> bytes:
    return encode(_map_documents(line, _to_one_line))


def decode_line(data: bytes) -> Line:
    return cast("Line", _map_documents(_decode(data), _from_one_line))


def encode_messages(messages: tuple[Message, ...]) -> Raw:
    return Raw(encode(_map_documents(messages, _to_one_line)))


def encode(value: Any) -> bytes:
    try:
        return _encode(value)
    except (TypeError, msgspec.MsgspecError, UnicodeEncodeError, RecursionError) as error:
        raise CodecError(f"cannot record a value that is not JSON serializable: {error}") from error


_encode = msgspec.json.Encoder().encode
_decode: Callable[[bytes], Line] = msgspec.json.Decoder(Line).decode


def _map_documents(value: Any, change: Callable[[Raw], Raw]) -> Any:
    """Apply `change` to every document of a provider inside a value."""
    if isinstance(value, Raw):
        return change(value)
    if isinstance(value, tuple):
        items = tuple([_map_documents(item, change) for item in value])
        return value if all(map(is_, items, value)) else items
    if isinstance(value, Struct):
        fields = {name: getattr(value, name) for name in value.__struct_fields__}
        mapped = {name: _map_documents(field, change) for name, field in fields.items()}
        changed = {name: field for name, field in mapped.items() if field is not fields[name]}
        return replace(value, **changed) if changed else value
    return value


def _to_one_line(document: Raw) -> Raw:
    """A document with line breaks or outer white space becomes a string, and so does a string, to tell them apart."""
    data = bytes(document)
    is_one_line = b"\n" not in data and b"\r" not in data and data == data.strip() and data[:1] != b'"'
    return document if is_one_line else Raw(_encode(data.decode()))


def _from_one_line(document: Raw) -> Raw:
    data = bytes(document)
    return Raw(msgspec.json.decode(data, type=str).encode()) if data[:1] == b'"' else document


class Exchange(Struct):
    """A request, and the lines about its response. If the last one is not its end, the recording was cut off there."""

    request: RequestLine
    lines: list[EventLine | ResponseLine | ErrorLine | NoResponseLine] = []


class Recording(Struct, eq=False):
    """The content of a recording."""

    path: Path
    run: RunLine
    tools: tuple[ToolSpec, ...] = ()
    exchanges: list[Exchange] = []
    calls: list[CallLine] = []
    end: EndLine | None = None


def recordings_in(directory: Path) -> list[Path]:
    """The recordings of a directory in the order of their start."""
    return sorted(directory.glob("run-*.jsonl"), key=lambda path: (len(path.name), path.name))


def read_recording(path: Path) -> Recording:
    """Read a file. An incomplete last line is ignored: the process was killed while it wrote."""
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except (OSError, ValueError) as error:  # ValueError: no file can have this name
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot read the recording {str(path)!r}: {reason}") from error
    if not lines:
        raise ConfigError(f"the recording {str(path)!r} has no complete line; delete it, or record the run again")
    recording: Recording | None = None
    for number, data in enumerate(lines, start=1):
        try:
            if recording is None:
                recording = Recording(path, _first_line(path, data))
            else:
                _add_line(recording, decode_line(data))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ConfigError(
                f"the recording {str(path)!r} is damaged in line {number}: {error}; record the run again"
            ) from error
    assert recording is not None, "there is at least one line"
    return recording


class _Version(Struct):
    form: int


def _first_line(path: Path, data: bytes) -> RunLine:
    version = msgspec.json.decode(data, type=_Version).form
    if version != FORMAT:
        remedy = "install a newer Midspan" if version > FORMAT else "record the run again"
        raise ConfigError(
            f"the recording {str(path)!r} has format {version}, this version of Midspan reads format {FORMAT}; {remedy}"
        )
    line = decode_line(data)
    if not isinstance(line, RunLine):
        raise msgspec.DecodeError("the first line must be a 'run' line")
    return line


def _add_line(recording: Recording, line: Line) -> None:
    match line:
        case ToolsLine():
            recording.tools = line.tools
        case RequestLine():
            recording.exchanges.append(Exchange(line))
        case CallLine():
            recording.calls.append(line)
        case EndLine():
            recording.end = line
        case RunLine():
            raise msgspec.DecodeError("a second 'run' line")
        case _ if not recording.exchanges:
            raise msgspec.DecodeError("a response before any request")
        case _:
            recording.exchanges[-1].lines.append(line)
