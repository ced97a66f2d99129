"""`Workers`, the tools of a file in worker processes, as a tool source with sessions; `@tool(isolate=True)`."""

import asyncio
import os
import sys
import threading
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from types import FunctionType
from typing import Any, Self, TypeVar

from msgspec.structs import replace

from midspan._types.context import NO_CONTEXT, RunContext
from midspan._types.parts import NOT_RUN, ToolCall, ToolResult, local_id
from midspan._types.texts import NOT_JSON, check_token
from midspan.errors import ConfigError
from midspan.tools.files import FILE_MODULE_PREFIX
from midspan.tools.function import Tool
from midspan.tools.loop_thread import LoopThread
from midspan.tools.source import ToolListing, ToolSource, unknown_session
from midspan.tools.workers.address import HostAddress
from midspan.tools.workers.job import Job
from midspan.tools.workers.pool import WorkerPool
from midspan.tools.workers.process import check_sandbox
from midspan.tools.workers.setup import PoolOptions, WorkerLimits, WorkerSetup

T = TypeVar("T")

_MAX_ISOLATED_PROCESSES = 4
_thread = LoopThread("midspan-workers", asyncio.SelectorEventLoop)
"""All workers of this process belong to the event loop of this thread, so runs in any event loop can use them.

It is asyncio's own: the sockets of other event loops, such as uvloop, cannot be half-closed.
"""


class Workers(ToolSource):
    """The tools of a Python file or module, each call in a worker process that can be killed.

    A session has a process of its own, in which tools keep their state. Calls without a session share `processes`
    processes. With `listen=`, remote workers connect: `midspan worker mytools.py --connect ADDRESS`.
    """

    def __init__(
        self,
        tools: str | os.PathLike[str] | None = None,
        *,
        processes: int = 2,
        sandbox: bool = False,
        listen: str | None = None,
        token: str | None = None,
        limits: WorkerLimits | None = None,
    ) -> None:
        """Nothing is started before the first use.

        tools: a file (`"mytools.py"`) or a module; None if workers connect to `listen`.
        sandbox: run the processes under bubblewrap: no network, no writing but to a scratch folder.
        listen: `"unix:/run/tools.sock"` or `"tcp:127.0.0.1:7000"`; `token` is the secret that workers must know.
        """
        if (tools is None) == (listen is None):
            raise ConfigError("pass either the file of the tools or listen=…")
        if limits is not None and not isinstance(limits, WorkerLimits):
            raise ConfigError(f"limits must be a WorkerLimits, got {limits!r:.80}")
        if processes < 1:
            raise ConfigError(f"processes must be a positive number, got {processes!r}")
        if listen is not None:
            if token is None:
                raise ConfigError("listen= needs token=…, the secret that workers must know")
            check_token(token)
            if sandbox:
                raise ConfigError("sandbox= is for workers that this program starts, and listen= is for remote workers")
        if tools is not None and not hasattr(os, "fork"):
            raise ConfigError("worker processes need a system with fork, such as Linux, macOS or WSL")
        if sandbox:
            check_sandbox()
        self._options = PoolOptions(
            None if tools is None else _setup(tools),
            limits or WorkerLimits(),
            processes,
            warm=processes,
            sandbox=sandbox,
            address=None if listen is None else HostAddress.of(listen),
            token=token or "",
        )
        self._sessions: dict[str, WorkerSetup | None] = {}
        """The setups of the open sessions."""
        self._lock = threading.Lock()
        self._pool: WorkerPool | None = None

    @classmethod
    def _isolated(cls, module: str) -> Self:
        """Return workers for the tools of a module with `isolate=True`, which are started one by one."""
        name = module
        if module.startswith(FILE_MODULE_PREFIX):  # it was loaded from a file, which is not on the path
            name = str(sys.modules[module].__file__)
        workers = cls(name, processes=min(_MAX_ISOLATED_PROCESSES, os.cpu_count() or 1))
        setup = replace(_setup(name), is_isolated=True)
        workers._options = replace(workers._options, setup=setup, warm=1)
        return workers

    def __repr__(self) -> str:
        setup, address = self._options.setup, self._options.address
        return f"Workers(listen={str(address)!r})" if setup is None else f"Workers({setup.tools!r})"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.aclose()

    async def start(self) -> None:
        """Start the processes now, or listen for workers. Otherwise that happens with the first use."""
        pool = self._open_pool()
        await self._in_pool(pool.start())

    @property
    def address(self) -> str | None:
        """Where workers can connect, after `start`; None if this source does not listen."""
        return None if self._pool is None or self._pool.address is None else str(self._pool.address)

    async def list_tools(self, session: str | None = None) -> ToolListing:
        """Return the tools, or those of a session."""
        self._check_session(session)
        has_own = session is not None and self._sessions[session] is not self._options.setup
        return await self._in_pool(self._open_pool().list_tools(session if has_own else None))

    async def call(
        self, call: ToolCall, context: RunContext[Any] = NO_CONTEXT, *, session: str | None = None
    ) -> ToolResult:
        try:
            job = Job(call, context, session)
        except NOT_JSON as error:
            message = f"{call.name} was not run: the call is not JSON serializable: {error}"
            return call.error_result(message, NOT_RUN)
        pool = self._open_pool()
        pool.submit(job)
        return await job.result(lambda job: _cancel(pool, job))

    async def execute_in_session(
        self, session: str | None, name: str, arguments: dict[str, Any], *, context: Any = None
    ) -> ToolResult:
        """Call a tool in the process of a session; without a session, in any process."""
        self._check_session(session)
        call = ToolCall(local_id(), name, arguments)
        return await self.call(call, RunContext(context, call_id=call.id), session=session)

    def open_session(self, session: str, tools: str | os.PathLike[str] | None = None) -> None:
        """Open a session; its process starts with the first call. `tools` are its own instead of those of all."""
        if tools is not None and self._options.setup is None:
            raise ConfigError("remote workers bring their own tools")
        setup = self._options.setup if tools is None else _setup(tools)
        self._sessions.setdefault(session, setup)

    async def close_session(self, session: str) -> None:
        """End a session and its process."""
        self._check_session(session)
        del self._sessions[session]
        if self._pool is not None:
            await self._in_pool(self._pool.close_session(session))

    def source(self, session: str) -> "WorkerSession":
        """Return a session as a source for runs."""
        self._check_session(session)
        return WorkerSession(self, session)

    def _check_session(self, session: str | None) -> None:
        if session is not None and session not in self._sessions:
            raise unknown_session(session, self._sessions)

    async def aclose(self) -> None:
        """End all processes and sessions."""
        with self._lock:
            pool, self._pool = self._pool, None
        self._sessions.clear()
        if pool is not None and pool.process_id == os.getpid():
            await self._in_pool(pool.close())

    def _open_pool(self) -> WorkerPool:
        pool = self._pool
        if pool is not None and pool.process_id == os.getpid():
            return pool
        with self._lock:
            if self._pool is None or self._pool.process_id != os.getpid():
                self._pool = WorkerPool(_thread.loop(), self._options, self._sessions)
            return self._pool

    async def _in_pool(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, _thread.loop()))


class WorkerSession(ToolSource):
    """One session of `Workers`."""

    def __init__(self, workers: Workers, session: str) -> None:
        self._workers = workers
        self._session = session

    async def list_tools(self) -> ToolListing:
        return await self._workers.list_tools(self._session)

    async def call(self, call: ToolCall, context: RunContext[Any] = NO_CONTEXT) -> ToolResult:
        return await self._workers.call(call, context, session=self._session)


def _setup(tools: str | os.PathLike[str]) -> WorkerSetup:
    if not isinstance(tools, str | os.PathLike):
        raise ConfigError(f"expected the name of a file or a module with tools, got {tools!r:.80}")
    name = os.fspath(tools)
    if name.endswith(".py") or os.sep in name:
        path = Path(name).expanduser()
        if not path.is_file():
            raise ConfigError(f"cannot load the tools in {name!r}: no such file")
        name = str(path.resolve())
    return WorkerSetup(name, tuple(map(os.path.abspath, sys.path)))


def _cancel(pool: WorkerPool, job: Job) -> None:
    with suppress(RuntimeError):  # the program is exiting
        pool.loop.call_soon_threadsafe(pool.cancel, job)


# Isolated tools: workers for each module, which are started one by one.

_isolated: dict[str, Workers] = {}
"""By the names of the modules."""
_isolated_lock = threading.Lock()


def check_isolated(name: str, function: object) -> None:
    """Raise ConfigError if another process cannot find the function."""
    problem = None
    if not isinstance(function, FunctionType):
        problem = "is not a plain function; wrap it in one, at the top level of a module"
    elif function.__module__ == "__main__":
        problem = "is defined in the main program; move it to a module, such as mytools.py, and import it from there"
    elif "<" in function.__qualname__:
        problem = "is defined inside another function; move it to the top level of a module"
    if problem is not None:
        raise ConfigError(
            f"isolate=True runs {name} in another process, which imports the module of the function, but it {problem}"
        )


async def run_isolated(tool: Tool[..., Any], call: ToolCall, context: RunContext[Any]) -> ToolResult:
    """Run a call in a worker process that imports the module of its function."""
    module = tool.function.__module__
    workers = _isolated.get(module) or _isolated_workers(module)
    listing = await workers.list_tools()
    if all(spec.name != tool.name for spec in listing):
        message = f"{call.name} was not run: the module {module!r} has no such tool with isolate=True at its top level"
        return call.error_result(message, NOT_RUN)
    return await workers.call(call, context)


def _isolated_workers(module: str) -> Workers:
    with _isolated_lock:
        if module not in _isolated:
            _isolated[module] = Workers._isolated(module)
        return _isolated[module]
