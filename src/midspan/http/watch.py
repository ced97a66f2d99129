"""Deadlines for many waits at the price of one timer.

A timer for each wait would have to be made and cancelled for each piece of each stream, which costs more than all else
that we do with it. Here a wait only notes when it is due. One timer is set to the earliest of these times; when it
rings, most have moved on, and it is set to what is the earliest then.
"""

import asyncio
from collections.abc import Callable
from typing import Literal

from midspan.http.deadlines import Deadlines

Stage = Literal["connect", "first_byte", "between_bytes", "total"]
_NEVER = float("inf")


class Watch:
    """The waits of one event loop, and their timer."""

    __slots__ = ("_handle", "loop", "rings_at", "waits")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.waits: set[Wait] = set()
        self._handle: asyncio.TimerHandle | None = None
        self.rings_at = _NEVER

    def expect(self, due: float) -> None:
        """Be awake when a wait is due that is due before all others."""
        self.stop()
        self.rings_at = due
        self._handle = self.loop.call_at(due, self._ring)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self.rings_at = _NEVER

    def _ring(self) -> None:
        # Where the loop stood still, what was waited for may be here already: whoever waits has a look at it first.
        self.loop.call_soon(self._expire, self.loop.time())

    def _expire(self, now: float) -> None:
        self.rings_at = _NEVER
        for wait in self.waits:
            if wait.due <= now:
                wait.expire()
        due = min((wait.due for wait in self.waits), default=_NEVER)
        if due < _NEVER:
            self.expect(due)

    def close(self) -> None:
        """End all that is waited for, at once."""
        for wait in tuple(self.waits):
            wait.close()
        self.stop()


class Wait:
    """The waiting of one request: whoever waits too long is woken, and then `expired` says in which stage.

    Until the head of the response is there a task waits, which is cancelled. After that somebody reads, whoever that
    may be, and `wake` tells him; so a piece of a stream costs nothing but a look at the clock.
    """

    __slots__ = (
        "_cancelling",
        "_deadlines",
        "_stage",
        "_task",
        "_total_due",
        "_wake",
        "_watch",
        "closed",
        "due",
        "expired",
    )

    def __init__(self, watch: Watch, deadlines: Deadlines) -> None:
        self._watch = watch
        self._deadlines = deadlines
        self._total_due = _NEVER
        self._wake: Callable[[], None] | None = None
        self.due = _NEVER
        self.expired: Stage | None = None
        self.closed = False
        """The transport was closed meanwhile."""

    def start(self) -> None:
        """The clock of the whole request starts here, in the task that waits for the head of the response."""
        loop = self._watch.loop
        task = asyncio.current_task(loop)
        assert task is not None, "requests are sent by tasks"
        self._task = task
        self._cancelling = task.cancelling()
        if self._deadlines.total is not None:
            self._total_due = loop.time() + self._deadlines.total
        self._watch.waits.add(self)

    def begin(self, stage: Stage) -> None:
        """From now on somebody waits for what ends the stage."""
        watch = self._watch
        seconds: float | None = getattr(self._deadlines, stage)
        due = _NEVER if seconds is None else watch.loop.time() + seconds
        if self._total_due < due:
            stage, due = "total", self._total_due
        self._stage = stage
        self.due = due
        if due < watch.rings_at:
            watch.expect(due)

    def answered(self, wake: Callable[[], None]) -> None:
        """The head of the response is there; `wake` is for whoever reads the rest."""
        self.due = _NEVER
        self._wake = wake

    def pause(self) -> None:
        """What was waited for has come, and something else is done."""
        self.due = _NEVER

    def end(self) -> None:
        self.due = _NEVER
        self._watch.waits.discard(self)

    def expire(self) -> None:
        if not self.closed:
            self.expired = self._stage
            self._end_waiting()

    def close(self) -> None:
        if self.expired is None:
            self.closed = True
            self._end_waiting()

    def _end_waiting(self) -> None:
        """Once is enough: whoever was woken takes one cancellation back, and not two."""
        self.due = _NEVER
        if self._wake is None:
            self._task.cancel()
        else:
            self._wake()

    def gave_up(self, error: BaseException) -> bool:
        """Whether an error is our doing and nobody else's; a task that only we cancelled is uncancelled."""
        if self.expired is None and not self.closed:
            return False
        if self._wake is None:
            return self._task.uncancel() <= self._cancelling
        return not isinstance(error, asyncio.CancelledError)
