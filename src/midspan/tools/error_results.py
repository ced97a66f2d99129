"""Error results: what went wrong with a call, in words for the model and no more of them than it should read."""

import re
from collections.abc import Iterable

from midspan._types.parts import ToolCall, ToolResult

NOT_RUN = "not run"
"""The note on the result of a call that was wrong and therefore not run."""
UNREADABLE = "unreadable arguments"
FORBIDDEN = "forbidden by the tool choice"
OVER_LIMIT = "over a limit"
REPEATED = "repeated"
REFUSED = frozenset((UNREADABLE, FORBIDDEN, OVER_LIMIT, REPEATED))
"""Notes on the results of calls that a rule of the run refused."""
_MAX_CHARS = 4_000
_MAX_INNER_ERRORS = 5
_SURROGATE = re.compile("[\ud800-\udfff]")


def failed(call: ToolCall, message: str) -> ToolResult:
    """Return an error result for the model."""
    return ToolResult(call.id, call.name, truncate(message), is_error=True)


def refused(call: ToolCall, message: str) -> ToolResult:
    """Return an error result for a call that was wrong and therefore not run."""
    return ToolResult(call.id, call.name, truncate(message), is_error=True, notes=(NOT_RUN,))


def truncate(text: str, max_chars: int = _MAX_CHARS) -> str:
    """Replace unpaired surrogates, which JSON cannot encode, and cut what is too long, with a mark."""
    text = _SURROGATE.sub("\ufffd", text)
    if len(text) <= max_chars:
        return text
    return f"{text[:max_chars]}… [cut: the first {max_chars:,} of {len(text):,} characters]"


def bulleted(problems: Iterable[str]) -> str:
    """Format problems to follow a colon: one on the same line, several as a list."""
    lines = list(problems)
    return f" {lines[0]}" if len(lines) == 1 else "".join(f"\n- {line}" for line in lines)


def describe_error(error: BaseException) -> str:
    """Return the type and message of an exception; of an exception group, those of its first members."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(describe_error(inner) for inner in error.exceptions[:_MAX_INNER_ERRORS])
    try:
        message = str(error).strip()
    except Exception:  # noqa: BLE001 - __str__ is user code
        message = ""
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
