"""What a tool may know and do beyond its arguments."""

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from math import inf
from threading import get_ident
from time import monotonic
from typing import Any, Generic, Protocol, TypeVar

from midspan._types.parts import ToolResult
from midspan.errors import ToolError

User = TypeVar("User")
T = TypeVar("T")

OnQuestion = Callable[[str, dict[str, Any] | None], Awaitable[Any]]
"""Asks the user of a run a question. The second argument is a JSON Schema for the answer, or None for any text."""

_log = logging.getLogger("midspan")


class RunHost(Protocol):
    """The run behind a context: it takes progress reports, asks the user and executes calls made by tools."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of the run."""

    @property
    def thread(self) -> int:
        """The identifier of the thread in which that event loop runs."""

    def report_progress(self, context: "RunContext[Any]", fraction: float | None, message: str) -> None:
        """Pass on the progress of a call. It is called from any thread."""

    def report_log(self, context: "RunContext[Any]", level: int, message: str) -> None:
        """Pass on a log message of a call. It is called from any thread."""

    async def ask_user(self, question: str, schema: dict[str, Any] | None) -> Any:
        """Return the user's answer to a question of a tool."""

    async def call_tool(self, parent: "RunContext[Any]", name: str, arguments: dict[str, Any]) -> ToolResult:
        """Execute a call that a tool makes."""


class RunContext(Generic[User]):
    """One call of a run, as its tool sees it. A function gets it if it annotates a parameter with `RunContext`."""

    def __init__(
        self,
        user: User = None,  # type: ignore[assignment]  # without a value, User is None
        run_id: str = "",
        call_id: str = "",
        turn: int = 0,
        index: int = 0,
        depth: int = 0,
        deadline: float | None = None,
        host: RunHost | None = None,
        on_error: Callable[[BaseException], None] | None = None,
        routes: Mapping[int, Any] | None = None,
    ) -> None:
        self.user = user
        """What the caller passed to the run as `context=`."""
        self.run_id = run_id
        self.call_id = call_id
        self.turn = turn
        self.index = index
        """The position of the call in its turn. Unlike the id, which the model sends, it is always unique there.

        A call that a tool makes has the index of that tool's call.
        """
        self.depth = depth
        """The nesting depth: 0 for a call of the model, 1 for a call its tool makes."""
        self.deadline = deadline
        """When the call must have ended, as a value of `time.monotonic()`; None if there is no limit."""
        self.cancelled = False
        """Whether the call was cancelled or timed out. Sync functions, which run in threads, should check it."""
        self._host = host
        self._on_error = on_error
        self.routes = routes
        """Where each wrapper source, by its id, sends the calls of this run; a later listing may rename its tools."""

    def start(self, timeout: float | None) -> float:
        """Note that the call starts and may take `timeout` seconds, and return the time. The executor calls this."""
        now = monotonic()
        if timeout is not None and self is not NO_CONTEXT:
            self.deadline = min(now + timeout, self.deadline or inf)
        return now

    def cancel(self) -> None:
        """Mark the call as cancelled. The executor calls this; it does not stop anything by itself."""
        self.cancelled = self is not NO_CONTEXT

    def report_error(self, error: BaseException) -> None:
        """Note that the tool raised something that is not meant for the model. The executor calls this."""
        if self._on_error is not None:
            self._on_error(error)

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt at this call in its run. Pass it to services that support such keys.

        A run that continues a stored conversation has other keys. Outside a run, it is the id of the call.
        """
        if not self.run_id:
            return self.call_id
        key = f"{self.run_id}/{self.turn}/{self.index}"
        return f"{key}/{self.call_id}" if self.depth else key

    @property
    def seconds_left(self) -> float | None:
        """The time left until the deadline; None if there is none."""
        return None if self.deadline is None else self.deadline - monotonic()

    def progress(self, fraction: float | None = None, message: str = "") -> None:
        """Report how much is done, from 0 to 1, to the observers of the run. Works from any thread."""
        if fraction is not None:
            fraction = min(max(fraction, 0.0), 1.0)
        if self._host is not None:
            self._host.report_progress(self, fraction, message)

    def log(self, message: str, level: int = logging.INFO) -> None:
        """Log a message under the id of the run and of the call. An MCP client that wants log messages gets it too."""
        _log.log(level, "[%s %s] %s", self.run_id, self.call_id, message, extra=self.log_fields)
        if self._host is not None:
            self._host.report_log(self, level, message)

    @property
    def log_fields(self) -> dict[str, str]:
        """The ids of the run and of the call, for `extra=` of a log record."""
        return {"run_id": self.run_id, "call_id": self.call_id}

    async def ask_user(self, question: str, schema: dict[str, Any] | None = None) -> Any:
        """Ask the user of the run, through its `on_question=`. `schema` is a JSON Schema for the answer."""
        if self._host is None:
            raise ToolError("there is no user to ask")
        return await _in_loop(self._host.loop, self._host.ask_user(question, schema))

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        """Call another tool of the run, which must be declared read-only. The call counts against the limits."""
        if self._host is None:
            raise ToolError(f"{name} can be called only within a run")
        return await _in_loop(self._host.loop, self._host.call_tool(self, name, arguments))

    def run_blocking(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return the result of a coroutine above in a sync function: `context.run_blocking(context.ask_user("…"))`."""
        if self._host is None:
            return asyncio.run(coroutine)
        if self._host.thread == get_ident():
            coroutine.close()  # else Python also warns that it was never awaited
            raise ToolError("run_blocking is for sync functions; in an async function, use await")
        return asyncio.run_coroutine_threadsafe(coroutine, self._host.loop).result()


async def _in_loop(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T]) -> T:
    """Await a coroutine in the event loop of the run, from a source that may run in another one."""
    if loop is asyncio.get_running_loop():
        return await coroutine
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, loop))


def trace_headers() -> dict[str, str]:
    """Return the HTTP headers with which a request of a tool continues the trace of its call; empty without tracing."""
    propagate = sys.modules.get("opentelemetry.propagate")  # loaded by Telemetry
    headers: dict[str, str] = {}
    if propagate is not None:
        propagate.inject(headers)
    return headers


NO_CONTEXT: RunContext[Any] = RunContext()
"""The context of a call that is made outside a run. All such calls share it, so it never changes."""
