"""A model that goes in circles: the same call with the same result, over and over."""

from typing import Any

import msgspec
from msgspec import Struct

from wasat.types.parts import ToolCall, ToolResult

_WORDS = (
    "This was not run again: the same call has given this same result {count} times. "
    "Answer with what you know, or call something else."
)


class _Known(Struct):
    result: ToolResult
    count: int = 1
    told: int | None = None
    """The turn in which the model was told."""


class Repeats:
    """Remembers what calls gave, and answers from memory what was asked often enough."""

    def __init__(self, most: int | None, repeatable: frozenset[str]) -> None:
        self._most = most
        self._repeatable = repeatable
        self._known: dict[tuple[str, bytes], _Known] = {}
        self._last: tuple[ToolCall | None, tuple[str, bytes] | None] = None, None
        """The call that was looked at last, and its key: mostly it is the next to end."""
        self.going_on = False
        """The model was told, and still makes the same call."""

    def remembered(self, call: ToolCall, turn: int) -> ToolResult | None:
        """The result of this call if it need not be run any more, with a word to the model."""
        if self._most is None:
            return None
        key = _key(call)
        self._last = call, key
        known = None if key is None else self._known.get(key)
        if known is None or known.count < self._most or call.name in self._repeatable:
            return None
        self.going_on = self.going_on or (known.told is not None and known.told < turn)
        known.told = turn if known.told is None else known.told
        before = known.result
        note = _WORDS.format(count=known.count)
        value: dict[str, Any] = {"error" if before.is_error else "result": before.value, "note": note}
        return ToolResult(call.id, call.name, value, before.is_error, before.media, notes=("answered from memory",))

    def note(self, call: ToolCall, result: ToolResult) -> None:
        """What a call gave when it was run."""
        if self._most is None:
            return
        key = self._last[1] if self._last[0] is call else _key(call)
        if key is None:
            return
        known = self._known.get(key)
        if known is not None and _are_same(known.result, result):
            known.count += 1
        else:
            self._known[key] = _Known(result)


def _are_same(one: ToolResult, other: ToolResult) -> bool:
    """Whether the model would read, and see, the same; Python takes 1, 1.0 and True for equal."""
    try:
        same = _canonical(one.value) == _canonical(other.value)
    except (TypeError, ValueError, RecursionError):
        return False
    return same and one.is_error == other.is_error and one.media == other.media


def _key(call: ToolCall) -> tuple[str, bytes] | None:
    """What makes two calls the same; None for arguments that JSON cannot say, which only a broken provider gives."""
    try:
        return call.name, _canonical(call.arguments)
    except (TypeError, ValueError, RecursionError):
        return None


_canonical = msgspec.json.Encoder(order="deterministic").encode
