"""The calls of a turn: started, refused or run, each with exactly one result."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from threading import get_ident
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import replace

from midspan._loop.policy import Refusal, Refusals
from midspan._types.context import AskUser, RunContext
from midspan._types.events import RequestRetry, RunEvent, ToolEnd, ToolProgress, ToolStart
from midspan._types.exchange import OnRetry
from midspan._types.parts import ToolCall, ToolResult, local_id
from midspan.errors import ProviderError, ToolError
from midspan.tools.execute import run_call
from midspan.tools.schedule import call_order, each_call
from midspan.tools.source import FORBIDDEN, bulleted, failed, truncate
from midspan.tools.tasks import Expired, checkpoint, with_timeout

if TYPE_CHECKING:
    from midspan._loop.run import Run

_log = logging.getLogger("midspan._loop")

_OUT_OF_TIME = "was cancelled, because the time of the run is over; whether it had an effect is unknown"
_MAX_NAME_CHARS = 200
_MAX_DEPTH = 20
"""Of tools that call tools."""

Observer = Callable[[RunEvent], None]


class _PlannedCall(NamedTuple):
    """A call to run, and its positions in the turn: several if the model sent the same call more than once."""

    call: ToolCall
    indexes: list[int]


class CallRunner:
    """Runs the calls of a run, and is what their contexts talk to."""

    def __init__(self, run: "Run", user_context: Any, ask_user: AskUser | None) -> None:
        self._run = run
        self._user_context = user_context
        self._ask_user = ask_user
        self.loop = asyncio.get_running_loop()
        self.thread = get_ident()
        self.observer: Observer | None = None
        """Gets the progress reports of calls while they run."""
        self._planned: list[_PlannedCall] = []

    def start(self, refusals: Refusals) -> Iterator[RunEvent]:
        """Announce the unanswered calls of the turn. Refused ones get their results; the others are planned."""
        run, prepared = self._run, self._run.prepared
        turn, unanswered = run.state.turn, run.state.unanswered
        run.log("Tool Calls", run.state.calls)
        planned: dict[Any, _PlannedCall] = {}
        last = unanswered[-1][0]
        for index, call in unanswered:
            if call.name not in prepared.specs:
                _log.warning(
                    "%s called invalid tool: %s", prepared.provider.profile.service, call.name[:_MAX_NAME_CHARS]
                )
            refusal = refusals.get(index)
            may_write = refusal is None and call.name not in prepared.read_only
            yield ToolStart(turn, call, index, may_write, index != last)
            if refusal is not None:
                yield run.apply(ToolEnd(turn, _refused(call, refusal), 0.0, index))
            else:
                key = _identity(call) if len(unanswered) > 1 else None
                planned.setdefault(key, _PlannedCall(call, [])).indexes.append(index)
        self._planned = list(planned.values())

    @property
    def is_planned(self) -> bool:
        return bool(self._planned)

    @property
    def is_single(self) -> bool:
        """Whether one call is planned, so that `run_single` can run it."""
        planned = self._planned
        return len(planned) == 1 and len(planned[0].indexes) == 1 and self._run.limits.deadline is None

    async def run_single(self) -> RunEvent:
        """Run the only planned call."""
        [(call, [index])], self._planned = self._planned, []
        await checkpoint()
        prepared = self._run.prepared
        result, seconds = await run_call(
            prepared.source.call, call, self._context(call, index), in_task=prepared.in_task
        )
        return self._end(call, result, seconds, index)

    async def run(self) -> AsyncGenerator[RunEvent, None]:
        """Run the planned calls, and yield each result when it is there."""
        run, planned = self._run, self._planned
        self._planned = []
        # In order if a call may need the result of another.
        concurrency = 1 if run.prepared.provider.profile.calls_in_order else None
        calls = [item.call for item in planned]
        await checkpoint()
        results = each_call(
            [(call, self._context(call, indexes[0])) for call, indexes in planned],
            run.prepared.source.call,
            max_concurrency=concurrency,
            in_task=run.prepared.in_task,
            order=call_order(calls, run.prepared.specs),
        )
        async with aclosing(results):
            while True:
                try:
                    finished = await with_timeout(anext(results), run.limits.seconds_left)
                except StopAsyncIteration:
                    break
                except Expired as expired:
                    if not expired.late_result:
                        break
                    finished = expired.late_result[0]  # it did run, and its result must not be hidden
                position, result, seconds = finished
                for index in planned[position].indexes:
                    yield self._end(calls[position], result, seconds, index)
        for index, call in run.state.unanswered:
            yield run.apply(ToolEnd(run.state.turn, failed(call, f"{call.name} {_OUT_OF_TIME}"), 0.0, index))

    def _end(self, call: ToolCall, result: ToolResult, seconds: float, index: int) -> RunEvent:
        run = self._run
        run.log("Tool Result", result)
        hint = run.policies.hint(run.state, call, result)
        if hint is not None:
            result = replace(result, hint=hint if result.hint is None else f"{result.hint} {hint}")
        return run.apply(ToolEnd(run.state.turn, result, seconds, index))

    def _context(self, call: ToolCall, index: int) -> RunContext[Any]:
        run = self._run
        return RunContext(
            self._user_context,
            run_id=run.id,
            call_id=call.id,
            turn=run.state.turn,
            index=index,
            deadline=run.limits.deadline,
            host=self,
        )

    def report_progress(self, context: RunContext[Any], fraction: float | None, message: str) -> None:
        """Pass on a progress report of a tool. See `RunHost`."""
        if self.observer is not None and not context.depth:
            self.observer(ToolProgress(context.turn, context.call_id, context.index, fraction, message or None))

    @property
    def retry_observer(self) -> OnRetry | None:
        """Gets the retries of requests to the model, if anybody reads the events of the run."""
        return None if self.observer is None else self._report_retry

    def _report_retry(self, attempt: int, wait_seconds: float, error: ProviderError) -> None:
        if self.observer is not None:
            self.observer(RequestRetry(self._run.state.turn, attempt, wait_seconds, error.status, str(error)))

    async def ask_user(self, question: str, schema: dict[str, Any] | None) -> Any:
        """Ask the user a question of a tool. See `RunHost`."""
        if self._ask_user is None:
            raise ToolError("this run has no user to ask; pass ask_user=… to it")
        answer = await self._ask_user(question, schema)
        if schema is not None and (problems := _problems(schema, answer)):
            raise ToolError(f"the answer of the user does not have the requested form:{bulleted(map(str, problems))}")
        return answer

    async def call_tool(self, parent: RunContext[Any], name: str, arguments: dict[str, Any]) -> ToolResult:
        """Run a call that a tool makes. See `RunHost`.

        Such calls are not part of the conversation and not in the journal, so tools that may write are refused.
        """
        run = self._run
        call = ToolCall(local_id(), run.prepared.aliases.get(name, name), arguments)
        refusal = self._refuse_nested(parent, call)
        if refusal is not None:
            return _refused(call, refusal)
        run.limits.nested_calls.append(call.name)
        context = RunContext(
            parent.user,
            run_id=run.id,
            call_id=call.id,
            turn=parent.turn,
            index=parent.index,
            depth=parent.depth + 1,
            deadline=parent.deadline,
            host=self,
        )
        result, _ = await run_call(run.prepared.source.call, call, context)
        return result

    def _refuse_nested(self, parent: RunContext[Any], call: ToolCall) -> Refusal | None:
        if parent.cancelled or self._run.end is not None:
            return Refusal("was not run: the tool that calls it was cancelled", FORBIDDEN)
        if parent.depth >= _MAX_DEPTH:
            return Refusal(f"was not run: tools that call tools are nested {parent.depth} deep already", FORBIDDEN)
        if call.name in self._run.prepared.specs and call.name not in self._run.prepared.read_only:
            return Refusal("was not run: a tool may only call tools that are declared read-only", FORBIDDEN)
        return self._run.limits.refuse_nested(self._run.state, call)


def _problems(schema: dict[str, Any], value: Any) -> Sequence[object]:
    from midspan._schema.arguments import SchemaValidator  # loaded with the first question that has a schema

    return SchemaValidator(schema).problems(value)


def _refused(call: ToolCall, refusal: Refusal) -> ToolResult:
    meta = {} if refusal.limit is None else {"limit": refusal.limit}
    message = truncate(f"{call.name} {refusal.message}")
    return ToolResult(call.id, call.name, message, is_error=True, notes=(refusal.note,), meta=meta)


def _identity(call: ToolCall) -> Any:
    """What two copies of a call have in common, and no two other calls: a chunk that came twice is one call."""
    try:
        data = call.provider_data
        return call.id, call.name, _encode(call.arguments), None if data is None else bytes(data.raw)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):  # a broken provider: this is not JSON
        return id(call)


_encode = msgspec.json.Encoder(order="deterministic").encode
