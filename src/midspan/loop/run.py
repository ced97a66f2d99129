"""One run, top to bottom: ask, listen, act, repeat.

It is an async generator of events over a state that each event turns into the next. Whoever runs an agent reads these
events: blocking is the drained stream. It knows nothing of HTTP, of who listens, or of how a tool is run.
"""

import asyncio
import logging
import sys
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple, TypeVar

import msgspec

from midspan.errors import LimitReached, MidspanError, NoAnswer, ProviderError
from midspan.loop.plan import Plan
from midspan.loop.refusals import Refused, beyond, forbidden
from midspan.loop.repeats import Repeats
from midspan.loop.salvage import salvaged
from midspan.loop.state import CALL_CANCELLED, CALL_NOT_RUN, MOST_MISSES, RunState
from midspan.loop.stop import CUT, POLITE_WORDS, Again, Bounds, blocked, broken_off, verdict
from midspan.providers.provider import closable, responder, traits_of
from midspan.tools.error_results import NOT_RUN as WRONG
from midspan.tools.error_results import describe_error, failed
from midspan.tools.schedule import each_call, run_call
from midspan.tools.tasks import Expired, cancel_count, swallowed_cancellation, with_timeout
from midspan.types.context import RunContext
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
from midspan.types.exchange import FinishReason, ModelRequest, ModelResponse, Room, Setup
from midspan.types.messages import History, Message
from midspan.types.parts import Part, Text, Thought, ToolCall, ToolResult

_log = logging.getLogger("midspan.loop")

T = TypeVar("T")
Event = TypeVar("Event", bound=RunEvent)

_COUNTS_ARE_TRUE = sys.version_info >= (3, 13)
"""Before Python 3.13 a TaskGroup with a failed task may leave its parent task with a cancellation that nobody sent."""
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
        self._family = traits_of(plan.provider).family
        self._bounds = bounds
        self._repeats = Repeats(bounds.limits.max_repeats, repeatable=plan.repeatable, changing=plan.changing)
        self._context = context
        self._whole = whole
        self._respond = responder(plan.provider) if whole and bounds.is_timeless else None
        """The short way to a whole answer, where there is one and no clock is to be watched."""
        self._is_logged = _log.isEnabledFor(logging.DEBUG)
        self._asked: Setup | None = None
        """With what the model was asked last, in this run."""
        self._has_run = False
        """A call was run, and not only wrong; then the model may answer, even if one was demanded."""
        self._ignored = 0
        """How often the model has made calls that it may not make."""
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
                    yield self._after(TurnStart(turn, self._is_answer_only()))
                    heard = _Heard(turn, self._bounds)
                    with heard:
                        if heard.cancels_before:
                            await heard.checkpoint()
                        if self._respond is not None:
                            heard.end(await self._respond(self._request()))
                        else:
                            async with aclosing(self._timed(self._spoken())) as parts:
                                async for part in parts:
                                    delta = heard.delta(part)
                                    if delta is not None:
                                        heard.is_left = True  # unless somebody comes back for more
                                        yield delta
                                        heard.is_left = False
                                        if cancel_count():
                                            await heard.checkpoint()
                    if cancel_count() > heard.cancels_before:
                        await asyncio.sleep(0)  # a cancellation that was not delivered yet is raised here
                        if _COUNTS_ARE_TRUE:
                            raise asyncio.CancelledError  # the provider swallowed it
                    for event in self._after_turn(heard):
                        yield event
                    if not self._is_in_time():
                        break
                if self.state.calls:
                    reached = self._bounds.reached(self.state)
                    last_chance = reached is not None and self._may_end_by_call()
                    if not last_chance and not self._goes_on(reached):
                        break
                    to_run: list[_Planned] = []
                    for event in self._before_calls(reached, to_run):
                        yield event
                    if len(to_run) == 1 == len(self.state.calls) and self._bounds.is_timeless:
                        # The most common case, without a generator.
                        result, seconds = await run_call(to_run[0].call, self._call, in_task=self.plan.in_task)
                        yield self._ended(result, seconds, 0)
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
            self.state = self.state.settled(CALL_NOT_RUN)
            error.transcript = self.state.history
            raise
        finally:
            self.state = self.state.settled(CALL_CANCELLED)

    def _spoken(self) -> AsyncGenerator[Part | ModelResponse, None]:
        """What the model says."""
        return closable(self.plan.provider.stream(self._request(), whole=self._whole))

    def _request(self) -> ModelRequest:
        self._asked = setup = self._setup()
        # The last answer may take as many portions as it needs.
        room = self._bounds.room(self.state) if self.limit is None else Room()
        return ModelRequest(setup, self.state.history, None, room)

    def _setup(self) -> Setup:
        if self.limit is not None or self._repeats.going_on:
            return self.plan.last
        is_free = self._has_run or self.state.turn > 1 + MOST_MISSES
        return self.plan.setup if is_free else self.plan.first

    def _is_answer_only(self) -> bool:
        """Whether the text of the next turn is the answer: no tool can be called, and nothing checks the text."""
        plan = self.plan
        if plan.output is not None or plan.calls_only:
            return False
        if not plan.names:
            return True
        choice = self._setup().tool_choice
        return choice is not None and choice.mode == "none"

    def _after_turn(self, heard: "_Heard") -> Iterator[RunEvent]:
        """The model has spoken: what it said becomes part of the conversation."""
        if heard.answer is None and self._bounds.out_of_time():
            return
        if heard.fault is not None and self.state.has_missed_enough:
            raise heard.fault
        answer = broken_off(heard.fault) if heard.answer is None or heard.fault is not None else heard.answer
        self.answer = answer = salvaged(answer, self.plan.setup.tools)
        if self._whole:
            for part in answer.message.parts:
                delta = heard.delta(part)
                if delta is not None:
                    yield delta
        if self._is_logged:
            _log.debug("[%s] Response: %s", self._family, answer.message.parts)
        yield self._after(
            TurnEnd(heard.turn, answer.message, answer.finish, answer.usage, answer.sources, answer.requests)
        )
        if answer.finish is FinishReason.BLOCKED:
            raise blocked(answer)

    def _again(self) -> Again | None:
        """After a turn without calls: what to tell the model, or None because that was the answer."""
        calls_only = self.plan.calls_only and self._asked is not self.plan.last  # where words are better than nothing
        again = verdict(self.answer, self.state, calls_only=calls_only)
        if again is None and self.plan.output is not None:
            return self.plan.output.unread(self._text, self.state)
        if self.answer.finish is FinishReason.CONTINUES:
            self._said += self.answer.message.text
        return again

    def _before_calls(self, reached: LimitReached | None, to_run: list["_Planned"]) -> Iterator[RunEvent]:
        """The calls of a turn begin: what is not to be run has its result at once, the others are put into `to_run`."""
        turn, waiting = self.state.turn, self.state.unanswered
        self._said = ""  # before a call it was no part of the answer
        if self._is_logged:
            _log.debug("[%s] Tool Calls: %s", self._family, self.state.calls)
        refused = self._refused(reached, self.state.waiting)
        open_calls = [call for place, (_, call) in enumerate(waiting) if place not in refused]
        remembered = self._repeats.remembered(open_calls, turn)
        planned: dict[tuple[Any, ...], _Planned] = {}
        for place, (index, call) in enumerate(waiting):
            may_write = self.plan.changing.get(call.name, True)
            yield ToolStart(turn, call, index, may_write, place < len(waiting) - 1)
            if call.name not in self.plan.names:
                _log.warning("%s called invalid tool: %s", self._family, call.name[:_LONGEST_NAME])
            words = refused.get(place)
            known = remembered.get(id(call)) if words is None else failed(call, f"{call.name} {words}")
            if known is not None:
                yield self._after(ToolEnd(turn, known, 0.0, index))
                continue
            twin = planned.get(_key(call))
            if twin is not None:  # a chunk that came twice is one call, and its result counts for both
                twin.indexes.append(index)
            else:
                to_run.append(_Planned(call, [index]))
                planned[_key(call)] = to_run[-1]

    async def _called(self, to_run: list["_Planned"]) -> AsyncGenerator[RunEvent, None]:
        """Several calls, or one against the clock: each gets one result, whatever comes of it."""
        calls = [planned.call for planned in to_run]
        by_id: dict[str, deque[_Planned]] = {}
        for planned in to_run:
            by_id.setdefault(planned.call.id, deque()).append(planned)
        # In order if one call may need another, or if nothing but their order tells them apart.
        in_order = self.plan.calls_in_order or len(by_id) < len(calls)
        results = each_call(calls, self._call, max_concurrency=1 if in_order else None, in_task=self.plan.in_task)
        async with aclosing(self._timed(results)) as ended:
            async for result, seconds in ended:
                for index in by_id[result.id].popleft().indexes:  # calls that share an id run one after another
                    yield self._ended(result, seconds, index)
        for index, call in self.state.unanswered:
            yield self._after(ToolEnd(self.state.turn, failed(call, f"{call.name} {_STOPPED}"), 0.0, index))

    def _ended(self, result: ToolResult, seconds: float, index: int) -> RunEvent:
        if self._is_logged:
            _log.debug("[%s] Tool Result: %s", self._family, result)
        if result.is_final:
            self.final = result
        if self.state.turn and WRONG not in result.notes:
            self._has_run = True
        return self._after(ToolEnd(self.state.turn, result, seconds, index))

    async def _call(self, call: ToolCall) -> ToolResult:
        try:
            context = RunContext(self._context, run_id=self.id, call_id=call.id)
            result = await self.plan.source.call(call, context)
        except Exception as error:
            self._repeats.note(call, failed(call, describe_error(error)))
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
                    item = await with_timeout(anext(items), self._bounds.seconds_left())
                except StopAsyncIteration:
                    return
                except Expired as over:
                    self._bounds.note(over)
                    for late in over.late_result:  # of what would not be stopped: it was done, and that is not hidden
                        yield late
                    return
                yield item

    @property
    def _text(self) -> str:
        return self._said + self.answer.message.text

    def _last_events(self) -> Iterator[RunEvent]:
        """The end, after a word for each call that will not be run."""
        for index, call in self.state.unanswered:
            yield ToolStart(self.state.turn, call, index, may_write=False)
            yield self._after(ToolEnd(self.state.turn, failed(call, f"{call.name} {CALL_NOT_RUN}"), 0.0, index))
        text = POLITE_WORDS if self.ends_politely else self._text if self.final is None else _as_text(self.final.value)
        limit = self.limit.limit if self.limit else None
        self.end = self._after(RunEnd(self.id, text, self.state.usage, self.state.turn, limit))
        yield self.end

    def _after(self, event: Event) -> Event:
        self.state = self.state.after(event)
        return event

    def _log_prompt(self) -> None:
        if self._is_logged:
            _log.debug("[%s] System Prompt: %s", self._family, self.plan.setup.system)
            _log.debug("[%s] Prompt: %s", self._family, [message.parts for message in self.state.history])


class _Planned(NamedTuple):
    """A call to run, and its positions in the turn: several if the model sent the same call more than once."""

    call: ToolCall
    indexes: list[int]


class _Heard:
    """What is heard in a turn, and what goes wrong: a stream that breaks off after it began can be asked for again.

    Nothing that goes wrong keeps a run alive that somebody leaves or cancels, whatever the provider makes of that.
    """

    __slots__ = ("_bounds", "answer", "began", "cancels_before", "fault", "is_left", "turn")

    def __init__(self, turn: int, bounds: Bounds) -> None:
        self.turn = turn
        self._bounds = bounds
        self.began = False
        self.cancels_before = cancel_count()
        """Cancellations that are not meant for this turn: somebody handled them earlier."""
        self.is_left = False
        """Whoever listens does not listen any more."""
        self.answer: ModelResponse | None = None
        self.fault: ProviderError | None = None

    def delta(self, part: Part | ModelResponse) -> RunEvent | None:
        """What a listener is told of a part, if anything."""
        self.began = True
        kind = type(part)
        if kind is Text:
            return TextDelta(self.turn, part.text) if part.text else None  # type: ignore[union-attr]  # by its kind
        if kind is Thought:
            return ThoughtDelta(self.turn, part.text) if part.text else None  # type: ignore[union-attr]  # as above
        if isinstance(part, ModelResponse):
            self.end(part)
        return None

    def end(self, answer: ModelResponse) -> None:
        """The whole answer; a provider may be anybody's."""
        if not isinstance(answer, ModelResponse) or not isinstance(answer.message, Message):
            raise TypeError(f"its answer is {answer!r:.80}, and no ModelResponse with a Message")
        self.answer = answer

    async def checkpoint(self) -> None:
        """Deliver a cancellation that was requested while this task was running, as Ctrl-C does."""
        self.cancels_before = -1  # whatever is raised here is such a cancellation
        await asyncio.sleep(0)
        self.cancels_before = cancel_count()

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        if error is None:
            return False
        cancelled = swallowed_cancellation(error, self.cancels_before)
        if cancelled is not None:
            raise cancelled
        if not isinstance(error, Exception | asyncio.CancelledError):
            return False
        if self.is_left:
            raise GeneratorExit from error
        if isinstance(error, ProviderError) and error.retryable and (self.began or self._bounds.out_of_time()):
            self.fault = error
            return True
        if isinstance(error, MidspanError):
            return False
        raise ProviderError(f"the model failed: {describe_error(error)}") from error


def _key(call: ToolCall) -> tuple[Any, ...]:
    """What two copies of a call have in common, and no two other calls."""
    try:
        return call.id, call.name, call.signature, _encode(call.arguments)
    except (TypeError, ValueError, RecursionError):  # not JSON, which only a broken provider gives
        return (id(call),)


_encode = msgspec.json.Encoder(order="deterministic").encode


def _as_text(value: Any) -> str:
    """A result as a text for people."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
