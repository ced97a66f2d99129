"""Detects a model that repeats the same call with the same result over and over.

A repeated call is run. From the third time on the model gets a note beside the result; after `max_repeats` times the
call is refused, and if the model still repeats it, the tools are withdrawn. A result is never made up.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from midspan._loop.policy import NO_CHANGES, Calls, Changes, Fail, Policy, Refusal, Refusals, Verdict
from midspan._loop.state import RunState, ToolRun
from midspan._types.exchange import ModelResponse
from midspan._types.parts import ToolCall, ToolResult
from midspan._types.specs import ToolSpec
from midspan.errors import NoAnswer
from midspan.tools.source import FORBIDDEN, REPEATED

_NOTE_FROM = 3
"""The repetition from which on the model gets a note."""
_NOTE = "This call has given the same result {count} times in a row. Repeat it only if you expect another result."
_REFUSAL = (
    "was not run again: the same call has given the same result {count} times in a row. "
    "Answer with the information you have, or make another call."
)

_CallKey = tuple[str, bytes]


class _Repetition(Struct):
    """How often a call was made in a row with the same result."""

    result: ToolResult
    count: int
    epoch: int
    """The number of changes before the count started; after another change it starts anew."""


class LoopDetector(Policy):
    """Counts identical calls with identical results. A different result, or a change in between, resets the count.

    A call counts as a change if its tool declares to write, or declares nothing and gave a new result. A read-only call
    shows a change if it gives another result than before.
    """

    def __init__(self, max_repeats: int | None, specs: Mapping[str, ToolSpec]) -> None:
        self._max_repeats = max_repeats
        self._specs = specs
        self._seen = 0
        """How many of the state's tool runs are counted."""
        self._known: dict[_CallKey, _Repetition] = {}
        self._keys: dict[int, _CallKey] = {}
        """The keys of the calls of the turn, by the identities of their objects."""
        self._epoch = 0
        self._refused_turns = 0
        """Turns since the last change in which a repeated call was refused."""

    def request(self, state: RunState) -> Changes:
        if len(state.tool_runs) < _NOTE_FROM - 1:
            return NO_CHANGES  # nothing can have been repeated yet
        self._update(state)
        return Changes(answer_only=True) if self._refused_turns > 1 else NO_CHANGES

    def after_response(self, state: RunState, response: ModelResponse) -> Verdict:  # noqa: ARG002 - of the policy
        if self._refused_turns > 2 and state.calls:
            return Fail(NoAnswer("the model repeats the same calls forever and gives no answer"))
        return None

    def refuse(self, state: RunState, calls: Calls) -> Refusals:
        maximum = self._max_repeats
        if maximum is None or (len(state.tool_runs) < _NOTE_FROM - 1 and len(state.tool_runs) < maximum):
            return {}
        self._update(state)
        self._keys = {id(call): (call.name, _canonical(call.arguments)) for _, call in calls}
        refusals: Refusals = {}
        for index, call in calls:
            known = self._known_repetition(call)
            if known is not None and known.count >= maximum:
                refusals[index] = Refusal(_REFUSAL.format(count=known.count), REPEATED)
        return refusals

    def hint(self, state: RunState, call: ToolCall, result: ToolResult) -> str | None:  # noqa: ARG002 - of the policy
        known = self._known_repetition(call)
        if known is None or known.count < _NOTE_FROM - 1 or not _looks_the_same(known.result, result):
            return None
        return _NOTE.format(count=known.count + 1)

    def _known_repetition(self, call: ToolCall) -> _Repetition | None:
        """Return how often a call of this turn was made before, since the last change."""
        key = self._keys.get(id(call))
        known = None if key is None else self._known.get(key)
        if known is None or known.epoch != self._epoch:
            return None
        spec = self._specs.get(call.name)
        return None if spec is not None and spec.repeatable else known

    def _update(self, state: RunState) -> None:
        """Count the calls that were completed since the last time."""
        if self._max_repeats is None or self._seen == len(state.tool_runs):
            return
        runs = state.tool_runs[self._seen :]
        self._seen = len(state.tool_runs)
        turn: list[ToolRun] = []
        for run in runs:
            if turn and run.index <= turn[-1].index:  # the positions start again in each turn
                self._add_turn(turn)
                turn = []
            turn.append(run)
        self._add_turn(turn)

    def _add_turn(self, runs: list[ToolRun]) -> None:
        notes = {note for run in runs for note in run.result.notes}
        if REPEATED in notes or (FORBIDDEN in notes and self._refused_turns):
            self._refused_turns += 1
        for run in runs:
            if not notes or (REPEATED not in run.result.notes and FORBIDDEN not in run.result.notes):
                self._add(run)

    def _add(self, run: ToolRun) -> None:
        call = run.call
        key = self._keys.get(id(call)) or (call.name, _canonical(call.arguments))
        known = self._known.get(key)
        is_repeated = known is not None and _looks_the_same(known.result, run.result)
        spec = self._specs.get(call.name)
        writes = None if spec is None else spec.changes
        shows_change = not is_repeated and (writes is None or (known is not None and not writes))
        if shows_change or (writes and not run.is_error):
            self._epoch += 1
            self._refused_turns = 0
            continues = known is not None and known.epoch == self._epoch - 1
        else:
            continues = known is not None and known.epoch == self._epoch
        count = known.count + 1 if known is not None and is_repeated and continues else 1
        self._known[key] = _Repetition(run.result, count, self._epoch)


def _looks_the_same(one: ToolResult, other: ToolResult) -> bool:
    """Whether the model cannot tell two results apart."""
    if one.is_error is not other.is_error:
        return False
    return _canonical([one.value, one.content]) == _canonical([other.value, other.content])


def _canonical(value: Any) -> bytes:
    """Encode a value so that equal JSON gives equal bytes; 3.0 and 3 are one number, and models write both."""
    try:
        encoded = _encode(value)
        return _encode(_with_integers(msgspec.json.decode(encoded))) if b".0" in encoded else encoded
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        return repr(value).encode("utf-8", "backslashreplace")  # not JSON, which only a broken provider sends


def _with_integers(value: Any) -> Any:
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, dict):
        return {key: _with_integers(item) for key, item in value.items()}
    return [_with_integers(item) for item in value] if isinstance(value, list) else value


_encode = msgspec.json.Encoder(order="deterministic").encode
