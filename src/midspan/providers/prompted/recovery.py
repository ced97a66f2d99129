"""Reads the calls that a service could not read: `Malformed function call: print(default_api.f(a=1))`."""

import re
from collections.abc import Iterable

from midspan._types.parts import Text, ToolCall, local_id
from midspan._types.specs import AnyTool
from midspan.providers.prompted.forms import MARKER
from midspan.providers.prompted.python_calls import read_code_fence
from midspan.providers.prompted.reader import DEFAULT_MARKER, Reader
from midspan.providers.prompted.scanner import MAX_CALL_CHARS, Incomplete, Scanner, ToolIndex, Unreadable, WrittenCall

_HEAD = re.compile(r"\s*(?:Malformed function call:)?\s*", re.IGNORECASE)


def recover_calls(text: str, tools: Iterable[AnyTool]) -> tuple[ToolCall, ...]:
    """Return the calls that a text consists of; none if there is anything else in it, or anything to guess."""
    index = ToolIndex(tools)
    text = _HEAD.sub("", text, count=1).strip()
    if not text or not index.names or len(text) > MAX_CALL_CHARS:
        return ()
    calls = _read_code(text, index) or _read_text(f"{DEFAULT_MARKER}: {text}", index) or _read_text(text, index)
    return tuple(ToolCall(local_id(), call.name, call.arguments) for call in calls)


def _read_code(text: str, tools: ToolIndex) -> list[WrittenCall]:
    code = text if text.startswith("```") else f"```tool_code\n{text}\n```"
    scanner = Scanner(code, 0, tools, MARKER, is_final=True)
    try:
        calls = read_code_fence(scanner)
    except (Unreadable, Incomplete):
        return []
    return calls if calls and scanner.at == len(code) else []


def _read_text(text: str, tools: ToolIndex) -> list[WrittenCall]:
    reader = Reader(tools)
    pieces = [*reader.feed(text), *reader.end()]
    pieces = [piece for piece in pieces if not (isinstance(piece, Text) and not piece.text.strip())]
    calls = [WrittenCall(piece.name, piece.arguments) for piece in pieces if isinstance(piece, ToolCall)]
    return calls if len(calls) == len(pieces) else []
