"""Reads marks, names and values from text that may contain calls; declares what a form of calls is.

A mark is a fixed text with which a call begins or ends, such as `<tool_call>`. The marker is the mark that the prompt
asks for, `TOOL_CALL`.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any, Literal

from msgspec import Struct

from midspan._schema.lenient_json import CUT, InvalidJson, LenientJsonParser
from midspan._schema.normalize import normalize_tree
from midspan._schema.problems import nearest
from midspan._schema.tree import ANYTHING, SchemaNode
from midspan._types.parts import ToolCall
from midspan._types.specs import NAMESPACES, AnyTool, ToolSpec

_SPACE = re.compile(r"\s*")
_MAX_NAME_CHARS = 200
_TOOL_NAME = re.compile(rf"[^\W\d][\w./:-]{{0,{_MAX_NAME_CHARS - 1}}}")
NAMESPACE = "|".join(map(re.escape, NAMESPACES))
_NAMESPACE_OR_NUMBER = re.compile(rf"\A(?:{NAMESPACE})|:\d+\Z")
MAX_HEAD_CHARS = 160
ReadCalls = list[ToolCall] | None
"""The calls of a text, without ids; None if the text is not a call."""


class CallForm(Struct, frozen=True, eq=False):
    """One form in which models write calls."""

    name: str
    start_marks: tuple[str, ...]
    end_marks: tuple[str, ...] = ()
    needs_end_mark: bool = True
    """Without the end mark the call is not complete. Some models end their turn with it, so servers remove it."""
    is_unambiguous: bool = True
    """The start marks occur only in calls. In other forms, only what names a declared tool is a call."""
    place: Literal["anywhere", "line start", "within a line"] = "anywhere"
    """Where the start marks count. A call within a line may be an example, so it is not made."""
    head: re.Pattern[str] | None = None
    """What the first `MAX_HEAD_CHARS` characters, from the start mark on, must look like."""
    includes_start_mark: bool = False
    """The start mark is a part of the text that `read` gets."""
    read: "Callable[[Scanner], ReadCalls] | None" = None
    """Reads the calls. Without it, they are read in any form."""


class Unreadable(Exception):
    """A call cannot be read. If `scanner.is_call` is false, the text may not be a call at all."""


class ToolIndex:
    """The declared tools by name."""

    def __init__(self, tools: Iterable[AnyTool]) -> None:
        self.specs = {tool.name: tool for tool in tools if isinstance(tool, ToolSpec)}
        self._schemas: dict[str, SchemaNode] = {}

    def resolve(self, name: str) -> str:
        """Return the declared name of a tool; empty if there is none.

        Some models write a namespace before the name, and Kimi the number of the call after it.
        """
        bare = name if name in self.specs else _NAMESPACE_OR_NUMBER.sub("", name)
        return bare if bare in self.specs else ""

    def has_similar(self, name: str) -> bool:
        """Whether a tool has this name or a similar one."""
        return bool(self.resolve(name) or nearest(name, list(self.specs)))

    def schema(self, name: str) -> SchemaNode:
        """Return the schema of the parameters of a tool; one that accepts anything if the tool is unknown."""
        if name not in self.specs:
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
        self.is_call = False
        """Whether the text is certainly a call. It may still be unreadable."""
        self.tool = ""
        """The name of the tool, if it could be read."""
        self.parsed_chars = 0
        """How much text was read as values, including failed attempts."""

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Match a pattern here and advance past it."""
        match = pattern.match(self.text, self.at)
        self.at = match.end() if match else self.at
        return match

    def skip_space(self) -> None:
        self.match(_SPACE)

    def peek(self, *marks: str) -> bool:
        """Whether one of these marks is here."""
        return self.text.startswith(marks, self.at)

    def accept(self, *marks: str) -> str:
        """Advance past any space and one of these marks, and return the mark. Without a mark, stay and return ""."""
        before = self.at
        self.skip_space()
        mark = next((mark for mark in marks if self.peek(mark)), "")
        self.at = self.at + len(mark) if mark else before
        return mark

    def expect(self, *marks: str) -> None:
        """Advance past any space and one of these marks. Without a mark, the call is not complete."""
        if not self.accept(*marks):
            raise Unreadable(f"expected {marks[0]} after it" if self.text[self.at :].strip() else CUT)

    def read_name(self) -> str:
        """Return the name that is here, or an empty string."""
        name = self.match(_TOOL_NAME)
        return name[0] if name else ""

    def set_tool(self, name: str) -> str:
        """Note that the text is a call of this tool. Return its declared name; if it is unknown, the name itself."""
        self.is_call = True
        self.tool = self.tools.resolve(name) or name
        return self.tool

    def read_value(self, parse: Callable[[LenientJsonParser], Any] = LenientJsonParser.value, **options: bool) -> Any:
        """Return what `parse` reads here; `options` are those of the parser."""
        parser = LenientJsonParser(self.text, self.at, **options)
        try:
            value = parse(parser)
        except InvalidJson as error:
            raise Unreadable(str(error)) from None
        finally:
            self.parsed_chars += parser.at - self.at
        self.at = parser.at
        return value
