"""Progress of a run with a spinner. Needs rich, from the extra `cli`."""

from rich.console import Console
from rich.status import Status
from rich.text import Text

from midspan._cli.output import Display, notice_of, run_summary
from midspan._cli.text import escape_line, format_arguments, format_seconds, format_value
from midspan._types.events import RunEnd, RunEvent, TextDelta, ToolEnd, ToolProgress, ToolStart, TurnEnd, TurnStart
from midspan._types.parts import ToolCall


class LiveProgress(Display):
    """Shows a spinner while something is waited for, and two lines for each call that has ended."""

    def __init__(self, *, verbose: int = 0) -> None:
        self._verbose = bool(verbose)
        self._max_chars = 20_000 if verbose else 1_000
        self._console = Console(stderr=True, highlight=False, emoji=False, markup=False)
        self._status: Status | None = None
        self._running: dict[int, ToolCall] = {}
        """The calls that run, by their position in the turn."""

    def show(self, event: RunEvent) -> None:
        match event:
            case TurnStart():
                self._spin("thinking")
            case TextDelta() | TurnEnd():
                self.close()
            case ToolStart(call=call, index=index):
                self._running[index] = call
                self._spin(self._running_calls())
            case ToolProgress(index=index):
                self._spin(f"{self._running_calls()}{_format_progress(event)}")
            case ToolEnd(result=result, index=index):
                call = self._running.pop(index, ToolCall(result.id, result.name))
                self.close()
                self._print_call(call, event)
                if self._running:
                    self._spin(self._running_calls())
            case RunEnd():
                self.close()
                if self._verbose:
                    self._print(Text(run_summary(event), style="dim"))
            case _:
                if notice := notice_of(event, self._max_chars, verbose=self._verbose):
                    self._console.print(Text(notice, style="yellow"))

    def _running_calls(self) -> str:
        calls = [f"{call.name}({format_arguments(call.arguments, 200)})" for call in self._running.values()]
        return escape_line(", ".join(calls))

    def _print_call(self, call: ToolCall, event: ToolEnd) -> None:
        is_error = event.result.is_error
        line = Text("✗ " if is_error else "✓ ", style="red" if is_error else "green")
        line.append(escape_line(call.name), style="bold default")
        line.append(f"({format_arguments(call.arguments, self._max_chars)})", style="default")
        line.append(f"  {format_seconds(event.duration_seconds)}", style="dim default")
        self._print(line)
        value = format_value(event.result.model_value, self._max_chars)
        self._print(Text(f"  {value}", style="red" if is_error else "dim"))

    def _print(self, text: Text) -> None:
        """Print on one line of the terminal; with -v on as many as the text needs."""
        self._console.print(text, no_wrap=not self._verbose, overflow="fold" if self._verbose else "ellipsis")

    def _spin(self, text: str) -> None:
        line = Text(text, no_wrap=True, overflow="ellipsis", style="dim")
        # The spinner takes two columns. Rich can erase the line only if the terminal does not wrap it.
        line.truncate(max(1, self._console.width - 3), overflow="ellipsis")
        if self._status is None:
            self._status = Status(line, console=self._console, spinner="dots")
            self._status.start()
        else:
            self._status.update(line)

    def close(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None


def _format_progress(event: ToolProgress) -> str:
    fraction = "" if event.fraction is None else f" {event.fraction:.0%}"
    return f"{fraction} {escape_line(event.message)}" if event.message else fraction
