"""Event loops in threads of their own: for sync code that calls coroutines, worker processes and local servers."""

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any
from weakref import ref

from midspan.errors import ConfigError

_JOIN_SECONDS = 2.0


class LoopThread:
    """An event loop in a thread of its own. It starts when it is first used, and ends with `close` or the program."""

    def __init__(self, name: str, make_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop) -> None:
        self._name = name
        self._make_loop = make_loop
        self._loops_of_parents: list[asyncio.AbstractEventLoop | None] = []
        self._set_up()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=partial(_reset, ref(self)))

    def _set_up(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.is_closed = False

    def reset(self) -> None:
        """Reset the state in a forked child process, which has the loop but not its thread."""
        # The garbage collector must not close the tasks of the parent here, which could write to its connections.
        self._loops_of_parents.append(self._loop)
        atexit.unregister(self.close)
        self._set_up()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in this event loop, which it would block."""
        return threading.current_thread() is self._thread

    def loop(self) -> asyncio.AbstractEventLoop:
        """Return the event loop; start it if it is not running yet."""
        with self._lock:
            if self.is_closed:
                raise ConfigError("the program is exiting; nothing further can start")
            if self._loop is None:
                loop = self._make_loop()
                thread = threading.Thread(target=self._run, args=(loop,), name=self._name, daemon=True)
                try:
                    thread.start()
                except BaseException:  # the system is out of threads or memory; the next call tries again
                    loop.close()
                    raise
                self._loop, self._thread = loop, thread
                atexit.register(self.close)
            return self._loop

    def start_soon(self, make: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a coroutine without waiting for it. It is not created if the loop ends first.

        It takes no lock: the garbage collector may call it in a thread that holds the lock.
        """
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # the loop is closed, and has closed everything that was open
                loop.call_soon_threadsafe(self._start, make)

    def _start(self, make: Callable[[], Coroutine[Any, Any, None]]) -> None:
        task = asyncio.get_running_loop().create_task(make())
        self._tasks.add(task)  # the event loop holds tasks by weak references only
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """Cancel all tasks and wait a moment for them. Called when the program exits, unless it was called before."""
        with self._lock:
            self.is_closed = True
        atexit.unregister(self.close)
        if self._loop is not None and self._thread is not None:
            with suppress(RuntimeError):  # the loop is closed already
                self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_JOIN_SECONDS)

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            while not self.is_closed:
                # asyncio raises these out of the loop, too, after it has set them as the exception of the task. The
                # caller gets them from the task, and the loop continues for the other callers.
                with suppress(KeyboardInterrupt, SystemExit):
                    loop.run_forever()
        finally:
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            _complete(loop, asyncio.gather(*tasks, return_exceptions=True))
            _complete(loop, loop.create_task(loop.shutdown_asyncgens()))
            loop.close()


def _reset(reference: ref[LoopThread]) -> None:
    """Reset a LoopThread if it still exists. Fork callbacks cannot be removed, so they must not keep it alive."""
    if thread := reference():
        thread.reset()


def _complete(loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any]) -> None:
    while not future.done():
        with suppress(KeyboardInterrupt, SystemExit, RuntimeError):  # the last if `close` stops the loop only now
            loop.run_until_complete(future)
