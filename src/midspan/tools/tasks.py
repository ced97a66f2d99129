"""Run user code in tasks and threads of its own, with deadlines and cancellation.

A tool never runs in the task of its run. It may cancel its own task, use `asyncio.timeout` and `TaskGroup`, or ignore
its cancellation, and the run neither notices nor hangs. Sync functions, which would block the event loop, run in
threads.
"""

import asyncio
import contextvars
import logging
import os
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from midspan.errors import ToolError

T = TypeVar("T")
Outcome = tuple[bool, Any]
"""`(True, value)` or `(False, exception)`."""

CANCEL_GRACE_SECONDS = 5.0
"""How long a cancelled task may take to end before it is abandoned."""

_log = logging.getLogger("midspan.tools")

if sys.version_info >= (3, 12):
    _new_task = partial(asyncio.Task, eager_start=True)
else:
    _new_task = asyncio.Task

_abandoned: set[asyncio.Task[Outcome]] = set()
"""The event loop holds tasks by weak references only, so a task that nobody awaits needs a strong reference here."""


class Expired(TimeoutError):
    """A time limit set by Midspan was exceeded. Any other TimeoutError comes from user code.

    `suffix` continues a sentence such as "it timed out after 3 seconds".
    """

    def __init__(self, suffix: str = "") -> None:
        super().__init__(f"timed out{suffix}")
        self.suffix = suffix


class ToolRaised(Exception):
    """Carries an exception out of user code, so that it cannot be mistaken for one of ours."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


async def run_in_task(
    function: Callable[..., Awaitable[Any]], *args: Any, timeout: float | None = None, name: str | None = None
) -> Any:
    """Await `function(*args)` in a task of its own and return its value.

    Exceptions arrive as ToolRaised, except KeyboardInterrupt and SystemExit. After `timeout` seconds, or when the
    caller is cancelled, the task is cancelled. If it has not ended CANCEL_GRACE_SECONDS later, or the caller is
    cancelled again, it is abandoned: it keeps running and its outcome is ignored.
    """
    task = _new_task(_outcome(function, args), loop=asyncio.get_running_loop(), name=name)
    try:
        if not task.done():
            await asyncio.sleep(0)  # a task that never waits is done after this, and needs neither waiter nor timer
        if not task.done():
            await asyncio.wait([task], timeout=timeout)
    except asyncio.CancelledError:
        if await _cancel(task):
            with suppress(ToolRaised):
                task_result(task)  # raises KeyboardInterrupt and SystemExit
        raise
    except GeneratorExit:  # the caller is being closed and must not await
        if not task.get_loop().is_closed():
            task.cancel()
        raise
    if task.done():
        return task_result(task)
    if not await _cancel(task):
        raise Expired(", ignored its cancellation and was abandoned; it may still be running")
    if task.cancelled():
        raise Expired(" and was cancelled")
    task_result(task)  # raises what the function raised when it was cancelled
    raise Expired(", ignored its cancellation and returned too late; its result was discarded")


def start_task(function: Callable[..., Awaitable[Any]], *args: Any) -> "asyncio.Task[Outcome]":
    """Start a task that awaits `function(*args)`; read its outcome with `task_result`.

    Python 3.12 and later run it at once until it first waits, so a function that never waits is done on return.
    """
    return _new_task(_outcome(function, args), loop=asyncio.get_running_loop())


async def _outcome(function: Callable[..., Awaitable[Any]], args: tuple[Any, ...]) -> Outcome:
    try:
        return True, await function(*args)
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001 - user code; a SystemExit left to asyncio would stop the event loop
        return False, error


def task_result(task: "asyncio.Future[Outcome]") -> Any:
    """Return the value of a finished task, or raise what it raised, as ToolRaised.

    KeyboardInterrupt and SystemExit are raised as they are.
    """
    try:
        succeeded, value = task.result()
    except asyncio.CancelledError as cancelled:  # the task cancelled itself
        raise ToolRaised(cancelled) from None
    if succeeded:
        return value
    raise value if isinstance(value, KeyboardInterrupt | SystemExit) else ToolRaised(value)


async def _cancel(task: "asyncio.Task[Outcome]") -> bool:
    """Cancel a task and wait for it; return whether it ended. If not, it is abandoned."""
    task.cancel()
    try:
        if not task.done():
            await asyncio.wait([task], timeout=CANCEL_GRACE_SECONDS)
        return task.done()
    finally:
        if not task.done():
            _log.error("tool %s was cancelled but did not end; it was abandoned and keeps running", task.get_name())
            _abandoned.add(task)
            task.add_done_callback(_abandoned.discard)


async def with_timeout(awaitable: Awaitable[T], timeout: float | None) -> T:
    """Await in the current task; raise Expired after `timeout` seconds. None means no limit.

    As with `asyncio.timeout`, an awaitable that ignores its cancellation and returns a value has not expired.
    """
    if timeout is None:
        return await awaitable
    try:
        async with asyncio.timeout(timeout) as deadline:
            return await awaitable
    except TimeoutError as error:
        if deadline.expired():
            raise Expired from error
        raise


_depth: contextvars.ContextVar[int] = contextvars.ContextVar("midspan_thread_depth", default=0)
"""The nesting depth: how many functions in threads wait for the current code."""

_Waiter = asyncio.Future[Outcome]
_Job = tuple[Callable[[], Any], _Waiter]
"""A function to run, and the future of the caller that waits for it."""


class Threads:
    """Runs functions in threads, at most `max_threads` at a time per event loop and nesting depth.

    A function may wait for another one that runs here, as a tool does that runs an agent with tools. If all depths
    shared the slots, functions that wait could occupy every one of them, and the functions they wait for would never
    start. With slots per depth a function only ever waits for a deeper one, and the deepest waits for none.

    The threads are daemons, so a function that hangs does not keep the program from exiting, as it would in a
    `concurrent.futures` pool. A function whose call timed out or was cancelled is abandoned: it keeps its thread, and
    another call takes its slot, up to a limit.
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
        self._running: set[_Waiter] = set()
        """One for each function that was passed to a thread and has not ended."""
        self._abandoned: set[_Waiter] = set()
        """Those of them whose caller does not wait any more."""

    async def run(self, function: Callable[..., Any], *args: Any, timeout: float | None = None) -> Any:
        """Return what the function returns. Exceptions arrive as ToolRaised, except KeyboardInterrupt and SystemExit.

        The timeout starts with the function, not while it waits for a slot. When it expires, or when the caller is
        cancelled, the function is no longer waited for; it keeps running in its thread.
        """
        depth = _depth.get()
        if depth >= self._max_depth:
            raise ToolError(f"functions in threads are nested {depth} deep already; answer without a call")
        context = contextvars.copy_context()
        context.run(_depth.set, depth + 1)
        loop = asyncio.get_running_loop()
        waiter: _Waiter = loop.create_future()
        async with self._slots_of(loop, depth):
            self._start(partial(context.run, function, *args), waiter)
            try:
                async with asyncio.timeout(timeout):
                    await waiter
            except TimeoutError as error:
                if waiter.cancelled():  # else the function has ended, and the event loop was too busy to say so in time
                    raise Expired("; its thread was abandoned and may still be running") from error
            finally:
                if waiter.cancelled() or not waiter.done():
                    with self._lock:
                        self._abandoned |= {waiter} & self._running
        return task_result(waiter)

    def _slots_of(self, loop: asyncio.AbstractEventLoop, depth: int) -> asyncio.Semaphore:
        with self._lock:
            if loop not in self._slots:
                self._slots = {other: slots for other, slots in self._slots.items() if not other.is_closed()}
            return self._slots.setdefault(loop, {}).setdefault(depth, asyncio.Semaphore(self._max_threads))

    def _start(self, function: Callable[[], Any], waiter: _Waiter) -> None:
        abandoned = len(self._abandoned)
        if abandoned >= self._max_abandoned:
            _log.error("a call was refused, because %d threads of abandoned calls are still running", abandoned)
            raise ToolError(
                f"{abandoned} earlier calls timed out or were cancelled and are still running in their "
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
                raise ToolError("no thread could be started") from error
        self._running.add(waiter)
        jobs.put((function, waiter))

    def _work(self, jobs: SimpleQueue[_Job]) -> None:
        while True:
            function, waiter = jobs.get()
            outcome: Outcome = True, None
            try:
                if not waiter.done():  # else the caller no longer waits, and the function never starts
                    outcome = True, function()
            except BaseException as error:  # noqa: BLE001 - user code; the caller gets it
                outcome = False, error
            with self._lock:
                self._running.discard(waiter)
                self._abandoned.discard(waiter)
                # Before the outcome is set, because its receiver may start the next function in this thread.
                self._idle.append(jobs)
            with suppress(RuntimeError):  # the event loop is closed, and nobody waits any more
                waiter.get_loop().call_soon_threadsafe(_set_outcome, waiter, outcome)
            del function, waiter, outcome  # an idle thread keeps nothing alive


def _set_outcome(waiter: _Waiter, outcome: Outcome) -> None:
    if not waiter.done():
        waiter.set_result(outcome)


THREADS = Threads()
"""The threads of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=THREADS.reset)
