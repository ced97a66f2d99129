"""A position in a text that may still grow: the marks, names and values that can be read from there."""

import re
from collections.abc import Callable, Iterable, Sized
from difflib import get_close_matches
from typing import Any, TypeVar

from msgspec import Struct

from midspan._schema.lenient_json import IncompleteJson, InvalidJson, LenientJsonParser
from midspan._schema.normalize import normalize_tree
from midspan._schema.tree import ANYTHING, SchemaNode
from midspan._types.specs import AnyTool, ToolSpec

T = TypeVar("T")

MAX_CALLS = 1_000
"""In one answer."""
MAX_CALL_CHARS = 1 << 20
LOOKAHEAD = 64
_MAX_NAME_CHARS = 200
SPACE = re.compile(r"\s*")
_NAME = re.compile(rf"[^\W\d][\w./:-]{{0,{_MAX_NAME_CHARS - 1}}}")
_NAMESPACE = re.compile(r"default_api[.:]|functions\.|tools\.")
_CALL_NUMBER = re.compile(r":\d+\Z")


class WrittenCall(Struct, frozen=True):
    """A call as it stands in a text."""

    name: str
    arguments: dict[str, Any]
    error: str | None = None
    """Why the call is not made although it can be read."""


class Form(Struct, frozen=True, eq=False):
    """One form in which models write calls."""

    name: str
    starts: tuple[str, ...]
    """The marks with which a call begins."""
    ends: tuple[str, ...] = ()
    parse: "Callable[[Scanner], list[WrittenCall] | None] | None" = None
    """Reads the calls; returns None if the text is not a call. Without it, the calls stand between two marks."""
    needs_end: bool = True
    """Without the end mark the call is not complete. Some models end their turn with it, so servers remove it."""
    list_needs_end: bool = True
    """The same for a list. Granite writes a list without an end mark, where others write the end mark."""
    at_line_start: bool = False
    """The start marks also occur in plain text, so they count only at the beginning of a line."""
    is_content: bool = False
    """The start mark is a part of what `parse` reads."""


class Incomplete(Exception):
    """The text ends before the call does."""


class Unreadable(Exception):
    """A call is meant here, but it cannot be read."""


class ToolIndex:
    """The declared tools by name."""

    def __init__(self, tools: Iterable[AnyTool]) -> None:
        self.specs = {tool.name: tool for tool in tools if isinstance(tool, ToolSpec)}
        self.names = tuple(self.specs)
        self._schemas: dict[str, SchemaNode] = {}

    def resolve(self, name: str) -> str | None:
        """Return the declared name. Some models add a namespace before it, and Kimi the number of the call after it."""
        if name in self.specs:
            return name
        namespace = _NAMESPACE.match(name)
        bare = _CALL_NUMBER.sub("", name[namespace.end() :] if namespace else name)
        return bare if bare in self.specs else None

    def similar(self, name: str) -> list[str]:
        return get_close_matches(name[:_MAX_NAME_CHARS], self.names, 3, 0.6)

    def unknown(self, name: str) -> str:
        """Return what to tell a model that called a tool which is not declared."""
        similar = self.similar(_NAMESPACE.sub("", name, count=1))
        hint = f"; did you mean {' or '.join(similar)}?" if similar else ""
        known = f"the tools are: {', '.join(self.names[:50])}" if self.names else "there are no tools"
        return f"unknown tool: {name[:_MAX_NAME_CHARS]}{hint}; {known}"

    def schema(self, name: str | None) -> SchemaNode:
        """Return the schema of the parameters of a tool; one that accepts anything if the tool is unknown."""
        if name is None or name not in self.specs:
            return ANYTHING
        if name not in self._schemas:
            self._schemas[name] = parameters_of(self.specs[name])
        return self._schemas[name]


def parameters_of(tool: ToolSpec) -> SchemaNode:
    return normalize_tree(tool.parameters or {})[0].root


def properties_of(node: SchemaNode) -> dict[str, SchemaNode]:
    """Return the properties that a schema declares, itself or by reference."""
    return {name: prop for part in node.applying for name, prop in part.properties.items()}


class Scanner:
    """Reads from `at` on, as if the text ended where it ends now.

    The result also holds for a longer text if `reach` is not beyond the end of the text.
    """

    def __init__(self, text: str, at: int, tools: ToolIndex, form: Form) -> None:
        self.text = text
        self.at = at
        self.tools = tools
        self.form = form
        self.tool: str | None = None
        """The tool of the call; empty if a call is certain and its tool is not known, None if no call is certain."""
        self.reach = at
        """How far the text was looked at."""

    def look(self, end: int) -> None:
        """Note that the result depends on the text up to there."""
        self.reach = max(self.reach, end)

    def match(self, pattern: re.Pattern[str], within: int = 1) -> re.Match[str] | None:
        """Match a pattern here and move behind it. `within` is how much text shows that it does not match."""
        match = pattern.match(self.text, self.at)
        if match is None:
            self.look(self.at + within)
        else:
            self.at = match.end()
            self.look(self.at + 1)
        return match

    def space(self) -> None:
        self.match(SPACE)

    def take(self, *marks: str) -> str:
        """Return the first of these marks that stands here, or an empty string."""
        self.look(self.at + max(map(len, marks), default=0))
        mark = next((mark for mark in marks if self.text.startswith(mark, self.at)), "")
        self.at += len(mark)
        return mark

    def take_after_space(self, *marks: str) -> str:
        """Do the same after any space, which is not skipped if no mark follows."""
        before = self.at
        self.space()
        mark = self.take(*marks)
        if not mark:
            self.at = before
        return mark

    def sees(self, *marks: str) -> str:
        """Return the mark that stands here without moving."""
        before = self.at
        mark = self.take(*marks)
        self.at = before
        return mark

    def expect(self, *marks: str) -> str:
        """Take one of these marks after any space. A call without the end mark of its form is not complete."""
        mark = self.take_after_space(*marks)
        if mark:
            return mark
        raise Incomplete if not self.text[self.at :].strip() else Unreadable(f"expected {marks[0]} after it")

    def name(self) -> str:
        """Return the name that stands here, or an empty string."""
        name = self.match(_NAME)
        return name[0] if name else ""

    def parse(self, parse: Callable[[LenientJsonParser], T], *, python: bool = False) -> T:
        """Return what `parse` reads here."""
        begin = self.at
        parser = LenientJsonParser(self.text, begin, python=python)
        try:
            value = parse(parser)
        except InvalidJson as error:
            self.look(error.at + LOOKAHEAD)
            raise Unreadable(error.problem) from None
        except IncompleteJson:
            raise Incomplete from None
        self.at = parser.at
        self.look(parser.at)
        return value

    def check_count(self, calls: Sized) -> None:
        if len(calls) > MAX_CALLS:
            raise Unreadable(f"there are more than {MAX_CALLS:,} calls in it")


def skip(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Return where a match of the pattern at this position ends; the same position if there is none."""
    match = pattern.match(text, at)
    return match.end() if match else at
