"""A task for foreign code whose first step is made at once: what never waits in the end costs no turn of the loop.

Python 3.12 can start tasks eagerly, and 3.11 cannot; this does it by the hooks that asyncio documents for those who
write tasks. A task stands ready, parked, and is the current one while the first step is made. Only if the code then
waits, the task takes it over; else it is parked again for the next one.
"""

import asyncio
import threading
import types
from asyncio.tasks import _enter_task, _leave_task, _register_task, _unregister_task
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from typing import Any

Outcome = tuple[bool, Any]
"""Whether it ended well, and with what."""
Work = Coroutine[Any, Any, Any]
HandedOver = asyncio.Future[tuple[Work, Any, Context]]
"""The work, what it waits for, and its context."""

_parked = threading.local()


def begun_apart(work: Work) -> "tuple[Outcome, None] | tuple[None, asyncio.Task[Outcome]]":
    """Make the first step: what came of it if that was all, else the task in which it goes on."""
    loop, me = asyncio.get_running_loop(), asyncio.current_task()
    assert me is not None, "whoever waits for it is in a task"
    own: _OwnTask | None = getattr(_parked, "own", None)
    if own is None or own.is_taken or own.loop is not loop or own.task.cancelling():
        own = _parked.own = _OwnTask(loop)
    own.is_taken = True  # within the step others may begin
    task, context = own.task, copy_context()
    _leave_task(loop, me)
    _enter_task(loop, task)
    try:
        waits_for = context.run(work.send, None)
    except StopIteration as end:
        own.is_taken = False
        return (True, end.value), None
    except BaseException as error:  # noqa: BLE001 - foreign code, told to who waits
        own.is_taken = False
        return (False, error), None
    finally:
        _leave_task(loop, task)
        _enter_task(loop, me)
    _parked.own = None
    _register_task(task)
    own.handed_over.set_result((work, waits_for, context))
    return None, task


class _OwnTask:
    """One task, parked until something has to wait in it."""

    __slots__ = ("handed_over", "is_taken", "loop", "task")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.is_taken = False
        self.handed_over: HandedOver = loop.create_future()
        self.task: asyncio.Task[Outcome] = asyncio.Task(_going_on(self.handed_over), loop=loop)
        self.task._log_destroy_pending = False  # type: ignore[attr-defined]  # as asyncio's own gather does
        _unregister_task(self.task)  # nobody shall wait for it while it is parked


async def _going_on(handed_over: HandedOver) -> Outcome:
    return await _driven(handed_over)


@types.coroutine
def _driven(handed_over: HandedOver) -> Generator[Any, None, Outcome]:
    """What a task does that is parked: it waits for work, and goes on with it."""
    thrown: BaseException | None = None
    try:
        yield from handed_over
    except asyncio.CancelledError as error:
        if not handed_over.done() or handed_over.cancelled():
            raise
        thrown = error  # it is meant for the work
    work, waits_for, context = handed_over.result()
    while True:
        if thrown is None:
            try:
                yield waits_for
            except GeneratorExit:
                work.close()
                raise
            except BaseException as error:  # noqa: BLE001 - whatever is thrown at the task is for the work
                thrown = error
        step: Callable[[Any], Any] = work.send if thrown is None else work.throw
        given, thrown = thrown, None
        try:
            waits_for = context.run(step, given)
        except StopIteration as end:
            return True, end.value
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - a task that dies of SystemExit would take its loop with it
            return False, error
