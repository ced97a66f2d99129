"""One run, top to bottom: ask the model, decide, act, repeat.

A run is an async generator of events over an immutable state: each event gives the next state. A blocking call drains
the events. The rules of a run are policies. This module does not know how a model is reached or a tool is executed.
"""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import Any, TypeVar

import msgspec

from midspan._loop.calls import CallRunner
from midspan._loop.limits import LIMIT_MESSAGE, UNLIMITED, LimitTracker
from midspan._loop.loop_detector import LoopDetector
from midspan._loop.policy import NO_RESPONSE, Fail, Policies, Refusals, Retry, Verdict, calls_to_count
from midspan._loop.prepare import PreparedRun
from midspan._loop.state import CALL_CANCELLED, CALL_NOT_RUN, RunState
from midspan._loop.turn import TurnStream
from midspan._types.context import AskUser
from midspan._types.events import (
    RunEnd,
    RunEvent,
    RunStart,
    SourceUnavailable,
    ToolEnd,
    ToolStart,
    TurnEnd,
    TurnRetry,
    TurnStart,
)
from midspan._types.exchange import ModelRequest, ModelResponse
from midspan._types.messages import History
from midspan.errors import LimitReached, MidspanError
from midspan.tools.source import failed

_log = logging.getLogger("midspan._loop")

Event = TypeVar("Event", bound=RunEvent)


class Run:
    """One run. Read its events once; `state` is its state at any moment and however it ends."""

    def __init__(
        self, id: str, prepared: PreparedRun, history: History, limits: LimitTracker, *, streams: bool,
        context: Any = None, ask_user: AskUser | None = None,
    ) -> None:  # fmt: skip
        """`streams`: somebody reads the text while it arrives; otherwise each response is requested as a whole."""
        self.id, self.prepared, self.limits = id, prepared, limits
        self.state = RunState.of(history)
        self.response: ModelResponse = NO_RESPONSE
        """The last response of the model."""
        self.end: RunEnd | None = None
        """The last event, if the run has ended."""
        self.ended_with_limit_message = self._is_over = False
        loops = LoopDetector(limits.limits.max_repeats, prepared.specs)
        self.policies = Policies(loops, *prepared.call_policies, limits, *prepared.answer_policies)
        self.calls = CallRunner(self, context, ask_user)
        self.wait_for_reader: Callable[[], Awaitable[None]] = _do_not_wait
        """Awaited before a streamed turn ends, so that the state is not ahead of the events that were read."""
        self._streams = streams
        self._logs = _log.isEnabledFor(logging.DEBUG)
        self._turn: TurnStream | None = None
        """The response that the run has read and not judged."""
        self._refusals: Refusals = {}
        """The calls of the turn that must not run."""
        self._last_chance: LimitReached | None = None
        """The limit that ends the run unless one of the calls that run now does."""

    async def events(self) -> AsyncGenerator[RunEvent, None]:
        """Yield the events of the run: ask, decide, act, repeat. Closing the generator cancels whatever is running."""
        with self._settling():
            for event in self._begin():
                yield event
            while not self._is_over:
                if not self.state.calls:
                    turn = self._turn = self._next_turn()
                    yield self.apply(turn.start)
                    if self._streams:
                        async with aclosing(turn.stream()) as deltas:
                            async for event in deltas:
                                yield event
                        await self.wait_for_reader()
                    else:
                        await turn.generate()
                for event in self._decide():
                    yield event
                if self.calls.is_single:  # an async generator would cost more than the rest of the turn
                    yield await self.calls.run_single()
                elif self.calls.is_planned:
                    async with aclosing(self.calls.run()) as results:
                        async for event in results:
                            yield event
                self._check_end()
            for event in self._finish():
                yield event

    @contextmanager
    def _settling(self) -> Iterator[None]:
        """At the end, give every call without a result an error result, and an error its transcript."""
        try:
            yield
        except MidspanError as error:
            self.state = self.state.settled(CALL_NOT_RUN)
            error.transcript = self.state.history
            raise
        finally:
            self.state = self.state.settled(CALL_CANCELLED)
            del self.calls, self.wait_for_reader  # without reference cycles, the run is freed at once

    def _begin(self) -> Iterator[RunEvent]:
        self.log("System Prompt", self.prepared.config.system)
        self.log("Prompt", self.state.history)
        yield RunStart(self.id, self.prepared.provider.model, self.state.history.messages)
        for source in self.prepared.unavailable:
            yield SourceUnavailable(source.name, source.message)

    def log(self, what: str, value: object) -> None:
        if self._logs:
            _log.debug("[%s] %s: %s", self.prepared.provider.profile.service, what, value)

    def apply(self, event: Event) -> Event:
        """Update the state by an event and return the event."""
        self.state = self.state.after(event)
        return event

    def _next_turn(self) -> TurnStream:
        """Prepare the next request as the policies want it."""
        prepared, changes = self.prepared, self.policies.request(self.state)
        config, limit, budget = prepared.config, None, UNLIMITED
        if changes.answer_only:
            config, limit = prepared.answer_config, self.limits.limit_name(self.state)
        else:
            config = prepared.forced_config if changes.forces_call else config
            budget = self.limits.budget(self.state)
        choice = config.tool_choice
        is_answer = prepared.answers_in_text and (not prepared.specs or (choice is not None and choice.mode == "none"))
        start = TurnStart(self.state.turn + 1, is_answer, choice, changes.answer_only, limit)
        request = ModelRequest(config, self.state.history, budget, self.calls.retry_observer)
        return TurnStream(prepared.provider, request, start, self.limits)

    def _decide(self) -> Iterator[RunEvent]:
        """Yield the end of the turn, then a retry or the start of the calls. Raises if the run cannot continue."""
        turn, self._turn = self._turn, None
        if turn is not None and (end := self._end_turn(turn)) is not None:
            yield end
        retry = self._judge()
        if retry is not None:
            yield self.apply(TurnRetry(self.state.turn, retry.reason, retry.message))
        elif self.state.calls and not self.ended_with_limit_message:
            yield from self.calls.start(self._refusals)
        else:
            self._is_over = True

    def _end_turn(self, turn: TurnStream) -> TurnEnd | None:
        """Return the end of the turn; None if the time of the run is over."""
        if turn.response is None and self.limits.out_of_time() is not None:
            return None
        if turn.error is not None and self.state.retries_exhausted:
            raise turn.error
        self.response = response = turn.result()
        self.log("Response", response.message.parts)
        reason, usage, citations = response.finish_reason, response.usage, response.citations
        return self.apply(TurnEnd(self.state.turn, response.message, reason, usage, citations, response.requests))

    def _judge(self) -> Retry | None:
        """Return the retry that the last response needs, if any, and note which calls must not run."""
        state = self.state
        verdict: Verdict = None
        is_out_of_time = self.limits.out_of_time() is not None
        if state.turn and not is_out_of_time:
            verdict = self.policies.after_response(state, self.response)
            if isinstance(verdict, Fail):
                raise verdict.error
        if state.calls or verdict is not None or is_out_of_time:
            self._refusals = self.policies.refuse(state) if state.calls else {}
            calls = calls_to_count(state.unanswered, self._refusals)
            limit = self.limits.reached(state, calls)
            if limit is not None and state.calls and self.limits.can_end_by_call(state, calls):
                self._last_chance = limit
            elif limit is not None:
                self._stop_at(limit)
        return verdict if isinstance(verdict, Retry) and not self.ended_with_limit_message else None

    def _stop_at(self, limit: LimitReached) -> None:
        """Apply `on_limit`: raise the error, end with a message, or continue to the request for the answer."""
        on_limit = self.limits.limits.on_limit
        if on_limit == "error" or (self.state.limit is not None and self.state.tools_withdrawn):
            raise self.limits.first_error or limit
        self.limits.first_error = limit
        # When the time is over, no further request is possible.
        self.ended_with_limit_message = on_limit == "message" or limit.limit == "max_seconds"

    def _check_end(self) -> None:
        """End the run if a tool ended it, or if a limit leaves no request for another turn."""
        has_ended = self._is_over or self.state.final_result is not None
        limit, self._last_chance = self._last_chance or self.limits.out_of_time(), None
        if limit is not None and not has_ended:
            self._stop_at(limit)
        self._is_over = has_ended or self.ended_with_limit_message

    def _finish(self) -> Iterator[RunEvent]:
        """Yield the end of the run, after a result for each call that will not run."""
        for index, call in self.state.unanswered:
            yield ToolStart(self.state.turn, call, index, may_write=False)
            yield self.apply(ToolEnd(self.state.turn, failed(call, f"{call.name} {CALL_NOT_RUN}"), 0.0, index))
        state, final = self.state, self.state.final_result
        text = state.partial_text + self.response.message.text
        if self.ended_with_limit_message:
            text = LIMIT_MESSAGE
        elif final is not None:
            text = final.value if isinstance(final.value, str) else msgspec.json.encode(final.value).decode()
        self.end = self.apply(RunEnd(self.id, text, state.usage, state.turn, self.limits.final_limit(state)))
        yield self.end


async def _do_not_wait() -> None:
    """Nobody reads the events of this run while they happen."""
