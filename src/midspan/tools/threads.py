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
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from midspan.errors import ToolError
from midspan.tools.tasks import Expired, Outcome, ToolRaised

_log = logging.getLogger("midspan.tools")

_IDLE_SECONDS = 10.0
_depth: contextvars.ContextVar[int] = contextvars.ContextVar("midspan_thread_depth", default=0)
"""How many functions, each waiting for the next, the current code runs inside of."""


class Threads:
    """Runs functions in threads, at most `max_threads` at a time per nesting depth.

    A function may wait for another one that runs here, as a tool does that runs an agent with tools. If all depths
    shared the threads, functions that wait could occupy every one of them, and the functions they wait for would never
    start. With a pool per depth a function only ever waits for a deeper pool, and the deepest waits for none.
    """

    def __init__(self, max_threads: int = 64, *, max_depth: int = 100, max_abandoned: int = 256) -> None:
        self._max_threads = max_threads
        self._max_depth = max_depth
        self._max_abandoned = max_abandoned
        self._pools: dict[int, _ThreadPool] = {}

    async def run(self, function: Callable[..., Any], *args: Any, timeout: float | None = None) -> Any:
        """Return what the function returns. Exceptions arrive as ToolRaised, except KeyboardInterrupt and SystemExit.

        The timeout starts with the function, not while it waits for a thread. When it expires, or when the caller is
        cancelled, the function is no longer waited for; it keeps running in its thread.
        """
        depth = _depth.get()
        if depth >= self._max_depth:
            raise ToolError(f"not run: tools that call tools are nested {depth} deep already; answer without a call")
        abandoned = sum(pool.abandoned for pool in list(self._pools.values()))
        if abandoned >= self._max_abandoned:
            _log.error("a call was refused, because %d threads of abandoned calls are still running", abandoned)
            raise ToolError(
                f"not run: {abandoned} earlier calls timed out or were cancelled and are still running in their "
                "threads; no more are started until some of them end"
            )
        pool = self._pools.get(depth) or self._pools.setdefault(depth, _ThreadPool(self._max_threads))
        context = contextvars.copy_context()
        context.run(_depth.set, depth + 1)
        succeeded, value = await pool.run(_Job(partial(context.run, function, *args)), timeout)
        if succeeded:
            return value
        if isinstance(value, KeyboardInterrupt | SystemExit):
            raise value
        raise ToolRaised(value)

    def reset(self) -> None:
        """Forget all threads: a forked child process has none of them."""
        self._pools = {}


class _ThreadPool:
    """The threads of one nesting depth."""

    def __init__(self, max_threads: int) -> None:
        self.abandoned = 0
        """Threads whose function is no longer waited for and has not ended; they do not count as `_threads`."""
        self._max_threads = max_threads
        self._queue: SimpleQueue[_Job] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._idle = 0
        self._waiting = 0
        """Jobs that no thread has taken."""

    async def run(self, job: "_Job", timeout: float | None) -> Outcome:
        try:
            with self._lock:
                self._waiting += 1
                self._add_thread()
                if not self._threads:
                    self._waiting -= 1
                    raise ToolError("not run: no thread could be started")
                job.set_timeout(timeout, starts_at_once=self._waiting <= self._idle)
                self._queue.put(job)
            return await job.outcome
        except BaseException:
            self._abandon(job)
            raise

    def _add_thread(self) -> None:
        """Start a thread if a waiting job needs one; call it with the lock held."""
        if self._waiting <= self._idle or self._threads >= self._max_threads:
            return
        try:
            threading.Thread(target=self._work, name="midspan-tool", daemon=True).start()
        except RuntimeError as error:  # the system has no more threads, or the program is exiting
            _log.error("no thread could be started: %s", error)
            return
        self._threads += 1
        self._idle += 1

    def _work(self) -> None:
        while (job := self._next_job()) is not None:
            outcome = job.run()
            with self._lock:
                if job.end():
                    self.abandoned -= 1
                    return
                self._idle += 1  # before the result is set: its receiver may submit the next job to this thread
            job.set_outcome(outcome)
            del job, outcome  # an idle thread keeps nothing alive

    def _next_job(self) -> "_Job | None":
        while True:
            try:
                job = self._queue.get(timeout=_IDLE_SECONDS)
            except Empty:
                job = None
            with self._lock:
                if job is None and self._waiting:
                    continue  # a job was submitted to this thread just now
                self._idle -= 1
                if job is None:
                    self._threads -= 1
                    return None
                self._waiting -= 1
                if job.start():
                    return job
                self._idle += 1

    def _abandon(self, job: "_Job") -> None:
        with self._lock:
            if job.abandon():
                self._threads -= 1
                self.abandoned += 1
                self._add_thread()


class _Job:
    """One function to run. The pool holds its lock while the state of a job changes."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function: Callable[[], Any] | None = function
        self._loop = asyncio.get_running_loop()
        self.outcome: asyncio.Future[Outcome] = self._loop.create_future()
        self._timeout: float | None = None
        """Of a job that waits for a thread; its timer is started with the function."""
        self._has_started = self._has_ended = self._is_abandoned = False

    def set_timeout(self, timeout: float | None, *, starts_at_once: bool) -> None:
        if timeout is not None and starts_at_once:
            self._start_timer(timeout)
        else:
            self._timeout = timeout

    def _start_timer(self, timeout: float) -> None:
        timer = self._loop.call_later(timeout, self._set, Expired())
        self.outcome.add_done_callback(lambda _: timer.cancel())

    def start(self) -> bool:
        """Mark the job as started; return false if it was cancelled before."""
        self._has_started = not self._is_abandoned
        if self._has_started and self._timeout is not None:
            self._call_soon(self._start_timer, self._timeout)
        return self._has_started

    def run(self) -> Outcome:
        assert self._function is not None, "it is deleted only if the job is not started"
        try:
            return True, self._function()
        except BaseException as error:  # noqa: BLE001 - user code; the caller gets it
            return False, error

    def end(self) -> bool:
        """Mark the job as ended; return whether nobody waits for it any more."""
        self._has_ended = True
        return self._is_abandoned

    def abandon(self) -> bool:
        """Mark the job as no longer waited for; return whether it is running."""
        is_running = self._has_started and not self._has_ended
        self._is_abandoned = True
        if not self._has_started:
            self._function = None
        return is_running

    def set_outcome(self, outcome: Outcome) -> None:
        self._call_soon(self._set, outcome)

    def _set(self, outcome: Outcome | Expired) -> None:
        if self.outcome.done():
            return
        if isinstance(outcome, Expired):
            self.outcome.set_exception(outcome)
        else:
            self.outcome.set_result(outcome)

    def _call_soon(self, function: Callable[..., None], *args: Any) -> None:
        with suppress(RuntimeError):  # the event loop is closed, and nobody waits any more
            self._loop.call_soon_threadsafe(function, *args)


THREADS = Threads()
"""The threads of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=THREADS.reset)
