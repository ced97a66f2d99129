"""Stdout, kept for the answer alone."""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from typing import TextIO

from midspan._cli.visible import visible_lines
from midspan._cli.wrapping import Wrapped
from midspan._types.events import RunEnd, RunEvent, TextDelta, TurnEnd, TurnStart
from midspan.errors import RunError


@contextmanager
def stdout_for_answers() -> Iterator[TextIO]:
    """The true stdout; what tools print meanwhile, or programs that they start, goes to stderr."""
    sys.stdout.flush()
    try:
        kept = os.dup(1)
        os.dup2(2, 1)
    except OSError:
        yield sys.stdout  # one of the two is closed
        return
    out = os.fdopen(os.dup(kept), "w", encoding=sys.stdout.encoding, errors="backslashreplace")
    try:
        with redirect_stdout(sys.stderr):
            yield out
    finally:
        with suppress(OSError):  # which was told, or concerns nobody, where it was written
            out.close()
        os.dup2(kept, 1)
        os.close(kept)


def check(out: TextIO) -> None:
    """Find out before anything is asked whether anything can be written there."""
    try:
        os.write(out.fileno(), b"")
    except OSError as error:
        raise RunError(f"the answer cannot be written: {error.strerror}") from error


def write(out: TextIO, text: str) -> None:
    """Write now; a reader who went away is told apart from a disk that is full."""
    try:
        out.write(text)
        out.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise RunError(f"the answer cannot be written: {error.strerror}") from error


class Answer:
    """The answer as a whole, at the end: for pipes and files."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def hear(self, event: RunEvent) -> None:
        if isinstance(event, RunEnd):
            write(self._out, event.text if event.text.endswith("\n") else f"{event.text}\n")

    def stop(self) -> None:
        """After a run that did not come to its end: there is no answer."""


class LiveAnswer:
    """The answer as it comes: for terminals."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._said = ""
        self._lines = _wrapped()

    def hear(self, event: RunEvent) -> None:
        match event:
            case TurnStart():
                self._said, self._lines = "", _wrapped()
            case TextDelta(text=text):
                self._said += text
                write(self._out, self._lines.feed(visible_lines(text)))
            case TurnEnd():
                self.stop()
            case RunEnd(text=text) if text.strip() != self._said.strip():
                lines = _wrapped()
                write(self._out, f"{lines.feed(visible_lines(text))}{lines.rest()}\n")

    def stop(self) -> None:
        """End the line, if one was begun; also after a run that did not come to its end."""
        if self._said and not self._said.endswith("\n"):
            self._said += "\n"
            write(self._out, f"{self._lines.rest()}\n")


def _wrapped() -> Wrapped:
    return Wrapped(max(20, shutil.get_terminal_size().columns))
