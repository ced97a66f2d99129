"""Threads for plain functions, which would block the event loop.

The threads are daemons, so a function that hangs does not keep the program from exiting, as it would in a
`concurrent.futures` pool. A thread whose call timed out or was cancelled is abandoned: another one takes its slot, up
to a limit.
"""

import asyncio
import contextvars
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any

from midspan.errors import ToolError
from midspan.tools.tasks import Expired, Outcome, ToolRaised

_log = logging.getLogger("midspan.tools")

_IDLE_SECONDS = 10.0
_MAX_STARVING_THREADS = 1_000


class Threads:
    """Runs functions in threads, at most `max_threads` at a time per nesting depth.

    A function may wait for another one that runs here, as a tool does that runs an agent with tools. If all depths
    shared the threads, functions that wait could occupy every one of them, and the functions they wait for would never
    start. With a pool per depth a function only ever waits for a deeper pool, and the deepest waits for none.
    """

    def __init__(
        self,
        max_threads: int = 64,
        *,
        max_depth: int = 100,
        max_abandoned: int = 256,
        starvation_timeout: float = 5.0,
    ) -> None:
        """`starvation_timeout`: if no function has ended for so many seconds, waiting ones get additional threads."""
        self._max_threads = max_threads
        self._max_depth = max_depth
        self._max_abandoned = max_abandoned
        self._starvation_timeout = starvation_timeout
        self._pools: dict[int, _ThreadPool] = {}

    async def run(self, function: Callable[..., Any], *args: Any, timeout: float | None = None) -> Any:
        """Return what the function returns. Exceptions arrive as ToolRaised, except KeyboardInterrupt and SystemExit.

        The timeout starts with the function, not while it waits for a thread. When it expires, or when the caller is
        cancelled, the function is no longer waited for; it keeps running in its thread.
        """
        nesting = _Nesting(_current_nesting.get())
        if nesting.depth >= self._max_depth:
            raise ToolError(
                f"not run: tools that call tools are nested {nesting.depth} deep already; answer without another call"
            )
        abandoned = sum(pool.abandoned for pool in list(self._pools.values()))
        if abandoned >= self._max_abandoned:
            _log.error("a call was refused, because %d threads of abandoned calls are still running", abandoned)
            raise ToolError(
                f"not run: {abandoned} earlier calls timed out or were cancelled and are still running in their "
                "threads; no more are started until some of them end"
            )
        succeeded, value = await self._pool(nesting.depth).run(_Job(function, args, nesting), timeout)
        if succeeded:
            return value
        if isinstance(value, KeyboardInterrupt | SystemExit):
            raise value
        raise ToolRaised(value)

    def _pool(self, depth: int) -> "_ThreadPool":
        pool = self._pools.get(depth)
        return pool or self._pools.setdefault(depth, _ThreadPool(self._max_threads, self._starvation_timeout))

    def reset(self) -> None:
        """Forget all threads: a forked child process has none of them."""
        self._pools = {}


class _Nesting:
    """How many functions, each waiting for the next, a function runs inside of."""

    __slots__ = ("depth", "has_ended", "outer")
    outer: "_Nesting | None"
    depth: int
    has_ended: bool

    def __init__(self, outer: "_Nesting | None") -> None:
        while outer is not None and outer.has_ended:  # code that outlives its function is not waited for there
            outer = outer.outer
        self.outer = outer
        self.depth = 0 if outer is None else outer.depth + 1
        self.has_ended = False


_current_nesting: contextvars.ContextVar[_Nesting | None] = contextvars.ContextVar("midspan_nesting", default=None)


class _ThreadPool:
    """The threads of one nesting depth."""

    def __init__(self, max_threads: int, starvation_timeout: float) -> None:
        self.abandoned = 0
        """Threads whose function is no longer waited for and has not ended; they do not count as `_threads`."""
        self._max_threads = max_threads
        self._starvation_timeout = starvation_timeout
        self._queue: OrderedDict[_Job, None] = OrderedDict()
        self._changed = threading.Condition()
        self._threads = 0
        self._idle = 0
        self._last_end = monotonic()

    async def run(self, job: "_Job", timeout: float | None) -> Outcome:
        try:
            if not self._submit(job):
                await self._wait_for_thread(job)
            return await job.outcome(timeout)
        except BaseException:
            self._abandon(job)
            raise

    def _submit(self, job: "_Job") -> bool:
        """Queue the job; return whether a thread takes it at once."""
        with self._changed:
            self._queue[job] = None
            return self._provide_thread()

    async def _wait_for_thread(self, job: "_Job") -> None:
        """Wait until the job has started.

        The nesting of a call is known from its context, which a function that starts threads of its own may lose. So
        if all threads seem to be stuck, perhaps because they wait for this very job, it gets an additional one.
        """
        while not await job.wait_for_start(self._starvation_timeout):
            with self._changed:
                is_starving = monotonic() - self._last_end >= self._starvation_timeout
                if is_starving and not job.has_started and self._threads < _MAX_STARVING_THREADS:
                    self._start_thread()

    def _provide_thread(self) -> bool:
        """Wake an idle thread for the queue, or start one; call it with the lock held."""
        if self._idle >= len(self._queue):
            self._changed.notify()
            return True
        return self._threads < self._max_threads and self._start_thread()

    def _start_thread(self) -> bool:
        try:
            threading.Thread(target=self._work, name="midspan-tool", daemon=True).start()
        except RuntimeError as error:  # the system has no more threads, or the program is exiting
            if self._threads == 0:
                raise ToolError(f"not run: no thread could be started: {error}") from error
            return False
        self._threads += 1
        return True

    def _abandon(self, job: "_Job") -> None:
        with self._changed:
            self._queue.pop(job, None)
            if job.has_started and not job.has_ended:
                job.is_abandoned = True
                self._threads -= 1
                self.abandoned += 1
                if self._queue:
                    with suppress(ToolError):  # without a thread now, the next job tries again
                        self._provide_thread()

    def _work(self) -> None:
        with self._changed:
            self._idle += 1
        while (job := self._next_job()) is not None:
            job.notify_started()
            outcome = job.run()
            with self._changed:
                job.end()
                self._last_end = monotonic()
                if job.is_abandoned:
                    self.abandoned -= 1
                    return
                self._idle += 1  # before the result is set: its receiver may submit the next job to this thread
            job.set_outcome(outcome)
            del job, outcome  # an idle thread keeps nothing alive

    def _next_job(self) -> "_Job | None":
        with self._changed:
            has_job = self._changed.wait_for(lambda: self._queue, _IDLE_SECONDS)
            self._idle -= 1
            if not has_job:
                self._threads -= 1
                return None
            job, _ = self._queue.popitem(last=False)
            job.has_started = True
            return job


class _Job:
    """One function to run, and the futures that receive its start and its outcome."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], nesting: _Nesting) -> None:
        self._function = function
        self._args = args
        self._nesting = nesting
        self._context = contextvars.copy_context()
        self._context.run(_current_nesting.set, nesting)
        self._loop = asyncio.get_running_loop()
        self._outcome: asyncio.Future[Outcome] = self._loop.create_future()
        self._start: asyncio.Future[None] | None = None
        """Set only while somebody waits for it."""
        self.has_started = False
        self.has_ended = False
        self.is_abandoned = False

    async def wait_for_start(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds for the start; return whether the job has started."""
        self._start = start = self._loop.create_future()
        timer = self._loop.call_later(timeout, _set_result, start, None)
        try:
            if not self.has_started:
                await start
        finally:
            timer.cancel()
        return self.has_started

    async def outcome(self, timeout: float | None) -> Outcome:
        if timeout is None:
            return await self._outcome
        timer = self._loop.call_later(timeout, _set_expired, self._outcome)
        try:
            return await self._outcome
        finally:
            timer.cancel()

    def run(self) -> Outcome:
        try:
            return True, self._context.run(self._function, *self._args)
        except BaseException as error:  # noqa: BLE001 - user code; the caller gets it
            return False, error

    def end(self) -> None:
        self.has_ended = self._nesting.has_ended = True

    def notify_started(self) -> None:
        if self._start is not None:
            self._call_soon(_set_result, self._start, None)

    def set_outcome(self, outcome: Outcome) -> None:
        self._call_soon(_set_result, self._outcome, outcome)

    def _call_soon(self, function: Callable[..., None], *args: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
            return  # the event loop is closed, and nobody waits any more


def _set_result(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        future.set_result(value)


def _set_expired(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_exception(Expired())


THREADS = Threads()
"""The threads of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=THREADS.reset)
