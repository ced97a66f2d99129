"""Where a run stands: a value that each event turns into the next."""

from collections import Counter
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from midspan.tools.failure import failed
from midspan.types.events import STOPPED_BY_CALLER, RunEnd, RunEvent, ToolEnd, TurnEnd, TurnRetry, TurnStart
from midspan.types.exchange import Citation, FinishReason, Usage
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


class RunState(Struct, frozen=True, gc=False):
    """All that a run has done; it can be made again from its events."""

    history: History
    turn: int = 0
    more_requests: int = 0
    """Those beyond the first one of each turn, where an answer came in several portions."""
    usage: Usage = Usage()
    calls: tuple[ToolCall, ...] = ()
    """What the model wants done and is not all done yet."""
    ended: tuple[ToolRun, ...] = ()
    """What of it is done."""
    tool_runs: tuple[ToolRun, ...] = ()
    """All that was done before."""
    citations: tuple[Citation, ...] = ()
    """Sources that the provider's own tools found."""
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
            history = self.history if event.message is None else self.history.append(event.message)
            return replace(self, history=history, misses=self.misses + 1)
        return self._after_end(event) if isinstance(event, RunEnd) else self

    def _after_end(self, event: RunEnd) -> "RunState":
        """What the user was told instead of an answer is part of the conversation, unless the model said it."""
        if event.fault is not None:
            return self.settled(CANCELLED if event.fault.kind == STOPPED_BY_CALLER else NOT_RUN)
        said = event.limit is None or not event.text or self.history[-1].role == "model"
        return self if said else replace(self, history=self.history.append(Message("model", (Text(event.text),))))

    def _after_turn(self, event: TurnEnd) -> "RunState":
        usage = self.usage + event.usage
        more_requests = self.more_requests + event.requests - 1
        citations = self.citations + event.citations if event.citations else self.citations
        if event.finish_reason is FinishReason.CUT or is_empty(event.message):
            return replace(self, usage=usage, more_requests=more_requests)
        calls = event.message.calls
        goes_on = bool(calls) or event.finish_reason is FinishReason.CONTINUES
        return replace(
            self,
            history=self.history.append(event.message),
            usage=usage,
            more_requests=more_requests,
            citations=citations,
            calls=calls,
            misses=0 if goes_on else self.misses,
        )

    def _after_call(self, event: ToolEnd) -> "RunState":
        call = self.calls[0] if len(self.calls) == 1 else self._answered_by(event.result)
        ended = (*self.ended, ToolRun(call, event.result, event.duration_seconds))
        if len(ended) < len(self.calls):
            return replace(self, ended=ended)
        runs = ended if len(ended) == 1 else self._in_order(ended)
        history = self.history.append(Message("user", tuple([run.result for run in runs])))
        return replace(self, history=history, calls=(), ended=(), tool_runs=self.tool_runs + runs)

    def _answered_by(self, result: ToolResult) -> ToolCall:
        """The call that a result is for; of two under one id, which no model should make, the one of its name."""
        alike = [call for call in self.waiting if call.id == result.id]
        return next((call for call in alike if call.name == result.name), alike[0])

    def _in_order(self, runs: tuple[ToolRun, ...]) -> tuple[ToolRun, ...]:
        """In the order of the calls, whichever ended first."""
        places = {id(call): place for place, call in enumerate(self.calls)}
        return tuple(sorted(runs, key=lambda run: places[id(run.call)]))

    def settled(self, words: str) -> "RunState":
        """The same with an answer for each call that has none, so that the conversation can go on."""
        state = self
        for call in self.waiting:
            state = state.after(ToolEnd(self.turn, failed(call, f"{call.name} {words}"), 0.0))
        return state

    @property
    def requests(self) -> int:
        """How often the model was asked."""
        return self.turn + self.more_requests

    @property
    def waiting(self) -> tuple[ToolCall, ...]:
        """The calls that nobody has answered yet."""
        if not self.ended:
            return self.calls
        done = Counter(id(run.call) for run in self.ended)
        waiting = []
        for call in self.calls:
            if done[id(call)]:
                done[id(call)] -= 1
            else:
                waiting.append(call)
        return tuple(waiting)

    @property
    def has_missed_enough(self) -> bool:
        return self.misses >= MOST_MISSES


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
