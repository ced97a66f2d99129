"""A task for foreign code whose first step is made at once: what never waits in the end costs no turn of the loop.

Python 3.12 can start tasks eagerly, and 3.11 cannot; this does it by the hooks that asyncio documents for those who
write tasks. A task stands ready, parked, and is the current one while the first step is made. Only if the code then
waits, the task takes it over; else it is parked again for the next one.
"""

import asyncio
import threading
import types
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from typing import Any

Outcome = tuple[bool, Any]
"""Whether it ended well, and with what."""
Work = Coroutine[Any, Any, Any]

_parked = threading.local()


def begun_apart(work: Work) -> "tuple[Outcome, None] | tuple[None, asyncio.Task[Outcome]]":
    """Make the first step: what came of it if that was all, else the task in which it goes on."""
    loop = asyncio.get_running_loop()
    own: OwnTask | None = getattr(_parked, "own", None)
    _parked.own = None  # for within the step others may begin
    if own is None or not own.is_free(loop):
        own = OwnTask(loop)
    outcome = own.first_step(work)
    if outcome is None:
        return None, own.task
    _parked.own = own
    return outcome, None


class OwnTask:
    """One task, parked until something has to wait in it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._handed_over: asyncio.Future[tuple[Work, Any, Context]] = loop.create_future()
        self.task: asyncio.Task[Outcome] = asyncio.Task(_going_on(self._handed_over), loop=loop)
        self.task._log_destroy_pending = False  # type: ignore[attr-defined]  # as asyncio's own gather does
        asyncio.tasks._unregister_task(self.task)  # nobody shall wait for it while it is parked

    def is_free(self, loop: asyncio.AbstractEventLoop) -> bool:
        return self._loop is loop and not self.task.cancelling() and not self.task.done()

    def first_step(self, work: Work) -> Outcome | None:
        """What came of it; None if it waits, and goes on in the task."""
        context, me = copy_context(), asyncio.current_task()
        assert me is not None, "whoever waits for it is in a task"
        asyncio.tasks._leave_task(self._loop, me)
        asyncio.tasks._enter_task(self._loop, self.task)
        try:
            outcome, waits_for = _step(context, work.send, None)
        finally:
            asyncio.tasks._leave_task(self._loop, self.task)
            asyncio.tasks._enter_task(self._loop, me)
        if outcome is None:
            asyncio.tasks._register_task(self.task)
            self._handed_over.set_result((work, waits_for, context))
        return outcome


async def _going_on(handed_over: "asyncio.Future[tuple[Work, Any, Context]]") -> Outcome:
    return await _driven(handed_over)


@types.coroutine
def _driven(handed_over: "asyncio.Future[tuple[Work, Any, Context]]") -> Generator[Any, None, Outcome]:
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
        step: tuple[Callable[..., Any], Any] = (work.send, None) if thrown is None else (work.throw, thrown)
        thrown = None
        outcome, waits_for = _step(context, *step)
        if outcome is not None:
            if not outcome[0] and isinstance(outcome[1], asyncio.CancelledError):
                raise outcome[1]
            return outcome


def _step(context: Context, step: Callable[[Any], Any], given: Any) -> tuple[Outcome | None, Any]:
    """What came of it, or what it waits for; a task that dies of SystemExit would take the event loop with it."""
    try:
        return None, context.run(step, given)
    except StopIteration as end:
        return (True, end.value), None
    except BaseException as error:  # noqa: BLE001 - foreign code, told to who waits
        return (False, error), None
