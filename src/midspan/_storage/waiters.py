"""Futures of watchers that wait for the next event of a run, in any thread and event loop."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

Waiter = asyncio.Future[Any]


class Waiters:
    """Futures by run. False while nobody waits, so that a writer can skip the rest."""

    def __init__(self) -> None:
        # Reentrant: the garbage collector may close an abandoned watcher at any moment, also while we hold the lock.
        self._lock = threading.RLock()
        self._waiting: dict[str, set[Waiter]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def runs(self) -> list[str]:
        """The runs that have waiting watchers."""
        with self._lock:
            return list(self._waiting)

    @contextmanager
    def waiting(self, run: str) -> Iterator[Waiter]:
        """A future that the next append to the run resolves. Enter this before reading, so that no append is missed."""
        waiter = asyncio.get_running_loop().create_future()
        with self._lock:
            waiters = self._waiting.get(run) or set()
            waiters.add(waiter)
            self._waiting[run] = waiters  # again, because `wake` may have removed it in between
        try:
            yield waiter
        finally:
            with self._lock:
                if (registered := self._waiting.get(run)) is not None:
                    registered.discard(waiter)
                    if not registered:
                        del self._waiting[run]

    def wake(self, run: str, value: Any = None) -> None:
        """Resolve the futures of this run with `value`."""
        with self._lock:
            waiters = self._waiting.pop(run, set())
        for waiter in waiters:
            resolve_in_loop(waiter, value)

    def wake_all(self) -> None:
        for run in self.runs():
            self.wake(run)


def resolve_in_loop(future: asyncio.Future[Any], value: Any) -> None:
    """Resolve a future of any event loop with a value or an exception, from any thread."""
    loop = future.get_loop()
    try:
        is_here = asyncio.get_running_loop() is loop
    except RuntimeError:
        is_here = False
    if is_here:
        _resolve(future, value)
    else:
        with suppress(RuntimeError):  # the loop is closed, and nobody waits there
            loop.call_soon_threadsafe(_resolve, future, value)


def _resolve(future: asyncio.Future[Any], value: Any) -> None:
    if future.done():
        return
    if isinstance(value, Exception):
        future.set_exception(value)
    else:
        future.set_result(value)
