"""The workers of one source: a pool for calls without a session, and one worker for each session.

Everything but `submit` and the end of a call runs in one event loop, that of the workers' thread.
"""

import asyncio
import logging
import os
import threading
from bisect import insort
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from midspan._types.parts import NOT_RUN, ToolResult
from midspan._types.specs import ToolSpec
from midspan.errors import ConfigError, WorkerError
from midspan.tools.source import ToolListing, describe_error, unknown_tool_result
from midspan.tools.workers.address import HostAddress
from midspan.tools.workers.connection import WorkerConnection, start_worker
from midspan.tools.workers.job import Ended, Job, WaitingCall, call_in, find_deadlocks, waiting
from midspan.tools.workers.listener import Listener
from midspan.tools.workers.protocol import RegisteredTool
from midspan.tools.workers.sessions import Sessions
from midspan.tools.workers.setup import PoolOptions, WorkerSetup

_log = logging.getLogger("midspan.tools.workers")

_MAX_RERUNS = 3
"""How often a read-only or idempotent call is run again after its worker has died."""
_MAX_STARTS = 10
"""How many workers are tried for one call; one that ends before it gets the call counts too."""
_MIN_LIFE_SECONDS = 1.0
"""A worker that lived shorter than this is replaced only when it is needed."""
_CLOSED = "the workers were closed"


class _Waiter(WaitingCall, eq=False, kw_only=True):
    """Waits for a worker; without a job, for any one."""

    worker: asyncio.Future[WorkerConnection]
    is_session: bool = False
    """A session needs a worker that has run no call: another caller's state may be in it."""

    def accepts(self, worker: WorkerConnection) -> bool:
        has_tool = self.job is None or self.job.call.name in worker.tools
        return has_tool and not (self.is_session and worker.is_used)

    def fail(self, error: Exception) -> None:
        if not self.worker.done():
            self.worker.set_exception(error)


def _queue_position(waiter: _Waiter) -> int:
    """Calls that tools make come first: other calls wait for them."""
    return 0 if waiter.job is None else -len(waiter.job.callers)


class _IdleWorkers:
    """The workers without a call. Any thread may take one."""

    def __init__(self) -> None:
        self._workers: list[WorkerConnection] = []
        self._lock = threading.Lock()

    def add(self, worker: WorkerConnection) -> None:
        self._workers.append(worker)

    def take(self, accepts: Callable[[WorkerConnection], bool] = WorkerConnection.is_alive) -> WorkerConnection | None:
        """Return a worker that is not idle any more; the one that was used last, whose memory is in the caches."""
        with self._lock:
            for worker in reversed(self._workers):
                if worker.is_alive() and accepts(worker):
                    self._workers.remove(worker)
                    return worker
        return None

    def discard(self, worker: WorkerConnection) -> None:
        with self._lock, suppress(ValueError):
            self._workers.remove(worker)


class WorkerPool:
    """Runs calls in workers, which it starts or which connect to it."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, options: PoolOptions, sessions: Mapping[str, WorkerSetup | None]
    ) -> None:
        """`sessions` are the open sessions, with their setups; it changes."""
        self.loop = loop
        self.process_id = os.getpid()
        self._options = options
        self._setup = options.setup
        self._limits = options.limits
        self._connections: set[WorkerConnection] = set()
        self._workers: set[WorkerConnection] = set()
        """Those that are registered and do not belong to a session."""
        self._listener: Listener | None = None
        if options.address is not None:
            self._listener = Listener(options, self._workers, on_connected=self._track, on_registered=self._add)
        self._idle = _IdleWorkers()
        self._starting = 0
        self._waiters: list[_Waiter] = []
        self._sessions = Sessions(sessions, options.limits, self._start_session_worker)
        self.close_session = self._sessions.close
        self._tools: dict[str, RegisteredTool] = {}
        self._version = 0
        self._is_closed = False
        self._tasks: set[asyncio.Task[Any]] = set()
        loop.call_soon_threadsafe(lambda: self._create_task(self._maintain()))

    # Calls.

    def submit(self, job: Job) -> None:
        """Run a call, from any thread; its job gets the result."""
        worker = None
        if job.session is None and not self._waiters:
            worker = self._idle.take(lambda worker: job.call.name in worker.tools)
        if worker is None:
            self.loop.call_soon_threadsafe(self._start_run, job)
        elif not worker.try_start(job, partial(self._finish, worker, job)):
            self._release(worker)
            self.loop.call_soon_threadsafe(self._start_run, job)

    def _finish(self, worker: WorkerConnection, job: Job, outcome: ToolResult | Ended) -> None:
        self._release(worker)
        if isinstance(outcome, Ended):
            spec = worker.tools[job.call.name].spec
            if outcome.may_rerun(spec) and not job.is_cancelled:
                _note_rerun(job, outcome, spec)
                self._start_run(job)
                return
            outcome = outcome.result(job.call, spec)
        job.finish(outcome)

    def _start_run(self, job: Job) -> None:
        def finish(task: asyncio.Task[None]) -> None:
            if task.cancelled():  # before its first step: later, `_run` gives a result
                job.finish(_cancelled(job))

        task = self._create_task(self._run(job))
        task.add_done_callback(finish)
        job.on_cancel = task.cancel

    def cancel(self, job: Job) -> None:
        """Cancel a call: it is not started, or its worker is asked to end it."""
        job.is_cancelled = True
        on_cancel = job.on_cancel  # another thread may finish the call now
        if on_cancel is not None:
            on_cancel()

    async def _run(self, job: Job) -> None:
        call = job.call
        try:
            if job.session is None:
                result = await self._run_in_pool(job)
            else:
                result = await self._sessions.run(job, job.session)
        except asyncio.CancelledError:
            result = _cancelled(job)
        except (ConfigError, WorkerError) as error:
            result = call.error_result(f"{call.name} was not run: {error}", NOT_RUN)
        except Exception as error:  # noqa: BLE001 - the caller must get a result
            _log.exception("the call of %s failed", call.name)
            result = call.error_result(f"{call.name} failed: {describe_error(error)}")
        if job.died is not None and NOT_RUN in result.notes:  # now, but an earlier run may have had an effect
            result = job.died
        job.finish(result)

    async def _run_in_pool(self, job: Job) -> ToolResult:
        """Run a call, and again if its worker dies."""
        await self._ready()
        for _ in range(_MAX_STARTS):
            if job.call.name not in self._tools:
                return unknown_tool_result(job.call, self._tools)
            worker = await self._acquire(job)
            try:
                outcome = await worker.run(job)
            finally:
                self._release(worker)
            if outcome is None:
                continue
            if isinstance(outcome, ToolResult):
                return outcome
            spec = worker.tools[job.call.name].spec
            if job.is_cancelled or job.reruns == _MAX_RERUNS or not outcome.may_rerun(spec):
                return outcome.result(job.call, spec, reruns=job.reruns)
            _note_rerun(job, outcome, spec)
        raise WorkerError("its workers ended before they could run it")

    # Workers of the pool.

    async def _acquire(self, job: Job) -> WorkerConnection:
        """Return a worker that is free for this call."""
        worker = self._idle.take(lambda worker: job.call.name in worker.tools)
        if worker is not None:
            return worker
        if self._setup is not None and self._size < self._options.processes:
            self._spawn(self._setup)
        try:
            async with asyncio.timeout(job.context.seconds_left):
                return await self._wait_for_worker(job)
        except TimeoutError:
            raise WorkerError("no worker was free in time") from None

    async def _wait_for_worker(self, job: Job | None = None, *, is_session: bool = False) -> WorkerConnection:
        future = self.loop.create_future()
        waiter = _Waiter(job, lambda: self._blockers(waiter), worker=future, is_session=is_session)
        insort(self._waiters, waiter, key=_queue_position)
        self._serve_waiters()  # another thread may have released one
        self._expect_worker(waiter)
        try:
            with waiting(waiter):
                self._resolve_deadlocks()
                return await waiter.worker
        except asyncio.CancelledError:
            if waiter.worker.done() and not waiter.worker.cancelled() and waiter.worker.exception() is None:
                self._release(waiter.worker.result())
            raise
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def _blockers(self, waiter: _Waiter) -> list[Job | None]:
        """Return the calls that must end for this one to get a worker; None if a worker is idle, starts or connects."""
        jobs = [worker.job for worker in self._workers if waiter.accepts(worker)]
        return [None] if waiter.worker.done() or self._starting or (self._setup is None and not jobs) else jobs

    def _resolve_deadlocks(self, error: Exception | None = None) -> None:
        """Start one more process for calls that wait for one another, or let the last of them fail.

        Such calls are made by tools whose own calls occupy the workers, so no worker would ever become free.
        """
        while stuck := [wait for wait in find_deadlocks() if isinstance(wait, _Waiter) and wait in self._waiters]:
            if self._setup is not None and error is None:
                self._spawn(self._setup)
            else:
                problem = "all workers that could run it are busy with calls that wait for it, directly or not"
                stuck[-1].fail(error or WorkerError(problem))

    def _expect_worker(self, waiter: _Waiter) -> None:
        """If a call needs a remote worker, and none is there, limit the time for one to connect."""
        if self._setup is None and not any(map(waiter.accepts, self._workers)):
            self.loop.call_later(self._limits.start_seconds, self._expire, waiter)

    def _expire(self, waiter: _Waiter) -> None:
        if not any(map(waiter.accepts, self._workers)):
            seconds = self._limits.start_seconds
            problem = f"no worker has connected to {self.address} that can run the call; waited {seconds:g} seconds"
            waiter.fail(WorkerError(problem))

    def _release(self, worker: WorkerConnection) -> None:
        """Keep a worker idle, from any thread, until the next call takes it."""
        if worker.is_alive():
            self._idle.add(worker)
            if self._waiters:
                call_in(self.loop, self._serve_waiters)

    def _serve_waiters(self) -> None:
        for waiter in [waiter for waiter in self._waiters if not waiter.worker.done()]:
            worker = self._idle.take(waiter.accepts)
            if worker is not None:
                self._waiters.remove(waiter)
                waiter.worker.set_result(worker)

    @property
    def _size(self) -> int:
        return len(self._workers) + self._starting

    def _spawn(self, setup: WorkerSetup) -> None:
        """Start a process for the pool."""
        self._starting += 1
        self._create_task(self._start_pool_worker(setup))

    async def _start_pool_worker(self, setup: WorkerSetup) -> None:
        try:
            worker = await self._start(setup)
        except Exception as failure:  # noqa: BLE001 - whatever it is, calls that wait for the worker must not hang
            error = failure
            if not isinstance(failure, ConfigError | WorkerError):
                error = WorkerError(f"a worker could not be started: {describe_error(failure)}")
            self._starting -= 1
            if self._workers or not self._waiters:  # otherwise the waiters get the error of the last process
                _log.error("%s", error)
            if not self._size:
                for waiter in self._waiters:
                    waiter.fail(error)
            self._resolve_deadlocks(error)
            return
        self._starting -= 1
        self._add(worker)

    def _add(self, worker: WorkerConnection) -> None:
        known = self._tools if self._setup is None else {}  # a process that replaces others may have a newer file
        tools = {**known, **worker.tools}
        if tools != self._tools:
            self._tools = tools
            self._version += 1
        for waiter in self._waiters:
            if waiter.job is not None and waiter.job.call.name not in tools:
                waiter.fail(WorkerError("the file of the tools does not have it any more"))
        self._workers.add(worker)
        worker.ended.add_done_callback(lambda _: self._remove(worker))
        self._release(worker)

    def _remove(self, worker: WorkerConnection) -> None:
        """Forget a worker that has ended, and replace it."""
        self._workers.discard(worker)
        self._idle.discard(worker)
        if self._is_closed:
            return
        if self._setup is not None:
            is_warm = self._size < self._options.warm and self.loop.time() - worker.created_at > _MIN_LIFE_SECONDS
            if is_warm or (self._waiters and self._size < self._options.processes):
                self._spawn(self._setup)
        for waiter in self._waiters:
            self._expect_worker(waiter)
        self._resolve_deadlocks()

    async def _start(self, setup: WorkerSetup) -> WorkerConnection:
        """Start a process and wait until it has registered its tools."""
        self._check_open()
        return await start_worker(setup, self._limits, sandbox=self._options.sandbox, on_created=self._track)

    def _track(self, worker: WorkerConnection) -> None:
        self._connections.add(worker)
        worker.ended.add_done_callback(lambda _: self._connections.discard(worker))

    async def _start_session_worker(self, setup: WorkerSetup | None) -> WorkerConnection:
        if setup is not None:
            return await self._start(setup)
        self._check_open()
        await self._ready()
        worker = self._idle.take(lambda worker: not worker.is_used)
        if worker is None:
            if (used := self._idle.take()) is not None:
                self._create_task(used.stop())  # its supervisor starts another one
            worker = await self._wait_for_worker(is_session=True)
        self._workers.discard(worker)
        return worker

    # The pool itself.

    @property
    def address(self) -> HostAddress | None:
        """Where it listens for remote workers; None if it does not."""
        return None if self._listener is None else self._listener.address

    async def start(self) -> None:
        """Start the processes of the pool and wait for the first; or listen for workers."""
        if self._listener is not None:
            self._listener.start()
        if self._setup is not None:
            await self._ready()

    async def _ready(self) -> None:
        """Wait until the tools are known."""
        if self._tools:
            return
        if self._listener is not None:
            self._listener.start()
        if self._setup is not None:
            for _ in range(self._options.warm - self._size):
                self._spawn(self._setup)
        self._release(await self._wait_for_worker())

    async def list_tools(self, session: str | None = None) -> ToolListing:
        """Return the tools; of a session, if it has its own."""
        if session is not None:
            worker = await self._sessions.tools_worker(session)
            return ToolListing(tuple(tool.spec for tool in worker.tools.values()))
        await self._ready()
        return ToolListing(tuple(tool.spec for tool in self._tools.values()), self._version)

    async def _maintain(self) -> None:
        """Ping the workers, and retire processes: those of idle sessions, and those that nested calls needed."""
        while True:
            await asyncio.sleep(self._limits.ping_seconds)
            for worker in self._connections:
                worker.ping()
            surplus = len(self._workers) - self._options.processes if self._setup is not None else 0
            while surplus > 0 and (idle := self._idle.take()) is not None:
                surplus -= 1
                self._workers.discard(idle)
                self._create_task(idle.stop())
            await self._sessions.evict_idle()

    async def close(self) -> None:
        """End all workers and wait for their end."""
        self._is_closed = True
        if self._listener is not None:
            self._listener.close()
        for waiter in self._waiters:
            waiter.fail(WorkerError(_CLOSED))
        while self._connections:
            await asyncio.gather(*(worker.stop() for worker in self._connections))
        # Not before: a task whose call runs in a worker has to report how that ended.
        for task in self._tasks - {asyncio.current_task()}:
            task.cancel()

    def _check_open(self) -> None:
        if self._is_closed:
            raise WorkerError(_CLOSED)

    def _create_task(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = self.loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _note_rerun(job: Job, ended: Ended, spec: ToolSpec) -> None:
    _log.warning("running %s again, because its worker %s", job.call.name, ended.description)
    job.died = ended.result(job.call, spec, reruns=job.reruns)
    job.reruns += 1


def _cancelled(job: Job) -> ToolResult:
    """Return the result of a call that was cancelled while no worker ran it."""
    if job.died is not None:
        return job.died
    return job.call.error_result(f"{job.call.name} was cancelled before it started", NOT_RUN)
