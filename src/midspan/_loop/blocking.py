"""Run coroutines from sync code, in one event loop that has a thread of its own.

It works in any thread, even in one that already runs an event loop, and connections stay open from call to call.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any, Self, TypeVar

from midspan.errors import ConfigError
from midspan.providers.provider import ClosedOnExit
from midspan.tools.loop_thread import LoopThread

T = TypeVar("T")

_loop_thread = LoopThread("midspan-loop")


def run_blocking(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return what the coroutine returns, or raise what it raises. Ctrl-C cancels the coroutine."""
    try:
        if _loop_thread.is_current:
            raise ConfigError("a blocking call was made inside another blocking call; use the async version there")
        future = asyncio.run_coroutine_threadsafe(coroutine, _loop_thread.loop())
    except BaseException:
        coroutine.close()
        raise
    try:
        return future.result()
    except CancelledError:
        if _loop_thread.is_closed:
            raise SystemExit from None  # the program exits, and a thread that still waits here exits with it
        raise
    except BaseException:
        future.cancel()
        raise


def iterate(items: AsyncIterator[T]) -> Iterator[T]:
    """Iterate over an async iterator with `aclose`. Leaving the iteration early closes it, without waiting for that.

    The garbage collector may close a generator in any thread and at any time, where nothing may block.
    """
    try:
        while True:
            yield run_blocking(_next(items))
    except StopAsyncIteration:
        return
    finally:
        _loop_thread.start_soon(lambda: _close(items))


async def _next(items: AsyncIterator[T]) -> T:
    return await anext(items)


async def _close(items: Any) -> None:
    with suppress(Exception):  # nobody waits for it any more
        await items.aclose()


class ClosableFromSyncCode(ClosedOnExit):
    """Adds `close` and `with` for sync code to an object with `aclose`."""

    def close(self) -> None:
        """Like `aclose`, for sync code."""
        run_blocking(self.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
