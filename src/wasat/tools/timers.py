"""Timers that cancel the task in which they were set, and the count of those cancellations: they are nobody's wish."""

import asyncio
from types import TracebackType
from typing import Any, Self
from weakref import WeakSet

PATIENCE_SECONDS = 5.0
"""So long is what was cancelled waited for, if it goes on all the same."""


class Expired(TimeoutError):
    """A time limit of ours is over; any other TimeoutError is the doing of whoever raised it."""

    def __init__(self, late: tuple[Any, ...] = (), *, is_left: bool = False) -> None:
        super().__init__("the time is over")
        self.late = late
        """The one value that came all the same, from what swallowed its cancellation and went on; else nothing."""
        self.is_left = is_left
        """It would not end, and is not waited for any longer."""


def cancellations() -> int:
    """How often this task was cancelled, but for those timers of ours that are just being told of."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling() - (_expired.get(task, 0) if _expired else 0)


_expired: dict[asyncio.Task[Any], int] = {}
"""Of each task, how many timers have cancelled it and are not left yet."""
_insisted: WeakSet[asyncio.Task[Any]] = WeakSet()


def insist(task: asyncio.Task[Any]) -> bool:
    """Cancel a task for good: what in it goes on all the same is not waited for any longer than is patient."""
    _insisted.add(task)
    return task.cancel()


def desist(task: asyncio.Task[Any]) -> None:
    """It has ended what it should, and goes on with something else."""
    _insisted.discard(task)


class _Timer:
    """Cancels its task once."""

    __slots__ = ("_handle", "_task", "is_over")

    def __init__(self) -> None:
        self.is_over = False

    def _set(self, seconds: float) -> asyncio.Task[Any]:
        task = asyncio.current_task()
        assert task is not None, "a timer is for code that runs in a task"
        self._task: asyncio.Task[Any] = task
        self._handle = asyncio.get_running_loop().call_later(seconds, self._expire)
        return task

    def _expire(self) -> None:
        self.is_over = True
        _expired[self._task] = _expired.get(self._task, 0) + 1
        self._task.cancel()

    def _take_back(self) -> int:
        """Undo the cancellation; how many others there are."""
        _expired[self._task] -= 1
        if not _expired[self._task]:
            del _expired[self._task]
        return self._task.uncancel()


class Deadline(_Timer):
    """Raises Expired where the body takes longer than `seconds` and lets itself be cancelled.

    What `asyncio.timeout` does, without its two coroutines. Of a body that goes on, `is_over` tells.
    """

    __slots__ = ("_cancelling", "_seconds")

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def __enter__(self) -> Self:
        self._cancelling = self._set(self._seconds).cancelling()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._handle.cancel()
        # If somebody else cancelled the task meanwhile, that counts, and not our limit.
        if self.is_over and self._take_back() <= self._cancelling and kind is asyncio.CancelledError:
            raise Expired from error


class Patience(_Timer):
    """Cancels a task once more that goes on; only if a timer or `insist` wants its end.

    A cancellation may also be made and caught within what runs, as `asyncio.timeout` does.
    """

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__()
        self._set(PATIENCE_SECONDS)

    def _expire(self) -> None:
        if self._task in _expired or self._task in _insisted:
            super()._expire()
        else:
            self._handle = self._task.get_loop().call_later(PATIENCE_SECONDS, self._expire)

    def end(self) -> None:
        self._handle.cancel()
        if self.is_over:
            self._take_back()
