"""Parse JSON, and text that is nearly JSON, as long as no part of it has to be guessed.

`parse_json` accepts JSON only. Besides JSON, `parse_lenient_json` accepts single and typographic quotes, trailing
commas, comments, keys without quotes, Python's `True`, `False` and `None`, and line breaks in strings. It rejects what
has two readings, and never completes a value. With `python=True` strings, tuples and keyword arguments are read as
Python writes them; with `tokens=True` strings may be quoted by special tokens.
"""

import json
import re
from collections import Counter
from math import isfinite
from typing import Any

import msgspec

from midspan._schema.problems import quoted
from midspan._types.texts import SURROGATE

TOKEN_QUOTES = ('<|"|>', "<escape>", "<ctrl46>")
"""Special tokens that Gemma 4, FunctionGemma and Gemini write around strings."""
CUT = "the text ends too early"
MAX_DEPTH = 100
"""Levels of objects and lists; validation goes no deeper either."""


class InvalidJson(ValueError):
    """The text is not a value, is ambiguous, or ends before the value does."""


def parse_json(text: str) -> Any:
    """Return the value of a JSON text. Raises InvalidJson if it is not JSON, or if an object has a name twice."""
    try:
        value = msgspec.json.decode(text)
        if isinstance(value, dict | list):
            json.loads(text, object_pairs_hook=_check_unique)  # msgspec would keep the last value of a name
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise InvalidJson(str(error)) from error
    return value


def _check_unique(members: list[tuple[str, Any]]) -> None:
    for name, count in Counter(name for name, _ in members).most_common(1):
        if count > 1:
            raise InvalidJson(f"{quoted(name)} is given twice")


def parse_lenient_json(text: str) -> Any:
    """Return the value of the whole text."""
    source = text + "\n"  # so that a number at the very end has an end
    parser = LenientJsonParser(source)
    value = parser.value()
    if _REST.match(source, parser.at) is None:
        raise InvalidJson(f"there is more after the value: {quoted(source[parser.at :].strip())}")
    return value


class LenientJsonParser:
    """A position in a text, and what can be parsed from there. Each method moves `at` past what it has read."""

    def __init__(self, text: str, at: int = 0, *, python: bool = False, tokens: bool = False) -> None:
        self.text = text
        self.at = at
        self._python = python
        self._tokens = tokens
        self._depth = 0

    def peek(self) -> str:
        """Return the next character that is neither space nor in a comment."""
        here = self.text[self.at : self.at + 1]
        if here in _SIGNS:
            return here
        match = _NEXT.match(self.text, self.at)
        if match is None or self.text.startswith("/*", match.start(1)):
            raise self._cut()
        self.at = match.start(1)
        if match[1] == "#" or self.text.startswith("//", self.at):
            raise InvalidJson("a comment contains a quote, or has no end; it may be a string that lost one")
        return match[1]

    def value(self) -> Any:
        first = self.peek()
        if first in _QUOTES:
            return self.string()
        if first in _NUMERIC:
            return self._number()
        if first in "{[":
            return self._container(first)
        if first == "<" and self._tokens:
            return self._token_string()
        return self._container(first) if first == "(" and self._python else self._word()

    def _container(self, first: str) -> Any:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise InvalidJson(f"it is nested more than {MAX_DEPTH} levels deep")
        self.at += 1
        value = self.members("}") if first == "{" else self._list("]" if first == "[" else ")")
        self._depth -= 1
        return value

    def members(self, end: str, separators: str = ":") -> dict[str, Any]:
        """Parse names and their values up to the `end`."""
        members: dict[str, Any] = {}
        while self.peek() != end:
            name = self.string() if self.text[self.at] in _QUOTES else self._match(_NAME, "a name in double quotes")[0]
            if self.peek() not in separators:
                raise self.unexpected(f"{' or '.join(separators)} after the name {quoted(name)}")
            if name in members:
                raise InvalidJson(f"{quoted(name)} is given twice")
            self.at += 1
            members[name] = self.value()
            self._comma_or(end)
        self.at += 1
        return members

    def _comma_or(self, end: str) -> bool:
        """Skip the comma after a value, and return whether there is one; without it the end must follow."""
        following = self.peek()
        if following not in (",", end):
            raise self.unexpected(f"a comma or {end} after a value")
        self.at += following == ","
        return following == ","

    def _match(self, pattern: re.Pattern[str], expected: str) -> re.Match[str]:
        match = pattern.match(self.text, self.at)
        if match is None:
            raise self.unexpected(expected)
        self.at = match.end()
        return match

    def _list(self, end: str) -> list[Any]:
        items: list[Any] = []
        is_list = end == "]"
        while self.peek() != end:
            items.append(self.value())
            is_list |= self._comma_or(end)
        if items and not is_list:
            raise InvalidJson("parentheses around one value are not a list")
        self.at += 1
        return items

    def string(self) -> str:
        """Parse the text between quotes of any kind."""
        begin = self.at
        quote = self.text[begin]
        if self._python and self.text.startswith(quote * 3, begin) and quote in "\"'":
            quote *= 3
        match = _STRINGS[quote].match(self.text, begin + len(quote))
        if match is None:
            raise self._cut()
        body = match[1]
        if body.endswith("\n") and len(quote) == 1:
            raise InvalidJson("a string ends with a line break; write it as \\n")
        self.at = match.end()
        return body if "\\" not in body else self._unescape(body, quote)

    def _token_string(self) -> str:
        quote = self._match(_TOKEN_QUOTE, "a value")[0]
        begin = self.at
        end = self.text.find(quote, begin)
        if end == -1:
            raise self._cut()
        body = self.text[begin:end]
        if body.startswith(">") or body.endswith("<"):
            raise InvalidJson("there is an extra character next to the quote of a string")
        self.at = end + len(quote)
        return body

    def _unescape(self, body: str, quote: str) -> str:
        try:
            if not self._python and quote != '"' and _AMBIGUOUS_QUOTE.search(body):
                raise ValueError("\\'")
            text = _ESCAPE.sub(self._decode_escape, body)
            return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le") if SURROGATE.search(text) else text
        except (UnicodeDecodeError, OverflowError):
            raise InvalidJson("an escape in a string is an unpaired surrogate") from None
        except ValueError as error:
            raise InvalidJson(f"the escape {error} in a string can be read in two ways") from None

    def _decode_escape(self, escape: re.Match[str]) -> str:
        """Return the character of an escape. An unknown escape is an error in JSON, and stays as it is in Python."""
        code = escape[1]
        known = _PYTHON_ESCAPES if self._python else _ESCAPES
        if len(code) == 5 or (self._python and len(code) > 1):
            return chr(int(code[1:], 16))
        if code in known or (self._python and code not in "01234567N"):
            return known.get(code, escape[0])
        raise ValueError(escape[0])

    def _number(self) -> int | float:
        match = self._match(_NUMBER, "a value")
        try:
            value = int(match[0]) if match[1] is None else float(match[0])
        except ValueError:
            raise InvalidJson("a number has too many digits") from None
        if value.__class__ is float and not isfinite(value):
            raise InvalidJson(f"the number {match[0]} is too large")
        return value

    def _word(self) -> Any:
        return _WORDS[self._match(_WORD, "a value; strings need double quotes")[0]]

    def unexpected(self, expected: str) -> InvalidJson:
        """Return an error that says what was expected and found here."""
        if _LAST_WORD.match(self.text, self.at):
            return self._cut()
        here = self.text[self.at : self.at + 1]
        actual = "the end of the line" if here == "\n" else quoted(here)
        before = quoted(self.text[max(0, self.at - 20) : self.at])
        return InvalidJson(f"expected {expected}, found {actual} after {before}")

    def _cut(self) -> InvalidJson:
        self.at = len(self.text)
        return InvalidJson(CUT)


def _string(closing: str) -> re.Pattern[str]:
    # Possessive, so that neither time nor memory grows with what was already read.
    return re.compile(rf"((?:[^\\{closing}]+|\\.)*+)[{closing}]", re.DOTALL)


_REST = re.compile("[\\s\ufeff\u200b]*\\Z")
_QUOTES = "\"'“”„\u2018\u2019"
# Comments are skipped here, except one that does not end or contains a quote: see `peek`.
_NEXT = re.compile(
    f"[\\s\ufeff\u200b]*+(?:(?:(?:#|//)[^\n{_QUOTES}]*+\n|/(?=\\*)(?:[^*]++|\\*(?!/))*+\\*/)[\\s\ufeff\u200b]*+)*+(.)",
    re.DOTALL,
)
_SIGNS = frozenset(map(chr, range(ord("!"), 127))) - {"#", "/"}
_NAME = re.compile(r"[^\W\d][\w$-]*|\$[\w$-]+")
_WORD = re.compile(r"(?:true|True|false|False|null|None)(?!\w)")
_WORDS = {"true": True, "True": True, "false": False, "False": False, "null": None, "None": None}
_NUMERIC = frozenset("-+.0123456789")
# Only what ends the number may follow it: 12abc, 1.2.3 and 5% are not numbers.
_NUMBER = re.compile(
    r"[-+]?(?=\.?[0-9])(?:0|[1-9][0-9]*)?+(\.[0-9]*(?:[eE][-+]?[0-9]+)?|[eE][-+]?[0-9]+)?+(?=[^\w.%])", re.ASCII
)
_LAST_WORD = re.compile(r"[\w.+-]*+\Z")
_STRINGS = {
    '"': _string('"'),
    "'": _string("'"),
    **dict.fromkeys("“”„", _string("“”")),
    **dict.fromkeys("\u2018\u2019", _string("\u2018\u2019")),
    '"""': re.compile(r'((?:[^\\"]+|\\.|"(?!""))*+)"""', re.DOTALL),
    "'''": re.compile(r"((?:[^\\']+|\\.|'(?!''))*+)'''", re.DOTALL),
}
_TOKEN_QUOTE = re.compile("|".join(map(re.escape, TOKEN_QUOTES)))
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
# A model that replaces every double quote of JSON by a single one makes \' of \". Only between letters, as in don\'t,
# can it be nothing but an apostrophe.
_AMBIGUOUS_QUOTE = re.compile(r"(?<![^\W\d_])\\'|\\'(?![^\W\d_])")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\\": "\\", '"': '"', "/": "/", "'": "'"}
_PYTHON_ESCAPES = _ESCAPES | {"a": "\a", "v": "\v", "\n": "", "/": "\\/"}
