"""Text that comes in pieces, broken between words where a terminal would break it within one."""

import re
import unicodedata

_PIECE = re.compile(r"\n|[^\S\n]+|\S+")


class Wrapped:
    """A word is held back until it is known how long it is."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._column = 0
        self._space = ""
        self._word = ""

    def feed(self, text: str) -> str:
        """What can be shown now."""
        return "".join(map(self._taken, _PIECE.findall(text)))

    def _taken(self, piece: str) -> str:
        if not piece.isspace():
            self._word += piece
            # One that is wider than a line is broken by the terminal, so there is nothing to wait for.
            return self.rest() if _columns(self._word) > self._width else ""
        shown = self.rest()
        if piece == "\n":
            self._column, self._space = 0, ""
            return f"{shown}\n"
        self._space += piece
        return shown

    def rest(self) -> str:
        """What was held back; a line is ended before it if it has no place there."""
        if not self._word:
            return ""
        word, space = self._word, self._space.expandtabs(8)
        self._word = self._space = ""
        if self._column and self._column + _columns(space) + _columns(word) > self._width:
            self._column, space, start = 0, "", "\n"
        else:
            start = ""
        # A word that the terminal broke goes on in the next lines; a line that is just full is still a line.
        self._column = (self._column + _columns(space) + _columns(word) - 1) % self._width + 1
        return f"{start}{space}{word}"


def _columns(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(_columns_of(letter) for letter in text)


def _columns_of(letter: str) -> int:
    if unicodedata.combining(letter):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1
