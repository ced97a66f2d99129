"""Lines in color and a spinner below them, on stderr. Needs rich, from the extra `cli`."""

from rich.console import Console
from rich.status import Status
from rich.text import Text


class Spinner:
    """Turns while something is waited for. Lines are printed above it."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False, emoji=False, markup=False)
        self._status: Status | None = None

    def print(self, text: str, style: str, *, wrap: bool) -> None:
        """Print on one line of the terminal, or on as many as the text needs."""
        self._console.print(text, style=style, no_wrap=not wrap, overflow="fold" if wrap else "ellipsis")

    def spin(self, text: str) -> None:
        """Show the spinner with a text."""
        line = Text(text, no_wrap=True, overflow="ellipsis", style="dim")
        # The spinner takes two columns. Rich can erase the line only if the terminal does not wrap it.
        line.truncate(max(1, self._console.width - 3), overflow="ellipsis")
        if self._status is None:
            self._status = Status(line, console=self._console, spinner="dots")
            self._status.start()
        else:
            self._status.update(line)

    def stop(self) -> None:
        """Remove the spinner, so that others can write to the terminal."""
        if self._status is not None:
            self._status.stop()
            self._status = None
