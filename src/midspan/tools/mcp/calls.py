"""Calls in flight: their timeouts, their progress, and the questions that a server asks during them."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic
from typing import Any

from mcp import MCPError, types
from msgspec import Struct
from pydantic import ValidationError

from midspan._schema.arguments import SchemaValidator
from midspan._types.context import RunContext
from midspan._types.parts import NOT_RUN, ToolCall, ToolResult
from midspan.errors import SchemaError, ToolError
from midspan.tools.mcp.connection import MCPConnection
from midspan.tools.mcp.conversion import RemoteTool, describe_invalid, to_tool_result
from midspan.tools.mcp.http import NOT_SENT, SESSION_LOST
from midspan.tools.mcp.options import MCPConfig

_log = logging.getLogger("midspan.tools.mcp")

_MAX_ROUNDS = 10
"""How often a server may ask for more before it answers a call."""
_MAX_PROGRESS = 10_000
"""Progress reports of one call. More are an error of the server."""
_PROGRESS_SECONDS = 0.05
"""Between two reports that are passed on."""

_current: ContextVar["_ActiveCall | None"] = ContextVar("midspan_mcp_call", default=None)
"""The call that a question of the server belongs to, where the SDK passes context variables on."""


class Lost(Struct, frozen=True):
    """The connection ended before the result of a call arrived."""

    message: str
    is_not_sent: bool = False
    """Whether the server certainly did not run the call."""
    ends_session: bool = False
    """Whether a new session is needed."""
    is_misbehaviour: bool = False
    """Whether the server broke the rules, so that a second attempt makes no sense."""

    def result(self, call: ToolCall, server: str) -> ToolResult:
        """Return the result of the call."""
        if self.is_not_sent:
            message = f"{call.name} was not run: the server {server} cannot be reached: {self.message}"
            return call.error_result(message, NOT_RUN)
        lost = f"the connection to {server} was lost during {call.name}"
        return call.error_result(f"{lost}: {self.message}. The outcome is unknown: the call may have had an effect.")


class _ActiveCall:
    """A call that waits for its result."""

    def __init__(self, context: RunContext[Any], timeout: float | None) -> None:
        self.context = context
        self.problem: str | None = None
        """Why the call was given up, if not for its timeout."""
        self._timeout = timeout
        self._used = 0.0
        self._started = monotonic()
        self._guard: asyncio.Timeout | None = None
        self._questions = 0
        self._reports = 0
        self._last_report = 0.0

    def limit(self) -> asyncio.Timeout:
        """Return the context manager that raises TimeoutError when the time of the call is over."""
        self._guard = asyncio.timeout(self._timeout)
        return self._guard

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Stop the clock while the user thinks."""
        self._questions += 1
        if self._questions == 1:
            self._used += monotonic() - self._started
            self._reschedule(None)
        try:
            yield
        finally:
            self._questions -= 1
            if not self._questions:
                self._started = monotonic()
                self._reschedule(None if self._timeout is None else max(0.0, self._timeout - self._used))

    def end(self) -> None:
        """Note that the call has its result. Questions of the server may still be open."""
        self._guard = None

    def _reschedule(self, seconds: float | None) -> None:
        if self._guard is not None and not self._guard.expired():
            self._guard.reschedule(None if seconds is None else asyncio.get_running_loop().time() + seconds)

    async def report(self, progress: float, total: float | None, message: str | None) -> None:
        """Pass on a progress report, unless another one was just passed on."""
        self._reports += 1
        if self._reports > _MAX_PROGRESS:
            if self.problem is None:
                self.problem = f"the server sent more than {_MAX_PROGRESS:,} progress reports"
                self._reschedule(0.0)
            return
        now = monotonic()
        is_last = total is not None and progress >= total
        if is_last or now - self._last_report >= _PROGRESS_SECONDS:
            self._last_report = now
            fraction = min(1.0, max(0.0, progress / total)) if total else None
            self.context.progress(fraction, (message or "")[:1_000])


class Calls:
    """The calls of one connection."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._active: set[_ActiveCall] = set()

    async def run(
        self,
        connection: MCPConnection,
        call: ToolCall,
        tool: RemoteTool,
        context: RunContext[Any],
        config: MCPConfig,
        *,
        timeout: float | None,
    ) -> tuple[ToolResult, Lost | None]:
        """Make a call and return its result, and how the connection was lost if it was."""
        if connection.is_closed:  # as after a long wait for approval
            lost = Lost("the connection was closed", is_not_sent=True, ends_session=True)
            return lost.result(call, self._server), lost
        active = _ActiveCall(context, timeout)
        token = _current.set(active)
        self._active.add(active)
        try:
            async with active.limit():
                result = await _result(connection, call, active)
        except TimeoutError:
            context.cancel()
            if active.problem is None:
                return call.error_result(f"{call.name} timed out after {timeout:.4g} seconds and was cancelled"), None
            lost = Lost(active.problem, ends_session=True, is_misbehaviour=True)
            return call.error_result(f"{call.name} failed: {active.problem}"), lost
        except asyncio.CancelledError:
            context.cancel()
            raise
        except MCPError as error:
            return self._failed(connection, call, error)
        except ValidationError as error:
            return call.error_result(f"{call.name} failed: {describe_invalid(error)}"), None
        finally:
            active.end()
            self._active.discard(active)
            _current.reset(token)
        return to_tool_result(call, result, tool, max_chars=config.max_result_chars), None

    def _failed(self, connection: MCPConnection, call: ToolCall, error: MCPError) -> tuple[ToolResult, Lost | None]:
        message, data = error.error.message, error.error.data
        if data in (NOT_SENT, SESSION_LOST):
            lost = Lost(message, is_not_sent=True, ends_session=data == SESSION_LOST)
        elif connection.is_closed or (error.code == types.CONNECTION_CLOSED and connection.transport.is_remote):
            lost = Lost(message, ends_session=connection.is_closed)
        else:
            return call.error_result(f"{call.name} failed: {message}"), None
        return lost.result(call, self._server), lost

    async def elicit(self, params: types.ElicitRequestParams) -> types.ElicitResult | types.ErrorData:
        """Answer a question of the server by asking the user of the run that it belongs to."""
        active = _current.get()
        if active not in self._active:  # the connection was opened within another call
            active = self._only_run()
        if active is None:
            _log.warning("the server %s asks a question, and no single run is waiting for it", self._server)
            return types.ElicitResult(action="cancel")
        with active.pause():
            try:
                return await _ask(active.context, params, self._server)
            except (ToolError, SchemaError) as error:
                _log.info("a question of the server %s was not answered: %s", self._server, error)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise
                _log.info("a question of the server %s was cancelled", self._server)
            return types.ElicitResult(action="cancel")

    def _only_run(self) -> _ActiveCall | None:
        """Return a call of the run that has calls in flight, if there is only one such run."""
        runs = {active.context.run_id: active for active in self._active}
        return next(iter(runs.values())) if len(runs) == 1 else None


async def _result(connection: MCPConnection, call: ToolCall, active: _ActiveCall) -> types.CallToolResult:
    answers = None
    for _ in range(_MAX_ROUNDS):
        result = await connection.call_tool(call.name, call.arguments, active.report, answers)
        if isinstance(result, types.CallToolResult):
            return result
        answers = await connection.answer(result)
    raise MCPError(types.INTERNAL_ERROR, f"the server asked for more input {_MAX_ROUNDS} times")


async def _ask(context: RunContext[Any], params: types.ElicitRequestParams, server: str) -> types.ElicitResult:
    question = f"{server} asks: {params.message}"
    if isinstance(params, types.ElicitRequestURLParams):
        answer = await context.ask_user(f"{question}\nOpen {params.url} ?", {"type": "boolean"})
        return types.ElicitResult(action="accept" if answer else "decline")
    schema = dict(params.requested_schema)
    answer = await context.ask_user(question, _optional(schema))
    if answer is None:
        return types.ElicitResult(action="decline")
    return types.ElicitResult(action="accept", content=SchemaValidator(schema).validate(answer).arguments)


def _optional(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an answer: None declines, and fields that have defaults can be left out."""
    properties = schema.get("properties", {})
    required = [name for name in schema.get("required", ()) if "default" not in properties.get(name, {})]
    return {**schema, "type": ["object", "null"], "required": required}
