"""Ctrl-C and SIGTERM: the first one cancels what runs, the second one exits at once."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from inspect import CORO_CLOSED, getcoroutinestate
from typing import Any, NoReturn, Self, TypeVar

from midspan._cli.text import print_line

T = TypeVar("T")

_SHOW_CURSOR = "\x1b[?25h"
_SECONDS_FOR_OTHER_TASKS = 1.0


class InterruptibleRunner:
    """An asyncio.Runner that runs one coroutine after another, cancels them at SIGTERM too, and always closes."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()

    @property
    def has_abandoned_tasks(self) -> bool:
        """Whether tools run that ignored their cancellation."""
        return bool(asyncio.all_tasks(self._runner.get_loop()))

    def run(self, coroutine: Coroutine[Any, Any, T], on_exit: Callable[[], None] = lambda: None) -> T:
        """Return the result of the coroutine. Raises KeyboardInterrupt after it was cancelled and has ended.

        If the program exits at once, only `on_exit` is called.
        """
        sigterm_times: list[float] = []
        main = _with_sigterm(coroutine, sigterm_times)
        try:
            return self._runner.run(main)
        except asyncio.CancelledError:
            if not sigterm_times:
                raise
            raise KeyboardInterrupt(signal.SIGTERM) from None
        except KeyboardInterrupt as interrupt:
            if getcoroutinestate(main) != CORO_CLOSED:  # the second one
                with suppress(Exception):  # the user wants to exit
                    on_exit()
                leave_interrupted(interrupt)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        # Runner.close waits for all tasks and threads without a limit: not after Ctrl-C, and not for abandoned tasks.
        if error_type is not None and issubclass(error_type, KeyboardInterrupt):
            return
        loop = self._runner.get_loop()
        if tasks := asyncio.all_tasks(loop):
            for task in tasks:
                task.cancel()
            loop.run_until_complete(asyncio.wait(tasks, timeout=_SECONDS_FOR_OTHER_TASKS))
        if not self.has_abandoned_tasks:
            self._runner.close()


async def _with_sigterm(coroutine: Coroutine[Any, Any, T], times: list[float]) -> T:
    """Await the coroutine; SIGTERM cancels it, and its time is noted."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None, "a coroutine runs in a task"

    def terminate() -> None:
        times.append(loop.time())
        if len(times) == 1:
            task.cancel()
        elif times[-1] - times[0] > 1.0:  # `timeout` sends two at once: to the process, and to the process group
            raise KeyboardInterrupt(signal.SIGTERM)

    with suppress(NotImplementedError):  # Windows
        # With this, SIGINT wakes the event loop too, even if it arrives just before the loop starts to wait.
        loop.add_signal_handler(signal.SIGTERM, terminate)
    try:
        return await coroutine
    finally:
        with suppress(NotImplementedError):
            loop.remove_signal_handler(signal.SIGTERM)


def leave_interrupted(interrupt: KeyboardInterrupt) -> NoReturn:
    """Exit now with 128 + the number of the signal, as in a shell."""
    leave(128 + (interrupt.args[0] if interrupt.args else signal.SIGINT))


def leave(code: int) -> NoReturn:
    """Exit now, without waiting for threads in which tools still run."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, RuntimeError):  # closed, or interrupted in the middle of a write
            if stream is sys.stderr and stream.isatty():
                stream.write(_SHOW_CURSOR)  # the spinner hides it
            stream.flush()
    os._exit(code)


def serve_until_interrupted(server: Coroutine[Any, Any, None]) -> None:
    """Run a server until Ctrl-C or SIGTERM."""
    with InterruptibleRunner() as runner:
        try:
            runner.run(server)
        except KeyboardInterrupt:
            print_line("the server has ended")
