"""Threads for functions that would block the event loop.

They are daemons, so that a function which hangs does not keep the program from ending, as it would in a pool of
`concurrent.futures`. One that was given up on no longer counts against the limit: others take its place.
"""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

_IDLE_SECONDS = 10.0


class Threads:
    """At most so many functions at once, each in a thread of its own."""

    def __init__(self, most: int = 64) -> None:
        self._most = most
        self._waiting: SimpleQueue[_Work] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._idle = 0

    async def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """What the function returns or raises. Cancelling stops the waiting; the function itself goes on, unheard."""
        work = _Work(function, args)
        self._waiting.put(work)
        self._start_thread_if_needed()
        try:
            ended, outcome = await work.future
        except asyncio.CancelledError:
            self._give_up(work)
            raise
        if ended:
            return outcome
        raise outcome

    def _start_thread_if_needed(self) -> None:
        with self._lock:
            if self._idle >= self._waiting.qsize() or self._threads >= self._most:
                return
            self._threads += 1
        threading.Thread(target=self._work, name="wasat-tool", daemon=True).start()

    def _give_up(self, work: "_Work") -> None:
        with self._lock:
            work.given_up = True
            if work.started:
                self._threads -= 1
        self._start_thread_if_needed()

    def _work(self) -> None:
        while (work := self._next()) is not None:
            with self._lock:
                work.started = not work.given_up
            if not work.started:
                continue
            work.run()
            with self._lock:
                if work.given_up:
                    return
        with self._lock:
            self._threads -= 1

    def _next(self) -> "_Work | None":
        with self._lock:
            self._idle += 1
        try:
            return self._waiting.get(timeout=_IDLE_SECONDS)
        except Empty:
            return None
        finally:
            with self._lock:
                self._idle -= 1


class _Work:
    """One function to be run, and where to tell what came of it."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self._function = function
        self._args = args
        self._context = contextvars.copy_context()
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[tuple[bool, Any]] = self._loop.create_future()
        self.started = False
        self.given_up = False

    def run(self) -> None:
        try:
            outcome: tuple[bool, Any] = (True, self._context.run(self._function, *self._args))
        except BaseException as error:  # noqa: BLE001 - foreign code, even its SystemExit is only told to who waits
            outcome = (False, error)
        try:
            self._loop.call_soon_threadsafe(self._tell, outcome)
        except RuntimeError:
            return  # the loop is closed: nobody waits any more

    def _tell(self, outcome: tuple[bool, Any]) -> None:
        if not self.future.done():
            self.future.set_result(outcome)


THREADS = Threads()
"""Those of this process."""
