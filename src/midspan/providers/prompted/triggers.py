"""Where in a text a call may begin, and what at the end of a text may still become such a place.

One expression finds all of them: every branch begins with a letter of its own, so that text without any is passed over
at the speed of C.
"""

import re
from collections.abc import Callable
from functools import lru_cache

from midspan.providers.prompted.cursor import Cursor
from midspan.providers.prompted.dialects import plain, pythonic, tagged, tags
from midspan.providers.prompted.findings import Declared, Found
from midspan.providers.prompted.marker import marked

Read = Callable[[Cursor, Declared], Found | None]

# At the beginning of a line, or a little indented; an expression can only look back by a fixed length.
_INDENTS = ("", " ", "  ", "   ", "    ", "\t")

_ANYWHERE: dict[str, tuple[Read, ...]] = {
    "<tool_call>": (tagged.hermes,),
    "<|python_tag|>": (tagged.llama,),
    "<|python_start|>": (tagged.llama,),
    "<function=": (tags.function_tag,),
    "<\uff5ctool\u2581calls\u2581begin\uff5c>": (tagged.deepseek,),
    "[TOOL_CALLS]": (tagged.mistral,),
    "print(default_api.": (pythonic.printed,),
    "default_api.": (pythonic.printed,),
    "call:": (pythonic.leaked,),
}
_ON_A_LINE: dict[str, tuple[Read, ...]] = {
    "```": (pythonic.code_fence, plain.fenced),
    "[": (pythonic.call_list, plain.bare),
    "{": (plain.bare,),
    "Action:": (plain.action,),
    "**Action:": (plain.action,),
}
# A result is never the model's to write; an observation is one only after a call.
_RESULTS = ("TOOL_RESULT ", "TOOL_ERROR ")
_OBSERVATIONS = ("Observation:", "**Observation:")

ANY_MARK = "*"


class Triggers:
    """The places of one kind of reader."""

    def __init__(self, marker: str, mark: str | None, dialects: bool) -> None:
        words = list(_ANYWHERE) if dialects else []
        lines = [*(_ON_A_LINE if dialects else ()), *_RESULTS, *_OBSERVATIONS]
        self._marker = _marker(marker, mark)
        self.place = re.compile("|".join([*self._marker, *map(_word, words), *map(_line, lines)]))
        begun = [*_begun_marker(marker, mark), *map(_begun_word, words), *map(_begun_line, lines)]
        self._begun = re.compile(f"(?:{'|'.join(begun)})\\Z")
        self._longest = 48 + len(marker) + len(mark or "")
        self._is_marker = re.compile("|".join(self._marker))

    def readers(self, place: re.Match[str]) -> tuple[Read, ...]:
        """Who can read what begins at a place."""
        if self.is_marker(place):
            return (marked,)
        return _ANYWHERE.get(place[0]) or _ON_A_LINE[place[0]]

    def is_marker(self, place: re.Match[str]) -> bool:
        return self._is_marker.fullmatch(place.string, place.start(), place.end()) is not None

    def is_result(self, place: re.Match[str]) -> bool:
        """Whether it is the beginning of a result that a model wrote itself, if it called something before."""
        return place[0] in _RESULTS or place[0] in _OBSERVATIONS

    def is_surely_result(self, place: re.Match[str]) -> bool:
        return place[0] in _RESULTS

    def is_line(self, place: re.Match[str]) -> bool:
        """Whether it counts only where a line begins, as much that is no call does."""
        return place[0] in _ON_A_LINE

    def held(self, text: str, at: int) -> int:
        """From where on the text must wait, because a place may begin there."""
        found = self._begun.search(text, max(at, len(text) - self._longest))
        return found.start() if found else len(text)


@lru_cache(maxsize=256)
def triggers(marker: str, mark: str | None, dialects: bool) -> Triggers:
    return Triggers(marker, mark, dialects)


# What is between the word and its colon: bold marks, a space.
_ANY_MARK = r"(?:\[[^\]\n]{0,64}\])?"
_COLON = r"[*`_]{0,3}[ \t]{0,3}[:\uff1a]"


def _marker(marker: str, mark: str | None) -> list[str]:
    """As the prompt has it anywhere, even glued to a word; in other letters only where a word begins.

    After a backslash it is quoted, and no call.
    """
    first, rest = marker[0], marker[1:]
    behind = (_ANY_MARK if mark == ANY_MARK else re.escape(f"[{mark}]") if mark else "") + _COLON
    exact = rf"{re.escape(first)}(?<![_\\].){re.escape(rest)}{behind}"
    others = dict.fromkeys([first.upper(), first.lower()])
    return [exact, *(rf"{re.escape(one)}(?<![\w\\].)(?i:{re.escape(rest)}){behind}" for one in others)]


def _begun_marker(marker: str, mark: str | None) -> list[str]:
    first, rest = marker[0], marker[1:]
    tail = f"[{mark}]" if mark else ""
    inner = _prefixes(tail, r"[*`_]{0,3}[ \t]{0,3}") if tail else r"[*`_]{0,3}[ \t]{0,3}"
    others = dict.fromkeys([first.upper(), first.lower()])
    exact = rf"{re.escape(first)}(?<![_\\].){_prefixes(rest, inner)}"
    return [exact, *(rf"{re.escape(one)}(?<![\w\\].)(?i:{_prefixes(rest, inner)})" for one in others)]


def _word(word: str) -> str:
    return rf"{re.escape(word[0])}(?<![\w\\.].){re.escape(word[1:])}" if word[0].isalpha() else _escaped(word)


def _begun_word(word: str) -> str:
    before = r"(?<![\w\\.].)" if word[0].isalpha() else r"(?<!\\.)"
    return re.escape(word[0]) + before + _prefixes(word[1:])


def _escaped(word: str) -> str:
    return rf"{re.escape(word[0])}(?<!\\.){re.escape(word[1:])}"


def _line(word: str) -> str:
    return rf"{re.escape(word[0])}(?:{_line_start(word[0])}){re.escape(word[1:])}"


def _begun_line(word: str) -> str:
    return rf"{re.escape(word[0])}(?:{_line_start(word[0])}){_prefixes(word[1:])}"


def _line_start(first: str) -> str:
    return "|".join(rf"(?<=\n{indent}{re.escape(first)})" for indent in _INDENTS)


def _prefixes(word: str, last: str = "") -> str:
    """An expression for every beginning of a word, also the empty one."""
    made = last
    for letter in reversed(word):
        made = f"(?:{re.escape(letter)}{made})?"
    return made
