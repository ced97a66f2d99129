"""Threads for functions that would block the event loop.

They are daemons, so that a function which hangs does not keep the program from ending, as it would in a pool of
`concurrent.futures`. One that was given up on no longer counts against the limit: others take its place.
"""

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable
from queue import Empty, SimpleQueue
from typing import Any

from wasat.tools.deadline import limited

_IDLE_SECONDS = 10.0


class RaisedInThread(Exception):
    """What a function raised in its thread, whatever it was: nothing of that is meant for the thread that waits."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(type(error)))
        self.error = error


class Threads:
    """At most so many functions at once, each in a thread of its own."""

    def __init__(self, most: int = 64) -> None:
        self._most = most
        self._waiting: SimpleQueue[_Work] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._idle = 0

    async def run(self, function: Callable[..., Any], *args: Any, seconds: float | None = None) -> Any:
        """What the function returns; what it raises comes as RaisedInThread.

        The clock starts with the function, not with the waiting for a thread. Cancelling, or the end of the time, stops
        the waiting; the function itself goes on, unheard.
        """
        work = _Work(function, args)
        self._waiting.put(work)
        if not self._start_thread_if_needed():
            await self._or_give_up(work, work.begun())
        ended, outcome = await self._or_give_up(work, limited(work.result(), seconds))
        if ended:
            return outcome
        raise RaisedInThread(outcome)

    async def _or_give_up(self, work: "_Work", waiting: Awaitable[Any]) -> Any:
        try:
            return await waiting
        except BaseException:
            self._give_up(work)
            raise

    def _start_thread_if_needed(self) -> bool:
        """Whether what waits is taken up at once, by an idle thread or a new one."""
        with self._lock:
            if self._idle >= self._waiting.qsize():
                return True
            if self._threads >= self._most:
                return False
            self._threads += 1
        threading.Thread(target=self._work, name="wasat-tool", daemon=True).start()
        return True

    def _give_up(self, work: "_Work") -> None:
        with self._lock:
            work.given_up = True
            if work.started and not work.ended:
                self._threads -= 1
        self._start_thread_if_needed()

    def _work(self) -> None:
        while (work := self._next()) is not None:
            with self._lock:
                work.started = not work.given_up
            if not work.started:
                continue
            work.tell_begun()
            outcome = work.run()
            with self._lock:
                work.ended = True
                if work.given_up:
                    return
            work.tell(outcome)
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
        self._outcome: asyncio.Future[tuple[bool, Any]] = self._loop.create_future()
        self._begun: asyncio.Future[None] | None = None
        """There only where somebody waits for it."""
        self.started = False
        self.ended = False
        self.given_up = False

    async def begun(self) -> None:
        self._begun = self._loop.create_future()
        if not self.started:
            await self._begun

    async def result(self) -> tuple[bool, Any]:
        return await self._outcome

    def run(self) -> tuple[bool, Any]:
        try:
            return True, self._context.run(self._function, *self._args)
        except BaseException as error:  # noqa: BLE001 - foreign code, even its SystemExit is only told to who waits
            return False, error

    def tell_begun(self) -> None:
        if self._begun is not None:
            self._tell(self._begun, None)

    def tell(self, outcome: tuple[bool, Any]) -> None:
        self._tell(self._outcome, outcome)

    def _tell(self, future: asyncio.Future[Any], value: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(lambda: None if future.done() else future.set_result(value))
        except RuntimeError:
            return  # the loop is closed: nobody waits any more


THREADS = Threads()
"""Those of this process."""
