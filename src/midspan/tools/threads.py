"""Threads for functions that would block the event loop.

They are daemons, so that a function which hangs does not keep the program from ending, as it would in a pool of
`concurrent.futures`. One that was given up on no longer counts against the limit: others take its place.
"""

import asyncio
import contextvars
import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from time import monotonic
from typing import Any

from midspan.errors import ToolError
from midspan.tools.deadline import Raised, limited

_IDLE_SECONDS = 10.0
_MOST_IN_NEED = 1_000


class Threads:
    """At most so many functions at once, each in a thread of its own; those that they call in turn are counted apart.

    A function may wait for another one that is run here, as a tool does that asks an agent which has tools. Counted
    together, those that wait could hold every thread, and those waited for would get none. So each depth has threads of
    its own: who waits, waits for a deeper one, and the deepest waits for nobody.
    """

    def __init__(self, most: int = 64, *, deepest: int = 100, patience: float = 5.0) -> None:
        """`patience`: so long may nothing end before those who wait for a thread get more than `most`."""
        self._most = most
        self._deepest = deepest
        self._patience = patience
        self._levels: dict[int, _Level] = {}

    async def run(self, function: Callable[..., Any], *args: Any, seconds: float | None = None) -> Any:
        """What the function returns; what it raises comes as Raised.

        The clock starts with the function, not with the waiting for a thread. Cancelling, or the end of the time, stops
        the waiting; the function itself goes on, unheard.
        """
        place = _Place(_here.get())
        if place.depth >= self._deepest:
            raise ToolError(
                f"not run: tools that call tools are {place.depth} deep already, each waiting for the next one; "
                "answer without another call"
            )
        ended, outcome = await self._level(place.depth).run(_Work(function, args, place), seconds)
        if ended:
            return outcome
        raise Raised(outcome)

    def _level(self, depth: int) -> "_Level":
        return self._levels.get(depth) or self._levels.setdefault(depth, _Level(self._most, self._patience))

    def forget(self) -> None:
        """A forked child has the numbers, but none of the threads."""
        self._levels = {}


class _Place:
    """Where a function runs: within how many others, each of which waits for the next."""

    __slots__ = ("depth", "left", "outer")
    outer: "_Place | None"
    depth: int
    left: bool

    def __init__(self, outer: "_Place | None") -> None:
        while outer is not None and outer.left:  # what goes on after its function ended is waited for by nobody there
            outer = outer.outer
        self.outer = outer
        self.depth = 0 if outer is None else outer.depth + 1
        self.left = False


_here: contextvars.ContextVar[_Place | None] = contextvars.ContextVar("midspan_thread", default=None)


class _Level:
    """The threads of one depth."""

    def __init__(self, most: int, patience: float) -> None:
        self._most = most
        self._patience = patience
        self._waiting: OrderedDict[_Work, None] = OrderedDict()
        self._changed = threading.Condition()
        self._threads = 0
        self._idle = 0
        self._last_end = monotonic()

    async def run(self, work: "_Work", seconds: float | None) -> tuple[bool, Any]:
        try:
            if not self._put(work):
                await self._begin_of(work)
            return await limited(work.result(), seconds)
        except BaseException:
            self._give_up(work)
            raise

    def _put(self, work: "_Work") -> bool:
        with self._changed:
            self._waiting[work] = None
            return self._is_taken_up()

    async def _begin_of(self, work: "_Work") -> None:
        """Wait for a thread; where all seem to be stuck, perhaps because they wait for this very call, for a new one.

        We see who waits for whom by the context of a call, and a function that starts threads of its own may lose it.
        """
        while not await work.has_begun(self._patience):
            with self._changed:
                stuck = monotonic() - self._last_end >= self._patience
                if stuck and not work.started and self._threads < _MOST_IN_NEED:
                    self._start_thread()

    def _is_taken_up(self) -> bool:
        """Whether what waits is taken up at once, by an idle thread or a new one; the lock is held."""
        if self._idle >= len(self._waiting):
            self._changed.notify()
            return True
        return self._threads < self._most and self._start_thread()

    def _start_thread(self) -> bool:
        try:
            threading.Thread(target=self._work, name="midspan-tool", daemon=True).start()
        except RuntimeError as error:  # the machine has no more, or the program is ending
            if self._threads == 0:
                raise ToolError(f"no thread could be started to run this in: {error}") from error
            return False
        self._threads += 1
        return True

    def _give_up(self, work: "_Work") -> None:
        with self._changed:
            work.given_up = True
            self._waiting.pop(work, None)
            if work.started and not work.ended:
                self._threads -= 1
                if self._waiting:
                    self._is_taken_up()

    def _work(self) -> None:
        with self._changed:
            self._idle += 1
        while (work := self._next()) is not None:
            work.tell_begun()
            outcome = work.run()
            with self._changed:
                work.end()
                self._last_end = monotonic()
                if work.given_up:
                    return
                self._idle += 1  # before it is told: who hears of it may bring the next work, and this thread takes it
            work.tell(outcome)
            del work, outcome  # an idle thread keeps nothing alive

    def _next(self) -> "_Work | None":
        """Wait, as one of the idle, for something to do."""
        with self._changed:
            found = self._changed.wait_for(lambda: self._waiting, _IDLE_SECONDS)
            self._idle -= 1
            if not found:
                self._threads -= 1
                return None
            work, _ = self._waiting.popitem(last=False)
            work.started = True
            return work


class _Work:
    """One function to be run, and where to tell what came of it."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], place: _Place) -> None:
        self._function = function
        self._args = args
        self._place = place
        self._context = contextvars.copy_context()
        self._context.run(_here.set, place)
        self._loop = asyncio.get_running_loop()
        self._outcome: asyncio.Future[tuple[bool, Any]] = self._loop.create_future()
        self._begun: asyncio.Future[None] | None = None
        """There only where somebody waits for it."""
        self.started = False
        self.ended = False
        self.given_up = False

    async def has_begun(self, seconds: float) -> bool:
        """Wait so long for the begin, and tell whether it was there."""
        self._begun = begun = self._loop.create_future()
        timer = self._loop.call_later(seconds, _set, begun, None)
        try:
            if not self.started:
                await begun
        finally:
            timer.cancel()
        return self.started

    async def result(self) -> tuple[bool, Any]:
        return await self._outcome

    def run(self) -> tuple[bool, Any]:
        try:
            return True, self._context.run(self._function, *self._args)
        except BaseException as error:  # noqa: BLE001 - foreign code, even its SystemExit is only told to who waits
            return False, error

    def end(self) -> None:
        self.ended = self._place.left = True

    def tell_begun(self) -> None:
        if self._begun is not None:
            self._tell(self._begun, None)

    def tell(self, outcome: tuple[bool, Any]) -> None:
        self._tell(self._outcome, outcome)

    def _tell(self, future: asyncio.Future[Any], value: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(_set, future, value)
        except RuntimeError:
            return  # the loop is closed: nobody waits any more


def _set(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        future.set_result(value)


THREADS = Threads()
"""Those of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=THREADS.forget)
