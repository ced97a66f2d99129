"""The format of recordings: one file per run, with JSON documents that end with LINE_END.

Data of a provider in a message is embedded in a line unchanged, and may have line breaks. Documents of a response are
strings.
"""

from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any, Final, Literal, cast

import msgspec
from msgspec import Struct

from midspan import errors
from midspan._loop.result import RunResult
from midspan._types.exchange import ModelResponse, PartEvent, RequestConfig
from midspan._types.messages import Message
from midspan._types.parts import ToolCall, ToolResult
from midspan._types.specs import ToolSpec
from midspan.errors import ConfigError, MidspanError, ProviderError, RunError

FORMAT: Final = 5
"""The version of the format that is written and read."""
LINE_END = b"\x1e\n"
"""JSON can contain line breaks, but not the record separator of ASCII."""


class RecordedError(Struct, frozen=True, omit_defaults=True):
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
        """Return an exception that prints the same; errors of Midspan have their class and attributes."""
        error_class: Any = getattr(errors, self.name, None)
        if error_class is not None and issubclass(error_class, ProviderError | RunError):
            attributes = dict(self.attributes)
            if "violations" in attributes:
                attributes["violations"] = [tuple(pair) for pair in attributes["violations"]]
            return cast("Exception", error_class(self.message, **attributes))
        return cast("Exception", type(self.name, (Exception,), {})(self.message))


_ATTRIBUTES = ("status", "retry_delay_seconds", "details", "violations", "raw_finish_reason", "limit")


class RunLine(Struct, frozen=True, omit_defaults=True, tag_field="line", tag="run"):
    """The first line: which run this is, and what it was asked."""

    version: Literal[5]
    run_id: str
    messages: tuple[Message, ...]
    options: dict[str, Any] = {}
    """The options of this run that JSON can express."""


class ToolsLine(Struct, frozen=True, omit_defaults=True, tag_field="line", tag="tools"):
    """The tools of the run."""

    tools: tuple[ToolSpec, ...]


class RecordedRequest(Struct, frozen=True, omit_defaults=True):
    config: RequestConfig
    messages: tuple[Message, ...]


class ExchangeLine(Struct, frozen=True, omit_defaults=True, tag_field="line", tag="exchange"):
    """A request to the model, and its response with every document that the provider sent, or its error."""

    model: str
    request: RecordedRequest
    events: tuple[PartEvent, ...] = ()
    """If the response was streamed."""
    response: ModelResponse | None = None
    """Without the documents that the provider sent."""
    documents: tuple[str, ...] = ()
    """As strings, which keep white space at their ends."""
    error: RecordedError | None = None


class CallLine(Struct, frozen=True, omit_defaults=True, tag_field="line", tag="call"):
    """A call that has ended, with a result or an error."""

    call: ToolCall
    result: ToolResult | None = None
    error: RecordedError | None = None


class EndLine(Struct, frozen=True, omit_defaults=True, tag_field="line", tag="end"):
    """The last line. A recording without it was cut off."""

    text: str = ""
    error: RecordedError | None = None

    @classmethod
    def of(cls, outcome: RunResult | Exception) -> "EndLine":
        return cls(outcome.text) if isinstance(outcome, RunResult) else cls(error=RecordedError.of(outcome))


Line = RunLine | ToolsLine | ExchangeLine | CallLine | EndLine


encode = msgspec.json.Encoder().encode
decode_line: Callable[[bytes], Line] = msgspec.json.Decoder(Line).decode


class Recording:
    """The content of a file. An incomplete last line is ignored: the process was killed while it wrote."""

    def __init__(self, path: Path) -> None:
        try:
            lines = [decode_line(data) for data in path.read_bytes().split(LINE_END)[:-1]]
        except (OSError, ValueError, RecursionError) as error:  # ValueError: not JSON, or not a valid file name
            reason = getattr(error, "strerror", None) or error
            raise ConfigError(f"cannot read the recording {str(path)!r}: {reason}; record the run again") from error
        if not lines or not isinstance(lines[0], RunLine):
            raise ConfigError(f"cannot read the recording {str(path)!r}: it has no 'run' line; record the run again")
        self.path = path
        self.run = lines[0]
        self.tools = next((line.tools for line in lines if isinstance(line, ToolsLine)), ())
        self.exchanges = [line for line in lines if isinstance(line, ExchangeLine)]
        self.calls = [line for line in lines if isinstance(line, CallLine)]
        self.end = next((line for line in lines if isinstance(line, EndLine)), None)


def read_recordings(directory: str | PathLike[str]) -> list[Recording]:
    """Read the recordings of a directory in the order of their start, or the single one at this path."""
    path = Path(directory)
    in_directory = sorted(path.glob("run-*.jsonl"), key=lambda file: (len(file.name), file.name))
    files = [path] if path.is_file() else in_directory
    if not files:
        command = f"midspan ask --record {str(path)!r}"
        raise ConfigError(f"no runs are recorded in {str(path)!r}; use record(agent, directory), or {command}")
    return [Recording(file) for file in files]
