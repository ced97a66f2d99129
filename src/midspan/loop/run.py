"""One run, top to bottom: ask, listen, act, repeat.

It is an async generator of events over a state that each event turns into the next. Whoever runs an agent reads these
events: blocking is the drained stream. It knows nothing of HTTP, of who listens, or of how a tool is run.
"""

import asyncio
import logging
import sys
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

import msgspec

from midspan.errors import LimitReached, MidspanError, NoAnswer, ProviderError
from midspan.loop.plan import Plan
from midspan.loop.refusals import Refused, beyond, forbidden, unreadable
from midspan.loop.repeats import Repeats
from midspan.loop.salvage import recover_malformed_call
from midspan.loop.state import CANCELLED, MOST_MISSES, NOT_RUN, RunState
from midspan.loop.stop import CUT, POLITE_WORDS, Again, Bounds, blocked, broken_off, is_blocked, verdict
from midspan.providers.provider import ensure_aclose
from midspan.tools.deadline import Expired, Raised, cancels_heard, kept, limited
from midspan.tools.failure import NOT_RUN as WRONG
from midspan.tools.failure import described, failed
from midspan.tools.schedule import each_call, settled
from midspan.types.events import (
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
from midspan.types.exchange import (
    Budget,
    FinishReason,
    ModelEvent,
    ModelRequest,
    ModelResponse,
    PartDelta,
    PartStart,
    RequestConfig,
    TextPartDelta,
    ThoughtPartDelta,
)
from midspan.types.messages import History, Message
from midspan.types.parts import Part, Text, Thought, ToolCall, ToolResult

_log = logging.getLogger("midspan.loop")

T = TypeVar("T")
Event = TypeVar("Event", bound=RunEvent)

_COUNTS_ARE_TRUE = sys.version_info >= (3, 13)
"""Before, a TaskGroup in which something fails leaves its task with a cancellation that is nobody's."""
_STOPPED = "was stopped, because the time of the run is over; what it did until then is unknown"
_LONGEST_NAME = 200


class Run:
    """One run. Take its events once; `state` is where it stands, at any moment and however it ended."""

    def __init__(self, id: str, plan: Plan, history: History, *, bounds: Bounds, context: Any, whole: bool) -> None:
        self.id = id
        self.plan = plan
        self.state = RunState.of(history)
        self.answer: ModelResponse = CUT
        """What the model said last."""
        self.final: ToolResult | None = None
        """The result with which a tool ended the run."""
        self.limit: LimitReached | None = None
        """The limit that the run has come to, from where on nothing but an answer is asked for."""
        self.end: RunEnd | None = None
        """The last event, when it is over."""
        self.ends_politely = False
        """The user is told that a limit was reached, and gets no answer."""
        self._family = plan.provider.profile.service
        self._bounds = bounds
        self._repeats = Repeats(bounds.limits.max_repeats, repeatable=plan.repeatable, changing=plan.changing)
        self._context = context
        self._whole = whole
        self._is_logged = _log.isEnabledFor(logging.DEBUG)
        self._asked: RequestConfig | None = None
        """With what the model was asked last, in this run."""
        self._has_run = False
        """A call was run, and not only wrong; then the model may answer, even if one was demanded."""
        self._ignored = 0
        """How often the model has made calls that it may not make."""
        self._unreadable = 0
        """How many turns in a row made only calls that cannot be read."""
        self._said = ""
        """What the model said in turns that it did not come to the end of."""

    # It waits nowhere but here: a generator within this one for each turn would cost more than all that a turn does.
    async def events(self) -> AsyncGenerator[RunEvent, None]:  # noqa: C901 - so it is long, and read from top to bottom
        """Ask, listen, act, repeat. Leaving early cancels what runs; an error carries the transcript."""
        self._log_prompt()
        try:
            yield RunStart(self.id, self.plan.provider.model, self.state.history.messages)
            while True:
                if not self.state.calls:
                    turn = self.state.turn + 1
                    yield self._after(TurnStart(turn))
                    heard = _Heard(turn, self._bounds)
                    with heard:
                        if self._whole:
                            await self._generate(heard)
                        else:
                            async with aclosing(self._timed(self._streamed())) as events:
                                async for model_event in events:
                                    delta = heard.delta(model_event)
                                    if delta is not None:
                                        heard.is_left = True  # unless somebody comes back for more
                                        yield delta
                                        heard.is_left = False
                    for event in self._after_turn(heard):
                        yield event
                    if not self._is_in_time():
                        break
                if self.state.calls:
                    reached = self._bounds.reached(self.state)
                    last_chance = reached is not None and self._may_end_by_call()
                    if not last_chance and not self._goes_on(reached):
                        break
                    to_run: list[ToolCall] = []
                    for event in self._before_calls(reached, to_run):
                        yield event
                    if len(to_run) == 1 == len(self.state.calls) and self._bounds.is_timeless:
                        yield self._ended(*await settled(to_run[0], self._call))  # the most common case, made short
                    else:
                        async with aclosing(self._called(to_run)) as called:
                            async for event in called:
                                yield event
                    if self.final is not None or not (self._goes_on(reached) if last_chance else self._is_in_time()):
                        break
                else:
                    again = self._again()
                    if again is None or not self._goes_on(self._bounds.reached(self.state)):
                        break
                    yield self._after(TurnRetry(self.state.turn, again.reason, again.message))
            for event in self._last_events():
                yield event
        except MidspanError as error:
            self.state = self.state.settled(NOT_RUN)
            error.transcript = self.state.history
            raise
        finally:
            self.state = self.state.settled(CANCELLED)

    def _streamed(self) -> AsyncGenerator[ModelEvent, None]:
        return ensure_aclose(self.plan.provider.stream(self._request()))

    async def _generate(self, heard: "_Heard") -> None:
        """Have the whole response, if it comes in time."""
        try:
            response = await limited(self.plan.provider.generate(self._request()), self._bounds.seconds_left())
        except Expired as over:
            self._bounds.note(over)
            for late in over.late:  # of what would not be stopped: it was done, and that is not hidden
                heard.end(late)
        else:
            heard.end(response)

    def _request(self) -> ModelRequest:
        self._asked = config = self._config()
        # The last answer may take as many requests as it needs.
        budget = self._bounds.budget(self.state) if self.limit is None else Budget()
        return ModelRequest(config, self.state.history, budget)

    def _config(self) -> RequestConfig:
        if self.limit is not None or self._repeats.going_on:
            return self.plan.last
        is_free = self._has_run or self.state.turn > 1 + MOST_MISSES
        return self.plan.config if is_free else self.plan.first

    def _after_turn(self, heard: "_Heard") -> Iterator[RunEvent]:
        """The model has spoken: what it said becomes part of the conversation."""
        if heard.answer is None and self._bounds.out_of_time():
            return
        if heard.fault is not None and self.state.has_missed_enough:
            raise heard.fault
        answer = broken_off(heard.fault) if heard.answer is None or heard.fault is not None else heard.answer
        self.answer = answer = recover_malformed_call(answer, self.plan.config.tools)
        if self._whole:
            for part in answer.message.parts:
                delta = heard.whole_part(part)
                if delta is not None:
                    yield delta
        if self._is_logged:
            _log.debug("[%s] Response: %s", self._family, answer.message.parts)
        yield self._after(
            TurnEnd(heard.turn, answer.message, answer.finish_reason, answer.usage, answer.citations, answer.requests)
        )
        if is_blocked(answer):
            raise blocked(answer)

    def _again(self) -> Again | None:
        """After a turn without calls: what to tell the model, or None because that was the answer."""
        calls_only = self.plan.calls_only and self._asked is not self.plan.last  # where words are better than nothing
        again = verdict(self.answer, self.state, calls_only=calls_only)
        if again is None and self.plan.output is not None:
            return self.plan.output.unread(self._text, self.state)
        if self.answer.finish_reason is FinishReason.CONTINUES:
            self._said += self.answer.message.text
        return again

    def _before_calls(self, reached: LimitReached | None, to_run: list[ToolCall]) -> Iterator[RunEvent]:
        """The calls of a turn begin: what is not to be run has its result at once, the others are put into `to_run`."""
        turn, waiting = self.state.turn, self.state.waiting
        self._said = ""  # before a call it was no part of the answer
        if self._is_logged:
            _log.debug("[%s] Tool Calls: %s", self._family, self.state.calls)
        refused = {**self._unreadable_calls(waiting), **self._refused(reached, waiting)}
        open_calls = [call for place, call in enumerate(waiting) if place not in refused] if refused else waiting
        remembered = self._repeats.remembered(open_calls, turn)
        for place, call in enumerate(waiting):
            yield ToolStart(turn, call)
            if call.name not in self.plan.names:
                _log.warning("%s called invalid tool: %s", self._family, call.name[:_LONGEST_NAME])
            words = refused.get(place)
            known = remembered.get(id(call)) if words is None else failed(call, f"{call.name} {words}")
            if known is not None:
                yield self._after(ToolEnd(turn, known, 0.0))
            elif call not in to_run:  # a chunk that came twice is one call, and its result counts for both
                to_run.append(call)

    async def _called(self, to_run: list[ToolCall]) -> AsyncGenerator[RunEvent, None]:
        """Several calls, or one against the clock: each gets one result, whatever comes of it."""
        async with aclosing(self._timed(each_call(to_run, self._call, at_once=self._at_once(to_run)))) as ended:
            async for result, seconds in ended:
                for _ in range(self._times(result, to_run)):
                    yield self._ended(result, seconds)
        for call in self.state.waiting:
            twin = next((run.result for run in self.state.ended if run.call == call), None)
            yield self._after(ToolEnd(self.state.turn, twin or failed(call, f"{call.name} {_STOPPED}"), 0.0))

    def _at_once(self, calls: list[ToolCall]) -> int | None:
        """One after another where one may need another, or where nothing but their order tells them apart."""
        return 1 if self.plan.calls_in_order or len({call.id for call in calls}) < len(calls) else None

    def _times(self, result: ToolResult, run: list[ToolCall]) -> int:
        """How many calls a result is for: all that are alike, if nothing else was run under their id."""
        if sum(call.id == result.id for call in run) > 1:
            return 1
        return sum(call.id == result.id for call in self.state.waiting)

    def _ended(self, result: ToolResult, seconds: float) -> RunEvent:
        if self._is_logged:
            _log.debug("[%s] Tool Result: %s", self._family, result)
        if result.is_final:
            self.final = result
        if self.state.turn and WRONG not in result.notes:
            self._has_run = True
        return self._after(ToolEnd(self.state.turn, result, seconds))

    async def _call(self, call: ToolCall) -> ToolResult:
        try:
            result = await self.plan.source.call(call, self._context)
        except Exception as error:
            self._repeats.note(call, failed(call, described(error)))
            raise
        if isinstance(result, ToolResult):  # else its source breaks its promise, which is told in its place
            self._repeats.note(call, result)
        return result

    def _refused(self, reached: LimitReached | None, waiting: Sequence[ToolCall]) -> Refused:
        """Why calls that wait are not run at all."""
        choice = None if self._asked is None else self._asked.tool_choice
        refused = {} if choice is None else forbidden(choice, waiting, withdrawn=self._repeats.going_on)
        if refused and choice is not None:
            most = 1 if choice.mode == "none" else 1 + MOST_MISSES  # one that must call something is told more often
            if self._ignored >= most and len(refused) == len(waiting):
                which = "the same calls for ever" if self._repeats.going_on else "calls that it may not make"
                raise NoAnswer(f"the model makes {which}, and gives no answer")
            self._ignored += 1
        elif reached is not None:
            if self.limit is not None:
                return beyond(self._bounds.beyond(self.state))
            # Where nothing more is asked, only what may give the answer is run.
            others = (place for place, call in enumerate(waiting) if call.name not in self.plan.finals)
            refused = beyond({**dict.fromkeys(others, reached), **self._bounds.beyond(self.state)})
        return refused

    def _unreadable_calls(self, waiting: Sequence[ToolCall]) -> Refused:
        """Calls whose arguments cannot be read; a model that makes nothing else will not get any further."""
        refused = unreadable(waiting, self.answer.finish_reason)
        self._unreadable = self._unreadable + 1 if refused and len(refused) == len(waiting) else 0
        if self._unreadable > MOST_MISSES:
            raise NoAnswer(f"the model made calls whose arguments cannot be read, {self._unreadable} times in a row")
        return refused

    def _may_end_by_call(self) -> bool:
        """Whether one of the calls that wait may give the answer, so that nothing more has to be asked."""
        if self._bounds.limits.on_limit == "answer" and self.limit is None:
            return False  # it will be asked for
        finals = {place for place, call in enumerate(self.state.waiting) if call.name in self.plan.finals}
        return bool(finals) and not finals <= self._bounds.beyond(self.state).keys()

    def _goes_on(self, reached: LimitReached | None) -> bool:
        """Whether the run goes on; at a limit it ends as the caller wants: with an error, politely, or an answer."""
        if reached is None:
            return True
        if self._bounds.limits.on_limit == "error" or self.limit is not None:
            raise self.limit or reached
        self.limit = reached
        # When the time is over nothing can be asked any more.
        self.ends_politely = self._bounds.limits.on_limit == "message" or reached.limit == "max_seconds"
        return not self.ends_politely

    def _is_in_time(self) -> bool:
        return self._bounds.is_timeless or self._goes_on(self._bounds.out_of_time())

    def _timed(self, items: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
        return items if self._bounds.is_timeless else self._in_time(items)

    async def _in_time(self, items: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
        """The items that come before the time of the run is over."""
        async with aclosing(items):
            while True:
                try:
                    item = await limited(anext(items), self._bounds.seconds_left())
                except StopAsyncIteration:
                    return
                except Expired as over:
                    self._bounds.note(over)
                    for late in over.late:  # of what would not be stopped: it was done, and that is not hidden
                        yield late
                    return
                yield item

    @property
    def _text(self) -> str:
        return self._said + self.answer.message.text

    def _last_events(self) -> Iterator[RunEvent]:
        """The end, after a word for each call that will not be run."""
        for call in self.state.waiting:
            yield ToolStart(self.state.turn, call)
            yield self._after(ToolEnd(self.state.turn, failed(call, f"{call.name} {NOT_RUN}"), 0.0))
        text = POLITE_WORDS if self.ends_politely else self._text if self.final is None else _as_text(self.final.value)
        limit = self.limit.limit if self.limit else None
        self.end = self._after(RunEnd(self.id, text, self.state.usage, self.state.turn, limit))
        yield self.end

    def _after(self, event: Event) -> Event:
        self.state = self.state.after(event)
        return event

    def _log_prompt(self) -> None:
        if self._is_logged:
            _log.debug("[%s] System Prompt: %s", self._family, self.plan.config.system)
            _log.debug("[%s] Prompt: %s", self._family, [message.parts for message in self.state.history])


class _Heard:
    """What is heard in a turn, and what goes wrong: a stream that breaks off after it began can be asked for again.

    Nothing that goes wrong keeps a run alive that somebody leaves or cancels, whatever the provider makes of that.
    """

    __slots__ = ("_before", "_bounds", "answer", "began", "fault", "is_left", "turn")

    def __init__(self, turn: int, bounds: Bounds) -> None:
        self.turn = turn
        self._bounds = bounds
        self.began = False
        self.is_left = False
        """Whoever listens does not listen any more."""
        self.answer: ModelResponse | None = None
        self.fault: ProviderError | None = None

    def delta(self, event: ModelEvent) -> RunEvent | None:
        """What a listener is told of an event, if anything."""
        self.began = True
        kind = type(event)
        if kind is PartDelta:
            delta = event.delta  # type: ignore[union-attr]  # by its kind
            if type(delta) is TextPartDelta:
                return TextDelta(self.turn, delta.text) if delta.text else None
            if type(delta) is ThoughtPartDelta:
                return ThoughtDelta(self.turn, delta.text) if delta.text else None
        elif kind is PartStart:
            return self.whole_part(event.part)  # type: ignore[union-attr, arg-type]  # by its kind
        elif isinstance(event, ModelResponse):
            self.end(event)
        return None

    def whole_part(self, part: Part) -> RunEvent | None:
        """What a listener is told of the text in a part."""
        kind = type(part)
        if kind is Text:
            return TextDelta(self.turn, part.text) if part.text else None  # type: ignore[union-attr]  # by its kind
        if kind is Thought:
            return ThoughtDelta(self.turn, part.text) if part.text else None  # type: ignore[union-attr]  # as above
        return None

    def end(self, answer: ModelResponse) -> None:
        """The whole answer; a provider may be anybody's."""
        if not isinstance(answer, ModelResponse) or not isinstance(answer.message, Message):
            raise TypeError(f"its answer is {answer!r:.80}, and no ModelResponse with a Message")
        self.answer = answer

    def __enter__(self) -> None:
        self._before = cancels_heard()

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        if error is None:
            if _COUNTS_ARE_TRUE and cancels_heard() > self._before:
                raise asyncio.CancelledError
            return False
        cancelled = kept(error, self._before)
        if cancelled is not None:
            raise cancelled
        if not isinstance(error, Exception | asyncio.CancelledError):
            return False
        if self.is_left:
            raise GeneratorExit from error
        began = self.began or getattr(error, "partial_response", None) is not None
        if isinstance(error, ProviderError) and error.retryable and (began or self._bounds.out_of_time()):
            self.fault = error
            return True
        if isinstance(error, MidspanError):
            return False
        raised = error.error if isinstance(error, Raised) else error
        raise ProviderError(f"the model failed: {described(raised)}") from error


def _as_text(value: Any) -> str:
    """A result as a text for people."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
