"""The calls of a turn: each gets exactly one result. Also what tools may ask of their run while they are running."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from threading import get_ident
from typing import TYPE_CHECKING, Any

import msgspec

from midspan._loop.policies import Refusal
from midspan._types.context import AskUser, RunContext
from midspan._types.events import RequestRetry, RunEvent, ToolProgress
from midspan._types.parts import FORBIDDEN, ToolCall, ToolResult, local_id
from midspan.errors import ProviderError, ToolError
from midspan.tools.execution import run_call
from midspan.tools.schedule import call_order, each_call
from midspan.tools.source import bulleted
from midspan.tools.tasks import Expired, is_cancelling, with_timeout

if TYPE_CHECKING:
    from midspan._loop.run import Run

_OUT_OF_TIME = "was cancelled, because the time of the run is over; whether it had an effect is unknown"
_MAX_DEPTH = 20
"""Of tools that call tools."""

Observer = Callable[[RunEvent], None]


Planned = tuple[ToolCall, list[int]]
"""A call to run, and its positions in the turn: several if the model sent the same call more than once."""


def plan_calls(calls: Iterable[tuple[int, ToolCall]]) -> list[Planned]:
    """Return the calls to run. A call that came twice, as in a repeated chunk, is run once."""
    planned: dict[Any, Planned] = {}
    for index, call in calls:
        planned.setdefault(_identity(call), (call, []))[1].append(index)
    return list(planned.values())


def _identity(call: ToolCall) -> Any:
    """What two copies of a call have in common, and no two other calls."""
    try:
        data = call.provider_data
        return call.id, call.name, _encode(call.arguments), None if data is None else bytes(data.raw)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):  # a faulty provider: this is not JSON
        return id(call)


_encode = msgspec.json.Encoder(order="deterministic").encode


class CallRunner:
    """Runs the calls of a run, and is what their contexts talk to; see `RunHost`."""

    def __init__(self, run: "Run", user_context: Any, ask_user: AskUser | None) -> None:
        self._run = run
        self._user_context = user_context
        self._ask_user = ask_user
        self.loop = asyncio.get_running_loop()
        self.thread = get_ident()
        self.observer: Observer | None = None
        """Gets the progress reports of calls while they run."""

    async def run_single(self, call: ToolCall, index: int) -> tuple[ToolResult, float]:
        """Run the only call of a turn, and return its result and its duration."""
        prepared = self._run.prepared
        if is_cancelling():
            await asyncio.sleep(0)  # raises CancelledError; the task was cancelled while it was running, as by Ctrl-C
        return await run_call(prepared.source.call, call, self._context(call, index), in_task=prepared.in_task)

    async def run(self, planned: list[Planned]) -> AsyncGenerator[tuple[int, ToolResult, float], None]:
        """Run the planned calls, and yield each result when it is there, with its index and its duration."""
        run, prepared = self._run, self._run.prepared
        if is_cancelling():
            await asyncio.sleep(0)  # as above
        results = each_call(
            [(call, self._context(call, indexes[0])) for call, indexes in planned],
            prepared.source.call,
            # In order if a call may need the result of another.
            max_concurrency=1 if prepared.provider.profile.calls_in_order else None,
            in_task=prepared.in_task,
            order=call_order([call for call, _ in planned], prepared.specs),
        )
        async with aclosing(results):
            while True:
                try:
                    finished = await with_timeout(anext(results), run.limits.seconds_left)
                except StopAsyncIteration:
                    break
                except Expired as expired:
                    run.limits.note_expiry(expired)
                    if not expired.late_result:
                        break
                    finished = expired.late_result[0]  # it did run, and its result must not be hidden
                position, result, seconds = finished
                for index in planned[position][1]:
                    yield index, result, seconds
        for index, call in run.state.unanswered:
            yield index, call.error_result(f"{call.name} {_OUT_OF_TIME}"), 0.0

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
        if self.observer is not None and not context.depth:
            self.observer(ToolProgress(context.turn, context.call_id, context.index, fraction, message or None))

    def report_retry(self, attempt: int, wait_seconds: float, error: ProviderError) -> None:
        """Pass on that a request to the model is sent again."""
        if self.observer is not None:
            self.observer(RequestRetry(self._run.state.turn, attempt, wait_seconds, error.status, str(error)))

    async def ask_user(self, question: str, schema: dict[str, Any] | None) -> Any:
        if self._ask_user is None:
            raise ToolError("this run has no user to ask; pass ask_user=… to it")
        answer = await self._ask_user(question, schema)
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
        run = self._run
        if parent.cancelled or run.end is not None:
            return Refusal("was not run: the tool that calls it was cancelled", FORBIDDEN)
        if parent.depth >= _MAX_DEPTH:
            return Refusal(f"was not run: tools that call tools are nested {parent.depth} deep already", FORBIDDEN)
        if call.name in run.prepared.specs and call.name not in run.prepared.read_only:
            return Refusal("was not run: a tool may only call tools that are declared read-only", FORBIDDEN)
        return run.limits.refuse_nested(run.state, call)
