"""Loop detection: a model that repeats the same call with the same result."""

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from midspan._loop.policies import Calls, Policy, Refusal, Refusals
from midspan._types.parts import REPEATED, ToolCall, ToolResult
from midspan._types.run_state import RunState
from midspan._types.specs import ToolSpec
from midspan._types.texts import canonical_json

_HINT_FROM = 3
"""The repetition from which on the model gets a hint."""
_HINT = "This call has given the same result {count} times in a row. Repeat it only if you expect another result."
_REPEATED = (
    "was not run again: the same call has given the same result {count} times in a row. "
    "Answer with the information you have, or make another call."
)


_Key = tuple[str, bytes]
"""The name of a tool, and the arguments of a call as JSON."""


class _Repetition(Struct, frozen=True, gc=False):
    """How often a call was made in a row with the same result."""

    result: ToolResult
    count: int
    epoch: int
    """The number of changes before the count started; after another change it restarts."""


class LoopDetector(Policy):
    """Detects a model that repeats the same call with the same result.

    A repeated call is run. From the third time on the model gets a hint with the result; after `max_repeats` times
    the call is refused, and if the model still repeats it, the limit is reached. A different result, or a change in
    between, resets the count. A call is a change if its tool is declared to write, or declares nothing and gave a
    new result. A read-only call shows a change if it gives another result than before.
    """

    def __init__(self, max_repeats: int | None, specs: Mapping[str, ToolSpec]) -> None:
        self._max_repeats = max_repeats
        self._specs = specs
        self._known: dict[_Key, _Repetition] = {}
        self._seen_keys: set[_Key] = set()
        """The calls of this run. Results are compared and counted only when a call is repeated."""
        self._counted = 0
        """How many of the state's tool runs are in `_known`."""
        self._epoch = 0
        self._has_refused = False
        """Whether a repeated call was refused since the last change."""
        self.repeated: dict[int, _Repetition] = {}
        """The calls of the turn that get a hint if they give the same result again, by position."""

    def refuse(self, state: RunState, calls: Calls) -> Refusals:
        if self._max_repeats is None:
            return {}
        self.repeated = {}
        if not self._seen_keys:
            self._seen_keys.update(_key(tool_run.call) for tool_run in state.tool_runs)
        keys, is_repeated = {}, False
        for index, call in calls:
            keys[index] = key = _key(call)
            is_repeated = is_repeated or key in self._seen_keys
            self._seen_keys.add(key)
        if not is_repeated:
            return {}
        self._count(state)
        counts: dict[int, int] = {}
        for index, call in calls:
            known, spec = self._known.get(keys[index]), self._specs.get(call.name)
            if known is None or known.epoch != self._epoch or (spec is not None and spec.repeatable):
                continue
            if known.count >= self._max_repeats:
                counts[index] = known.count
            elif known.count >= _HINT_FROM - 1:
                self.repeated[index] = known
        # The second time, with nothing else to run, the limit is reached: the model is asked for its answer.
        limit = "max_repeats" if self._has_refused and len(counts) == len(calls) else None
        return {index: Refusal(_REPEATED.format(count=count), REPEATED, limit) for index, count in counts.items()}

    def with_hint(self, index: int, result: ToolResult) -> ToolResult:
        """Return the result of a call of this turn, with a hint for the model if it is the same again."""
        known = self.repeated.get(index)
        if known is None or not _looks_the_same(known.result, result):
            return result
        hint = _HINT.format(count=known.count + 1)
        return replace(result, hint=hint if result.hint is None else f"{result.hint} {hint}")

    def _count(self, state: RunState) -> None:
        """Count the calls that were completed since the last time."""
        for tool_run in state.tool_runs[self._counted :]:
            if tool_run.is_refused:
                self._has_refused = self._has_refused or REPEATED in tool_run.result.notes
                continue
            key, spec = _key(tool_run.call), self._specs.get(tool_run.name)
            known, writes = self._known.get(key), None if spec is None else spec.changes
            is_repeated = known is not None and _looks_the_same(known.result, tool_run.result)
            count = known.count + 1 if known is not None and is_repeated and known.epoch == self._epoch else 1
            shows_change = not is_repeated and (writes is None or (known is not None and not writes))
            if shows_change or (writes and not tool_run.result.is_error):
                self._epoch += 1
                self._has_refused = False
            self._known[key] = _Repetition(tool_run.result, count, self._epoch)
        self._counted = len(state.tool_runs)


def _key(call: ToolCall) -> _Key:
    return call.name, canonical_json(call.arguments)


def _looks_the_same(result: ToolResult, other: ToolResult) -> bool:
    """Whether the model cannot tell two results apart."""
    if result.is_error is not other.is_error:
        return False
    return canonical_json([result.value, result.content]) == canonical_json([other.value, other.content])
