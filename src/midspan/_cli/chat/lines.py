"""What the user types: with a line editor where there is one, line by line elsewhere."""

import sys
from typing import Protocol

from midspan._cli.directories import private_directory, state_directory


class Lines(Protocol):
    """Where questions come from."""

    is_terminal: bool

    def read(self) -> str:
        """The next one, which may have several lines; EOFError when there are no more."""


def reader() -> Lines:
    if not sys.stdin.isatty():
        return PlainLines(is_terminal=False)
    if sys.stdout.isatty():
        try:
            from midspan._cli.chat.editor import EditedLines  # which needs prompt_toolkit
        except ImportError:
            return PlainLines(is_terminal=True)
        private_directory(state_directory())
        return EditedLines(state_directory() / "chat_lines")
    return PlainLines(is_terminal=True)


class PlainLines:
    """Line by line; one that ends with a backslash goes on in the next."""

    def __init__(self, *, is_terminal: bool) -> None:
        self.is_terminal = is_terminal
        if hasattr(sys.stdin, "reconfigure"):
            # Text that is piped in is UTF-8, as for `ask`; a line that cannot be read is then one question and not all.
            sys.stdin.reconfigure(encoding=None if is_terminal else "utf-8-sig", errors="surrogateescape")

    def read(self) -> str:
        lines: list[str] = []
        while True:
            if self.is_terminal:
                sys.stderr.write("… " if lines else "> ")
                sys.stderr.flush()
            line = sys.stdin.readline()
            if not line and not lines:
                raise EOFError
            lines.append(line.rstrip("\n").removesuffix("\\"))
            if not line.endswith("\\\n"):
                return "\n".join(lines)
