"""A run as it goes on, with a spinner; needs rich, from the extra `cli`."""

from rich.console import Console
from rich.status import Status
from rich.text import Text

from midspan._cli.progress.plain import summary
from midspan._cli.visible import clipped, shown_arguments, shown_seconds, shown_value, visible
from midspan._types.events import RunEnd, RunEvent, TextDelta, ToolEnd, ToolStart, TurnEnd, TurnRetry, TurnStart
from midspan._types.parts import ToolCall


class LiveProgress:
    """A spinner while something is waited for; two lines for each call that has ended."""

    def __init__(self, *, verbose: int = 0) -> None:
        self._verbose = bool(verbose)
        self._console = Console(stderr=True, highlight=False, emoji=False, markup=False)
        self._status: Status | None = None
        self._running: dict[int, ToolCall] = {}
        """The calls that run, by their position in the turn."""

    def show(self, event: RunEvent) -> None:
        match event:
            case TurnStart():
                self._spin("thinking")
            case TextDelta() | TurnEnd():
                self.stop()
            case ToolStart(call=call, index=index):
                self._running[index] = call
                self._spin(self._waiting())
            case ToolEnd(result=result, index=index):
                call = self._running.pop(index, ToolCall(result.id, result.name))
                self.stop()
                self._print_call(call, event)
                if self._running:
                    self._spin(self._waiting())
            case TurnRetry(reason=reason):
                self.stop()
                self._print(Text(f"asking again, because {clipped(reason, 400)}", style="yellow"))
            case RunEnd():
                self.stop()
                if self._verbose:
                    self._print(Text(summary(event), style="dim"))

    def _waiting(self) -> str:
        names = [f"{call.name}({shown_arguments(call.arguments, 200)})" for call in self._running.values()]
        return visible(", ".join(names))

    def _print_call(self, call: ToolCall, event: ToolEnd) -> None:
        failed = event.result.is_error
        longest = 20_000 if self._verbose else 1_000
        line = Text("✗ " if failed else "✓ ", style="red" if failed else "green")
        line.append(visible(call.name), style="bold default")
        line.append(f"({shown_arguments(call.arguments, longest)})", style="default")
        line.append(f"  {shown_seconds(event.duration_seconds)}", style="dim default")
        self._print(line)
        self._print(Text(f"  {shown_value(event.result.value, longest)}", style="red" if failed else "dim"))

    def _print(self, text: Text) -> None:
        """On one line of the terminal, however narrow, unless all was asked for."""
        self._console.print(text, no_wrap=not self._verbose, overflow="fold" if self._verbose else "ellipsis")

    def _spin(self, text: str) -> None:
        line = Text(text, no_wrap=True, overflow="ellipsis", style="dim")
        # Two columns are the spinner's own; a line that wraps could not be taken back as one.
        line.truncate(max(1, self._console.width - 3), overflow="ellipsis")
        if self._status is None:
            self._status = Status(line, console=self._console, spinner="dots")
            self._status.start()
        else:
            self._status.update(line)

    def stop(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None
