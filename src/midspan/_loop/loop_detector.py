"""Loop detection: a model that repeats the same call with the same result."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from midspan._loop.policies import Calls, Policy, Refusal, Refusals
from midspan._types.parts import REPEATED, ToolResult
from midspan._types.run_state import RunState, ToolRun
from midspan._types.specs import ToolSpec

_NOTE_FROM = 3
"""The repetition from which on the model gets a note."""
_NOTE = "This call has given the same result {count} times in a row. Repeat it only if you expect another result."
_REPEATED = (
    "was not run again: the same call has given the same result {count} times in a row. "
    "Answer with the information you have, or make another call."
)


class _Repetition(Struct, frozen=True, gc=False):
    """How often a call was made in a row with the same result."""

    result: ToolResult
    count: int
    epoch: int
    """The number of changes before the count started; after another change it starts anew."""


class LoopDetector(Policy):
    """Detects a model that repeats the same call with the same result. A result is never made up.

    A repeated call is run. From the third time on the model gets a note beside the result; after `max_repeats` times
    the call is refused, and if the model still repeats it, the limit is reached. A different result, or a change in
    between, resets the count. A call counts as a change if its tool declares to write, or declares nothing and gave a
    new result. A read-only call shows a change if it gives another result than before.
    """

    def __init__(self, max_repeats: int | None, specs: Mapping[str, ToolSpec]) -> None:
        self._max_repeats = max_repeats
        self._specs = specs
        self._seen = 0
        """How many of the state's tool runs are counted."""
        self._known: dict[tuple[str, bytes], _Repetition] = {}
        self._epoch = 0
        self._has_refused = False
        """Whether a repeated call was refused since the last change."""
        self.repeated: dict[int, _Repetition] = {}
        """The calls of the turn that get a note if they give the same result again, by position."""

    def refuse(self, state: RunState, calls: Calls) -> Refusals:
        self.repeated = {}
        if self._max_repeats is None or not state.tool_runs:
            return {}
        self._update(state)
        counts: dict[int, int] = {}
        for index, call in calls:
            known = self._known.get((call.name, _canonical(call.arguments)))
            spec = self._specs.get(call.name)
            if known is None or known.epoch != self._epoch or (spec is not None and spec.repeatable):
                continue
            if known.count >= self._max_repeats:
                counts[index] = known.count
            elif known.count >= _NOTE_FROM - 1:
                self.repeated[index] = known
        # The second time, with nothing else to run, the limit is reached: the model is asked for its answer.
        limit = "max_repeats" if self._has_refused and len(counts) == len(calls) else None
        return {index: Refusal(_REPEATED.format(count=count), REPEATED, limit) for index, count in counts.items()}

    def hint(self, index: int, result: ToolResult) -> str | None:
        """Return a note for the model beside the result of a call of this turn."""
        known = self.repeated.get(index)
        return _NOTE.format(count=known.count + 1) if known and _looks_the_same(known.result, result) else None

    def _update(self, state: RunState) -> None:
        """Count the calls that were completed since the last time."""
        for run in state.tool_runs[self._seen :]:
            if REPEATED in run.result.notes:
                self._has_refused = True
            elif not run.is_refused:
                self._add(run)
        self._seen = len(state.tool_runs)

    def _add(self, run: ToolRun) -> None:
        call = run.call
        key = call.name, _canonical(call.arguments)
        known = self._known.get(key)
        is_repeated = known is not None and _looks_the_same(known.result, run.result)
        count = known.count + 1 if known is not None and is_repeated and known.epoch == self._epoch else 1
        spec = self._specs.get(call.name)
        writes = None if spec is None else spec.changes
        shows_change = not is_repeated and (writes is None or (known is not None and not writes))
        if shows_change or (writes and not run.result.is_error):
            self._epoch += 1
            self._has_refused = False
        self._known[key] = _Repetition(run.result, count, self._epoch)


def _looks_the_same(result: ToolResult, other: ToolResult) -> bool:
    """Whether the model cannot tell two results apart."""
    if result.is_error is not other.is_error:
        return False
    return _canonical([result.value, result.content]) == _canonical([other.value, other.content])


def _canonical(value: Any) -> bytes:
    """Encode a value so that equal JSON gives equal bytes; 3.0 and 3 are one number, and models write both."""
    try:
        encoded = _encode(value)
        return _encode(_with_integers(msgspec.json.decode(encoded))) if b".0" in encoded else encoded
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        return repr(value).encode("utf-8", "backslashreplace")  # not JSON, which only a faulty provider sends


def _with_integers(value: Any) -> Any:
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, dict):
        return {key: _with_integers(item) for key, item in value.items()}
    return [_with_integers(item) for item in value] if isinstance(value, list) else value


_encode = msgspec.json.Encoder(order="deterministic").encode
