"""Run coroutines from plain code, in one event loop that has a thread of its own.

It works in any thread, also in one whose own event loop is running, and connections stay open from call to call.
"""

import asyncio
import atexit
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any, TypeVar, cast

from midspan.errors import ConfigError

T = TypeVar("T")

_JOIN_SECONDS = 2.0


class _LoopThread:
    """The event loop of this process for plain code. It starts with the first call and ends with the program."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self.is_closed = False
        self._is_ending = False

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in this event loop, which it would block."""
        return threading.current_thread() is self._thread

    def loop(self) -> asyncio.AbstractEventLoop:
        """Return the event loop; start it if it is not running yet."""
        with self._lock:
            if self.is_closed:
                raise ConfigError("the program is exiting; no further run can start")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._run, args=(self._loop,), name="midspan-loop", daemon=True)
                self._thread.start()
                atexit.register(self.close)
            return self._loop

    def start_soon(self, make: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a coroutine without waiting for it. It is not even created if the loop ends before.

        It takes no lock: the garbage collector may call it in a thread that holds the lock.
        """
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # the loop is closed, and has closed everything that was open
                loop.call_soon_threadsafe(lambda: asyncio.run_coroutine_threadsafe(make(), loop))

    def close(self) -> None:
        """Cancel all tasks and wait a moment for them. Called when the program exits."""
        with self._lock:
            self.is_closed = True
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._end)
            self._thread.join(_JOIN_SECONDS)

    def _end(self) -> None:
        self._is_ending = True
        asyncio.get_running_loop().stop()

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            while not self._is_ending:
                # asyncio raises these through the loop after the task has them as its outcome. The caller of that task
                # gets them from there, and the loop continues for the other callers.
                with suppress(KeyboardInterrupt, SystemExit):
                    loop.run_forever()
        finally:
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            _complete(loop, asyncio.gather(*tasks, return_exceptions=True))
            _complete(loop, loop.create_task(loop.shutdown_asyncgens()))
            loop.close()


def _complete(loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any]) -> None:
    while not future.done():
        with suppress(KeyboardInterrupt, SystemExit):
            loop.run_until_complete(future)


_loop_thread = _LoopThread()


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
    """Iterate over an async iterator. Leaving the iteration early closes it, without waiting for that.

    The garbage collector may close a generator in any thread and at any time, where nothing may block.
    """
    try:
        while (item := run_blocking(_next(items))) is not _END:
            yield cast("T", item)
    finally:
        _loop_thread.start_soon(lambda: _close(items))


_END = object()


async def _next(items: AsyncIterator[T]) -> T | object:
    return await anext(items, _END)


async def _close(items: AsyncIterator[Any]) -> None:
    close = getattr(items, "aclose", None)
    if close is not None:
        with suppress(Exception):  # nobody waits for it any more
            await close()


def _reset() -> None:
    """Start anew in a forked child process, which has the loop but not its thread."""
    global _loop_thread  # noqa: PLW0603 - one for the process
    _loop_thread = _LoopThread()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset)
