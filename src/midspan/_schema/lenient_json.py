"""Text that is nearly JSON → the value that it says, as long as no part of it has to be guessed.

Read are, beside JSON itself: single and typographic quotes, trailing commas, comments, keys without quotes, Python's
`True`, `False` and `None`, line breaks inside strings. Not read is whatever has two readings, and whatever is still
open where the text ends: that is `IncompleteJson`, and nobody completes it. With `python=True` strings, tuples and
keyword arguments are read as Python has them.
"""

import json
import re
from math import isfinite
from typing import Any

from midspan._schema.escapes import ESCAPE, QUOTES, STRINGS, SURROGATE, letter, letter_in_odd_quotes, python_letter
from midspan._schema.paths import quoted
from midspan._schema.skimming import ITEMS, MEMBERS, SKIMMED_LEVELS, as_json, lenient_decoder, strict

DEEPEST = 100
"""Levels of objects and lists; the checks of arguments go no deeper either."""


class InvalidJson(ValueError):
    """The text is no value, or could be several; `at` is where that shows."""

    def __init__(self, problem: str, at: int) -> None:
        super().__init__(problem)
        self.problem = problem
        self.at = at


class IncompleteJson(ValueError):
    """The text ends before the value does; `end` is where it would end, had it nothing more to come."""

    def __init__(self, end: int | None = None, name: str | None = None, *, depth: int = 0) -> None:
        super().__init__("the text ends before the value does")
        self.end = end
        self.name = name
        """Whose value it is, where a caller knows that."""
        self.depth = depth
        """So many brackets are open; before as many are closed, the value cannot end."""


def loads(text: str) -> Any:
    """The value that the whole text says."""
    source = text + "\n"  # a number at the very end has an end, too
    nearly = LenientJsonParser(source)
    try:
        value = nearly.value()
    except IncompleteJson:
        raise InvalidJson("it ends before the value does", len(text)) from None
    rest = _SPACE.match(source, nearly.at)
    if rest is None or rest.end() < len(source):
        raise InvalidJson(f"there is more after the value: {quoted(source[nearly.at :].strip())}", nearly.at)
    return value


class LenientJsonParser:
    """A place in a text, and what can be read from there; each method moves `at` behind what it has read."""

    def __init__(self, text: str, at: int = 0, *, python: bool = False) -> None:
        self.text = text
        self.at = at
        self._python = python
        self._depth = 0
        self._broken_at = 0
        """Where strict reading failed; it is not tried again before that place, and not often at all."""
        self._attempts = 8
        self._skims = True
        """Whether runs of plain items may be read at once; not after one of them was found to be wrong."""
        self.lacks_brace = False
        """Whether an object was taken as whole without its last brace."""

    def peek(self) -> str:
        """The next character that is neither space nor in a comment."""
        here = self.text[self.at : self.at + 1]
        if here in _SIGNS:
            return here
        while True:
            found = _NEXT.match(self.text, self.at)
            if found is None:
                raise IncompleteJson
            self.at = found.start(1)
            if found[1] not in "#/":
                return found[1]
            if found[1] == "#" or self.text.startswith("//", self.at):
                self._skip("\n")
            elif self.text.startswith("/*", self.at):
                self._skip("*/")
            elif self.at + 1 == len(self.text):
                raise IncompleteJson
            else:
                return "/"

    def _skip(self, end: str) -> None:
        found = self.text.find(end, self.at + 1)
        if found < 0:
            raise IncompleteJson
        self.at = found + len(end)

    def value(self, *, closed_by: str | None = None) -> Any:
        """The value here. An object may lack its last brace where `closed_by` stands in its place."""
        first = self.peek()
        if first in _NUMERIC:
            return self._number()
        if first in QUOTES:
            return self.string()
        if first in "{[":
            if self.at >= self._broken_at and self._attempts and _MAYBE_STRICT.match(self.text, self.at):
                try:
                    value, self.at = strict(self.text, self.at, DEEPEST - self._depth)
                except (ValueError, RecursionError) as error:
                    self._broken_at = error.pos if isinstance(error, json.JSONDecodeError) else len(self.text)
                    self._attempts -= 1
                else:
                    return value
            return self._container(first, closed_by)
        if first == "(" and self._python:
            return self._container(first, None)
        return self._word()

    def _container(self, first: str, closed_by: str | None) -> Any:
        self._depth += 1
        if self._depth > DEEPEST:
            raise InvalidJson(f"it is nested more than {DEEPEST} levels deep", self.at)
        self.at += 1
        try:
            value = self._object(closed_by) if first == "{" else self._list("]" if first == "[" else ")")
        except IncompleteJson as error:
            error.depth += 1
            raise
        self._depth -= 1
        return value

    def _object(self, closed_by: str | None) -> dict[str, Any]:
        members: dict[str, Any] = {}
        while True:
            self._skim_members(members)
            if self.peek() == "}":
                self.at += 1
                return members
            self.member(members, ":")
            following = self.peek()
            if following == closed_by and not _has_two_ends(members):
                self.lacks_brace = True  # and it is the only one
                return members
            if following not in ",}":
                raise self.unexpected("a comma or } after a value")
            self.at += following == ","

    def member(self, members: dict[str, Any], separators: str) -> None:
        """One name with its value, added to the others; a name that is there already has two values, so none."""
        begin = self.at
        name = self.string() if self.peek() in QUOTES else self._name()
        if self.peek() not in separators:
            raise self.unexpected(f"{' or '.join(separators)} after the name {quoted(name)}")
        self.at += 1
        if name in members:
            raise InvalidJson(f"{quoted(name)} is given twice", begin)
        members[name] = self.value()

    def _name(self) -> str:
        found = _NAME.match(self.text, self.at)
        if found is None:
            raise self.unexpected("a name in double quotes")
        if found.end() == len(self.text):
            raise IncompleteJson
        self.at = found.end()
        return found[0]

    def _list(self, end: str) -> list[Any]:
        items = self._skimmed_items()
        commas = len(items)
        while self.peek() != end:
            items.append(self.value())
            following = self.peek()
            if following not in (",", end):
                raise self.unexpected(f"a comma or {end} after a value")
            if following == ",":
                self.at += 1
                more = self._skimmed_items()
                items += more
                commas += 1 + len(more)
        if end == ")" and len(items) == 1 and not commas:
            raise InvalidJson("parentheses around one value are no list", self.at)
        self.at += 1
        return items

    def _skimmed_items(self) -> list[Any]:
        """The next items of a list as long as they are plain, at the speed of C; the rest is read one by one."""
        run = self._run(ITEMS)
        return [] if run is None else self._plain(f"[{run}]", run) or []

    def _skim_members(self, members: dict[str, Any]) -> None:
        """The same for the members of an object."""
        run = self._run(MEMBERS)
        if run is None:
            return
        before = self.at
        found: dict[str, Any] = self._plain(f"{{{run}}}", run) or {}
        if members.keys().isdisjoint(found):
            members.update(found)
        else:
            self.at, self._skims = before, False

    def _run(self, runs: "dict[bool, re.Pattern[str]]") -> str | None:
        if not self._skims or self._depth > DEEPEST - SKIMMED_LEVELS:
            return None
        found = runs[self._python].match(self.text, self.at)
        return found and found[0]

    def _plain(self, container: str, run: str) -> Any:
        """What a container of plain values says; None if a name is in it twice, which is found out more slowly."""
        try:
            value = lenient_decoder.decode(as_json(container))
        except ValueError:
            self._skims = False
            return None
        self.at += len(run)
        return value

    def string(self) -> str:
        """The text between quotes of any kind."""
        begin = self.at
        mark = self.text[begin]
        if self._python and self.text.startswith(mark * 3, begin) and mark in "\"'":
            mark *= 3
        elif self._python and len(self.text) < begin + 3:
            raise IncompleteJson  # it may become three quotes
        found = STRINGS[mark].match(self.text, begin + len(mark))
        if found is None:
            raise IncompleteJson
        self.at = found.end()
        body = found[1]
        return body if "\\" not in body else self._unescaped(body, mark, begin)

    def _unescaped(self, body: str, mark: str, begin: int) -> str:
        plain = python_letter if self._python else letter if mark == '"' else letter_in_odd_quotes
        try:
            made = ESCAPE.sub(plain, body)
            return made.encode("utf-16-le", "surrogatepass").decode("utf-16-le") if SURROGATE.search(made) else made
        except (UnicodeDecodeError, OverflowError):
            raise InvalidJson("an escape in a text is half a character", begin) from None
        except ValueError as error:
            raise InvalidJson(f"the escape {error} in a text can be read in two ways", begin) from None

    def _number(self) -> int | float:
        found = _NUMBER.match(self.text, self.at)
        if found is None:
            if _MAYBE_NUMBER.fullmatch(self.text, self.at):
                raise IncompleteJson
            raise self.unexpected("a value")
        try:
            value = int(found[0]) if found[1] is None else float(found[0])
        except ValueError:
            raise InvalidJson("a number has too many digits", self.at) from None
        if value.__class__ is float and not isfinite(value):
            raise InvalidJson(f"the number {found[0]} is too large", self.at)
        self.at = found.end()
        return value

    def _word(self) -> Any:
        found = _WORD.match(self.text, self.at)
        if found is not None and found.end() == len(self.text):
            raise IncompleteJson
        if found is None or found[0] not in _WORDS:
            raise self.unexpected("a value; text stands in double quotes")
        self.at = found.end()
        return _WORDS[found[0]]

    def unexpected(self, wanted: str) -> InvalidJson:
        """What should be here, and what is; nothing of what comes later, which may not be there yet."""
        here = self.text[self.at : self.at + 1]
        found = "the end of the line" if here == "\n" else quoted(here)
        return InvalidJson(
            f"expected {wanted}, found {found} after {quoted(self.text[max(0, self.at - 20) : self.at])}", self.at
        )


def _has_two_ends(members: dict[str, Any]) -> bool:
    """Whether the missing brace may also belong further in, so that the last members would be others' members.

    In `{"a": {"b": 1, "c": 2}` the brace can be missing after 1 as well as after 2.
    """
    last = next(reversed(members.values()))
    while isinstance(last, dict) and last:
        if len(last) > 1:
            return True
        (last,) = last.values()
    return False


_SPACE = re.compile("[\\s\ufeff\u200b]*")
# Comments that end are passed over here; one that does not is left to its reader.
_NEXT = re.compile(
    "[\\s\ufeff\u200b]*+(?:(?:(?:#|//)[^\n]*+\n|/(?=\\*)(?:[^*]++|\\*(?!/))*+\\*/)[\\s\ufeff\u200b]*+)*+(.)", re.DOTALL
)
_SIGNS = frozenset(map(chr, range(ord("!"), 127))) - {"#", "/"}
_MAYBE_STRICT = re.compile(r"\{\s*+[\"}]|\[\s*+[^'(]")
_NAME = re.compile(r"[^\W\d][\w$-]*|\$[\w$-]+")
_WORD = re.compile(r"[^\W\d]\w*")
_WORDS = {"true": True, "True": True, "false": False, "False": False, "null": None, "None": None}
_NUMERIC = frozenset("-+.0123456789")
# Only what ends the number may follow it: 12abc, 1.2.3 and 5% are no numbers.
_NUMBER = re.compile(
    r"[-+]?(?=\.?[0-9])(?:0|[1-9][0-9]*)?+(\.[0-9]*(?:[eE][-+]?[0-9]+)?|[eE][-+]?[0-9]+)?+(?=[^\w.%])", re.ASCII
)
_MAYBE_NUMBER = re.compile(r"[-+]?[0-9]*\.?[0-9]*(?:[eE][-+]?[0-9]*)?\Z", re.ASCII)
