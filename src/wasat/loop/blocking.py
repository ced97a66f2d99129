"""The door from plain code into async code: an event loop in a thread of its own, shared by all who come in here.

It works in any thread, also in one whose own event loop is running, and connections live from call to call.
"""

import asyncio
import atexit
import os
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any, TypeVar, cast

T = TypeVar("T")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def wait_for(coroutine: Coroutine[Any, Any, T]) -> T:
    """What the coroutine returns or raises. Ctrl-C stops the waiting and cancels the coroutine."""
    future = asyncio.run_coroutine_threadsafe(coroutine, _running_loop())
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def iterate(items: AsyncIterator[T]) -> Iterator[T]:
    """The items of an async iterator, one after another; leaving early closes it."""
    try:
        while (item := wait_for(_next(items))) is not _END:
            yield cast("T", item)
    finally:
        close = getattr(items, "aclose", None)
        if close is not None:
            wait_for(close())


_END = object()


async def _next(items: AsyncIterator[T]) -> T | object:
    return await anext(items, _END)


def _running_loop() -> asyncio.AbstractEventLoop:
    global _loop  # noqa: PLW0603 - one for the process, made when it is first needed
    with _lock:
        if _loop is None or _loop.is_closed():
            _loop = asyncio.new_event_loop()
            thread = threading.Thread(target=_run, args=(_loop,), name="wasat-loop", daemon=True)
            thread.start()
            atexit.register(_stop, _loop, thread)
        return _loop


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def _stop(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    """At the end of the program: let the loop close what is open, but do not wait for ever."""
    loop.call_soon_threadsafe(loop.stop)
    thread.join(2.0)


def _forget() -> None:
    """A forked child has the loop, but not the thread that ran it."""
    global _loop, _lock
    _loop, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
