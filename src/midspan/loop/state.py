"""Where a run stands: a value that each event turns into the next."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from midspan.tools.error_results import failed
from midspan.types.events import STOPPED_BY_CALLER, RunEnd, RunEvent, ToolEnd, TurnEnd, TurnRetry, TurnStart
from midspan.types.exchange import FinishReason, Source, Usage
from midspan.types.messages import History, Message
from midspan.types.parts import Blob, Text, Thought, ToolCall, ToolResult

NOT_RUN = "was not run, because the run ended"
CANCELLED = "was cancelled before it ended; what it did until then is unknown"
MOST_MISSES = 3
"""Turns in a row that bring nothing before a run gives up."""


class ToolRun(Struct, frozen=True, gc=False):
    """A call and what came of it."""

    call: ToolCall
    result: ToolResult
    duration_seconds: float

    @property
    def id(self) -> str:
        return self.call.id

    @property
    def name(self) -> str:
        return self.call.name

    @property
    def arguments(self) -> dict[str, Any]:
        return self.call.arguments

    @property
    def value(self) -> Any:
        return self.result.value

    @property
    def is_error(self) -> bool:
        return self.result.is_error


class ToolEnds:
    """The ToolEnd events of a turn, in order.

    It never changes. Appending shares the list with the shorter ones, so that a turn of n calls does not copy n² items.
    """

    __slots__ = ("_events", "_length")

    def __init__(self, events: list[ToolEnd], length: int) -> None:
        self._events = events
        self._length = length

    def append(self, event: ToolEnd) -> "ToolEnds":
        is_longest = 0 < self._length == len(self._events)
        events = self._events if is_longest else self._events[: self._length]
        events.append(event)
        return ToolEnds(events, self._length + 1)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[ToolEnd]:
        return iter(self._events[: self._length])


_NO_ENDS = ToolEnds([], 0)


class RunState(Struct, frozen=True, gc=False):
    """All that a run has done; it can be made again from its events."""

    history: History
    turn: int = 0
    more_requests: int = 0
    """Those beyond the first one of each turn, where an answer came in several portions."""
    usage: Usage = Usage()
    calls: tuple[ToolCall, ...] = ()
    """What the model wants done and is not all done yet."""
    ends: ToolEnds = _NO_ENDS
    """What came of the calls that are done."""
    tool_runs: tuple[ToolRun, ...] = ()
    """All that was done before."""
    sources: tuple[Source, ...] = ()
    """What the provider's own tools found."""
    misses: int = 0
    """How many turns in a row brought nothing to go on with."""

    @classmethod
    def of(cls, history: History) -> "RunState":
        """The start of a run; calls that nobody has answered yet come first."""
        last = history[-1] if len(history) else None
        return cls(history, calls=last.calls if last is not None and last.role == "model" else ())

    def after(self, event: RunEvent) -> "RunState":
        kind = type(event)
        if kind is ToolEnd:
            return self._after_call(event)  # type: ignore[arg-type]  # narrowed by its kind, which is cheaper to ask for
        if kind is TurnEnd:
            return self._after_turn(event)  # type: ignore[arg-type]  # as above
        if kind is TurnStart:
            return replace(self, turn=event.turn)  # type: ignore[union-attr]  # as above
        if isinstance(event, TurnRetry):
            history = self.history if event.message is None else self.history.plus(event.message)
            return replace(self, history=history, misses=self.misses + 1)
        return self._after_end(event) if isinstance(event, RunEnd) else self

    def _after_end(self, event: RunEnd) -> "RunState":
        """What the user was told instead of an answer is part of the conversation, unless the model said it."""
        if event.fault is not None:
            return self.settled(CANCELLED if event.fault.kind == STOPPED_BY_CALLER else NOT_RUN)
        said = event.limit is None or not event.text or self.history[-1].role == "model"
        return self if said else replace(self, history=self.history.plus(Message("model", (Text(event.text),))))

    def _after_turn(self, event: TurnEnd) -> "RunState":
        usage = self.usage + event.usage
        more_requests = self.more_requests + event.requests - 1
        sources = self.sources + event.sources if event.sources else self.sources
        if event.finish is FinishReason.CUT or is_empty(event.message):
            return replace(self, usage=usage, more_requests=more_requests)
        calls = event.message.calls
        goes_on = bool(calls) or event.finish is FinishReason.CONTINUES
        return replace(
            self,
            history=self.history.plus(event.message),
            usage=usage,
            more_requests=more_requests,
            sources=sources,
            calls=calls,
            misses=0 if goes_on else self.misses,
        )

    def _after_call(self, event: ToolEnd) -> "RunState":
        if len(self.calls) == 1:
            return self._with_runs((ToolRun(self.calls[0], event.result, event.duration_seconds),))
        ends = self.ends.append(event)
        if len(ends) < len(self.calls):
            return replace(self, ends=ends)
        return self._with_runs(tuple(run for run in _runs_of(self.calls, ends) if run is not None))

    def _with_runs(self, runs: tuple[ToolRun, ...]) -> "RunState":
        """The state after all calls of the turn, in their order."""
        history = self.history.plus(Message("user", tuple([run.result for run in runs])))
        return replace(self, history=history, calls=(), ends=_NO_ENDS, tool_runs=self.tool_runs + runs)

    def settled(self, words: str) -> "RunState":
        """The same with an answer for each call that has none, so that the conversation can go on."""
        if not self.calls:
            return self
        runs = zip(self.calls, _runs_of(self.calls, self.ends), strict=True)
        return self._with_runs(
            tuple(run or ToolRun(call, failed(call, f"{call.name} {words}"), 0.0) for call, run in runs)
        )

    @property
    def requests(self) -> int:
        """How often the model was asked."""
        return self.turn + self.more_requests

    @property
    def waiting(self) -> tuple[ToolCall, ...]:
        """The calls that nobody has answered yet."""
        if not len(self.ends):
            return self.calls
        runs = zip(self.calls, _runs_of(self.calls, self.ends), strict=True)
        return tuple(call for call, run in runs if run is None)

    @property
    def ended(self) -> tuple[ToolRun, ...]:
        """The calls of this turn that are answered, in their order."""
        return tuple(run for run in _runs_of(self.calls, self.ends) if run is not None) if len(self.ends) else ()

    @property
    def has_missed_enough(self) -> bool:
        return self.misses >= MOST_MISSES


def _runs_of(calls: Sequence[ToolCall], ends: Iterable[ToolEnd]) -> list[ToolRun | None]:
    """What came of each call, in the order of the calls; None if it is not answered.

    Of two calls under one id, which no model should make, a result is for the first one of its name.
    """
    places: dict[tuple[str, str], deque[int]] = {}
    for place, call in enumerate(calls):
        places.setdefault((call.id, call.name), deque()).append(place)
    runs: list[ToolRun | None] = [None] * len(calls)
    for end in ends:
        result = end.result
        queue = places.get((result.id, result.name)) or next(
            other for (id, _), other in places.items() if id == result.id and other
        )
        place = queue.popleft()
        runs[place] = ToolRun(calls[place], result, end.duration_seconds)
    return runs


def is_empty(message: Message) -> bool:
    """Whether there is nothing in it to be sent back: no call, no medium, no word, nothing that we do not know."""
    for part in message.parts:
        kind = type(part)
        if kind is not Thought and (kind is not Text or part.text):  # type: ignore[union-attr]  # by its kind
            return False
    return True


def says_nothing(message: Message) -> bool:
    """Whether there is no answer in it: neither a word nor a medium."""
    return not message.text.strip() and not any(type(part) is Blob for part in message.parts)
