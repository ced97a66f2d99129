"""One pool of connections for each event loop, which ends with the loop.

aiohttp's sessions belong to one loop, and complain when nobody closes them. Whoever holds a transport need not know
either: a pool is made when a loop first needs one, and closed when that loop ends, however it ends:

- `asyncio.run` and its like close every asynchronous generator of their loop, so the pool is held by one;
- a transport that is thrown away, or the end of the program, closes what it still holds;
- what a loop left behind that was closed without a word is found when the next pool is made.
"""

import asyncio
import sys
import weakref
from collections.abc import AsyncGenerator
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from midspan.http.pool import Pool


class _Kept(NamedTuple):
    pool: "Pool"
    guard: AsyncGenerator[None, None]


_Pools = dict[asyncio.AbstractEventLoop, _Kept]


class PoolPerLoop:
    """Gives the pool of the loop that runs; safe to be shared by threads, each with its own."""

    def __init__(self, connections: int | None = None) -> None:
        self._connections = connections
        self._pools: _Pools = {}
        weakref.finalize(self, _drop_all, self._pools)

    def current(self) -> "Pool | None":
        """The pool of the loop that runs, if it has begun."""
        kept = self._pools.get(asyncio.get_running_loop())
        return None if kept is None else kept.pool

    async def begin(self) -> "Pool":
        """The pool of the loop that runs."""
        if "midspan.http.pool" not in sys.modules:
            # It loads aiohttp, and for as long as that takes a loop with other things to do should not stand still.
            await asyncio.to_thread(import_module, "midspan.http.pool")
        return self.current() or self._begin(asyncio.get_running_loop())

    async def close(self) -> None:
        """Close the pool of the loop that runs, and forget those of loops that are closed."""
        self._forget_closed_loops()
        kept = self._pools.pop(asyncio.get_running_loop(), None)
        if kept is not None:
            await kept.guard.aclose()

    def _begin(self, loop: asyncio.AbstractEventLoop) -> "Pool":
        from midspan.http.pool import Pool

        self._forget_closed_loops()
        pool = Pool(self._connections)
        guard = _close_with_loop(pool, loop, self._pools)
        with suppress(StopIteration):
            guard.asend(None).send(None)  # up to its yield; from now on the loop knows it
        self._pools[loop] = _Kept(pool, guard)
        return pool

    def _forget_closed_loops(self) -> None:
        for loop in tuple(self._pools):
            if loop.is_closed() and (kept := self._pools.pop(loop, None)) is not None:
                _drop(kept)


async def _close_with_loop(pool: "Pool", loop: asyncio.AbstractEventLoop, pools: _Pools) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        pools.pop(loop, None)
        await pool.close()


def _drop_all(pools: _Pools) -> None:
    while pools:
        loop, kept = pools.popitem()
        if loop.is_running() and not _runs_here(loop):
            with suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(_drop, kept)
        else:
            _drop(kept)


def _runs_here(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def _drop(kept: _Kept) -> None:
    kept.pool.drop()
    # Nothing is left to wait for, so the generator ends at once; one that is only let go would want a task of the loop.
    with suppress(StopIteration):
        kept.guard.aclose().__await__().send(None)
