"""Calls that a model printed where it should have made them, or that its service could not read, made after all.

`MALFORMED_FUNCTION_CALL` comes with what the model wrote: `Malformed function call: print(default_api.f(a=1))`.
"""

import re
from collections.abc import Callable, Iterable

from midspan._schema.lenient_json import IncompleteJson
from midspan._types.parts import Text, ToolCall, local_id
from midspan._types.specs import AnyTool
from midspan.providers.prompted.cursor import Cursor
from midspan.providers.prompted.dialects.pythonic import code_fence
from midspan.providers.prompted.findings import Broken, Declared, Written
from midspan.providers.prompted.marker import MARKER
from midspan.providers.prompted.reader import LONGEST_CALL, Reader, numbered

_HEAD = re.compile(r"\s*(?:Malformed function call:)?\s*", re.IGNORECASE)
# Gemini's own quotes, which it now and then lets out.
_QUOTES = re.compile(r"<ctrl46>|<escape>")


def salvage(text: str, tools: Iterable[AnyTool], *, make_id: Callable[[], str] = local_id) -> tuple[ToolCall, ...]:
    """The calls that a text consists of; none at all if there is anything in it that had to be guessed."""
    declared = Declared(tools)
    words = text[_HEAD.match(text).end() :].strip()  # type: ignore[union-attr]  # it matches everywhere
    if not words or not declared.names or len(words) > LONGEST_CALL:
        return ()
    if '"' not in words:
        words = _QUOTES.sub('"', words)
    found = _as_code(words, declared) or _as_text(f"{MARKER}: {words}", declared) or _as_text(words, declared)
    return tuple(ToolCall(make_id(), call.name, call.arguments) for call in found)


def _as_code(words: str, tools: Declared) -> tuple[Written, ...]:
    code = words if words.startswith("```") else f"```tool_code\n{words}\n```"
    try:
        found = code_fence(Cursor(code, 0, over=True), tools)
    except (Broken, IncompleteJson):
        return ()
    return found.calls if found is not None and found.end == len(code) else ()


def _as_text(words: str, tools: Declared) -> tuple[Written, ...]:
    reader = Reader(tools, make_id=numbered())
    pieces = [*reader.feed(words), *reader.end()]
    pieces = [piece for piece in pieces if not (isinstance(piece, Text) and not piece.text.strip())]
    calls = [Written(piece.name, piece.arguments) for piece in pieces if isinstance(piece, ToolCall)]
    return tuple(calls) if len(calls) == len(pieces) else ()
