"""A recording as it was read back: what was asked, answered and called."""

from pathlib import Path

import msgspec
from msgspec import Struct

from midspan._types.exchange import ModelResponse, PartEvent
from midspan._types.specs import ToolSpec
from midspan.errors import ConfigError
from midspan.providers.recording.lines import (
    FORM,
    Answered,
    Asked,
    Began,
    Called,
    Ended,
    Failed,
    Failure,
    Listed,
    Silent,
    Streamed,
)
from midspan.providers.recording.written import read


class Exchange(Struct):
    """One question, and what came of it; without an end the recording was broken off."""

    asked: Asked
    events: list[PartEvent] = []
    answer: ModelResponse | None = None
    error: Failure | None = None
    ended: bool = False
    """The stream came to its end, whatever had come before."""


class RecordedRun(Struct):
    """All that was recorded of a run."""

    path: Path
    began: Began
    tools: tuple[ToolSpec, ...] | None = None
    exchanges: list[Exchange] = []
    calls: list[Called] = []
    ended: Ended | None = None


def recorded_run(path: Path) -> RecordedRun:
    """Read a recording. A last line that was broken off is left out: the process was killed while it wrote."""
    try:
        data = path.read_bytes()
    except (OSError, ValueError) as error:  # the second is for a name that no file can have
        why = getattr(error, "strerror", None) or error
        raise ConfigError(f"the recording {str(path)!r} cannot be read: {why}") from error
    lines = data.split(b"\n")[:-1]
    if not lines:
        raise _lineless(path, data)
    run = RecordedRun(path, _head(path, lines[0]))
    for number, line in enumerate(lines[1:], start=2):
        try:
            _add(run, line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _damaged(path, number, error) from error
    return run


def _lineless(path: Path, data: bytes) -> ConfigError:
    """What is wrong with a file that does not hold a single line."""
    if not data:
        return ConfigError(f"the recording {str(path)!r} is empty; delete it, or record the run again")
    if not data.startswith(_BEGINNING[: len(data)]):
        return _damaged(path, 1, "it is no line of a recording")
    return ConfigError(
        f"the recording {str(path)!r} was broken off in its first line; delete it, or record the run again"
    )


_BEGINNING = b'{"line":"run",'


class _Form(Struct):
    form: int


def _head(path: Path, line: bytes) -> Began:
    try:
        form = msgspec.json.decode(line, type=_Form).form
        if form < FORM:
            raise ConfigError(
                f"the recording {str(path)!r} is of form {form}, this version reads form {FORM}; record the run again"
            )
        if form > FORM:
            raise ConfigError(
                f"the recording {str(path)!r} is of form {form}, this version reads up to {FORM}; "
                "install a newer Midspan"
            )
        head = read(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _damaged(path, 1, error) from error
    if not isinstance(head, Began):
        raise _damaged(path, 1, "it does not say which run this is")
    return head


def _add(run: RecordedRun, data: bytes) -> None:
    line = read(data)
    match line:
        case Listed():
            run.tools = line.tools
        case Asked():
            run.exchanges.append(Exchange(line))
        case Called():
            run.calls.append(line)
        case Ended():
            run.ended = line
        case Began():
            raise msgspec.DecodeError("a second run begins in the middle of the first")
        case _ if not run.exchanges:
            raise msgspec.DecodeError("an answer before any question")
        case Streamed():
            run.exchanges[-1].events.append(line.event)
        case Answered():
            run.exchanges[-1].answer, run.exchanges[-1].ended = line.response, True
        case Failed():
            run.exchanges[-1].error, run.exchanges[-1].ended = line.error, True
        case Silent():
            run.exchanges[-1].ended = True


def _damaged(path: Path, line: int, why: object) -> ConfigError:
    return ConfigError(f"the recording {str(path)!r} is damaged in line {line}: {why}; record the run again")
