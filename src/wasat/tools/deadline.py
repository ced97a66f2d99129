"""A time limit around some awaiting, cheap enough for every call."""

import asyncio
import logging
import types
from collections.abc import Coroutine, Generator
from contextlib import nullcontext
from typing import Any, TypeVar, cast

from wasat.tools.timers import Deadline, Patience, cancellations
from wasat.tools.timers import Expired as Expired

_log = logging.getLogger("wasat.tools")

T = TypeVar("T")


class Raised(Exception):
    """What foreign code raised and only told us of: raised as it is, it would mean something else to who waits."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"{type(error).__name__} was raised")
        self.error = error


class LeftBehind(Exception):
    """It was cancelled and would not end, so that it is not waited for any longer."""


async def limited(coroutine: Coroutine[Any, Any, T], seconds: float | None, *, may_be_left: bool = False) -> T:
    """Await the coroutine, and raise Expired if it takes longer; None is no limit.

    Where the time was over, its value is not taken even if it gives one, see `Expired.late`; an exception of its own
    still says more than ours. What ends before anybody could stop it, as code that never waits, ends in time.
    """
    ended, value = begun(coroutine)
    return cast("T", value) if ended else await rest_of(coroutine, value, seconds, may_be_left=may_be_left)


def begun(coroutine: Coroutine[Any, Any, Any]) -> tuple[bool, Any]:
    """Run a coroutine until it first waits: whether it ended, with its value; else what it waits for, for `rest_of`.

    What ends without ever waiting needs no clock: most tools of a few microseconds are of that kind, and for them the
    clock would be most of the price.
    """
    try:
        return False, coroutine.send(None)
    except StopIteration as end:
        return True, end.value
    except GeneratorExit as error:
        raise Raised(error) from error  # nobody closes what was never suspended


@types.coroutine
def rest_of(
    coroutine: Coroutine[Any, Any, T], waits_for: Any, seconds: float | None, *, may_be_left: bool = False
) -> Generator[Any, None, T]:
    """What a coroutine gives that was begun, within so many seconds; as `limited` does.

    GeneratorExit is thrown in here when somebody closes us. One that the coroutine makes up comes as Raised: everyone
    above would take it for the sign to leave without a word. A cancellation that the coroutine keeps to itself is
    raised all the same when it ends: whoever cancelled us meant more than this one coroutine. If it does not end, and
    may be left, it is left where it stands.
    """
    before, told, patience = cancellations(), None, None
    with Deadline(seconds) if seconds is not None else nullcontext() as deadline:
        try:
            while True:
                try:
                    yield waits_for
                except BaseException as error:  # noqa: BLE001 - whatever is thrown at us is for the coroutine
                    if patience is not None and patience.is_over:
                        _leave(coroutine)
                        _raise_kept(told, before)
                        raise (Expired(is_left=True) if deadline and deadline.is_over else LeftBehind()) from None
                    thrown: BaseException | None = error
                    if isinstance(error, asyncio.CancelledError):
                        told = told if _ends_a_group(coroutine) else error
                        patience = patience or (Patience() if may_be_left else None)
                else:
                    thrown = None
                try:
                    waits_for = coroutine.send(None) if thrown is None else coroutine.throw(thrown)
                except StopIteration as end:
                    _raise_kept(told, before)
                    if deadline is not None and deadline.is_over:
                        raise Expired((end.value,)) from None
                    return cast("T", end.value)
                except GeneratorExit as error:
                    if isinstance(thrown, GeneratorExit):
                        raise
                    raise Raised(error) from error
                except Exception:
                    _raise_kept(told, before)
                    raise
        finally:
            if patience is not None:
                patience.end()


def _raise_kept(told: asyncio.CancelledError | None, before: int) -> None:
    """A cancellation that was told, unless somebody took it back."""
    if told is not None and cancellations() > before:
        raise told from None


def _leave(coroutine: Coroutine[Any, Any, Any]) -> None:
    """Close what would not end; if it does not even let itself be closed, it stands still for ever."""
    try:
        coroutine.close()
    except BaseException as error:  # noqa: BLE001 - nobody waits for it any more, whatever it says
        _log.error("a tool that was stopped went on, and would not be closed: %s", error)
        _keep_for_ever(coroutine)


def _keep_for_ever(coroutine: Coroutine[Any, Any, Any]) -> None:
    """Whoever tidied it up would throw at it again; at the end of the program it might never stop catching."""
    from ctypes import py_object, pythonapi  # for what hardly ever happens

    pythonapi.Py_IncRef(py_object(coroutine))


def _ends_a_group(waiting: Any) -> bool:
    """Whether it waits for the end of a TaskGroup, which cancels its own task where one in it fails.

    Until Python 3.13 the group does not take that back, so that it looks like a cancellation that was kept. Where it
    cannot be seen, because it waits in an asynchronous generator, it is taken for granted.
    """
    while isinstance(waiting, types.CoroutineType | types.GeneratorType):
        if isinstance(waiting, types.CoroutineType):
            if waiting.cr_code is _END_OF_GROUP:
                return True
            waiting = waiting.cr_await
        elif waiting.gi_code is _REST and waiting.gi_frame is not None:
            waiting = waiting.gi_frame.f_locals["coroutine"]
        else:
            waiting = waiting.gi_yieldfrom
    return type(waiting).__name__ in _ASYNC_STEPS


_END_OF_GROUP = asyncio.TaskGroup.__aexit__.__code__
_REST = rest_of.__code__
_ASYNC_STEPS = ("async_generator_asend", "async_generator_athrow", "anext_awaitable")


def kept(error: BaseException | None, before: int) -> asyncio.CancelledError | None:
    """The cancellation since `before` that somebody made this error of, if he did."""
    if cancel_count() <= before:
        return None
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, asyncio.CancelledError):
            return error
        seen.add(id(error))
        error = error.__context__
    return None


def cancel_count() -> int:
    """How often this task was cancelled; what was there before tells nothing of now."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


def was_cancelled_since(before: int | None) -> bool:
    """Whether somebody cancelled this task since; nobody can where it has not waited yet, which is None."""
    return before is not None and cancel_count() > before
