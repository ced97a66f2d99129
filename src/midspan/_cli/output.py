"""What a user sees of a run: the answer on stdout, the progress on stderr."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from typing import TextIO

from midspan._cli.text import (
    WordWrapper,
    count_noun,
    escape_line,
    escape_lines,
    format_arguments,
    format_seconds,
    format_value,
    print_line,
    shorten,
    terminal_columns,
    wrap_line,
)
from midspan._types import events
from midspan._types.parts import ToolCall
from midspan._types.run_state import CALL_CANCELLED
from midspan.errors import RunError

_LONG_WAIT_SECONDS = 2.0
"""Users wonder what happens during a wait that is not shorter."""


class Display:
    """Shows the events of a run."""

    def show(self, event: events.RunEvent) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Leave the terminal ready for other output, also if the run has not ended. By default do nothing."""


@contextmanager
def stdout_for_answers() -> Iterator[TextIO]:
    """Yield stdout; what tools and the programs they start print to it meanwhile goes to stderr."""
    sys.stdout.flush()
    try:
        saved = os.dup(1)
        os.dup2(2, 1)
    except OSError:
        yield sys.stdout  # stderr is closed
        return
    out = os.fdopen(os.dup(saved), "w", encoding=sys.stdout.encoding, errors="backslashreplace")
    try:
        with redirect_stdout(sys.stderr):
            yield out
    finally:
        with suppress(OSError):  # `write` has reported it
            out.close()
        os.dup2(saved, 1)
        os.close(saved)


def write(out: TextIO, text: str) -> None:
    """Write and flush. Raises RunError if that fails, except for a BrokenPipeError, which is not an error of ours."""
    try:
        out.write(text)
        out.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise RunError(f"cannot write the answer: {error.strerror}") from error


def answer_display(out: TextIO) -> Display:
    return LiveAnswer(out) if out.isatty() else Answer(out)


class Answer(Display):
    """Prints the answer at the end of the run: for pipes and files."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def show(self, event: events.RunEvent) -> None:
        if isinstance(event, events.RunEnd):
            write(self._out, event.text if event.text.endswith("\n") else f"{event.text}\n")


class LiveAnswer(Display):
    """Prints the answer while it arrives: for terminals."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._text = ""
        self._wrapper = WordWrapper(terminal_columns())

    def show(self, event: events.RunEvent) -> None:
        match event:
            case events.TurnStart():
                self._text, self._wrapper = "", WordWrapper(terminal_columns())
            case events.TextDelta(text=text):
                self._text += text
                write(self._out, self._wrapper.feed(escape_lines(text)))
            case events.TurnEnd():
                self.close()
            case events.RunEnd(text=text) if text.strip() != self._text.strip():
                wrapper = WordWrapper(terminal_columns())
                write(self._out, f"{wrapper.feed(escape_lines(text))}{wrapper.flush()}\n")

    def close(self) -> None:
        if self._text and not self._text.endswith("\n"):
            self._text += "\n"
            write(self._out, f"{self._wrapper.flush()}\n")


class OpenCalls(Display):
    """The calls that may change something and have not ended."""

    def __init__(self) -> None:
        self._calls: dict[int, ToolCall] = {}
        """By their position in the turn."""

    def show(self, event: events.RunEvent) -> None:
        match event:
            case events.ToolStart(call=call, index=index, may_write=True):
                self._calls[index] = call
            case events.ToolEnd(index=index):
                self._calls.pop(index, None)

    def report(self) -> None:
        """Name them after the run was cancelled."""
        for call in self._calls.values():
            print_line(f"{call.name}({format_arguments(call.arguments, 400)}) {CALL_CANCELLED}")


def progress_display(*, verbose: int = 0) -> Display:
    """Return a display with a spinner for terminals if rich is installed, otherwise one that prints plain lines."""
    if not sys.stderr.isatty() or os.environ.get("TERM") in ("dumb", ""):
        return PlainProgress(verbose=verbose)
    try:
        from midspan._cli.live_progress import LiveProgress  # needs rich
    except ImportError:
        return PlainProgress(verbose=verbose)
    return LiveProgress(verbose=verbose)


class PlainProgress(Display):
    """Prints a line when a call starts and one when it ends."""

    def __init__(self, *, verbose: int = 0, out: TextIO | None = None) -> None:
        self._verbose = bool(verbose)
        self._max_chars = 20_000 if verbose else 400
        self._is_closed = False
        self._out = out

    def show(self, event: events.RunEvent) -> None:
        match event:
            case events.ToolStart(call=call):
                self._print(f"→ {escape_line(call.name)}({format_arguments(call.arguments, self._max_chars)})")
            case events.ToolEnd(result=result, duration_seconds=seconds):
                name, value = escape_line(result.name), format_value(result.model_value, self._max_chars)
                if result.is_error:
                    value = f"failed: {value.removeprefix(f'{name} failed: ')}"
                self._print(f"{'✗' if result.is_error else '←'} {name}: {value} ({format_seconds(seconds)})")
            case events.RunEnd():
                if self._verbose:
                    self._print(run_summary(event))
            case _:
                if notice := notice_of(event, self._max_chars, verbose=self._verbose):
                    self._print(notice)

    def _print(self, text: str) -> None:
        if self._is_closed:
            return
        try:
            out = self._out or sys.stderr
            out.write(wrap_line(text, out))
            out.flush()
        except OSError:
            self._is_closed = True  # nobody reads stderr; the answer may still be read


def notice_of(event: events.RunEvent, max_chars: int, *, verbose: bool) -> str | None:
    """Return a line about an event that explains a delay or missing tools."""
    match event:
        case events.TurnRetry(reason=reason):
            return f"asking the model again: {shorten(reason, max_chars)}"
        case events.RequestRetry(wait_seconds=seconds, status=status, message=message, model=model):
            if model is None and seconds < _LONG_WAIT_SECONDS and not verbose:
                return None
            action = f"retrying in {round(seconds, 1):g} s" if model is None else f"asking {escape_line(model)}"
            reason = f": {shorten(message, max_chars)}" if verbose else ""  # the error says it if the last retry fails
            return f"{status or 'request failed'}, {action}{reason}"
        case events.SourceUnavailable(source=source, message=message):
            return f"no tools from {escape_line(source)}: {shorten(message, max_chars)}"
    return None


def run_summary(event: events.RunEnd) -> str:
    return f"{count_noun(event.turns, 'turn')}, {event.usage.total:,} tokens, {escape_line(event.run_id)}"
