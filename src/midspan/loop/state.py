"""The state of a run: an immutable value that each event turns into the next one."""

from collections.abc import Iterable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from midspan.tools.error_results import failed
from midspan.types.events import CANCELLED, RunEnd, RunEvent, RunStart, ToolEnd, TurnEnd, TurnRetry, TurnStart
from midspan.types.exchange import FinishReason, Source, Usage
from midspan.types.messages import History, Message
from midspan.types.parts import Blob, Text, Thought, ToolCall, ToolResult

CALL_NOT_RUN = "was not run, because the run ended"
CALL_CANCELLED = "was cancelled before it ended; what it did until then is unknown"
MOST_MISSES = 3
"""Turns in a row that bring nothing before a run gives up."""


class ToolRun(Struct, frozen=True, gc=False):
    """A call and what came of it."""

    call: ToolCall
    result: ToolResult
    duration_seconds: float
    index: int = 0
    """The position of the call in its turn."""

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
    """Everything that a run has done. `RunState.of_events` makes it again from the events of the run."""

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
    sources: tuple[Source, ...] = ()
    """What the provider's own tools found."""
    misses: int = 0
    """How many turns in a row brought nothing to go on with."""

    @classmethod
    def of(cls, history: History) -> "RunState":
        """The start of a run; calls that nobody has answered yet come first."""
        last = history[-1] if len(history) else None
        return cls(history, calls=last.calls if last is not None and last.role == "model" else ())

    @classmethod
    def of_events(cls, events: Iterable[RunEvent]) -> "RunState":
        """The state of a run after these events, which begin with its RunStart."""
        state = cls.of(History())
        for event in events:
            state = state.after(event)
        return state

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
        if isinstance(event, RunEnd):
            return self._after_end(event)
        return RunState.of(History(event.messages)) if isinstance(event, RunStart) else self

    def _after_end(self, event: RunEnd) -> "RunState":
        """What the user was told instead of an answer is part of the conversation, unless the model said it."""
        if event.error is not None:
            return self.settled(CALL_CANCELLED if event.error.kind == CANCELLED else CALL_NOT_RUN)
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
        run = ToolRun(self.calls[event.index], event.result, event.duration_seconds, event.index)
        ended = (*self.ended, run)
        if len(ended) < len(self.calls):
            return replace(self, ended=ended)
        runs = ended if len(ended) == 1 else tuple(sorted(ended, key=lambda run: run.index))
        history = self.history.plus(Message("user", tuple([run.result for run in runs])))
        return replace(self, history=history, calls=(), ended=(), tool_runs=self.tool_runs + runs)

    def settled(self, words: str) -> "RunState":
        """The same with an answer for each call that has none, so that the conversation can go on."""
        state = self
        for index, call in self.unanswered:
            state = state.after(ToolEnd(self.turn, failed(call, f"{call.name} {words}"), 0.0, index))
        return state

    @property
    def requests(self) -> int:
        """How often the model was asked."""
        return self.turn + self.more_requests

    @property
    def unanswered(self) -> list[tuple[int, ToolCall]]:
        """The calls of the turn that have no result yet, each with its position in the turn."""
        if not self.ended:
            return list(enumerate(self.calls))
        ended = {run.index for run in self.ended}
        return [(index, call) for index, call in enumerate(self.calls) if index not in ended]

    @property
    def waiting(self) -> tuple[ToolCall, ...]:
        """The calls that have no result yet."""
        return tuple([call for _, call in self.unanswered]) if self.ended else self.calls

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
