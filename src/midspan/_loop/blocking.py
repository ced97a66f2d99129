"""The door from plain code into async code: an event loop in a thread of its own, shared by all who come in here.

It works in any thread, also in one whose own event loop is running, and connections live from call to call.
"""

import asyncio
import atexit
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import CancelledError
from typing import Any, TypeVar, cast

from midspan.errors import ConfigError

T = TypeVar("T")


_ENDS_A_LOOP = (KeyboardInterrupt, SystemExit)
"""What asyncio raises through the loop, after the task that raised it has it as its end.

The caller whose task it was hears of it; the others, and all who come later, have done nothing to lose the loop.
"""


class _Door:
    """The loop of this process, started when somebody first comes in."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False
        self._ended = False

    def loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._closed:
                raise ConfigError("the program is ending; nothing can be asked any more")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._run, args=(self._loop,), name="midspan-loop", daemon=True)
                self._thread.start()
                atexit.register(self.close)
            return self._loop

    @property
    def is_closed(self) -> bool:
        return self._closed

    def is_inside(self) -> bool:
        return threading.current_thread() is self._thread

    def schedule(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Have something done without waiting; when the program ends, not at all: the loop closes what is open."""
        with self._lock:
            loop = None if self._closed else self._loop
        if loop is None:
            coroutine.close()
        else:
            asyncio.run_coroutine_threadsafe(_silently(coroutine), loop)

    def close(self) -> None:
        """At the end of the program: let the loop close what is open, but do not wait for ever."""
        with self._lock:
            self._closed = True
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._end)
            self._thread.join(2.0)

    def _end(self) -> None:
        assert self._loop is not None, "the end is called in the loop"
        self._ended = True
        self._loop.stop()

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            while not self._ended:
                with contextlib.suppress(*_ENDS_A_LOOP):
                    loop.run_forever()
        finally:
            # First what runs, then what waits to be closed: an iterator that runs cannot be closed.
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            _await(loop, asyncio.gather(*tasks, return_exceptions=True))
            _await(loop, loop.create_task(loop.shutdown_asyncgens()))
            loop.close()


_door = _Door()


def wait_for(coroutine: Coroutine[Any, Any, T]) -> T:
    """What the coroutine returns or raises. Ctrl-C stops the waiting and cancels the coroutine."""
    if _door.is_inside():
        coroutine.close()
        raise ConfigError("a blocking call was made from inside another one; use the async form there")
    try:
        future = asyncio.run_coroutine_threadsafe(coroutine, _door.loop())
    except BaseException:
        coroutine.close()
        raise
    try:
        return future.result()
    except CancelledError:
        if _door.is_closed:
            raise SystemExit from None  # the program ends, and a thread that still waits here ends with it, silently
        raise
    except BaseException:
        future.cancel()
        raise


def iterate(items: AsyncIterator[T]) -> Iterator[T]:
    """The items of an async iterator, one after another; leaving early closes it, without waiting for that.

    The end of a generator may come from the garbage collector, in any thread and at any time, where nobody may wait.
    """
    try:
        while (item := wait_for(_next(items))) is not _END:
            yield cast("T", item)
    finally:
        close = getattr(items, "aclose", None)
        if close is not None:
            _door.schedule(close())


_END = object()


async def _next(items: AsyncIterator[T]) -> T | object:
    return await anext(items, _END)


async def _silently(coroutine: Coroutine[Any, Any, Any]) -> None:
    with contextlib.suppress(Exception):  # it is being closed, and nobody is there to hear of it
        await coroutine


def _await(loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any]) -> None:
    while not future.done():
        with contextlib.suppress(*_ENDS_A_LOOP):
            loop.run_until_complete(future)


def _forget() -> None:
    """A forked child has the loop, but not the thread that ran it."""
    global _door  # noqa: PLW0603 - one for the process
    _door = _Door()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
