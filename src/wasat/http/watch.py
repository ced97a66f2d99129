"""Deadlines for many waits at the price of one timer.

A timer for each wait would have to be made and cancelled for each piece of each stream, which costs more than all else
that we do with it. Here a wait only notes when it is due. One timer is set to the earliest of these times; when it
rings, most have moved on, and it is set to what is the earliest then.
"""

import asyncio
from typing import Literal

from wasat.http.deadlines import Deadlines

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
        self.rings_at = _NEVER
        now = self.loop.time()
        for wait in self.waits:
            if wait.due <= now:
                wait.expire()
        due = min((wait.due for wait in self.waits), default=_NEVER)
        if due < _NEVER:
            self.expect(due)


class Wait:
    """The waiting of one request: a task that waits too long is cancelled, and then `expired` says in which stage."""

    __slots__ = ("_cancelling", "_deadlines", "_stage", "_task", "_total_due", "_watch", "due", "expired")

    def __init__(self, watch: Watch, deadlines: Deadlines) -> None:
        self._watch = watch
        self._deadlines = deadlines
        self._total_due = _NEVER
        self.due = _NEVER
        self.expired: Stage | None = None

    def start(self) -> None:
        """The clock of the whole request starts here."""
        if self._deadlines.total is not None:
            self._total_due = self._watch.loop.time() + self._deadlines.total
        self._watch.waits.add(self)

    def begin(self, stage: Stage) -> None:
        """From now on this task waits for what ends the stage."""
        loop = self._watch.loop
        task = asyncio.current_task(loop)
        assert task is not None, "requests are sent and read by tasks"
        self._task = task
        self._cancelling = task.cancelling()
        self._stage = stage
        seconds: float | None = getattr(self._deadlines, stage)
        due = _NEVER if seconds is None else loop.time() + seconds
        if self._total_due < due:
            self._stage = "total"
            due = self._total_due
        self.due = due
        if due < self._watch.rings_at:
            self._watch.expect(due)

    def pause(self) -> None:
        """The task has got what it waited for, and does something else."""
        self.due = _NEVER

    def end(self) -> None:
        self.due = _NEVER
        self._watch.waits.discard(self)

    def expire(self) -> None:
        self.due = _NEVER
        self.expired = self._stage
        self._task.cancel()

    def gave_up(self) -> bool:
        """For one that expired: whether nobody but us cancelled the task, in which case it is uncancelled."""
        return self._task.uncancel() <= self._cancelling
