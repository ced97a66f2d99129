"""Reads marks, names and values from text that may contain calls; declares what a form of calls is."""

import re
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any, Literal

from msgspec import Struct

from midspan._schema.lenient_json import CUT, InvalidJson, LenientJsonParser
from midspan._schema.normalize import normalize_tree
from midspan._schema.tree import ANYTHING, SchemaNode
from midspan._types.specs import NAMESPACES, AnyTool, ToolSpec

_SPACE = re.compile(r"\s*")
_MAX_NAME_CHARS = 200
_NAME = re.compile(rf"[^\W\d][\w./:-]{{0,{_MAX_NAME_CHARS - 1}}}")
NAMESPACE = "|".join(map(re.escape, NAMESPACES))
_NOT_THE_NAME = re.compile(rf"\A(?:{NAMESPACE})|:\d+\Z")


class WrittenCall(Struct, frozen=True):
    """A call that was read from a text."""

    name: str
    arguments: dict[str, Any]


WrittenCalls = list[WrittenCall] | None
"""None: the text is not a call."""


Place = Literal["anywhere", "line start", "within a line"]


class CallForm(Struct, frozen=True, eq=False):
    """One form in which models write calls."""

    name: str
    starts: tuple[str, ...]
    """The marks with which a call begins."""
    ends: tuple[str, ...] = ()
    needs_end: bool = True
    """Without the end mark the call is not complete. Some models end their turn with it, so servers remove it."""
    is_certain: bool = True
    """The start mark does not occur in other text. Otherwise only what names a declared tool is a call."""
    place: Place = "anywhere"
    """Where the start marks count. A call within a line may be an example, so it is not made."""
    head: re.Pattern[str] | None = None
    """What the text from the start mark on must look like, within `MAX_HEAD_CHARS`."""
    is_content: bool = False
    """The start mark is read as part of the call."""
    parse: "Callable[[Scanner], WrittenCalls] | None" = None
    """Reads the calls; returns None if the text is not a call. Without it, the calls are read in any form."""


MAX_HEAD_CHARS = 160


class Unreadable(Exception):
    """A call cannot be read. If `scanner.tool` is None, the text may not be a call."""


class ToolIndex:
    """The declared tools by name."""

    def __init__(self, tools: Iterable[AnyTool]) -> None:
        self.specs = {tool.name: tool for tool in tools if isinstance(tool, ToolSpec)}
        self._schemas: dict[str, SchemaNode] = {}

    def resolve(self, name: str) -> str | None:
        """Return the declared name. Some models add a namespace before it, and Kimi the number of the call after it."""
        if name in self.specs:
            return name
        bare = _NOT_THE_NAME.sub("", name)
        return bare if bare in self.specs else None

    def resembles(self, name: str) -> bool:
        """Whether a tool has this name or a similar one."""
        return self.resolve(name) is not None or bool(get_close_matches(name[:_MAX_NAME_CHARS], self.specs, 1, 0.6))

    def schema(self, name: str | None) -> SchemaNode:
        """Return the schema of the parameters of a tool; one that accepts anything if the tool is unknown."""
        if name is None or name not in self.specs:
            return ANYTHING
        if name not in self._schemas:
            self._schemas[name] = parameters_of(self.specs[name])
        return self._schemas[name]


def parameters_of(tool: ToolSpec) -> SchemaNode:
    return normalize_tree(tool.parameters or {}).root


class Scanner:
    """Reads marks, names and values from the position `at` of a text."""

    def __init__(self, text: str, at: int, tools: ToolIndex, form: CallForm) -> None:
        self.text = text
        self.at = at
        self.tools = tools
        self.form = form
        self.tool: str | None = None
        """The tool of the call; empty if a call is certain and its tool is not known, None if no call is certain."""
        self.parsed_chars = 0
        """How much text was read as values, including failed attempts."""

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Match a pattern here and advance past it."""
        match = pattern.match(self.text, self.at)
        self.at = match.end() if match else self.at
        return match

    def skip_space(self) -> None:
        self.match(_SPACE)

    def take(self, *marks: str) -> str:
        """Return the first of these marks that is at the current position, or an empty string."""
        mark = self.sees(*marks)
        self.at += len(mark)
        return mark

    def take_after_space(self, *marks: str) -> str:
        """Like `take`, after any space; without a mark the position stays the same."""
        before = self.at
        self.skip_space()
        mark = self.take(*marks)
        if not mark:
            self.at = before
        return mark

    def sees(self, *marks: str) -> str:
        """Return the mark that is at the current position without moving."""
        return next((mark for mark in marks if self.text.startswith(mark, self.at)), "")

    def expect(self, *marks: str) -> None:
        """Take one of these marks after any space. A call without the end mark of its form is not complete."""
        if not self.take_after_space(*marks):
            raise Unreadable(f"expected {marks[0]} after it" if self.text[self.at :].strip() else CUT)

    def name(self) -> str:
        """Return the name that is at the current position, or an empty string."""
        name = self.match(_NAME)
        return name[0] if name else ""

    def note_call(self, name: str) -> str:
        """Note that the text is a call of this tool, and return the declared name if there is one."""
        self.tool = self.tools.resolve(name) or ""
        return self.tool or name

    def parse(self, parse: Callable[[LenientJsonParser], Any] = LenientJsonParser.value, **options: bool) -> Any:
        """Return what `parse` reads here."""
        begin = self.at
        parser = LenientJsonParser(self.text, begin, **options)
        try:
            value = parse(parser)
        except InvalidJson as error:
            raise Unreadable(str(error)) from None
        finally:
            self.parsed_chars += parser.at - begin
        self.at = parser.at
        return value
