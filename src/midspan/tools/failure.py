"""What went wrong, as a result for the model: in words that can be sent, and no more of them than it should read."""

import re
from collections.abc import Iterable

from midspan.types.parts import ToolCall, ToolResult

NOT_RUN = "not run"
"""The note of a call that was wrong."""
_LONGEST = 4_000
_MOST_INNER = 5
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")


def failed(call: ToolCall, words: str) -> ToolResult:
    """A result that tells the model what went wrong."""
    return ToolResult(call.id, call.name, fitting(words), is_error=True)


def refused(call: ToolCall, words: str) -> ToolResult:
    """The same for a call that was not run at all, because it was wrong."""
    return ToolResult(call.id, call.name, fitting(words), is_error=True, notes=(NOT_RUN,))


def fitting(words: str, longest: int = _LONGEST) -> str:
    """The words without half characters, which JSON cannot say, and cut with a mark where they go on for ever."""
    words = _HALF_CHARACTER.sub("\ufffd", words)
    if len(words) <= longest:
        return words
    return f"{words[:longest]}… [cut: the first {longest:,} of {len(words):,} characters]"


def listed(problems: Iterable[str]) -> str:
    """What follows a colon: one problem as it is, several as a list."""
    lines = list(problems)
    return f" {lines[0]}" if len(lines) == 1 else "".join(f"\n- {line}" for line in lines)


def described(error: BaseException) -> str:
    """The type and the words of an exception; of a group, of those inside it."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(described(inner) for inner in error.exceptions[:_MOST_INNER])
    try:
        words = str(error).strip()
    except Exception:  # noqa: BLE001 - even the words of an exception are foreign code
        words = ""
    return f"{type(error).__name__}: {words}" if words else type(error).__name__
