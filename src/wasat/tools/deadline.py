"""A time limit around some awaiting, cheap enough for every call."""

import asyncio
import types
from collections.abc import Awaitable, Coroutine, Generator
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")


class Expired(TimeoutError):
    """A time limit of ours is over; any other TimeoutError is the doing of whoever raised it."""


def limited(coroutine: Coroutine[Any, Any, T], seconds: float | None) -> Awaitable[T]:
    """Await the coroutine, and raise Expired if it takes longer; None is no limit.

    What ends without ever waiting never starts the clock: most tools of a few microseconds are of that kind, and for
    them the clock would be most of the price.
    """
    return coroutine if seconds is None else _limited(coroutine, seconds)


@types.coroutine
def _limited(coroutine: Coroutine[Any, Any, T], seconds: float) -> Generator[Any, None, T]:
    try:
        waits_for = coroutine.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # a StopIteration does not say of what type its value is
    with Deadline(seconds):
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
                return end.value  # type: ignore[no-any-return]  # as above


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
