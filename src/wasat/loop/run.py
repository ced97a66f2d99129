"""One run, top to bottom: ask, listen, act, repeat.

It is an async generator of events over a state that each event turns into the next. Whoever runs an agent reads these
events: blocking is the drained stream. It knows nothing of HTTP, of who listens, or of how a tool is run.
"""

import logging
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any, TypeVar, cast

import msgspec

from wasat.errors import LimitReached, NoAnswer, ProviderError, WasatError
from wasat.loop.plan import Plan
from wasat.loop.repeats import Repeats
from wasat.loop.salvage import salvaged
from wasat.loop.state import RunState
from wasat.loop.stop import MOST_MISSES, POLITE_WORDS, Again, Bounds, blocked, verdict
from wasat.providers.provider import traits_of
from wasat.tools.deadline import Expired, limited
from wasat.tools.failure import failed
from wasat.tools.schedule import each_call, settled
from wasat.types.events import (
    RunEnd,
    RunEvent,
    RunStart,
    TextDelta,
    ThoughtDelta,
    ToolEnd,
    ToolStart,
    TurnEnd,
    TurnRetry,
    TurnStart,
)
from wasat.types.exchange import FinishReason, ModelRequest, ModelResponse, Setup
from wasat.types.messages import History, Message
from wasat.types.parts import Part, Text, Thought, ToolCall, ToolResult
from wasat.types.specs import Limits

_log = logging.getLogger("wasat.loop")

T = TypeVar("T")
Event = TypeVar("Event", bound=RunEvent)

_NOT_RUN = "was not run, because the run ended"
_CANCELLED = "was cancelled before it ended; what it did until then is unknown"
_WITHDRAWN = "cannot be called any more: the same calls gave the same results. Answer in words, with what you know."
_CUT = ModelResponse(Message("model", ()), FinishReason.CUT)


class Run:
    """One run. Take its events once; `state` is where it stands, at any moment and however it ended."""

    def __init__(self, id: str, plan: Plan, history: History, *, limits: Limits, context: Any, whole: bool) -> None:
        self.id = id
        self.plan = plan
        self.state = RunState.of(history)
        self.answer: ModelResponse = _CUT
        """What the model said last."""
        self.final: ToolResult | None = None
        """The result with which a tool ended the run."""
        self.limit: LimitReached | None = None
        """The limit that the run has come to, from where on nothing but an answer is asked for."""
        self._family = traits_of(plan.provider).family
        self._bounds = Bounds(limits)
        self._repeats = Repeats(limits.max_repeats, plan.repeatable)
        self._context = context
        self._whole = whole
        self.ends_politely = False
        """The user is told that a limit was reached, and gets no answer."""
        self._time_is_over = False
        self._ignored = False
        """The model still makes calls although the tools were withdrawn."""
        self._fault: ProviderError | None = None
        """What last broke a stream off."""

    async def events(self) -> AsyncGenerator[RunEvent, None]:
        """Ask, listen, act, repeat. Leaving early cancels what runs; an error carries the transcript."""
        self._log_prompt()
        try:
            yield RunStart(self.id, self.plan.provider.model, self.state.history.messages)
            while True:
                if not self.state.calls:
                    async with aclosing(self._turn()) as turn:
                        async for event in turn:
                            yield event
                    if self._time_is_over and self._stops():
                        break
                if self.state.calls:
                    if self._stops():
                        break
                    async with aclosing(self._act()) as acting:
                        async for event in acting:
                            yield event
                    if self.final is not None or (self._time_is_over and self._stops()):
                        break
                else:
                    again = self._again()
                    if again is None or self._stops():
                        break
                    yield self._after(TurnRetry(self.state.turn, again.reason, again.message))
            for call in self.state.waiting:
                yield self._after(ToolEnd(self.state.turn, failed(call, f"{call.name} {_NOT_RUN}"), 0.0))
            yield self._after(self._end())
        except WasatError as error:
            self.state = self.state.settled(_NOT_RUN)
            error.transcript = self.state.history
            raise
        finally:
            self.state = self.state.settled(_CANCELLED)

    async def _turn(self) -> AsyncGenerator[RunEvent, None]:
        """One question to the model, and its answer."""
        turn = self.state.turn + 1
        yield self._after(TurnStart(turn))
        answer, heard = None, False
        try:
            async with aclosing(self._timed(self._ask())) as parts:
                async for part in parts:
                    heard = True
                    match part:
                        case Text(text) if text:
                            yield TextDelta(turn, text)
                        case Thought(text) if text:
                            yield ThoughtDelta(turn, text)
                        case ModelResponse():
                            answer = part
        except ProviderError as error:
            if not heard or not error.retryable:
                raise
            self._fault, answer = error, _CUT  # a stream that breaks off after it began can be asked for again
        if answer is None:
            return  # the time is over
        if self._whole:
            for delta in _deltas(turn, answer.message):
                yield delta
        self.answer = answer = salvaged(answer, self.plan.setup.tools)
        _log.debug("[%s] Response: %s", self._family, answer.message)
        yield self._after(TurnEnd(turn, answer.message, answer.finish, answer.usage, answer.sources))
        if answer.finish is FinishReason.BLOCKED:
            raise blocked(answer)

    def _ask(self) -> AsyncGenerator[Part | ModelResponse, None]:
        request = ModelRequest(self._setup(), self.state.history)
        stream = self.plan.provider.stream(request, whole=self._whole)
        return cast("AsyncGenerator[Part | ModelResponse, None]", stream)

    def _setup(self) -> Setup:
        if self.limit is not None or self._repeats.going_on:
            return self.plan.last
        return self.plan.setup if self.state.tool_runs else self.plan.first

    def _again(self) -> Again | None:
        """After a turn without calls: what to tell the model, or None because that was the answer."""
        if self.answer.finish is FinishReason.CUT and self._fault is not None and self.state.misses >= MOST_MISSES:
            raise self._fault
        again = verdict(self.answer, self.state)
        if again is None and self.plan.output is not None:
            again = self.plan.output.unread(self.answer.message.text, self.state)
        return again

    async def _act(self) -> AsyncGenerator[RunEvent, None]:
        """Have the calls of a turn done; each gets one result, whatever comes of it."""
        turn = self.state.turn
        _log.debug("[%s] Tool Calls: %s", self._family, self.state.calls)
        refused = self._refused()
        to_run: list[ToolCall] = []
        for call in self.state.waiting:
            yield ToolStart(turn, call)
            known = refused.get(id(call)) or self._repeats.remembered(call)
            if known is not None:
                yield self._after(ToolEnd(turn, known, 0.0))
            elif call not in to_run:  # a chunk that came twice is one call, and its result counts for both
                to_run.append(call)
        if len(to_run) == len(self.state.waiting) == 1 and self._bounds.seconds_left() is None:
            yield self._ended(turn, *await settled(to_run[0], self._call))  # the most common case, made short
            return
        at_once = 1 if self.plan.calls_in_order else None
        async with aclosing(self._timed(each_call(to_run, self._call, at_once=at_once))) as ended:
            async for result, seconds in ended:
                for _ in range(self._times(result, to_run)):
                    yield self._ended(turn, result, seconds)

    def _times(self, result: ToolResult, run: list[ToolCall]) -> int:
        """How many calls a result is for: all that are alike, if nothing else was run under their id."""
        if sum(call.id == result.id for call in run) > 1:
            return 1
        return sum(call.id == result.id for call in self.state.waiting)

    def _ended(self, turn: int, result: ToolResult, seconds: float) -> RunEvent:
        _log.debug("[%s] Tool Result: %s", self._family, result)
        if result.is_final:
            self.final = result
        return self._after(ToolEnd(turn, result, seconds))

    async def _call(self, call: ToolCall) -> ToolResult:
        result = await self.plan.source.call(call, self._context)
        self._repeats.note(call, result)
        return result

    def _refused(self) -> dict[int, ToolResult]:
        """The answers to calls that are not run at all, by the identity of the call."""
        if self._repeats.going_on:
            if self._ignored:
                raise NoAnswer("the model makes the same calls for ever and gives no answer")
            self._ignored = True
            return {id(call): failed(call, f"{call.name} {_WITHDRAWN}") for call in self.state.waiting}
        if self.limit is None:
            return {}
        allowed = {id(call) for call in self._bounds.allowed(self.state)[0]}
        words = f"was not run: {self.limit}"
        return {
            id(call): failed(call, f"{call.name} {words}") for call in self.state.waiting if id(call) not in allowed
        }

    def _stops(self) -> bool:
        """Whether a limit ends the run here; where an answer shall be asked for, the next request is the last."""
        if self.limit is not None:
            raise self.limit
        reached = self._bounds.reached(self.state, time_is_over=self._time_is_over)
        if reached is None:
            return False
        if self._bounds.on_limit == "error":
            raise reached
        self.limit = reached
        # When the time is over nothing can be asked any more.
        self.ends_politely = self._bounds.on_limit == "message" or reached.limit == "max_seconds"
        return self.ends_politely

    def _timed(self, items: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
        return items if self._bounds.seconds_left() is None else self._in_time(items)

    async def _in_time(self, items: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
        """The items that come before the time of the run is over."""
        async with aclosing(items):
            while True:
                seconds = self._bounds.seconds_left()
                try:
                    item = await limited(anext(items), seconds)
                except StopAsyncIteration:
                    return
                except Expired:
                    self._time_is_over = True
                    return
                yield item

    def _end(self) -> RunEnd:
        if self.ends_politely:
            text = POLITE_WORDS
        else:
            text = self.answer.message.text if self.final is None else _as_text(self.final.value)
        return RunEnd(self.id, text, self.state.usage, self.state.turn, self.limit.limit if self.limit else None)

    def _after(self, event: Event) -> Event:
        self.state = self.state.after(event)
        return event

    def _log_prompt(self) -> None:
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug("[%s] System Prompt: %s", self._family, self.plan.setup.system)
            _log.debug("[%s] Prompt: %s", self._family, self.state.history.messages)


def _deltas(turn: int, message: Message) -> Iterator[RunEvent]:
    """A whole answer as a listener hears it who did not hear it being made."""
    for part in message.parts:
        if type(part) is Text and part.text:
            yield TextDelta(turn, part.text)
        elif type(part) is Thought and part.text:
            yield ThoughtDelta(turn, part.text)


def _as_text(value: Any) -> str:
    """A result as a text for people."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
