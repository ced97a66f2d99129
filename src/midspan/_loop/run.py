"""One run, top to bottom: ask the model, decide, act, repeat.

A run is an async generator of events over an immutable state: each event gives the next state. A blocking call drains
the events. The rules of a run are policies. This module does not know how a model is reached or a tool is executed.
"""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from midspan._loop.loop_detector import LoopDetector
from midspan._loop.policies import LIMIT_MESSAGE, LimitTracker, Policies, Refusals
from midspan._loop.prepare import PreparedRun
from midspan._loop.turn import NO_RESPONSE, CallRunner, Planned, TurnStream, generate, plan_calls
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
from midspan._types.messages import History, Message
from midspan._types.parts import ToolResult
from midspan._types.run_state import CALL_CANCELLED, CALL_NOT_RUN, RunState
from midspan.errors import MidspanError

_log = logging.getLogger("midspan._loop")

_MAX_NAME_CHARS = 200

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
        self.calls = CallRunner(self, context, ask_user)
        self.wait_for_reader: Callable[[], Awaitable[None]] = _do_not_wait
        """Awaited before a streamed turn ends, so that the state is not ahead of the events that were read."""
        self._loops = LoopDetector(limits.limits.max_repeats, prepared.specs)
        self._policies = Policies((*prepared.policies, self._loops), limits)
        self._streams = streams
        self._logs = _log.isEnabledFor(logging.DEBUG)
        self._is_over = False
        self._planned: list[Planned] = []
        """The calls of the turn that are about to run."""

    async def events(self) -> AsyncGenerator[RunEvent, None]:
        """Yield the events of the run: ask, decide, act, repeat. Closing the generator cancels whatever is running."""
        with self._settling():
            for event in self._begin():
                yield event
            while not self._is_over:
                response: ModelResponse | None = None
                if not self.state.calls:
                    start, request = self._next_request()
                    yield self._apply(start)
                    can_retry = not self.state.retries_exhausted
                    if self._streams:
                        turn = TurnStream(self.prepared.provider, request, start.turn, self.limits)
                        async with aclosing(turn.events(can_retry=can_retry)) as deltas:
                            async for event in deltas:
                                yield event
                        await self.wait_for_reader()
                        response = turn.response
                    else:
                        response = await generate(self.prepared.provider, request, self.limits, can_retry=can_retry)
                for event in self._decide(response):
                    yield event
                planned, self._planned = self._planned, []
                if len(planned) == 1 and self.limits.deadline is None:  # an async generator would cost more
                    [(call, indexes)] = planned
                    result, seconds = await self.calls.run_single(call, indexes[0])
                    for index in indexes:
                        yield self._end_call(result, seconds, index)
                elif planned:
                    async with aclosing(self.calls.run(planned)) as results:
                        async for index, result, seconds in results:
                            yield self._end_call(result, seconds, index)
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
        self._debug("System Prompt", self.prepared.config.system)
        self._debug("Prompt", self.state.history)
        yield RunStart(self.id, self.prepared.provider.model, self.state.history.messages)
        for source in self.prepared.listing.unavailable:
            yield SourceUnavailable(source.name, source.message)

    def _debug(self, what: str, value: object) -> None:
        if self._logs:
            _log.debug("[%s] %s: %s", self.prepared.provider.profile.service, what, value)

    def _apply(self, event: Event) -> Event:
        """Update the state by an event and return the event."""
        self.state = self.state.after(event)
        return event

    def _next_request(self) -> tuple[TurnStart, ModelRequest]:
        """Return the next request as the policies want it."""
        prepared, changes = self.prepared, self._policies.request(self.state)
        config = prepared.forced_config if changes.forces_call else prepared.config
        if changes.answer_only:
            config = prepared.answer_config
        choice = config.tool_choice
        is_answer = prepared.answers_in_text and (not prepared.specs or (choice is not None and choice.mode == "none"))
        start = TurnStart(self.state.turn + 1, is_answer, choice, changes.answer_only, changes.limit)
        on_retry = None if self.calls.observer is None else self.calls.report_retry
        return start, ModelRequest(config, self.state.history, changes.budget, on_retry)

    def _decide(self, response: ModelResponse | None) -> Iterator[RunEvent]:
        """Yield the end of the turn, then a retry or the start of the calls. Raises if the run cannot continue."""
        if response is not None:
            self.response = response
            self._debug("Response", response.message.parts)
            reason, usage, citations = response.finish_reason, response.usage, response.citations
            yield self._apply(TurnEnd(self.state.turn, response.message, reason, usage, citations, response.requests))
        retry, refusals = self._policies.decide(self.state, self.response)
        if retry is not None:
            message = None if retry.text is None else Message.user(retry.text)
            yield self._apply(TurnRetry(self.state.turn, retry.reason, message))
        elif self.state.calls and not self.limits.ended_with_message:
            yield from self._start_calls(refusals)
        else:
            self._is_over = True

    def _start_calls(self, refusals: Refusals) -> Iterator[RunEvent]:
        """Announce the unanswered calls of the turn. Refused ones get their results; the others are planned."""
        turn, unanswered, prepared = self.state.turn, self.state.unanswered, self.prepared
        self._debug("Tool Calls", self.state.calls)
        last = unanswered[-1][0]
        for index, call in unanswered:
            if call.name not in prepared.specs:
                _log.warning(
                    "%s called invalid tool: %s", prepared.provider.profile.service, call.name[:_MAX_NAME_CHARS]
                )
            is_refused = index in refusals
            may_write = not is_refused and call.name not in prepared.read_only
            yield ToolStart(turn, call, index, may_write, index != last)
            if is_refused:
                yield self._apply(ToolEnd(turn, refusals[index].result(call), 0.0, index))
        if refusals:
            unanswered = [item for item in unanswered if item[0] not in refusals]
        is_single = len(unanswered) == 1
        self._planned = [(call, [index]) for index, call in unanswered] if is_single else plan_calls(unanswered)

    def _end_call(self, result: ToolResult, seconds: float, index: int) -> ToolEnd:
        self._debug("Tool Result", result)
        hint = self._loops.hint(index, result) if self._loops.repeated else None
        if hint is not None:
            result = replace(result, hint=hint if result.hint is None else f"{result.hint} {hint}")
        return self._apply(ToolEnd(self.state.turn, result, seconds, index))

    def _check_end(self) -> None:
        """End the run if a tool ended it, or if a limit leaves no request for another turn."""
        self._is_over = self._is_over or self.state.final_result is not None
        limits = self.limits
        if not self._is_over and (limits.last_chance is not None or limits.deadline is not None):
            self._is_over = limits.after_calls(self.state)

    def _finish(self) -> Iterator[RunEvent]:
        """Yield the end of the run, after a result for each call that will not run."""
        for index, call in self.state.unanswered:
            yield ToolStart(self.state.turn, call, index, may_write=False)
            result = call.error_result(f"{call.name} {CALL_NOT_RUN}")
            yield self._apply(ToolEnd(self.state.turn, result, 0.0, index))
        state, final = self.state, self.state.final_result
        text = state.partial_text + self.response.message.text
        if self.limits.ended_with_message:
            text = LIMIT_MESSAGE
        elif final is not None:
            text = final.value if isinstance(final.value, str) else msgspec.json.encode(final.value).decode()
        self.end = self._apply(RunEnd(self.id, text, state.usage, state.turn, self.limits.final_limit(state)))
        yield self.end


async def _do_not_wait() -> None:
    """Nobody reads the events of this run while they happen."""
