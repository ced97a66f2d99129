"""Ctrl-C and SIGTERM: the first one cancels what runs, a second Ctrl-C exits at once."""

import asyncio
import os
import signal
import sys
from collections.abc import Coroutine
from contextlib import suppress
from inspect import CORO_CLOSED, getcoroutinestate
from typing import Any, NoReturn, Self, TypeVar

from midspan._cli.text import print_line

T = TypeVar("T")

EXIT_CODE = 130
"""Of an interrupted program, as in a shell."""
_SHOW_CURSOR = "\x1b[?25h"
_SECONDS_FOR_OTHER_TASKS = 1.0


class InterruptibleRunner:
    """An asyncio.Runner that runs one coroutine after another and treats SIGTERM like Ctrl-C.

    At its end it closes, unless it was interrupted or tasks ignore their cancellation.
    """

    is_terminated = False
    """Whether a SIGTERM was received."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._task: asyncio.Task[Any] | None = None

    @property
    def has_abandoned_tasks(self) -> bool:
        """Whether tasks that ignored their cancellation are still running."""
        return bool(asyncio.all_tasks(self._runner.get_loop()))

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return the result of the coroutine. Raises KeyboardInterrupt after it was cancelled and has ended."""
        loop = self._runner.get_loop()
        with suppress(NotImplementedError):  # Windows
            # This makes any signal wake the event loop, whichever thread the system gives it to.
            loop.add_signal_handler(signal.SIGTERM, self._terminate)
        main = self._as_task(coroutine)
        try:
            return self._runner.run(main)
        except asyncio.CancelledError:
            if not self.is_terminated:
                raise
            raise KeyboardInterrupt from None
        except KeyboardInterrupt:
            if getcoroutinestate(main) != CORO_CLOSED:  # a second Ctrl-C: the coroutine has not ended
                exit_now(EXIT_CODE)
            raise
        finally:
            with suppress(NotImplementedError):  # as above
                loop.remove_signal_handler(signal.SIGTERM)

    async def _as_task(self, coroutine: Coroutine[Any, Any, T]) -> T:
        self._task = asyncio.current_task()
        return await coroutine

    def _terminate(self) -> None:
        if not self.is_terminated:  # the command `timeout` sends two signals: to the process, and to its group
            self.is_terminated = True
            if self._task is not None:  # not by SIGINT, which a shell ignores for programs in the background
                self._task.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        # Runner.close waits for all tasks and threads without a limit, so it is not called after Ctrl-C or while
        # abandoned tasks run.
        if error_type is not None and issubclass(error_type, KeyboardInterrupt):
            return
        loop = self._runner.get_loop()
        if tasks := asyncio.all_tasks(loop):
            for task in tasks:
                task.cancel()
            loop.run_until_complete(asyncio.wait(tasks, timeout=_SECONDS_FOR_OTHER_TASKS))
        if not self.has_abandoned_tasks:
            self._runner.close()


def exit_now(code: int) -> NoReturn:
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
            print_line("the server has stopped")
