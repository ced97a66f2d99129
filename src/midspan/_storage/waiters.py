"""Futures of watchers that wait for the next event of a run, in any thread and event loop."""

import asyncio
import threading
from collections.abc import Iterable, Iterator
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
        resolve_in_loops((waiter, value) for waiter in waiters)

    def wake_all(self) -> None:
        for run in tuple(self._waiting):
            self.wake(run)


def resolve_in_loops(outcomes: Iterable[tuple[Waiter, Any]]) -> None:
    """Resolve futures of any event loops with values or exceptions, from any thread. Each other loop is woken once."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[Waiter, Any]]] = {}
    for future, value in outcomes:
        by_loop.setdefault(future.get_loop(), []).append((future, value))
    with suppress(RuntimeError):  # this thread has no event loop
        _resolve(by_loop.pop(asyncio.get_running_loop(), []))
    for loop, resolved in by_loop.items():
        with suppress(RuntimeError):  # the loop is closed, and nobody waits there
            loop.call_soon_threadsafe(_resolve, resolved)


def _resolve(outcomes: list[tuple[Waiter, Any]]) -> None:
    for future, value in outcomes:
        if future.done():
            continue
        if isinstance(value, Exception):
            future.set_exception(value)
        else:
            future.set_result(value)
