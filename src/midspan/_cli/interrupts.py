"""Ctrl-C: once cancels what runs and waits until it has ended, but not for ever; twice ends the program."""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from types import FrameType
from typing import Any, NoReturn, Self, TypeVar, cast

from midspan._cli.exits import say

T = TypeVar("T")

_SHOW_CURSOR = "\x1b[?25h"
_SECONDS_FOR_THE_REST = 1.0
_SECONDS_BEFORE_A_WORD = 0.5
_SECONDS_TO_END = 4.5
"""For what was cancelled and does not end; a tool that goes on all the same is then left behind."""
_SECONDS_OF_ONE_PRESS = 0.3
"""Within these a signal is the same one again: `timeout` sends it to the process, and then to its group."""


class Stoppable:
    """An event loop in which one thing after another is run, each of which Ctrl-C can stop."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._left: set[asyncio.Task[Any]] = set()

    @property
    def has_left_something(self) -> bool:
        """Whether something still runs that did not end when it was cancelled."""
        return bool(asyncio.all_tasks(self._runner.get_loop()))

    def run(self, coroutine: Coroutine[Any, Any, T], at_leaving: Callable[[], None] = lambda: None) -> T:
        """What the coroutine returns; KeyboardInterrupt if it was stopped, and has ended or is left behind.

        `at_leaving` is called where the program ends here and now, and nothing else is.
        """
        running: list[asyncio.Task[Any]] = []
        stops: list[int] = []

        async def known() -> T:
            if stops:
                coroutine.close()
                raise asyncio.CancelledError  # it came before there was anything to cancel
            running.append(cast("asyncio.Task[Any]", asyncio.current_task()))
            task = asyncio.create_task(coroutine)
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError:
                left, self._left = self._left, asyncio.all_tasks() - {asyncio.current_task()}
                if not await _ended(task):
                    raise
                self._left = left
            return task.result()

        try:
            with _handling(self._runner.get_loop(), running, stops, at_leaving):
                return self._runner.run(known())
        except asyncio.CancelledError:
            if not stops:
                raise
            self._end_the_rest()
            raise KeyboardInterrupt(stops[0]) from None

    def _end_the_rest(self) -> None:
        """What a tool left running does not go on either, but is not waited for long."""
        loop = self._runner.get_loop()
        tasks = asyncio.all_tasks(loop) - self._left
        for task in tasks:
            task.cancel()
        if tasks:
            _, pending = loop.run_until_complete(asyncio.wait(tasks, timeout=_SECONDS_FOR_THE_REST))
            self._left |= pending  # tools that the run abandoned

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # Closing the runner waits for all tasks and threads without a limit, so not after Ctrl-C, and not if a tool
        # ignores its cancellation.
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            return
        self._end_the_rest()
        if not self.has_left_something:
            self._runner.close()


async def _ended(task: asyncio.Task[Any]) -> bool:
    """Whether what is cancelled ends within the time it has; if not at once, the user is told how to leave."""
    task.cancel()
    await asyncio.wait({task}, timeout=_SECONDS_BEFORE_A_WORD)
    if not task.done():
        say("stopping; Ctrl-C again to leave")
        await asyncio.wait({task}, timeout=_SECONDS_TO_END)
    if task.done():
        return True
    say("it does not end, and is not waited for any longer")
    task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # or asyncio would complain
    return False


@contextmanager
def _handling(
    loop: asyncio.AbstractEventLoop,
    running: list[asyncio.Task[Any]],
    stops: list[int],
    at_leaving: Callable[[], None],
) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # where signals do not come
        return

    since: list[float] = []

    # A handler of Python and not of the loop, because a tool may block the loop, and the second Ctrl-C works even then.
    def stop(number: int, _frame: FrameType | None) -> None:
        if stops and monotonic() - since[0] < _SECONDS_OF_ONE_PRESS:
            return
        if stops:
            with suppress(Exception):  # the user has said twice that it shall end
                at_leaving()
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
        except (OSError, ValueError, RuntimeError):
            continue  # nobody is there to read it, or the signal came in the middle of writing to it
    os._exit(code)
