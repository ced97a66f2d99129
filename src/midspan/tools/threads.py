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
from queue import SimpleQueue
from typing import Any

from midspan.errors import ToolError
from midspan.tools.tasks import Expired, Outcome, result_of

_log = logging.getLogger("midspan.tools")

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
        job = _Job(partial(context.run, function, *args), timeout)
        try:
            pool.submit(job)
            await job.outcome
        except BaseException:
            pool.abandon(job)
            raise
        return result_of(job.outcome)

    def reset(self) -> None:
        """Forget all threads: a forked child process has none of them."""
        self._pools = {}


class _ThreadPool:
    """The threads of one nesting depth."""

    def __init__(self, max_threads: int) -> None:
        self.abandoned = 0
        """Threads whose function is no longer waited for and has not ended; they do not count as `_threads`."""
        self._max_threads = max_threads
        self._threads = 0
        self._idle = 0
        """Threads without a job, minus jobs that wait for a thread."""
        self._lock = threading.Lock()
        self._jobs: SimpleQueue[_Job] = SimpleQueue()

    def submit(self, job: "_Job") -> None:
        with self._lock:
            self._idle -= 1
            self._add_thread()
            if not self._threads:
                self._idle += 1
                raise ToolError("not run: no thread could be started")
            if self._idle >= 0:
                job.start_timer()  # a thread is free
            self._jobs.put(job)

    def abandon(self, job: "_Job") -> None:
        """Stop waiting for a job. If it is running, another thread takes the slot of its thread."""
        with self._lock:
            job.function, job.is_abandoned = None, True
            if job.is_running:
                self._threads -= 1
                self.abandoned += 1
                self._add_thread()

    def _add_thread(self) -> None:
        """Start a thread if a waiting job needs one; call it with the lock held."""
        if self._idle >= 0 or self._threads >= self._max_threads:
            return
        try:
            threading.Thread(target=self._work, name="midspan-tool", daemon=True).start()
        except RuntimeError as error:  # the system has no more threads, or the program is exiting
            _log.error("no thread could be started: %s", error)
            return
        self._threads += 1
        self._idle += 1

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            with self._lock:
                function, job.function = job.function, None
                if function is None:  # it was cancelled before
                    self._idle += 1
                    continue
                job.is_running = True
            if job.timeout is not None:
                job.call_soon(job.start_timer)
            try:
                outcome: Outcome = True, function()
            except BaseException as error:  # noqa: BLE001 - user code; the caller gets it
                outcome = False, error
            with self._lock:
                if job.is_abandoned:
                    self.abandoned -= 1
                    return
                job.is_running = False
                self._idle += 1  # before the outcome is set: its receiver may submit the next job to this thread
            job.call_soon(job.set_outcome, outcome)
            del job, function, outcome  # an idle thread keeps nothing alive


class _Job:
    """One function to run. The pool holds its lock while the first three attributes change."""

    def __init__(self, function: Callable[[], Any], timeout: float | None) -> None:
        self.function: Callable[[], Any] | None = function
        """None when it has been started, and if nobody waits for it any more."""
        self.is_running = False
        self.is_abandoned = False
        self._loop = asyncio.get_running_loop()
        self.outcome: asyncio.Future[Outcome] = self._loop.create_future()
        self.timeout = timeout
        """None if there is none, and when its timer has started."""

    def start_timer(self) -> None:
        """Let the job expire after its timeout. Called in the thread of the event loop."""
        if self.timeout is not None and not self.outcome.done():
            timer = self._loop.call_later(self.timeout, self._expire)
            self.outcome.add_done_callback(lambda _: timer.cancel())
            self.timeout = None

    def _expire(self) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(Expired())

    def set_outcome(self, outcome: Outcome) -> None:
        if not self.outcome.done():
            self.outcome.set_result(outcome)

    def call_soon(self, function: Callable[..., object], *args: Any) -> None:
        """Call a function in the thread of the event loop."""
        with suppress(RuntimeError):  # the event loop is closed, and nobody waits any more
            self._loop.call_soon_threadsafe(function, *args)


THREADS = Threads()
"""The threads of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=THREADS.reset)
