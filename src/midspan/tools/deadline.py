"""A time limit around some awaiting, cheap enough for every call."""

import asyncio
import types
from collections.abc import Coroutine, Generator
from contextlib import nullcontext
from types import TracebackType
from typing import Any, Self, TypeVar, cast

T = TypeVar("T")


class Expired(TimeoutError):
    """A time limit of ours is over; any other TimeoutError is the doing of whoever raised it."""

    def __init__(self, late: tuple[Any, ...] = (), *, is_left: bool = False) -> None:
        super().__init__("the time is over")
        self.late = late
        """The one value that came all the same, from what swallowed its cancellation and went on; else nothing."""
        self.is_left = is_left
        """It went on, and is not waited for any longer."""


class Raised(Exception):
    """What foreign code raised and only told us of: raised as it is, it would mean something else to who waits."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"{type(error).__name__} was raised")
        self.error = error


async def limited(coroutine: Coroutine[Any, Any, T], seconds: float | None) -> T:
    """Await the coroutine, and raise Expired if it takes longer; None is no limit.

    Where the time was over, its value is not taken even if it gives one, see `Expired.late`; an exception of its own
    still says more than ours. What ends before anybody could stop it, as code that never waits, ends in time.
    """
    ended, value = begun(coroutine)
    return cast("T", value) if ended else await rest_of(coroutine, value, seconds)


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
def rest_of(coroutine: Coroutine[Any, Any, T], waits_for: Any, seconds: float | None) -> Generator[Any, None, T]:
    """What a coroutine gives that was begun, within so many seconds; as `limited` does.

    GeneratorExit is thrown in here when somebody closes us. One that the coroutine makes up comes as Raised: everyone
    above would take it for the sign to leave without a word. A cancellation that the coroutine keeps to itself is
    raised all the same when it ends: whoever cancelled us meant more than this one coroutine.
    """
    before, told = limits_heard(), None
    with Deadline(seconds) if seconds is not None else nullcontext() as deadline:
        while True:
            try:
                yield waits_for
            except BaseException as error:  # noqa: BLE001 - whatever is thrown at us is for the coroutine
                thrown: BaseException | None = error
                if isinstance(error, asyncio.CancelledError) and not _ends_a_group(coroutine):
                    told = error
            else:
                thrown = None
            try:
                waits_for = coroutine.send(None) if thrown is None else coroutine.throw(thrown)
            except StopIteration as end:
                if told is not None and cancellations() > before:
                    raise told from None
                if deadline is not None and deadline.is_over:
                    raise Expired((end.value,)) from None
                return cast("T", end.value)
            except GeneratorExit as error:
                if isinstance(thrown, GeneratorExit):
                    raise
                raise Raised(error) from error
            except Exception:
                if told is not None and cancellations() > before:
                    raise told from None
                raise


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


def cancels_heard() -> int:
    """How often this task was cancelled and has been told of it; what it is told when it waits next is not long ago."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling() - _is_to_be_told(task)


def _is_to_be_told(task: "asyncio.Task[Any]") -> bool:
    """Whether it was cancelled while it ran, as by Ctrl-C or by a tool that never waits."""
    return getattr(task, "_must_cancel", False)


def was_cancelled_since(before: int | None) -> bool:
    """Whether somebody cancelled this task since; nobody can where it has not waited yet, which is None."""
    return before is not None and cancel_count() > before


def cancellations() -> int:
    """The same, but for those deadlines of ours that are just being told of."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling() - (_expired.get(task, 0) if _expired else 0)


def limits_heard() -> int:
    """As `cancels_heard`, but for those deadlines of ours."""
    task = asyncio.current_task()
    return 0 if task is None else cancellations() - _is_to_be_told(task)


_expired: dict[asyncio.Task[Any], int] = {}
"""Of each task, how many deadlines have cancelled it and are not left yet."""


class Deadline:
    """Raises Expired where the body takes longer than `seconds` and lets itself be cancelled.

    What `asyncio.timeout` does, without its two coroutines. Of a body that goes on, `is_over` tells.
    """

    __slots__ = ("_cancelling", "_handle", "_seconds", "_task", "is_over")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.is_over = False

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None, "a deadline is for code that runs in a task"
        self._task: asyncio.Task[Any] = task
        self._cancelling = task.cancelling()
        self._handle = asyncio.get_running_loop().call_later(self._seconds, self._expire)
        return self

    def _expire(self) -> None:
        self.is_over = True
        _expired[self._task] = _expired.get(self._task, 0) + 1
        self._task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._handle.cancel()
        if self.is_over:
            _expired[self._task] -= 1
            if not _expired[self._task]:
                del _expired[self._task]
        # If somebody else cancelled the task meanwhile, that counts, and not our limit.
        if self.is_over and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise Expired from error
