"""One run, top to bottom: ask the model, decide, act, repeat.

Each event of a run turns its immutable state into the next one. If the run is streamed, the event goes into the queue
of the reader. The first turns force a call until one was run, if the tool choice requires a call; all other rules are
policies or limits. This module does not know how a model is reached or a tool is executed.
"""

import asyncio
import logging
from collections.abc import Awaitable
from contextlib import aclosing
from typing import TYPE_CHECKING

import msgspec

from midspan._loop.loop_detector import LoopDetector
from midspan._loop.policies import LIMIT_MESSAGE, Calls, LimitTracker, Refusals, decide
from midspan._loop.turn import NO_RESPONSE, CallRunner, after_error, checked_response, read_stream
from midspan._types import events
from midspan._types.exchange import END, Budget, ModelRequest, ModelResponse
from midspan._types.messages import Message
from midspan._types.parts import ToolResult
from midspan._types.run_state import CALL_CANCELLED, CALL_NOT_RUN, MAX_RETRIES, RunState
from midspan.errors import MidspanError
from midspan.tools.source import unknown_tool_result
from midspan.tools.tasks import with_timeout

if TYPE_CHECKING:
    from midspan._loop.prepare import PendingRun, PreparedRun
    from midspan._loop.run_stream import EventQueue

_log = logging.getLogger("midspan._loop")


class Run:
    """One run. `state` is its state at any moment and however it ends."""

    def __init__(
        self, pending: "PendingRun", prepared: "PreparedRun", limit_tracker: LimitTracker, queue: "EventQueue | None"
    ) -> None:
        """Without a `queue` for a reader there are no events, and each response is requested as a whole."""
        self.id, self.prepared, self.limit_tracker, self.queue = pending.id, prepared, limit_tracker, queue
        self.state = RunState.of(pending.history)
        self.response = NO_RESPONSE
        """The last response of the model."""
        self.end: events.RunEnd | None = None
        """The last event, if the run has ended."""
        self.call_runner = CallRunner(self, pending.context, pending.config)
        self._loop_detector = LoopDetector(self.limit_tracker.limits.max_repeats, prepared.specs)
        self._policies = (*prepared.policies, self._loop_detector)
        limit_error, self._budget = limit_tracker.next_request(self.state)
        self._limit = None if limit_error is None else limit_error.limit
        """The limit that the next request would exceed."""
        self._logs_debug = _log.isEnabledFor(logging.DEBUG)

    async def execute(self) -> None:
        """Ask, decide, act, repeat. At the end every call has a result, and a MidspanError has the transcript."""
        try:
            if self._logs_debug or self.queue is not None:
                await self._begin()
            while True:
                if not self.state.calls:
                    await self._ask()
                decision = decide(self._policies, self.limit_tracker, self.state, self.response)
                self._limit, self._budget = decision.limit, decision.budget
                if (retry := decision.retry) is not None:
                    message = None if retry.text is None else Message.user(retry.text)
                    event = events.TurnRetry(self.state.turn, retry.reason, message)
                    self.state = self.state.after_retry(event)
                    await self._emit(event)
                elif not self.state.calls:
                    break
                else:
                    await self._run_calls(decision.calls, decision.refusals)
                if self._has_ended():
                    break
            await self._finish()
        except MidspanError as error:
            self.state = self.state.settled(CALL_NOT_RUN)
            error.transcript = self.state.history
            raise
        finally:
            if self.state.calls:
                self.state = self.state.settled(CALL_CANCELLED)
            del self.call_runner, self.queue  # without reference cycles, the run is freed at once

    async def _begin(self) -> None:
        if self._logs_debug:
            self._debug("System Prompt", self.prepared.request_config.system)
            self._debug("Prompt", self.state.history)
        await self._emit(events.RunStart(self.id, self.prepared.provider.model, self.state.history.messages))
        for source in self.prepared.listing.unavailable:
            await self._emit(events.SourceUnavailable(source.name, source.message))

    def _debug(self, label: str, value: object) -> None:
        _log.debug("[%s] %s: %s", self.prepared.provider.profile.service, label, value)

    async def _ask(self) -> None:
        """Request the next turn, and set `self.response` unless the time of the run is over first."""
        start, request = self._next_request()
        self.state = self.state.after_request(start)
        queue = self.queue
        if queue is not None:
            await queue.emit(start)
        response: ModelResponse | None
        if queue is not None and queue.deltas:
            response = await read_stream(self, queue, request)
        else:
            try:
                generating: Awaitable[ModelResponse] = self.prepared.provider.generate(request)
                if self.limit_tracker.deadline is not None:
                    generating = with_timeout(generating, self.limit_tracker.seconds_left)
                response = await generating
                is_plain = type(response) is ModelResponse and type(response.message) is Message
                if not is_plain or response.finish_reason is not END:
                    response = checked_response(response, request)
            except BaseException as error:  # noqa: BLE001 - providers are user code
                response = after_error(error, self, has_started=False)
        if response is None:
            return
        self.response = response
        if self._logs_debug:
            self._debug("Response", response.message.parts)
        message, reason, usage = response.message, response.finish_reason, response.usage
        end = events.TurnEnd(start.turn, message, reason, usage, response.citations, response.requests)
        self.state = self.state.after_response(end)
        if queue is not None:
            await queue.emit(end)

    def _next_request(self) -> tuple[events.TurnStart, ModelRequest]:
        """Return the next request. The first turns force a call until one was run, unless the model may only answer."""
        prepared, state = self.prepared, self.state
        config, budget, limit = prepared.request_config, self._budget, state.limit or self._limit
        if limit is not None:
            budget = Budget()
            config = prepared.answer_config
        elif not state.has_run_call and state.turn <= MAX_RETRIES:
            config = prepared.forced_config
        choice = config.tool_choice
        cannot_call = not prepared.specs or (choice is not None and choice.mode == "none")
        answer_only = prepared.answers_in_text and cannot_call
        start = events.TurnStart(state.turn + 1, answer_only, choice, tools_withdrawn=limit is not None, limit=limit)
        on_retry = None if self.queue is None else self.call_runner.report_retry
        return start, ModelRequest(config, state.history, budget, on_retry)

    async def _emit(self, event: events.RunEvent) -> None:
        if self.queue is not None:
            await self.queue.emit(event)

    async def _run_calls(self, calls: Calls, refusals: Refusals) -> None:
        """Run the unanswered calls of the turn. Refused ones, and those of unknown tools, get their results at once."""
        if self._logs_debug:
            self._debug("Tool Calls", self.state.calls)
        has_results = False
        for index, call in calls:
            spec, refusal = self.prepared.specs.get(call.name), refusals.get(index)
            if spec is None:
                service, fields = self.prepared.provider.profile.service, {"run_id": self.id, "call_id": call.id}
                _log.warning("%s called invalid tool: %s", service, call.name[:200], extra=fields)
            is_run = spec is not None and refusal is None
            if self.queue is not None:
                may_write = spec is not None and is_run and spec.changes is not False
                has_more = index != calls[-1][0]
                await self.queue.emit(events.ToolStart(self.state.turn, call, index, may_write, has_more))
            if not is_run:
                specs = self.prepared.specs
                result = unknown_tool_result(call, specs) if refusal is None else refusal.result(call)
                await self._emit(self._end_call(index, result, 0.0))
                has_results = True
        if has_results:
            calls = self.state.unanswered
        if self.call_runner.task.cancelling():
            await asyncio.sleep(0)  # raises CancelledError if the task was cancelled while it was running, as by Ctrl-C
        if len(calls) == 1 and self.limit_tracker.deadline is None:
            index, call = calls[0]
            result, seconds = await self.call_runner.run_single(call, index)
            end = self._end_call(index, result, seconds)
            if self.queue is not None:
                await self.queue.emit(end)
        elif calls:
            async with aclosing(self.call_runner.run(calls)) as results:
                async for index, result, seconds in results:
                    await self._emit(self._end_call(index, result, seconds))

    def _end_call(self, index: int, result: ToolResult, seconds: float) -> events.ToolEnd:
        if self._logs_debug:
            self._debug("Tool Result", result)
        if self._loop_detector.repeated:
            result = self._loop_detector.with_hint(index, result)
        end = events.ToolEnd(self.state.turn, result, seconds, index)
        self.state = self.state.after_call(end)
        return end

    def _has_ended(self) -> bool:
        """Whether a tool or a limit has ended the run. Raises the exception of a tool (`raise_tool_errors`)."""
        if self.call_runner.tool_error is not None:
            raise self.call_runner.tool_error
        if self.state.final_result is not None or self.limit_tracker.ended_with_message:
            return True
        tracker = self.limit_tracker
        return (tracker.pending_limit is not None or tracker.deadline is not None) and tracker.after_calls(self.state)

    async def _finish(self) -> None:
        state, final = self.state, self.state.final_result
        text = state.partial_text + self.response.message.text
        if self.limit_tracker.ended_with_message:
            text = LIMIT_MESSAGE
        elif final is not None:
            text = final.value if isinstance(final.value, str) else msgspec.json.encode(final.value).decode()
        self.end = events.RunEnd(self.id, text, state.usage, state.turn, self.limit_tracker.final_limit(state))
        self.state = state.after_end(self.end)
        await self._emit(self.end)
