"""Ctrl-C: once cancels what runs and waits until it has ended, twice ends the program."""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from time import monotonic
from types import FrameType
from typing import Any, NoReturn, Self, TypeVar, cast

T = TypeVar("T")

_SHOW_CURSOR = "\x1b[?25h"
_SECONDS_FOR_THE_REST = 1.0
_SECONDS_OF_ONE_PRESS = 0.3
"""Within these a signal is the same one again: `timeout` sends it to the process, and then to its group."""


class Stoppable:
    """An event loop in which one thing after another is run, each of which Ctrl-C can stop."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """What the coroutine returns; KeyboardInterrupt if it was stopped, and has ended."""
        running: list[asyncio.Task[Any]] = []
        stops: list[int] = []

        async def known() -> T:
            running.append(cast("asyncio.Task[Any]", asyncio.current_task()))
            if stops:
                coroutine.close()
                raise asyncio.CancelledError  # it came before there was anything to cancel
            return await coroutine

        try:
            with _handling(self._runner.get_loop(), running, stops):
                return self._runner.run(known())
        except asyncio.CancelledError:
            if not stops:
                raise
            self._end_the_rest()
            raise KeyboardInterrupt(stops[0]) from None

    def _end_the_rest(self) -> None:
        """What a tool left running does not go on either, but is not waited for long."""
        loop = self._runner.get_loop()
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.wait(tasks, timeout=_SECONDS_FOR_THE_REST))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or not issubclass(kind, KeyboardInterrupt):
            self._runner.close()  # which waits for threads of tools, and so not after Ctrl-C


@contextmanager
def _handling(loop: asyncio.AbstractEventLoop, running: list[asyncio.Task[Any]], stops: list[int]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # where signals do not come
        return

    since: list[float] = []

    # A handler of Python and not of the loop, because a tool may block the loop, and the second Ctrl-C works even then.
    def stop(number: int, _frame: FrameType | None) -> None:
        if stops and monotonic() - since[0] < _SECONDS_OF_ONE_PRESS:
            return
        if stops:
            leave(128 + number)
        stops.append(number)
        since.append(monotonic())
        loop.call_soon_threadsafe(lambda: [task.cancel() for task in running])

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        # A signal that comes just before the loop begins to wait would else be seen only after the waiting.
        loop.add_signal_handler(number, _woken)
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


def _woken() -> None:
    """The loop goes on, and so Python comes to run the handler."""


def leave(code: int) -> NoReturn:
    """End now, without waiting for threads in which tools still run."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is sys.stderr and stream.isatty():
                stream.write(_SHOW_CURSOR)  # a spinner hid it
            stream.flush()
        except (OSError, ValueError):
            continue  # nobody is there to read it
    os._exit(code)
