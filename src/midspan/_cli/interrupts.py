"""Ctrl-C and SIGTERM: the first one cancels what runs, the second Ctrl-C exits at once."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NoReturn, Self, TypeVar

from midspan._cli.text import print_line

T = TypeVar("T")

_SHOW_CURSOR = "\x1b[?25h"
_SECONDS_BEFORE_NOTICE = 0.5
_SECONDS_TO_END = 4.5
"""How long a cancelled run may take to end after the notice. Then a tool that ignores its cancellation is abandoned."""
_SECONDS_FOR_OTHER_TASKS = 1.0


class InterruptibleRunner:
    """An asyncio.Runner that runs one coroutine after another and does not wait forever for cancelled tasks."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._abandoned: set[asyncio.Task[Any]] = set()

    @property
    def has_abandoned_tasks(self) -> bool:
        return bool(asyncio.all_tasks(self._runner.get_loop()))

    def run(self, coroutine: Coroutine[Any, Any, T], on_exit: Callable[[], None] = lambda: None) -> T:
        """Return the result of the coroutine. Raises KeyboardInterrupt after it was cancelled and has ended.

        If the program exits at once, only `on_exit` is called.
        """
        signals: list[int] = []
        tasks: list[asyncio.Task[T | SystemExit]] = []
        try:
            outcome = self._runner.run(self._main(coroutine, tasks, signals))
            if isinstance(outcome, SystemExit):
                raise outcome
            return outcome
        except asyncio.CancelledError:
            if not signals:
                raise
        except KeyboardInterrupt:
            if any(not task.done() and task not in self._abandoned for task in tasks):  # the second Ctrl-C
                with suppress(Exception):  # the user wants to exit
                    on_exit()
                leave(128 + signal.SIGINT)
        finally:
            if not tasks or tasks[0].done():
                coroutine.close()  # the signal may have come before it was started
        self._cancel_remaining()
        raise KeyboardInterrupt(*signals)

    async def _main(
        self, coroutine: Coroutine[Any, Any, T], tasks: list[asyncio.Task[T | SystemExit]], signals: list[int]
    ) -> T | SystemExit:
        """Run the coroutine in a task of its own, which can be abandoned if it does not end."""
        task = asyncio.create_task(_with_exit(coroutine))
        tasks.append(task)
        current = asyncio.current_task()
        assert current is not None, "a coroutine runs in a task"
        with _cancel_on_sigterm(current, signals):
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError:
                others = asyncio.all_tasks() - {task, current}
                if not await _cancel(task):
                    self._abandoned |= {task, *others}
                    raise
        return task.result()

    def _cancel_remaining(self) -> None:
        """Cancel the tasks that tools have left running."""
        loop = self._runner.get_loop()
        tasks = asyncio.all_tasks(loop) - self._abandoned
        for task in tasks:
            task.cancel()
        if tasks:
            _, pending = loop.run_until_complete(asyncio.wait(tasks, timeout=_SECONDS_FOR_OTHER_TASKS))
            self._abandoned |= pending

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        # Runner.close waits for all tasks and threads without a limit: not after Ctrl-C, and not for abandoned tasks.
        if error_type is not None and issubclass(error_type, KeyboardInterrupt):
            return
        self._cancel_remaining()
        if not self.has_abandoned_tasks:
            self._runner.close()


async def _with_exit(coroutine: Coroutine[Any, Any, T]) -> T | SystemExit:
    """Return the result or the SystemExit, which stops the event loop at once if it leaves a task."""
    try:
        return await coroutine
    except SystemExit as error:
        return error


async def _cancel(task: asyncio.Task[Any]) -> bool:
    """Cancel a task, and return whether it ended in time."""
    task.cancel()
    await asyncio.wait({task}, timeout=_SECONDS_BEFORE_NOTICE)
    if not task.done():
        print_line("cancelling; press Ctrl-C again to exit")
        await asyncio.wait({task}, timeout=_SECONDS_TO_END)
    if task.done():
        return True
    print_line("a tool ignores its cancellation and was abandoned")
    task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # asyncio logs unread exceptions
    return False


@contextmanager
def _cancel_on_sigterm(task: asyncio.Task[Any], signals: list[int]) -> Iterator[None]:
    loop = task.get_loop()
    restore: Callable[[], object]

    def cancel(*_: object) -> None:
        if not signals:  # `timeout` sends it twice: to the process, and to the process group
            signals.append(signal.SIGTERM)
            loop.call_soon_threadsafe(task.cancel)

    try:
        # With this, SIGINT wakes the event loop too, even if it arrives just before the loop starts to wait.
        loop.add_signal_handler(signal.SIGTERM, cancel)
    except NotImplementedError:  # Windows, where the event loop always wakes up
        restore = partial(signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, cancel))
    else:
        restore = partial(loop.remove_signal_handler, signal.SIGTERM)
    try:
        yield
    finally:
        restore()


def leave(code: int) -> NoReturn:
    """Exit now, without waiting for threads in which tools still run."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, RuntimeError):  # closed, or interrupted in the middle of a write
            if stream is sys.stderr and stream.isatty():
                stream.write(_SHOW_CURSOR)  # the spinner hides it
            stream.flush()
    os._exit(code)
