"""Threads for plain functions, which would block the event loop.

The threads are daemons, so a function that hangs does not keep the program from exiting, as it would in a
`concurrent.futures` pool. A function whose call timed out or was cancelled is abandoned: it keeps its thread, and
another call takes its slot, up to a limit.
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
    """Runs functions in threads, at most `max_threads` at a time per event loop and nesting depth.

    A function may wait for another one that runs here, as a tool does that runs an agent with tools. If all depths
    shared the slots, functions that wait could occupy every one of them, and the functions they wait for would never
    start. With slots per depth a function only ever waits for a deeper one, and the deepest waits for none.
    """

    def __init__(self, max_threads: int = 64, *, max_depth: int = 100, max_abandoned: int = 256) -> None:
        self._max_threads = max_threads
        self._max_depth = max_depth
        self._max_abandoned = max_abandoned
        self.reset()

    def reset(self) -> None:
        """Forget all threads: a forked child process has none of them."""
        self._lock = threading.Lock()
        self._slots: dict[asyncio.AbstractEventLoop, dict[int, asyncio.Semaphore]] = {}
        """By depth, for each event loop that is not closed."""
        self._idle: list[SimpleQueue[_Job]] = []
        """The queues of the threads that wait for a job."""
        self._abandoned = 0
        """Functions that are no longer waited for and have not ended."""

    async def run(self, function: Callable[..., Any], *args: Any, timeout: float | None = None) -> Any:
        """Return what the function returns. Exceptions arrive as ToolRaised, except KeyboardInterrupt and SystemExit.

        The timeout starts with the function, not while it waits for a slot. When it expires, or when the caller is
        cancelled, the function is no longer waited for; it keeps running in its thread.
        """
        depth = _depth.get()
        if depth >= self._max_depth:
            raise ToolError(f"not run: tools that call tools are nested {depth} deep already; answer without a call")
        context = contextvars.copy_context()
        context.run(_depth.set, depth + 1)
        job = _Job(partial(context.run, function, *args))
        async with self._slots_of(job.loop, depth):
            self._start(job)
            timer = None if timeout is None else job.loop.call_later(timeout, job.expire)
            try:
                await job.outcome
            except BaseException:
                self._abandon(job)
                raise
            finally:
                if timer is not None:
                    timer.cancel()
        return result_of(job.outcome)

    def _slots_of(self, loop: asyncio.AbstractEventLoop, depth: int) -> asyncio.Semaphore:
        with self._lock:
            if loop not in self._slots:
                self._slots = {known: slots for known, slots in self._slots.items() if not known.is_closed()}
            slots = self._slots.setdefault(loop, {})
            return slots.setdefault(depth, asyncio.Semaphore(self._max_threads))

    def _start(self, job: "_Job") -> None:
        abandoned = self._abandoned
        if abandoned >= self._max_abandoned:
            _log.error("a call was refused, because %d threads of abandoned calls are still running", abandoned)
            raise ToolError(
                f"not run: {abandoned} earlier calls timed out or were cancelled and are still running in their "
                "threads; no more are started until some of them end"
            )
        with self._lock:
            jobs = self._idle.pop() if self._idle else None
        if jobs is None:
            jobs = SimpleQueue()
            try:
                threading.Thread(target=self._work, args=(jobs,), name="midspan-tool", daemon=True).start()
            except RuntimeError as error:  # the system has no more threads, or the program is exiting
                _log.error("no thread could be started: %s", error)
                raise ToolError("not run: no thread could be started") from error
        jobs.put(job)

    def _abandon(self, job: "_Job") -> None:
        """Stop waiting for a job. If its function has not started yet, it never does."""
        with self._lock:
            job.function, job.is_abandoned = None, True
            self._abandoned += job.is_running

    def _work(self, jobs: "SimpleQueue[_Job]") -> None:
        while True:
            job = jobs.get()
            with self._lock:
                function, job.function = job.function, None
                job.is_running = function is not None
            outcome: Outcome = True, None
            try:
                if function is not None:
                    outcome = True, function()
            except BaseException as error:  # noqa: BLE001 - user code; the caller gets it
                outcome = False, error
            with self._lock:
                if job.is_running and job.is_abandoned:
                    self._abandoned -= 1
                job.is_running = False
                # Before the outcome is set, because its receiver may submit the next job to this thread.
                self._idle.append(jobs)
            job.end(outcome)
            del job, function, outcome  # an idle thread keeps nothing alive


class _Job:
    """One function to run. The lock of the threads is held while the first three attributes change."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function: Callable[[], Any] | None = function
        """None when it has been started, and if nobody waits for it any more."""
        self.is_running = False
        self.is_abandoned = False
        self.loop = asyncio.get_running_loop()
        self.outcome: asyncio.Future[Outcome] = self.loop.create_future()

    def expire(self) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(Expired())

    def end(self, outcome: Outcome) -> None:
        """Pass the outcome to the event loop. Called in the thread of the function."""
        with suppress(RuntimeError):  # the event loop is closed, and nobody waits any more
            self.loop.call_soon_threadsafe(self._set_outcome, outcome)

    def _set_outcome(self, outcome: Outcome) -> None:
        if not self.outcome.done():
            self.outcome.set_result(outcome)


THREADS = Threads()
"""The threads of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=THREADS.reset)
