"""A place in a text that may still grow: what stands there, or that it is too early to say."""

import re

from midspan._schema.lenient_json import IncompleteJson

_SPACE = re.compile(r"\s*")
_LONGEST_WORD = 32
_NAME = re.compile(r"[^\W\d][\w./:-]{0,199}")


class Cursor:
    """Each method moves `at` behind what it has found; `IncompleteJson` where more text could make a difference."""

    def __init__(self, text: str, at: int, over: bool) -> None:
        self.text = text
        self.at = at
        self.over = over
        """No more text will come."""
        self.in_vain = 0
        """So many characters were read as a value, and turned out to be none."""

    def space(self) -> None:
        self.at = _SPACE.match(self.text, self.at).end()  # type: ignore[union-attr]  # it matches everywhere
        if self.at == len(self.text) and not self.over:
            raise IncompleteJson

    def take(self, *words: str) -> str:
        """Which of these words stands here, if any; of two that begin alike the longer comes first."""
        rest = self.text[self.at : self.at + _LONGEST_WORD]
        for word in words:
            if rest.startswith(word):
                self.at += len(word)
                return word
            if not self.over and len(rest) < len(word) and word.startswith(rest):
                raise IncompleteJson
        return ""

    def after_space(self, *words: str) -> str:
        """The same behind any space, which is left alone if none of them comes."""
        before = self.at
        self.space()
        found = self.take(*words)
        if not found:
            self.at = before
        return found

    def name(self) -> str:
        """The name that stands here, empty if there is none."""
        found = _NAME.match(self.text, self.at)
        end = found.end() if found else self.at
        if end == len(self.text) and not self.over:
            raise IncompleteJson
        self.at = end
        return found[0] if found else ""

    def sees(self, word: str) -> bool:
        """Whether this word stands here; it is left there."""
        before = self.at
        found = self.take(word)
        self.at = before
        return bool(found)

    def is_cut(self, word: str) -> bool:
        """Whether the text is over before this word is, or before it begins."""
        return self.over and len(self.text) - self.at < _LONGEST_WORD and word.startswith(self.text[self.at :].strip())

    def wait(self) -> None:
        """Say that what stands here may still become something."""
        raise IncompleteJson
