"""A run in plain lines, for pipes, files and terminals without rich."""

import sys

from midspan._cli.visible import clipped, shown_arguments, shown_seconds, shown_value, visible
from midspan._types.events import RunEnd, RunEvent, ToolEnd, ToolStart, TurnRetry

_LONGEST = 400
_LONGEST_VERBOSE = 20_000


class PlainProgress:
    """A line when a call begins, and one when it has ended."""

    def __init__(self, *, verbose: int = 0) -> None:
        self._verbose = bool(verbose)
        self._longest = _LONGEST_VERBOSE if verbose else _LONGEST
        self._gone = False

    def show(self, event: RunEvent) -> None:
        match event:
            case ToolStart(call=call):
                self._line(f"→ {visible(call.name)}({shown_arguments(call.arguments, self._longest)})")
            case ToolEnd(result=result, duration_seconds=seconds):
                mark, word = ("✗", "failed: ") if result.is_error else ("←", "")
                value = shown_value(result.value, self._longest)
                if result.is_error:
                    value = value.removeprefix(f"{visible(result.name)} failed: ")
                self._line(f"{mark} {visible(result.name)}: {word}{value} ({shown_seconds(seconds)})")
            case TurnRetry(reason=reason):
                self._line(f"asking again, because {clipped(reason, self._longest)}")
            case RunEnd() if self._verbose:
                self._line(summary(event))

    def _line(self, text: str) -> None:
        if self._gone:
            return
        try:
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()
        except OSError:
            self._gone = True  # nobody looks any more; the run goes on for the answer's sake

    def stop(self) -> None:
        """Nothing is held."""


def summary(event: RunEnd) -> str:
    turns = f"{event.turns} turn{'s' if event.turns != 1 else ''}"
    return f"{turns}, {event.usage.total:,} tokens, {visible(event.run_id)}"
