"""One call of an MCP client: the running tool, and what it sends to the client before its result.

The tool runs in a task of its own. The request of the client waits for that task and passes on progress and log
messages meanwhile. In MCP 2025-11-25 a question to the user is a request of the server. MCP 2026-07-28 has no such
requests: there the request of the client ends with the question, the tool waits, and the next request of the client
brings the answer. So a tool never runs twice because of a question.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from math import inf, nextafter
from threading import get_ident
from typing import TYPE_CHECKING, Any, get_args

import mcp_types
from mcp.server import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from midspan._types.context import RunContext
from midspan._types.parts import ToolResult
from midspan.errors import ToolError
from midspan.tools.mcp.serve.questions import QuestionForm, can_ask

if TYPE_CHECKING:
    from midspan.tools.mcp.serve.server import ToolServer

Request = ServerRequestContext[Any, Any]

_MAX_OUTBOX = 100
"""Messages that wait for a slow client; older ones are dropped."""
_MAX_ATTEMPTS = 3
"""How often a question is asked whose answer does not have the requested form."""
LOG_LEVELS: tuple[mcp_types.LoggingLevel, ...] = get_args(mcp_types.LoggingLevel)
"""From the lowest to the highest."""


class ServedCall:
    """A call that is running, and the `RunHost` of its context."""

    def __init__(self, server: "ToolServer", request: Request, answers: Mapping[str, Any] | None) -> None:
        self.loop = asyncio.get_running_loop()
        self.thread = get_ident()
        self.task: asyncio.Task[ToolResult] | None = None
        self.questions: dict[str, mcp_types.ElicitRequest] = {}
        """The questions for the client's user, by the key of the answer."""
        self._server = server
        self._answers: dict[str, Any] = dict(answers or {})
        self._pending: dict[str, asyncio.Future[mcp_types.ElicitResult]] = {}
        self._question_count = 0
        self._request: Request | None = request
        """None between two requests of the client (2026-07-28)."""
        self._is_modern = request.protocol_version in MODERN_PROTOCOL_VERSIONS
        self._can_ask = can_ask(request.session.client_capabilities)
        self._outbox: deque[Coroutine[Any, Any, None]] = deque()
        self._wake: asyncio.Future[None] | None = None
        self._progress = -1.0

    def start(self, run: Coroutine[Any, Any, ToolResult], name: str) -> "asyncio.Task[ToolResult]":
        self.task = asyncio.create_task(run, name=name)
        self.task.add_done_callback(lambda _: self._notify())
        return self.task

    def resume(self, request: Request, answers: Mapping[str, Any] | None) -> None:
        """Continue with another request of the client, which has the answers to some of the questions."""
        self._request = request
        for key, answer in (answers or {}).items():
            future = self._pending.get(key)
            if future is not None and not future.done() and isinstance(answer, mcp_types.ElicitResult):
                del self.questions[key]
                future.set_result(answer)

    async def wait(self) -> ToolResult | None:
        """Return the result when it is there, or None if the tool waits for answers of the user.

        Progress and log messages are sent meanwhile. If the client cancels its request, the tool is cancelled.
        """
        assert self.task is not None, "start comes first"
        try:
            await asyncio.sleep(0)  # a tool that was just answered runs now, and may end or ask the next question
            while True:
                while self._outbox:
                    await self._outbox.popleft()
                if self.task.cancelled():
                    raise MCPError(mcp_types.INTERNAL_ERROR, "the call was cancelled")
                if self.task.done():
                    return self.task.result()
                if self.questions:
                    await asyncio.sleep(0)  # tools may ask several questions at once
                    self._request = None
                    return None
                self._wake = self.loop.create_future()
                await self._wake
        except asyncio.CancelledError:
            self.task.cancel()
            raise
        finally:
            self._wake = None
            while self._outbox:
                self._outbox.popleft().close()

    def cancel(self) -> None:
        """Cancel a tool that nobody waits for any more."""
        if self.task is not None:
            self.task.cancel()

    def report_progress(self, context: RunContext[Any], fraction: float | None, message: str) -> None:
        if not context.depth:
            self._from_any_thread(self._send_progress, fraction, message)

    def report_log(self, _context: RunContext[Any], level: int, message: str) -> None:
        self._from_any_thread(self._send_log, level, message)

    async def ask_user(self, question: str, schema: dict[str, Any] | None) -> Any:
        form = QuestionForm.of(schema)
        self._question_count += 1
        title = (schema or {}).get("title")
        key = title if isinstance(title, str) and title not in self.questions else f"question_{self._question_count}"
        message = question
        for _ in range(_MAX_ATTEMPTS):
            answer, problem = form.read(await self._elicit(key, form, message))
            if problem is None:
                return answer
            message = f"{question}\n\n{problem}"
        raise ToolError(problem or "the user did not answer")

    async def _elicit(self, key: str, form: QuestionForm, message: str) -> mcp_types.ElicitResult:
        if isinstance(answer := self._answers.pop(key, None), mcp_types.ElicitResult):
            return answer
        if not self._can_ask:
            raise ToolError("there is no user to ask: the MCP client does not support elicitation")
        if self._is_modern:
            return await self._ask_with_result(key, form.request(message))
        request = self._request
        assert request is not None, "a request of 2025-11-25 lasts as long as the call"
        try:
            return await request.session.elicit_form(message, form.schema, request.request_id)
        except MCPError as error:
            raise ToolError(f"the user could not be asked: {error.message}") from error

    async def _ask_with_result(self, key: str, question: mcp_types.ElicitRequest) -> mcp_types.ElicitResult:
        """Let the request of the client end with this question, and wait for the answer in a later one."""
        self.questions[key] = question
        self._pending[key] = self.loop.create_future()
        self._notify()
        try:
            return await self._pending[key]
        finally:
            del self._pending[key]
            self.questions.pop(key, None)

    async def call_tool(self, parent: RunContext[Any], name: str, arguments: dict[str, Any]) -> ToolResult:
        return await self._server.call_nested(self, parent, name, arguments)

    def _from_any_thread(self, function: Callable[..., None], *args: Any) -> None:
        if get_ident() == self.thread:
            function(*args)
        elif not self.loop.is_closed():
            self.loop.call_soon_threadsafe(function, *args)

    def _send_progress(self, fraction: float | None, message: str) -> None:
        """MCP demands that each report is greater than the one before."""
        if (request := self._request) is None:
            return
        percent = self._progress if fraction is None else min(max(fraction, 0.0), 1.0) * 100
        if percent <= self._progress:
            if not message:
                return
            percent = nextafter(max(self._progress, 0.0), inf)
        self._progress = percent
        self._send(request.session.report_progress(percent, 100, message or None))

    def _send_log(self, level: int, message: str) -> None:
        if (request := self._request) is None:
            return
        name = _log_level(level)
        minimum = self._server.log_level(request)
        if minimum not in LOG_LEVELS or LOG_LEVELS.index(name) < LOG_LEVELS.index(minimum):
            return
        params = mcp_types.LoggingMessageNotificationParams(level=name, data=message, logger="midspan")
        notification = mcp_types.LoggingMessageNotification(params=params)
        self._send(request.session.send_notification(notification, request.request_id))

    def _send(self, message: Coroutine[Any, Any, None]) -> None:
        if self.task is not None and self.task.done():
            message.close()
            return
        self._outbox.append(message)
        if len(self._outbox) > _MAX_OUTBOX:
            self._outbox.popleft().close()
        self._notify()

    def _notify(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)


def _log_level(level: int) -> mcp_types.LoggingLevel:
    if level >= logging.CRITICAL:
        return "critical"
    if level >= logging.ERROR:
        return "error"
    if level >= logging.WARNING:
        return "warning"
    return "info" if level >= logging.INFO else "debug"
