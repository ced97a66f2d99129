"""A time limit around some awaiting, cheap enough for every call."""

import asyncio
import types
from collections.abc import Coroutine, Generator
from contextlib import nullcontext
from types import TracebackType
from typing import Any, TypeVar, cast

T = TypeVar("T")


class Expired(TimeoutError):
    """A time limit of ours is over; any other TimeoutError is the doing of whoever raised it."""


async def limited(coroutine: Coroutine[Any, Any, T], seconds: float | None) -> T:
    """Await the coroutine, and raise Expired if it takes longer; None is no limit."""
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


@types.coroutine
def rest_of(coroutine: Coroutine[Any, Any, T], waits_for: Any, seconds: float | None) -> Generator[Any, None, T]:
    """What a coroutine gives that was begun, within so many seconds."""
    with Deadline(seconds) if seconds is not None else nullcontext():
        while True:
            try:
                yield waits_for
            except BaseException as error:  # noqa: BLE001 - whatever is thrown at us is for the coroutine
                thrown: BaseException | None = error
            else:
                thrown = None
            try:
                waits_for = coroutine.send(None) if thrown is None else coroutine.throw(thrown)
            except StopIteration as end:
                return cast("T", end.value)


def cancelled_from_outside() -> bool:
    """Whether somebody cancelled this task; foreign code may raise CancelledError though nobody did."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class Deadline:
    """Raises Expired where the body takes longer than `seconds`.

    What `asyncio.timeout` does, without its two coroutines.
    """

    __slots__ = ("_cancelling", "_expired", "_handle", "_seconds", "_task")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._expired = False

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None, "a deadline is for code that runs in a task"
        self._task: asyncio.Task[Any] = task
        self._cancelling = task.cancelling()
        self._handle = asyncio.get_running_loop().call_later(self._seconds, self._expire)

    def _expire(self) -> None:
        self._expired = True
        self._task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._handle.cancel()
        # If somebody else cancelled the task meanwhile, that counts, and not our limit.
        if self._expired and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise Expired from error
