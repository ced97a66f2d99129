"""Text that is nearly JSON → the value that it says, as long as no part of it has to be guessed.

Read are, beside JSON itself: single and typographic quotes, trailing commas, comments, keys without quotes, Python's
`True`, `False` and `None`, line breaks inside strings. Not read is whatever has two readings, and whatever is still
open where the text ends: that is `Unfinished`, and nobody completes it. With `python=True` strings, tuples and keyword
arguments are read as Python has them.
"""

import json
import re
from math import isfinite
from typing import Any

from wasat.schema.paths import quoted

DEEPEST = 100
"""Levels of objects and lists; the checks of arguments go no deeper either."""


class Unreadable(ValueError):
    """The text is no value, or could be several; `at` is where that shows."""

    def __init__(self, problem: str, at: int) -> None:
        super().__init__(problem)
        self.problem = problem
        self.at = at


class Unfinished(ValueError):
    """The text ends before the value does; `end` is where it would end, had it nothing more to come."""

    def __init__(self, end: int | None = None, name: str | None = None) -> None:
        super().__init__("the text ends before the value does")
        self.end = end
        self.name = name
        """Whose value it is, where a caller knows that."""


def loads(text: str) -> Any:
    """The value that the whole text says."""
    source = text + "\n"  # a number at the very end has an end, too
    nearly = Nearly(source)
    try:
        value = nearly.value()
    except Unfinished:
        raise Unreadable("it ends before the value does", len(text)) from None
    rest = _SPACE.match(source, nearly.at)
    if rest is None or rest.end() < len(source):
        raise Unreadable(f"there is more after the value: {quoted(source[nearly.at :].strip())}", nearly.at)
    return value


class Nearly:
    """A place in a text, and what can be read from there; each method moves `at` behind what it has read."""

    def __init__(self, text: str, at: int = 0, *, python: bool = False) -> None:
        self.text = text
        self.at = at
        self._python = python
        self._depth = 0
        self._broken_at = 0
        """Where strict reading failed; it is not tried again before that place, and not often at all."""
        self._attempts = 8
        self.lacks_brace = False
        """Whether an object was taken as whole without its last brace."""

    def peek(self) -> str:
        """The next character that is neither space nor in a comment."""
        while True:
            found = _NEXT.match(self.text, self.at)
            if found is None:
                raise Unfinished
            self.at = found.start(1)
            if found[1] not in "#/":
                return found[1]
            if found[1] == "#" or self.text.startswith("//", self.at):
                self._skip("\n")
            elif self.text.startswith("/*", self.at):
                self._skip("*/")
            elif self.at + 1 == len(self.text):
                raise Unfinished
            else:
                return "/"

    def _skip(self, end: str) -> None:
        found = self.text.find(end, self.at + 1)
        if found < 0:
            raise Unfinished
        self.at = found + len(end)

    def value(self, *, closed_by: str | None = None) -> Any:
        """The value here. An object may lack its last brace where `closed_by` stands in its place."""
        first = self.peek()
        if first in _NUMERIC:
            return self._number()
        if first in _QUOTES:
            return self.string()
        if first in "{[":
            if self.at >= self._broken_at and self._attempts:
                try:
                    value, self.at = _strict(self.text, self.at, DEEPEST - self._depth)
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
            raise Unreadable(f"it is nested more than {DEEPEST} levels deep", self.at)
        self.at += 1
        value = self._object(closed_by) if first == "{" else self._list("]" if first == "[" else ")")
        self._depth -= 1
        return value

    def _object(self, closed_by: str | None) -> dict[str, Any]:
        members: dict[str, Any] = {}
        while True:
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
        name = self.string() if self.peek() in _QUOTES else self._name()
        if self.peek() not in separators:
            raise self.unexpected(f"{' or '.join(separators)} after the name {quoted(name)}")
        self.at += 1
        if name in members:
            raise Unreadable(f"{quoted(name)} is given twice", begin)
        members[name] = self.value()

    def _name(self) -> str:
        found = _NAME.match(self.text, self.at)
        if found is None:
            raise self.unexpected("a name in double quotes")
        if found.end() == len(self.text):
            raise Unfinished
        self.at = found.end()
        return found[0]

    def _list(self, end: str) -> list[Any]:
        items, commas = self._flat_items()
        while self.peek() != end:
            items.append(self.value())
            following = self.peek()
            if following not in (",", end):
                raise self.unexpected(f"a comma or {end} after a value")
            if following == ",":
                self.at += 1
                commas += 1
        if end == ")" and len(items) == 1 and not commas:
            raise Unreadable("parentheses around one value are no list", self.at)
        self.at += 1
        return items

    def _flat_items(self) -> tuple[list[Any], int]:
        """The first items as long as they are plain numbers and texts, at the speed of C; the rest one by one."""
        found = _FLAT.match(self.text, self.at)
        if found is None:
            return [], 0
        try:
            items: list[Any] = _decoder.decode(f"[{found[0].rstrip()[:-1]}]")
        except ValueError:
            return [], 0
        self.at = found.end()
        return items, len(items)

    def string(self) -> str:
        """The text between quotes of any kind."""
        begin = self.at
        mark = self.text[begin]
        if self._python and self.text.startswith(mark * 3, begin) and mark in "\"'":
            mark *= 3
        elif self._python and len(self.text) < begin + 3:
            raise Unfinished  # it may become three quotes
        found = _STRINGS[mark].match(self.text, begin + len(mark))
        if found is None:
            raise Unfinished
        self.at = found.end()
        body = found[1]
        return body if "\\" not in body else self._unescaped(body, mark, begin)

    def _unescaped(self, body: str, mark: str, begin: int) -> str:
        plain = _python_letter if self._python else _letter if mark == '"' else _letter_in_odd_quotes
        try:
            made = _ESCAPE.sub(plain, body)
            return made.encode("utf-16-le", "surrogatepass").decode("utf-16-le") if _SURROGATE.search(made) else made
        except (UnicodeDecodeError, OverflowError):
            raise Unreadable("an escape in a text is half a character", begin) from None
        except ValueError as error:
            raise Unreadable(f"the escape {error} in a text can be read in two ways", begin) from None

    def _number(self) -> int | float:
        found = _NUMBER.match(self.text, self.at)
        if found is None:
            if _MAYBE_NUMBER.fullmatch(self.text, self.at):
                raise Unfinished
            raise self.unexpected("a value")
        try:
            value = int(found[0]) if found[1] is None else float(found[0])
        except ValueError:
            raise Unreadable("a number has too many digits", self.at) from None
        if value.__class__ is float and not isfinite(value):
            raise Unreadable(f"the number {found[0]} is too large", self.at)
        self.at = found.end()
        return value

    def _word(self) -> Any:
        found = _WORD.match(self.text, self.at)
        if found is not None and found.end() == len(self.text):
            raise Unfinished
        if found is None or found[0] not in _WORDS:
            raise self.unexpected("a value; text stands in double quotes")
        self.at = found.end()
        return _WORDS[found[0]]

    def unexpected(self, wanted: str) -> Unreadable:
        """What should be here, and what is; nothing of what comes later, which may not be there yet."""
        here = self.text[self.at : self.at + 1]
        found = "the end of the line" if here == "\n" else quoted(here)
        return Unreadable(
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


def _letter(escape: re.Match[str]) -> str:
    """What an escape stands for in JSON; an apostrophe needs none, but nothing else can be meant."""
    word = escape[1]
    if word[0] == "u" and len(word) > 1:
        return chr(int(word[1:], 16))
    if word in _ESCAPES:
        return _ESCAPES[word]
    if word == "'":
        return word
    raise ValueError(escape[0])


def _letter_in_odd_quotes(escape: re.Match[str]) -> str:
    """The same between quotes that JSON does not have.

    Who turned every double quote of JSON into a single one has made \\' of \\"; between letters that cannot be.
    """
    if escape[1] == "'":
        before, after = (
            escape.string[escape.start() - 1 : escape.start()],
            escape.string[escape.end() : escape.end() + 1],
        )
        if not (before.isalpha() and after.isalpha()):
            raise ValueError(escape[0])
    return _letter(escape)


def _python_letter(escape: re.Match[str]) -> str:
    """The same in Python, where an escape that is none stays as it is."""
    word = escape[1]
    if word[0] in "xuU" and len(word) > 1:
        return chr(int(word[1:], 16))
    if word in "01234567N":
        raise ValueError(escape[0])
    return _PYTHON_ESCAPES.get(word, escape[0])


def _strict(text: str, at: int, deepest: int) -> tuple[Any, int]:
    """JSON as the standard has it, at the speed of C; a ValueError for all that the rest of this module must see."""
    value, end = _decoder.raw_decode(text, at)
    if text.count("{", at, end) + text.count("[", at, end) > deepest and _is_deep(value, deepest):
        raise ValueError("too deep")
    if _HALF.search(text, at, end):
        raise ValueError("perhaps half a character")
    return value, end


def _is_deep(value: Any, deepest: int) -> bool:
    level = [value]
    for _ in range(deepest):
        inner = [one for box in level for one in (box.values() if type(box) is dict else box)]
        level = [one for one in inner if type(one) in (dict, list)]
        if not level:
            return False
    return True


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a name twice")
    return members


def _finite(digits: str) -> float:
    value = float(digits)
    if not isfinite(value):
        raise ValueError("too large")
    return value


def _refuse(word: str) -> Any:
    raise ValueError(word)


_decoder = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_finite, parse_constant=_refuse)

_SPACE = re.compile("[\\s\ufeff\u200b]*")
_NEXT = re.compile("[\\s\ufeff\u200b]*+(.)", re.DOTALL)
_NAME = re.compile(r"[^\W\d][\w$-]*|\$[\w$-]+")
_WORD = re.compile(r"[^\W\d]\w*")
_WORDS = {"true": True, "True": True, "false": False, "False": False, "null": None, "None": None}
_FLAT = re.compile(r'(?:\s*+(?:-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?|"[^"\\]*+")\s*+,)++', re.ASCII)
_NUMERIC = frozenset("-+.0123456789")
# Only what ends the number may follow it: 12abc, 1.2.3 and 5% are no numbers.
_NUMBER = re.compile(
    r"[-+]?(?=\.?[0-9])(?:0|[1-9][0-9]*)?+(\.[0-9]*(?:[eE][-+]?[0-9]+)?|[eE][-+]?[0-9]+)?+(?=[^\w.%])", re.ASCII
)
_MAYBE_NUMBER = re.compile(r"[-+]?[0-9]*\.?[0-9]*(?:[eE][-+]?[0-9]*)?\Z", re.ASCII)
_QUOTES = "\"'“”„\u2018\u2019"
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\\": "\\", '"': '"', "/": "/"}
_PYTHON_ESCAPES = _ESCAPES | {"a": "\a", "v": "\v", "'": "'", "\n": "", "/": "\\/"}
_SURROGATE = re.compile("[\ud800-\udfff]")
_HALF = re.compile(r"\\u[dD][89a-fA-F]")


def _string(closing: str) -> re.Pattern[str]:
    # Possessive, so that neither time nor memory grows with what was already read.
    other = closing if closing.startswith("[") else f"[{closing}]"
    return re.compile(rf"((?:[^\\{other[1:]}+|\\.)*+){other}", re.DOTALL)


_STRINGS = {
    '"': _string('"'),
    "'": _string("'"),
    **dict.fromkeys("“”„", _string("[“”]")),
    **dict.fromkeys("\u2018\u2019", _string("[\u2018\u2019]")),
    '"""': re.compile(r'((?:[^\\"]+|\\.|"(?!""))*+)"""', re.DOTALL),
    "'''": re.compile(r"((?:[^\\']+|\\.|'(?!''))*+)'''", re.DOTALL),
}
