"""Run user code in tasks of its own, with deadlines and cancellation.

A tool never runs in the task of its run. It may cancel its own task, use `asyncio.timeout` and `TaskGroup`, or ignore
its cancellation, and the run neither notices nor hangs.
"""

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

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
        if await _cancel(task) and not task.cancelled():
            _raise_exit(task.result())
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


def start(function: Callable[..., Awaitable[Any]], *args: Any) -> "asyncio.Task[Outcome]":
    """Start a task that awaits `function(*args)`; read its outcome with `result_of`.

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
    _raise_exit((succeeded, value))
    raise ToolRaised(value)


def _raise_exit(outcome: Outcome) -> None:
    succeeded, error = outcome
    if not succeeded and isinstance(error, KeyboardInterrupt | SystemExit):
        raise error


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
