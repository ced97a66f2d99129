"""A model that goes in circles: the same call with the same result, over and over."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from midspan.tools.error_results import NOT_RUN
from midspan.types.parts import ToolCall, ToolResult

_WORDS = (
    "This was not run again: the same call has given this same result {count} times. "
    "Answer with what you know, or call something else."
)
_LONGEST_CIRCLE = 64
"""In turns; what comes back later than that is no circle."""

_Key = tuple[str, bytes]
_Event = tuple[_Key, int]
"""A call, and which of its results it was, or which write of all: what is equal changed nothing new."""
_Trace = range
"""The turns between two identical calls, as places in what happened."""
_UNKNOWN: _Trace = range(0)
"""Equal to no other trace."""


class _Known(Struct):
    result: ToolResult
    number: int
    """Of this result."""
    turn: int
    """Where it was given last, as a place in what happened."""
    count: int = 1
    trace: _Trace | None = None
    """The turns between the last two times; None as long as it was called in one turn only, with nothing in between."""
    told: int | None = None
    """The turn in which the model was told."""


class Repeats:
    """Remembers what calls gave, and answers from memory what was asked often enough.

    A call that gives the same is a circle only if the way back to it was the same as before: tests are run again after
    each change of the program, and a status is asked for again when something has moved. What only reads, and shows
    what it showed before, is no part of the way; what declares to write always makes it another.
    """

    def __init__(self, most: int | None, *, repeatable: frozenset[str], changing: Mapping[str, bool]) -> None:
        """`changing` says of tools whether they change anything, as far as somebody declared it."""
        self._most = most
        self._repeatable = repeatable
        self._changing = changing
        self._known: dict[_Key, _Known] = {}
        self._past: list[frozenset[_Event]] = []
        self._now: list[_Event] = []
        self._differences: dict[tuple[int, int], frozenset[_Key]] = {}
        """The calls that two past turns do not have in common; kept for one turn, whose calls all ask for them."""
        self._writes = 0
        self._keys: dict[int, _Key | None] = {}
        """Of the calls of this turn, by their identity: they are written once."""
        self.going_on = False
        """The model was told, and still makes the same call."""

    def remembered(self, calls: Sequence[ToolCall], turn: int) -> dict[int, ToolResult]:
        """Of the calls of a turn, by their identity, the results of those that need not be run any more."""
        if self._most is None:
            return {}
        self._past.append(frozenset(self._now))
        self._now = []
        self._differences = {}
        self._keys = {id(call): _key(call) for call in calls}
        if self._known.keys().isdisjoint(self._keys.values()):
            return {}
        known = {id(call): found for call in calls if (found := self._in_circles(call)) is not None}
        if known and any(id(call) not in known and self._may_change(call) for call in calls):
            return {}  # which of them is done first is not known
        return {id(call): self._told(call, known[id(call)], turn) for call in calls if id(call) in known}

    def _in_circles(self, call: ToolCall) -> _Known | None:
        key = None if call.name in self._repeatable else self._keys[id(call)]
        known = None if key is None else self._known.get(key)
        if key is None or known is None or self._most is None or known.count < self._most:
            return None
        return known if self._is_same(key, self._trace_since(known), known.trace) else None

    def _may_change(self, call: ToolCall) -> bool:
        """Whether a call may change what was not changed before."""
        return self._changing.get(call.name, self._keys[id(call)] not in self._known)

    def _told(self, call: ToolCall, known: _Known, turn: int) -> ToolResult:
        self.going_on = self.going_on or (known.told is not None and known.told < turn)
        known.told = turn if known.told is None else known.told
        known.turn = len(self._past)
        key = self._keys[id(call)]
        if key is not None and call.name not in self._changing:
            self._now.append((key, known.number))  # as if it had been run, or the others would not be in circles
        before = known.result
        value: dict[str, Any] = {
            "error" if before.is_error else "result": before.value,
            "note": _WORDS.format(count=known.count),
        }
        return ToolResult(call.id, call.name, value, before.is_error, before.content, notes=("answered from memory",))

    def note(self, call: ToolCall, result: ToolResult) -> None:
        """What a call gave when it was run."""
        key = None if self._most is None else self._keys.get(id(call))
        if key is None:
            return
        known, now = self._known.get(key), len(self._past)
        is_first = known is None
        if known is None:
            known = self._known[key] = _Known(result, 0, now)
        elif not _are_same(known.result, result):
            known = self._known[key] = _Known(result, known.number + 1, now)
        elif known.turn == now:
            known.count += 1
        else:
            trace = self._trace_since(known)
            is_same = self._is_same(key, trace, known.trace)
            known.count = known.count + 1 if is_same else 2
            known.told = known.told if is_same else None
            known.trace, known.turn = trace, now
        changes = self._changing.get(call.name)
        if (changes is False and (is_first or known.count > 1)) or NOT_RUN in result.notes:
            return  # it shows something for the first time, or what it showed before, or was not even run
        number = known.number
        if changes and not result.is_error:
            self._writes += 1
            number = -self._writes  # no two of them are alike
        self._now.append((key, number))

    def _trace_since(self, known: _Known) -> _Trace:
        """The turns since a call was made last; unknown if that is long ago."""
        trace = range(known.turn, len(self._past))
        return trace if len(trace) <= _LONGEST_CIRCLE else _UNKNOWN

    def _is_same(self, key: _Key, trace: _Trace, other: _Trace | None) -> bool:
        """Whether the same happened in both, but for the call itself in the first turn."""
        if not trace:
            return False
        if other is None:
            return len(trace) == 1 and all(event[0] == key for event in self._past[trace[0]])
        if len(trace) != len(other) or not self._difference(trace[0], other[0]) <= {key}:
            return False
        return not any(map(self._difference, trace[1:], other[1:]))

    def _difference(self, turn: int, other: int) -> frozenset[_Key]:
        found = self._differences.get((turn, other))
        if found is None:
            found = frozenset(event[0] for event in self._past[turn] ^ self._past[other])
            self._differences[turn, other] = found
        return found


def _are_same(one: ToolResult, other: ToolResult) -> bool:
    """Whether the model would read, and see, the same; Python takes 1, 1.0 and True for equal."""
    try:
        same = _canonical(one.value) == _canonical(other.value)
    except (TypeError, ValueError, RecursionError):
        return False
    return same and one.is_error == other.is_error and one.content == other.content


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
