"""One connection pool per event loop, closed when the loop ends.

A Transport may be used from many event loops, and nobody has to close it:

- `asyncio.run` closes the asynchronous generators of its loop, so each pool is held by a generator that closes it;
- when a Transport is garbage-collected or the program exits, it closes the pools it still has;
- pools of loops that were closed without either are found when the next pool is created.
"""

import asyncio
import os
import sys
import weakref
from collections.abc import AsyncGenerator
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from midspan.http.pool import Pool


class _Entry(NamedTuple):
    pool: "Pool"
    guard: AsyncGenerator[None, None]
    process: int


_Entries = dict[asyncio.AbstractEventLoop, _Entry]


class PoolPerLoop:
    """Gives out the pool of the running event loop. Thread-safe."""

    def __init__(self, max_connections: int | None = None) -> None:
        self._max_connections = max_connections
        self._entries: _Entries = {}
        weakref.finalize(self, _drop_all, self._entries)

    def current(self) -> "Pool | None":
        """Return the pool of the running loop if there is one."""
        entry = self._entries.get(asyncio.get_running_loop())
        return None if entry is None else entry.pool

    async def create(self) -> "Pool":
        """Return the pool of the running loop, which is created if necessary."""
        if "midspan.http.pool" not in sys.modules:
            await asyncio.to_thread(import_module, "midspan.http.pool")  # slow; do not block the loop meanwhile
        return self.current() or self._create(asyncio.get_running_loop())

    async def close(self) -> None:
        """Close the pool of the running loop, and those of loops that are closed."""
        self._drop_closed_loops()
        entry = self._entries.pop(asyncio.get_running_loop(), None)
        if entry is not None:
            await entry.guard.aclose()

    def _create(self, loop: asyncio.AbstractEventLoop) -> "Pool":
        from midspan.http.pool import Pool

        self._drop_closed_loops()
        pool = Pool(self._max_connections)
        guard = _close_with_loop(pool, loop, self._entries)
        with suppress(StopIteration):
            guard.asend(None).send(None)  # run it up to its yield, so that the loop knows about it
        self._entries[loop] = _Entry(pool, guard, os.getpid())
        return pool

    def _drop_closed_loops(self) -> None:
        for loop in tuple(self._entries):
            if loop.is_closed() and (entry := self._entries.pop(loop, None)) is not None:
                _drop(entry)


async def _close_with_loop(
    pool: "Pool", loop: asyncio.AbstractEventLoop, entries: _Entries
) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        entries.pop(loop, None)
        await pool.close()


def _drop_all(entries: _Entries) -> None:
    while entries:
        loop, entry = entries.popitem()
        if entry.process != os.getpid():
            continue  # a forked child must not touch the sockets and the selector of its parent
        if loop.is_running() and not _is_running_here(loop):
            with suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(_drop, entry)
        else:
            _drop(entry)


def _is_running_here(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def _drop(entry: _Entry) -> None:
    entry.pool.drop()
    # Nothing is left to wait for, so the generator ends at once. Without this, its finalizer would need the loop.
    with suppress(StopIteration):
        entry.guard.aclose().__await__().send(None)
