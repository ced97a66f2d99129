"""Foreign coroutines in tasks of their own: they can be stopped, and left behind if they will not end.

Within the task of a run they could do neither: what such a coroutine cancels, limits or catches would be the run.
"""

import asyncio
import logging
from typing import Any

from midspan.tools.deadline import Expired, Raised, cancellations, limits_heard
from midspan.tools.own_task import Outcome, Work, begun_apart

PATIENCE_SECONDS = 5.0
"""So long is what was cancelled waited for, if it goes on all the same."""

_log = logging.getLogger("midspan.tools")


async def apart(work: Work, seconds: float | None) -> Any:
    """What a coroutine gives, run in a task of its own, within so many seconds; see `rest_apart`."""
    outcome, task = begun_apart(work)
    return value_of(outcome) if outcome is not None else await rest_apart(task, seconds)


async def rest_apart(task: asyncio.Task[Outcome] | None, seconds: float | None) -> Any:
    """What comes of what was begun, in its task, within so many seconds.

    What it raises comes as Raised, but for KeyboardInterrupt, which is a person's wish. Where the time was over, its
    value is not taken even if it gives one, see `Expired.late`; an exception of its own still says more than ours. Who
    cancels us cancels it; only where that is a time limit around us, it is heard to its end.
    """
    assert task is not None, "it has not ended yet"
    before = limits_heard()
    try:
        in_time = await _ends(task, seconds)
    except asyncio.CancelledError:
        task.cancel()
        is_heard = await _ends_or_is_left(task) and not task.cancelled() and cancellations() <= before
        if not is_heard:
            raise
        in_time = True
    except BaseException:  # we are closed, and may not wait
        if not task.get_loop().is_closed():
            task.get_loop().call_soon(task.cancel)  # not before the task has taken it over
        raise
    if not in_time:
        task.cancel()
        if not await _ends_or_is_left(task):
            raise Expired(is_left=True)
        if task.cancelled():
            raise Expired
        raise Expired((value_of(task.result()),))
    return value_of((False, asyncio.CancelledError()) if task.cancelled() else task.result())


def value_of(outcome: Outcome) -> Any:
    """What it gave; what it raised is raised here."""
    ended, value = outcome
    if ended:
        return value
    raise value if isinstance(value, KeyboardInterrupt) else Raised(value)


async def _ends(task: asyncio.Task[Any], seconds: float | None) -> bool:
    """Wait so long for the end of a task, and tell whether it was there."""
    loop = task.get_loop()
    waiter = loop.create_future()

    def wake(_: object = None) -> None:
        if not waiter.done():
            waiter.set_result(None)

    task.add_done_callback(wake)
    timer = None if seconds is None else loop.call_later(seconds, wake)
    try:
        await waiter
    finally:
        task.remove_done_callback(wake)
        if timer is not None:
            timer.cancel()
    return task.done()


async def _ends_or_is_left(task: asyncio.Task[Any]) -> bool:
    """Whether a task that was cancelled ends while we are patient; nobody waits for it any more if it does not."""
    try:
        return await _ends(task, PATIENCE_SECONDS)
    finally:
        if not task.done():
            _leave(task)


def _leave(task: asyncio.Task[Any]) -> None:
    """Let it go on unheard: neither the end of its event loop nor that of the program waits for it, or throws at it."""
    from ctypes import py_object, pythonapi  # for what hardly ever happens

    _log.error("a tool that was stopped goes on, and is not waited for any longer")
    asyncio.tasks._unregister_task(task)
    pythonapi.Py_IncRef(py_object(task))
    task.add_done_callback(lambda ended: pythonapi.Py_DecRef(py_object(ended)))
