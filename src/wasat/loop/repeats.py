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
    age: int
    """When it was, in changes of the world."""
    count: int = 1
    told: int | None = None
    """The turn in which the model was told."""


class Repeats:
    """Remembers what calls gave, and answers from memory what was asked often enough.

    What another call may have changed since is no repetition: tests are run again after each change of the program. A
    tool that declares what it writes changes the world each time, one that only reads never does, and one that declares
    nothing does so when it gives something new.
    """

    def __init__(self, most: int | None, *, repeatable: frozenset[str], changing: dict[str, bool]) -> None:
        """`changing` says of tools whether they change anything, as far as somebody declared it."""
        self._most = most
        self._repeatable = repeatable
        self._changing = changing
        self._changes = 0
        self._known: dict[_Key, _Known] = {}
        self._last: tuple[ToolCall | None, _Key | None] = None, None
        """The call that was looked at last, and its key: mostly it is the next to end."""
        self.going_on = False
        """The model was told, and still makes the same call."""

    def remembered(self, call: ToolCall, turn: int) -> ToolResult | None:
        """The result of this call if it need not be run any more, with a word to the model."""
        if self._most is None:
            return None
        key = _key(call)
        self._last = call, key
        known = self._recent(key)
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
        recent = self._recent(key)
        known = self._known.get(key)
        is_new = known is None or not _are_same(known.result, result)
        if self._changing.get(call.name, is_new):
            self._changes += 1
        if recent is not None and not is_new:
            recent.count += 1
            recent.age = self._changes
        else:
            self._known[key] = _Known(result, self._changes)

    def _recent(self, key: "_Key | None") -> _Known | None:
        """What is known of a call, if nothing has changed since."""
        known = None if key is None else self._known.get(key)
        return known if known is not None and known.age == self._changes else None


def _are_same(one: ToolResult, other: ToolResult) -> bool:
    """Whether the model would read, and see, the same; Python takes 1, 1.0 and True for equal."""
    try:
        same = _canonical(one.value) == _canonical(other.value)
    except (TypeError, ValueError, RecursionError):
        return False
    return same and one.is_error == other.is_error and one.media == other.media


_Key = tuple[str, bytes]


def _key(call: ToolCall) -> _Key | None:
    """What makes two calls the same; None for arguments that JSON cannot say, which only a broken provider gives."""
    try:
        written = _canonical(call.arguments)
        if b".0" in written:  # 3.0 and 3 are one number, and models write both
            written = _canonical(_with_whole_numbers(call.arguments))
    except (TypeError, ValueError, RecursionError):
        return None
    return call.name, written


def _with_whole_numbers(value: Any) -> Any:
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, dict):
        return {name: _with_whole_numbers(one) for name, one in value.items()}
    return [_with_whole_numbers(one) for one in value] if isinstance(value, list) else value


_canonical = msgspec.json.Encoder(order="deterministic").encode
