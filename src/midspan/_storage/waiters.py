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
            self._forget(run, waiter)

    def wake(self, run: str, value: Any = None) -> None:
        """Resolve the futures of this run with `value`."""
        with self._lock:
            waiters = self._waiting.pop(run, None)
        if waiters:
            _resolve_all(waiters, value)

    def wake_all(self) -> None:
        for run in self.runs():
            self.wake(run)

    def _forget(self, run: str, waiter: Waiter) -> None:
        with self._lock:
            waiters = self._waiting.get(run)
            if waiters is not None:
                waiters.discard(waiter)
                if not waiters:
                    self._waiting.pop(run, None)


def _resolve_all(waiters: Iterable[Waiter], value: Any) -> None:
    here = _running_loop()
    elsewhere: dict[asyncio.AbstractEventLoop, list[Waiter]] = {}
    for waiter in waiters:
        loop = waiter.get_loop()
        if loop is here:
            _resolve((waiter,), value)
        else:
            elsewhere.setdefault(loop, []).append(waiter)
    for loop, theirs in elsewhere.items():
        with suppress(RuntimeError):  # the loop is closed, and nobody waits there
            loop.call_soon_threadsafe(_resolve, theirs, value)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _resolve(waiters: Iterable[Waiter], value: Any) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(value)
