"""What a user sees of a run: the answer on stdout, the progress on stderr."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, TextIO

from midspan._cli.text import compact_json, escape_line, escape_lines, format_call, shorten, wrap_line, write
from midspan._types import events
from midspan._types.texts import count_noun

if TYPE_CHECKING:
    from rich.status import Status

_LONG_WAIT_SECONDS = 2.0
"""Waits of at least this length are explained to the user."""


@contextmanager
def stdout_for_answers() -> Iterator[TextIO]:
    """Yield stdout; within the block, what tools and their subprocesses print to stdout goes to stderr."""
    sys.stdout.flush()
    with os.fdopen(os.dup(1), "w", encoding=sys.stdout.encoding, errors="backslashreplace") as out:
        os.dup2(2, 1)
        try:
            with redirect_stdout(sys.stderr):
                yield out
        finally:
            os.dup2(out.fileno(), 1)


class AnswerDisplay:
    """Prints the answer: on a terminal while it arrives, otherwise at the end of the run."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._text = ""
        """What was printed in this turn."""

    def show(self, event: events.RunEvent) -> None:
        match event:
            case events.TurnStart():
                self._text = ""
            case events.TextDelta(text=text) if self._out.isatty():
                self._print(text)
            case events.TurnEnd():
                self.close()
            case events.RunEnd(text=text) if text.strip() != self._text.strip():
                self._print(text)
                self.close()

    def _print(self, text: str) -> None:
        self._text += text
        write(self._out, escape_lines(text) if self._out.isatty() else text)

    def close(self) -> None:
        if self._text and not self._text.endswith("\n"):
            self._print("\n")


class ProgressDisplay:
    """Prints a line when a call starts and one when it ends; on a terminal with rich in color, with a spinner."""

    def __init__(self, *, verbose: int = 0, out: TextIO | None = None) -> None:
        self._verbose = bool(verbose)
        self._max_chars = 20_000 if verbose else 400
        self._out = out
        self._spinner = _new_spinner() if out is None else None

    def show(self, event: events.RunEvent) -> None:
        match event:
            case events.TurnStart():
                self._spin("thinking")
            case events.TextDelta() | events.TurnEnd():
                self.close()
            case events.ToolStart(call=call):
                self._print(f"→ {format_call(call.name, call.arguments, self._max_chars)}", "bold")
                self._spin("running tools")
            case events.ToolProgress(fraction=fraction, message=message):
                self._spin(f"running tools {'' if fraction is None else f'{fraction:.0%} '}{message}")
            case events.ToolEnd():
                self._print_result(event)
            case events.TurnRetry(reason=reason):
                self._print(f"asking the model again: {shorten(reason, self._max_chars)}", "yellow")
            case events.RequestRetry():
                self._print_retry(event)
            case events.SourceUnavailable(source=source, message=message):
                self._print(f"no tools from {source}: {shorten(message, self._max_chars)}", "yellow")
            case events.RunEnd(run_id=run_id, usage=usage, turns=turns):
                self.close()
                if self._verbose:
                    self._print(f"{count_noun(turns, 'turn')}, {usage.total:,} tokens, {run_id}", "dim")

    def _print_result(self, event: events.ToolEnd) -> None:
        result, seconds = event.result, event.duration_seconds
        value = result.model_value
        value = shorten(value if isinstance(value, str) else compact_json(value), self._max_chars)
        if result.is_error:
            value = f"failed: {value.removeprefix(f'{escape_line(result.name)} failed: ')}"
        time = f"{seconds * 1000:.1f} ms" if seconds < 0.0995 else f"{seconds:.1f} s"
        mark, style = ("✗", "red") if result.is_error else ("←", "dim")
        self._print(f"{mark} {result.name}: {value} ({time})", style)

    def _print_retry(self, event: events.RequestRetry) -> None:
        """Explain a delay. Without -v only a long one, and without its reason, which the error gives in the end."""
        if event.model is None and event.wait_seconds < _LONG_WAIT_SECONDS and not self._verbose:
            return
        wait = f"retrying in {round(event.wait_seconds, 1):g} s"
        reason = f": {shorten(event.message, self._max_chars)}" if self._verbose else ""
        action = wait if event.model is None else f"asking {event.model}"
        self._print(f"{event.status or 'request failed'}, {action}{reason}", "yellow")

    def _print(self, text: str, style: str) -> None:
        if self._spinner is not None:  # with -v on as many lines as the text needs
            line, is_long = escape_line(text), self._verbose
            self._spinner.console.print(
                line, style=style, no_wrap=not is_long, overflow="fold" if is_long else "ellipsis"
            )
            return
        out = self._out or sys.stderr
        with suppress(OSError):  # nobody reads stderr; the answer may still be read
            write(out, wrap_line(text, out))

    def _spin(self, text: str) -> None:
        if self._spinner is not None:
            from rich.text import Text

            line = Text(escape_line(text), style="dim")
            # The spinner takes two columns. Rich can erase the line only if the terminal does not wrap it.
            line.truncate(max(1, self._spinner.console.width - 3), overflow="ellipsis")
            self._spinner.update(line)
            self._spinner.start()

    def close(self) -> None:
        if self._spinner is not None:
            self._spinner.stop()


Display = AnswerDisplay | ProgressDisplay
"""Shows the events of a run. `close` leaves the terminal ready for other output, even if the run has not ended."""


def _new_spinner() -> "Status | None":
    """Return a spinner for a terminal, if rich is installed. Its console prints lines above it."""
    if not sys.stderr.isatty() or os.environ.get("TERM") in ("dumb", "") or find_spec("rich") is None:
        return None
    from rich.console import Console

    return Console(stderr=True, highlight=False, emoji=False, markup=False).status("")
