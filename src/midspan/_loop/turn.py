"""One turn: the response of the model, whole or as events, and the results of its calls.

`CallRunner` also handles what running tools request: progress, questions to the user, calls of other tools.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from contextlib import aclosing
from threading import get_ident
from time import perf_counter
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from midspan._loop.policies import NEEDS_APPROVAL, Calls, Refusal
from midspan._types.context import RunContext
from midspan._types.events import RequestRetry, RunEvent, TextDelta, ThoughtDelta, ToolCallDelta, ToolProgress
from midspan._types.exchange import (
    ArgumentsPartDelta,
    FinishReason,
    ModelEvent,
    ModelRequest,
    ModelResponse,
    PartDelta,
    PartEnd,
    PartStart,
    TextPartDelta,
    ThoughtPartDelta,
)
from midspan._types.messages import Message
from midspan._types.parts import FORBIDDEN, Text, Thought, ToolCall, ToolResult, local_id
from midspan._types.specs import ToolSpec
from midspan._types.texts import canonical_json, truncate
from midspan.errors import MidspanError, ProviderError, ToolError
from midspan.providers.provider import ensure_aclose
from midspan.tools.execution import run_call
from midspan.tools.schedule import call_order, each_call
from midspan.tools.source import bulleted, describe_error, unknown_tool_result
from midspan.tools.tasks import Expired, with_timeout

if TYPE_CHECKING:
    from midspan._loop.options import RunConfig
    from midspan._loop.run import Run
    from midspan._loop.run_stream import EventQueue

NO_RESPONSE = ModelResponse(Message("model", ()), FinishReason.CUT)
"""Used before the first response, and if a response broke off before its end."""
_OUT_OF_TIME = "was cancelled, because the time of the run is over; whether it had an effect is unknown"
_MAX_DEPTH = 20
"""How deeply tools may call tools."""
_PART_EVENTS = frozenset((PartStart, PartDelta, PartEnd))


StreamedCalls = dict[int, tuple[int, str | None, str | None]]
"""By part index: the position of a call in the turn; its id and name, None once a delta has carried them."""


async def read_stream(run: "Run", queue: "EventQueue", request: ModelRequest) -> ModelResponse | None:
    """Pass on the deltas of a response, and return it. None means that the time of the run is over."""
    tracker, turn, response, has_started = run.limit_tracker, run.state.turn, None, False
    calls: StreamedCalls = {}
    without_response: ModelResponse | None = None
    try:
        async with aclosing(ensure_aclose(run.prepared.provider.stream(request))) as events:
            while True:
                if tracker.out_of_time() is not None:  # no timer fires while events are ready
                    raise Expired
                next_event: Awaitable[ModelEvent] = anext(events)
                if tracker.deadline is not None:
                    next_event = with_timeout(next_event, tracker.seconds_left)
                event = await next_event
                has_started = True
                if type(event) not in _PART_EVENTS:
                    response = checked_response(event, request)
                elif (delta := _delta(event, turn, calls)) is not None:
                    await queue.emit(delta)
    except StopAsyncIteration:
        without_response = NO_RESPONSE if tracker.out_of_time() is None else None
    except BaseException as error:  # noqa: BLE001 - providers are user code
        without_response = after_error(error, run, has_started=has_started)
    await queue.wait_for_reader()
    return response or without_response


def _delta(event: ModelEvent, turn: int, calls: StreamedCalls) -> RunEvent | None:
    if type(event) is PartDelta and type(event.delta) is TextPartDelta:  # most events; `match` costs more
        return TextDelta(turn, event.delta.text) if event.delta.text else None
    match event:
        case PartStart(part=Text(text)):
            return TextDelta(turn, text) if text else None
        case PartDelta(delta=ThoughtPartDelta(text)) | PartStart(part=Thought(text)):
            return ThoughtDelta(turn, text) if text else None
        case PartStart(index, ToolCall(id, name)):
            calls[index] = len(calls), id, name
        case PartDelta(index, ArgumentsPartDelta(json)) if index in calls:
            position, call_id, call_name = calls[index]
            calls[index] = position, None, None  # only the first delta has them
            return ToolCallDelta(turn, position, json, call_id, call_name)
    return None


def checked_response(response: Any, request: ModelRequest) -> ModelResponse:
    """Return the response, checked. A malformed call is replaced by the calls that its `finish_message` quotes."""
    if not isinstance(response, ModelResponse) or not isinstance(response.message, Message):
        raise ProviderError(f"the model failed: expected a ModelResponse with a Message, got {response!r:.80}")
    message, quoted = response.message, response.finish_message
    if response.finish_reason is not FinishReason.MALFORMED_CALL or not quoted or message.calls:
        return response
    from midspan.providers.prompted.reader import recover_calls  # most runs never need it

    calls = recover_calls(quoted, tuple(tool for tool in request.config.tools if isinstance(tool, ToolSpec)))
    if not calls:
        return response
    return replace(response, message=message.with_parts((*message.parts, *calls)), finish_reason=FinishReason.END)


def after_error(error: BaseException, run: "Run", *, has_started: bool) -> ModelResponse | None:
    """Return a cut response if it may be requested again, None if the time of the run is over; raise other errors."""
    tracker = run.limit_tracker
    # A CancelledError that the provider raised itself: the task of the run was not cancelled.
    is_from_provider = isinstance(error, asyncio.CancelledError) and not run.call_runner.task.cancelling()
    if not isinstance(error, Exception) and not is_from_provider:
        raise error
    is_retryable = isinstance(error, ProviderError) and error.retryable
    if isinstance(error, Expired) or (is_retryable and tracker.out_of_time() is not None):
        tracker.record_expiry(error)
        return None
    if isinstance(error, ProviderError) and is_retryable and not run.state.retries_exhausted:
        if (partial := error.partial_response) is not None:
            # Requests that were completed before the error count, with their tokens.
            return replace(NO_RESPONSE, usage=partial.usage, requests=partial.requests + 1)
        if has_started:
            return NO_RESPONSE
    if isinstance(error, MidspanError):
        raise error
    raise ProviderError(f"the model failed: {describe_error(error)}") from error


def _deduplicate(calls: Calls) -> list[tuple[ToolCall, list[int]]]:
    """Return the calls to run, each with its positions in the turn: a call that the model sent twice is run once."""
    planned: dict[Any, tuple[ToolCall, list[int]]] = {}
    for index, call in calls:
        raw = None if call.provider_data is None else bytes(call.provider_data.raw)
        key = call.id, call.name, canonical_json(call.arguments), raw
        planned.setdefault(key, (call, []))[1].append(index)
    return list(planned.values())


class CallRunner:
    """Runs the calls of a run, and is the `RunHost` of their contexts."""

    def __init__(self, run: "Run", user_context: Any, config: "RunConfig") -> None:
        self._run, self._queue = run, run.queue
        self._user_context = user_context
        self._config = config
        task = asyncio.current_task()
        assert task is not None, "a coroutine runs in a task"
        self.task, self.loop, self.thread = task, task.get_loop(), get_ident()
        self.tool_error: Exception | None = None
        """The first exception of a tool, if the run has to raise it (`raise_tool_errors`)."""

    def run_single(self, call: ToolCall, index: int) -> Awaitable[tuple[ToolResult, float]]:
        """Run the only call of a turn, and return its result and its duration."""
        prepared = self._run.prepared
        return run_call(prepared.source.call, call, self._context(call, index), in_task=prepared.in_task)

    async def run(self, calls: Calls) -> AsyncGenerator[tuple[int, ToolResult, float], None]:
        """Run calls of a turn, and yield each result as soon as it is available, with its index and its duration."""
        run, prepared, planned = self._run, self._run.prepared, _deduplicate(calls)
        results = each_call(
            [(call, self._context(call, indexes[0])) for call, indexes in planned],
            prepared.source.call,
            # In order if a call may need the result of another.
            max_concurrency=1 if prepared.provider.profile.calls_in_order else None,
            in_task=prepared.in_task,
            order=call_order([call for call, _ in planned], prepared.specs),
        )
        started = perf_counter()
        async with aclosing(results):
            while True:
                try:
                    position, result, seconds = await with_timeout(anext(results), run.limit_tracker.seconds_left)
                except StopAsyncIteration:
                    break
                except Expired as expired:
                    run.limit_tracker.record_expiry(expired)
                    break
                for index in planned[position][1]:
                    yield index, result, seconds
        for index, call in run.state.unanswered:
            yield index, call.error_result(f"{call.name} {_OUT_OF_TIME}"), perf_counter() - started

    def _context(self, call: ToolCall, index: int, parent: RunContext[Any] | None = None) -> RunContext[Any]:
        run = self._run
        on_error = self._record_error if self._config.raise_tool_errors else None
        depth, deadline = (0, run.limit_tracker.deadline) if parent is None else (parent.depth + 1, parent.deadline)
        turn, routes = run.state.turn, run.prepared.routes
        return RunContext(self._user_context, run.id, call.id, turn, index, depth, deadline, self, on_error, routes)

    def _record_error(self, error: BaseException) -> None:
        if self.tool_error is None and isinstance(error, Exception):
            self.tool_error = error

    def report_progress(self, context: RunContext[Any], fraction: float | None, message: str) -> None:
        if self._queue is not None and not context.depth:
            self._queue.report(
                ToolProgress(context.turn, context.call_id, context.index, fraction, truncate(message) or None)
            )

    def report_log(self, context: RunContext[Any], level: int, message: str) -> None:
        """Do nothing: `RunContext.log` has already written it to the log."""

    def report_retry(self, attempt: int, wait_seconds: float, error: ProviderError, model: str | None = None) -> None:
        """Pass on that a request is sent again, to the same model or to another one."""
        if self._queue is not None:
            turn = self._run.state.turn
            self._queue.report(RequestRetry(turn, attempt, wait_seconds, error.status, str(error), model))

    async def ask_user(self, question: str, schema: dict[str, Any] | None) -> Any:
        if self._config.on_question is None:
            raise ToolError("this run has no user to ask; pass on_question=… to it or to its agent")
        answer = await self._config.on_question(question, schema)
        if schema is not None:
            from midspan._schema.arguments import SchemaValidator  # loaded with the first question that has a schema

            if problems := SchemaValidator(schema).problems(answer):
                detail = bulleted(map(str, problems))
                raise ToolError(f"the answer of the user does not have the requested form:{detail}")
        return answer

    async def call_tool(self, parent: RunContext[Any], name: str, arguments: dict[str, Any]) -> ToolResult:
        """Run a call that a tool makes.

        Such calls are not part of the conversation and not in the journal, so tools that may write are refused.
        """
        run = self._run
        call = ToolCall(local_id(), run.prepared.aliases.get(name, name), arguments)
        refusal = self._refuse_nested(parent, call)
        if refusal is not None:
            return refusal.result(call)
        if call.name not in run.prepared.specs:
            return unknown_tool_result(call, run.prepared.specs)
        run.limit_tracker.nested_calls.append(call.name)
        context = self._context(call, parent.index, parent)
        result, _ = await run_call(run.prepared.source.call, call, context)
        return result

    def _refuse_nested(self, parent: RunContext[Any], call: ToolCall) -> Refusal | None:
        run = self._run
        if parent.cancelled or run.end is not None:
            return Refusal("was not run: the tool that calls it was cancelled", FORBIDDEN)
        if parent.depth >= _MAX_DEPTH:
            return Refusal(f"was not run: tools that call tools are nested {parent.depth} deep already", FORBIDDEN)
        spec = run.prepared.specs.get(call.name)
        if spec is not None and spec.changes is not False:
            return Refusal("was not run: a tool may only call tools that are declared read-only", FORBIDDEN)
        if spec is not None and spec.needs_approval:
            return NEEDS_APPROVAL
        return run.limit_tracker.refuse_nested(run.state, call)
