"""The arguments of a call as text → a dict: `({"a": 1})`, `(a=1)`, `()`, each as far as nothing in it is guessed."""

import re
from typing import Any

from midspan._schema.lenient_json import IncompleteJson, InvalidJson, LenientJsonParser
from midspan.providers.prompted.findings import Broken


def in_parentheses(text: str, at: int, name: str, *, python: bool = False) -> tuple[dict[str, Any], int]:
    """The arguments that begin with the parenthesis at `at`, and where the call ends."""
    nearly = LenientJsonParser(text, at + 1, python=python)
    try:
        return _arguments(nearly, python)
    except InvalidJson as error:
        raise Broken(error.problem, error.at, name) from None
    except IncompleteJson as error:
        raise IncompleteJson(error.end, name, depth=error.depth) from None


def in_braces(text: str, at: int, name: str) -> tuple[dict[str, Any], int]:
    """The object that begins with the brace at `at`, and where it ends."""
    nearly = LenientJsonParser(text, at)
    try:
        value: dict[str, Any] = nearly.value()
    except InvalidJson as error:
        raise Broken(error.problem, error.at, name) from None
    except IncompleteJson as error:
        raise IncompleteJson(name=name, depth=error.depth) from None
    return value, nearly.at


def object_in(text: str) -> dict[str, Any] | None:
    """The object that a text spells, as some models put it into a string."""
    nearly = LenientJsonParser(text)
    try:
        value = nearly.value()
        return value if isinstance(value, dict) and not text[nearly.at :].strip() else None
    except (InvalidJson, IncompleteJson):
        return None


def _arguments(nearly: LenientJsonParser, python: bool) -> tuple[dict[str, Any], int]:
    first = nearly.peek()
    if first == ")":
        return {}, _nothing_after(nearly, nearly.at + 1, "{(")
    if first == "{" and not python:
        value: dict[str, Any] = nearly.value(closed_by=")")
        return value, _closed(nearly)
    if first in "\"'" and not python:
        return _quoted(nearly)
    if not _KEYWORD.match(nearly.text, nearly.at):
        if len(nearly.text) - nearly.at < _LONGEST_KEYWORD and _KEYWORD_BEGUN.fullmatch(nearly.text, nearly.at):
            raise IncompleteJson
        raise InvalidJson('the arguments have no names; they stand in an object: {"name": value}', nearly.at)
    keyword = LenientJsonParser(nearly.text, nearly.at, python=True)
    return _members(keyword, "=:")


def _closed(nearly: LenientJsonParser) -> int:
    """Where the call ends, after its object; a missing parenthesis is no doubt where no argument can follow."""
    end = nearly.at
    try:
        following = nearly.peek()
    except IncompleteJson:
        raise IncompleteJson(end) from None  # if the text is over, the call is still whole
    if following == ",":
        nearly.at += 1
        if nearly.peek() != ")":
            raise nearly.unexpected(") after the object of the arguments")
        following = ")"
    if following == ")" and nearly.lacks_brace:
        return _line_ends(nearly, nearly.at + 1, "nothing more after the parenthesis")
    if following == ")":
        return nearly.at + 1
    return _line_ends(nearly, end, ") after the object of the arguments")


def _line_ends(nearly: LenientJsonParser, end: int, wanted: str) -> int:
    """The end of a call that lacks a bracket, if nothing but marks come after it on its line."""
    nearly.at = _MARKS.match(nearly.text, end).end()  # type: ignore[union-attr]  # it matches everywhere
    if nearly.at == len(nearly.text):
        raise IncompleteJson(end)
    if nearly.text[nearly.at] not in "\r\n":
        raise nearly.unexpected(wanted)
    return end


def _nothing_after(nearly: LenientJsonParser, end: int, signs: str) -> int:
    """The end of the call, if no sign on its line says that there is more: `f(){"a": 1}`, `f({"a": 1), "b": 2})`."""
    nearly.at = _BLANKS.match(nearly.text, end).end()  # type: ignore[union-attr]  # it matches everywhere
    if nearly.at == len(nearly.text):
        raise IncompleteJson(end)
    if nearly.text[nearly.at] in signs:
        raise nearly.unexpected("nothing more after the parenthesis")
    return end


def _quoted(nearly: LenientJsonParser) -> tuple[dict[str, Any], int]:
    """Either an object that lacks its braces, or one that is written as a text."""
    begin = nearly.at
    words = nearly.string()
    if nearly.peek() == ":":
        nearly.at = begin
        return _members(nearly, ":")
    value = object_in(words)
    if value is None or nearly.peek() != ")":
        raise InvalidJson('the arguments have no names; they stand in an object: {"name": value}', begin)
    return value, nearly.at + 1


def _members(nearly: LenientJsonParser, separators: str) -> tuple[dict[str, Any], int]:
    members: dict[str, Any] = {}
    while True:
        if nearly.peek() == ")":
            return members, nearly.at + 1
        nearly.member(members, separators)
        following = nearly.peek()
        if following not in ",)":
            raise nearly.unexpected("a comma or ) after a value")
        nearly.at += following == ","


_BLANKS = re.compile(r"[ \t]*")
_MARKS = re.compile(r"[ \t*`\]>.;]*")
_LONGEST_KEYWORD = 300
_KEYWORD = re.compile(r"[^\W\d][\w-]{0,199}\s{0,20}[=:](?!=)")
_KEYWORD_BEGUN = re.compile(r"[^\W\d][\w-]{0,199}\s{0,20}[=:]?\Z")
