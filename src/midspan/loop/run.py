"""One run, top to bottom: ask the model, decide, act, repeat.

A run is an async generator of events over a state that each event turns into the next one. Whoever runs an agent reads
these events; a blocking call drains them. The rules of a run are policies. How a model is reached and how a tool is
executed is not known here.
"""

import logging
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any, TypeVar

import msgspec

from midspan.errors import LimitReached, MidspanError
from midspan.loop.calls import CallRunner
from midspan.loop.limits import LIMIT_MESSAGE, UNLIMITED, LimitTracker
from midspan.loop.loop_detector import LoopDetector
from midspan.loop.policy import Fail, Policies, Refusals, Retry, Verdict, calls_to_count
from midspan.loop.prepare import PreparedRun
from midspan.loop.recovery import recover_malformed_call
from midspan.loop.responses import NO_RESPONSE, ResponsePolicy, UnreadableCallPolicy, broken_response
from midspan.loop.state import CALL_CANCELLED, CALL_NOT_RUN, RunState
from midspan.loop.tool_choice import ApprovalPolicy, ToolChoicePolicy
from midspan.loop.turn import TurnStream
from midspan.tools.error_results import failed
from midspan.tools.tasks import checkpoint
from midspan.types.events import (
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
from midspan.types.exchange import ModelRequest, ModelResponse
from midspan.types.messages import History

_log = logging.getLogger("midspan.loop")

Event = TypeVar("Event", bound=RunEvent)


class Run:
    """One run. Read its events once; `state` is its state at any moment and however it ends."""

    def __init__(
        self, id: str, prepared: PreparedRun, history: History, *, limits: LimitTracker, context: Any, streams: bool
    ) -> None:
        """`streams`: somebody reads the text while it arrives; otherwise each response is requested as a whole."""
        self.id = id
        self.prepared = prepared
        self.limits = limits
        self.service = prepared.provider.profile.service
        self.state = RunState.of(history)
        self.response: ModelResponse = NO_RESPONSE
        """The last response of the model."""
        self.end: RunEnd | None = None
        """The last event, if the run has ended."""
        self.ended_with_limit_message = False
        self.policies = Policies(
            UnreadableCallPolicy(),
            ApprovalPolicy(prepared.specs),
            LoopDetector(limits.limits.max_repeats, prepared.specs),
            ToolChoicePolicy(forces_call=prepared.forces_call),
            limits,
            ResponsePolicy(calls_only=prepared.calls_only),
            *prepared.policies,
        )
        self.calls = CallRunner(self, context)
        self._streams = streams
        self._logs = _log.isEnabledFor(logging.DEBUG)
        self._refusals: Refusals = {}
        """The calls of the turn that must not run."""
        self._last_chance: LimitReached | None = None
        """The limit that ends the run unless one of the calls that run now does."""

    async def events(self) -> AsyncGenerator[RunEvent, None]:
        """Yield the events of the run. Closing the generator cancels whatever is running."""
        self.log("System Prompt", self.prepared.config.system)
        self.log("Prompt", self.state.history)
        try:
            yield RunStart(self.id, self.prepared.provider.model, self.state.history.messages)
            for source in self.prepared.unavailable:
                yield SourceUnavailable(source.name, source.message)
            async with aclosing(self._turns()) as events:
                async for event in events:
                    yield event
            for event in self._finish():
                yield event
        except MidspanError as error:
            self.state = self.state.settled(CALL_NOT_RUN)
            error.transcript = self.state.history
            raise
        finally:
            self.state = self.state.settled(CALL_CANCELLED)

    async def _turns(self) -> AsyncGenerator[RunEvent, None]:
        """Ask, decide, act, repeat."""
        while True:
            if not self.state.calls:
                turn = self._next_turn()
                yield self.apply(turn.start)
                if self._streams:
                    async with aclosing(turn.stream()) as events:
                        async for event in events:
                            yield event
                else:
                    await turn.generate()
                for event in self._end_turn(turn):
                    yield event
            retry = self._decide()
            if retry is not None:
                yield self.apply(TurnRetry(self.state.turn, retry.reason, retry.message))
            elif not self.state.calls or self.ended_with_limit_message:
                return
            else:
                await checkpoint()
                for event in self.calls.start(self._refusals):
                    yield event
                # An async generator for each turn would cost more than the rest of it.
                if self.calls.is_single:
                    yield await self.calls.run_single()
                else:
                    async with aclosing(self.calls.run()) as events:
                        async for event in events:
                            yield event
                if self._ended_by_call():
                    return

    def log(self, what: str, value: object) -> None:
        if self._logs:
            _log.debug("[%s] %s: %s", self.service, what, value)

    def apply(self, event: Event) -> Event:
        """Update the state by an event and return the event."""
        self.state = self.state.after(event)
        return event

    def _next_turn(self) -> TurnStream:
        """Prepare the next request as the policies want it."""
        prepared, changes, limit = self.prepared, self.policies.request(self.state), None
        config = prepared.config
        if changes.answer_only:
            config, limit = prepared.answer_config, self.limits.limit_name(self.state)
        elif changes.forces_call:
            config = prepared.forced_config
        is_answer, turn = prepared.text_is_answer(config), self.state.turn + 1
        start = TurnStart(turn, is_answer, config.tool_choice, changes.answer_only, limit)
        budget = UNLIMITED if changes.answer_only else self.limits.budget(self.state)
        request = ModelRequest(config, self.state.history, budget)
        return TurnStream(prepared.provider, request, start, self.limits)

    def _end_turn(self, turn: TurnStream) -> Iterator[RunEvent]:
        """Yield the end of the turn, after the texts of a response that was not streamed."""
        if turn.response is None and self.limits.out_of_time() is not None:
            return
        if turn.error is not None and self.state.retries_exhausted:
            raise turn.error
        response = turn.response if turn.response is not None and turn.error is None else broken_response(turn.error)
        self.response = response = recover_malformed_call(response, turn.request.config.tools)
        if not self._streams:
            yield from turn.deltas()
        self.log("Response", response.message.parts)
        reason, usage, citations = response.finish_reason, response.usage, response.citations
        yield self.apply(TurnEnd(self.state.turn, response.message, reason, usage, citations, response.requests))

    def _decide(self) -> Retry | None:
        """Return the retry that the last response needs, if any. Raises if the run cannot continue."""
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

    def _ended_by_call(self) -> bool:
        """Whether a tool ended the run, or a limit leaves no request for another turn."""
        if self.state.final_result is not None:
            return True
        limit, self._last_chance = self._last_chance or self.limits.out_of_time(), None
        if limit is not None:
            self._stop_at(limit)
        return self.ended_with_limit_message

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
