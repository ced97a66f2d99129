"""The form of a call that the prompt asks for: `TOOL_CALL: name({…})`, and what models make of it."""

import re

from midspan._schema.lenient_json import IncompleteJson
from midspan.providers.prompted.arguments import in_braces, in_parentheses
from midspan.providers.prompted.cursor import Cursor
from midspan.providers.prompted.findings import Broken, Declared, Found, Written
from midspan.providers.prompted.objects import calls_at

MARKER = "TOOL_CALL"

# A name may follow on the next line, in bold, in backticks, in quotes or after a bracket.
_BEFORE = r"[ \t]{0,32}(?:\r?\n[ \t]{0,32})?(?:[*`\"'\[<][ \t]{0,4}){0,6}"
_NAME = r"[^\W\d][\w./-]{0,127}+(?::[\w./-]{1,127}+)?+"
_AFTER = r"[*`\"']{0,3}[ \t]{0,32}"
_HEAD = re.compile(rf"{_BEFORE}(?:({_NAME}){_AFTER}([({{])|(\{{))")
_BEGUN = re.compile(rf"[ \t]{{0,32}}\r?\Z|{_BEFORE}(?:({_NAME}):?{_AFTER})?\Z")
_NAMED = re.compile(rf"{_BEFORE}({_NAME})")
# Words follow the name: somebody speaks of the tool.
_WORDS = re.compile(r"[*`\"']{0,3}[ \t]{1,32}\w")
# A line that no call has: with it after the text, nothing waits for more.
_OVER = "\n\0"


def marked(cursor: Cursor, tools: Declared) -> Found | None:
    """The call whose marker ends here; None if nothing is meant as one."""
    text = cursor.text
    head = _HEAD.match(text, cursor.at)
    if head is None:
        _without_arguments(cursor, tools)
        return None
    if head[3]:
        cursor.at = head.start(3)
        return calls_at(cursor, tools, strict=False)
    name = tools.resolve(head[1]) or head[1]
    if head[2] == "{" and name not in tools.specs:
        return None
    arguments, end = (_in_parentheses if head[2] == "(" else _in_braces)(cursor, head.end() - 1, name)
    return Found(end, (Written(name, arguments),))


def _in_parentheses(cursor: Cursor, at: int, name: str) -> tuple[dict[str, object], int]:
    try:
        return in_parentheses(cursor.text, at, name)
    except IncompleteJson as error:
        if not cursor.over or error.end is None:
            raise
        # The text is over, the object is whole, and at most the parenthesis is missing.
        return in_parentheses(cursor.text + _OVER, at, name)[0], error.end


def _in_braces(cursor: Cursor, at: int, name: str) -> tuple[dict[str, object], int]:
    return in_braces(cursor.text, at, name)


def _without_arguments(cursor: Cursor, tools: Declared) -> None:
    """A marker after which no arguments come: words about calls, unless nothing but the name of a tool does."""
    begun = _BEGUN.match(cursor.text, cursor.at)
    if begun is not None and not cursor.over:
        raise IncompleteJson
    named = _NAMED.match(cursor.text, cursor.at)
    if named is not None and tools.resolve(named[1]) and not _WORDS.match(cursor.text, named.end()):
        raise Broken("it has no arguments; they stand in parentheses after the name", named.end(), named[1])
    if begun is not None and any(known.startswith(begun[1] or "") for known in tools.names):
        raise IncompleteJson(name=begun[1] or "")
