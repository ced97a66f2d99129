"""Timeouts by stage, and request deadlines that share one event-loop timer.

Creating and cancelling a TimerHandle per chunk costs more than reading the chunk. A RequestDeadline only records when
it is due. DeadlineTimer keeps a single handle for the earliest deadline and reschedules when the handle fires.
"""

import asyncio
from collections.abc import Callable
from typing import Literal

from msgspec import Struct
from msgspec.structs import asdict

from midspan._http.messages import origin_of
from midspan.errors import ConfigError, NetworkError, TimedOut

Stage = Literal["connect", "first_byte", "between_bytes", "total"]
_NEVER = float("inf")
_EXPIRED: dict[Stage, str] = {
    "connect": "no connection to",
    "first_byte": "no response from",
    "between_bytes": "no further data from",
    "total": "the request was not finished by",
}


class Timeouts(Struct, frozen=True):
    """Seconds allowed for each stage of a request. `None` means no limit.

    The defaults suit language models, which may be silent for minutes while they think. TCP keep-alive probes detect a
    peer that has disappeared sooner than that.
    """

    connect: float | None = 10.0
    """Name resolution, TCP connection, proxy tunnel and TLS handshake."""
    first_byte: float | None = 600.0
    """From having a connection until the response head has arrived. Sending the request body is included."""
    between_bytes: float | None = 180.0
    """The longest pause within the response body."""
    total: float | None = None
    """From asking for a connection to the end of the response body."""

    def __post_init__(self) -> None:
        for name, seconds in asdict(self).items():
            if seconds is not None and not (type(seconds) in (int, float) and seconds > 0):
                raise ConfigError(f"timeout {name!r} must be a positive number of seconds or None, got {seconds!r}")


class DeadlineTimer:
    """Fires the deadlines of all requests on one event loop."""

    __slots__ = ("_handle", "deadlines", "loop", "next_due")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.deadlines: set[RequestDeadline] = set()
        self.next_due = _NEVER
        self._handle: asyncio.TimerHandle | None = None

    def schedule(self, due: float) -> None:
        """Make sure the timer fires no later than `due`."""
        self.stop()
        self.next_due = due
        self._handle = self.loop.call_at(due, self._fire)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self.next_due = _NEVER

    def close(self) -> None:
        """Fail all pending requests because their transport is being closed."""
        for deadline in tuple(self.deadlines):
            deadline.close()
        self.stop()

    def _fire(self) -> None:
        # If the loop was blocked, the awaited bytes may have arrived meanwhile. Let their callbacks run first.
        self.loop.call_soon(self._expire, self.loop.time())

    def _expire(self, now: float) -> None:
        self.next_due = _NEVER
        for deadline in tuple(self.deadlines):
            if deadline.due <= now:
                deadline.expire()
        due = min((deadline.due for deadline in self.deadlines), default=_NEVER)
        if due < _NEVER:
            self.schedule(due)


class RequestDeadline:
    """The deadline of one request, which moves from stage to stage.

    When it expires, it sets `error` and calls `on_expired`, which must end the pending wait.
    """

    __slots__ = ("_stage", "_timeouts", "_timer", "_total_due", "_url", "due", "error", "on_expired")

    def __init__(self, timer: DeadlineTimer, timeouts: Timeouts, url: str) -> None:
        self._timer = timer
        self._timeouts = timeouts
        self._url = url
        self._total_due = _NEVER
        self._stage: Stage = "connect"
        self.due = _NEVER
        self.error: NetworkError | None = None
        self.on_expired: Callable[[NetworkError], object] = _ignore

    def start(self) -> None:
        """Start the total timeout of the request."""
        if self._timeouts.total is not None:
            self._total_due = self._timer.loop.time() + self._timeouts.total
        self._timer.deadlines.add(self)

    def enter(self, stage: Stage) -> None:
        """Start the timeout of a stage."""
        timer = self._timer
        seconds: float | None = getattr(self._timeouts, stage)
        due = _NEVER if seconds is None else timer.loop.time() + seconds
        if self._total_due < due:
            stage, due = "total", self._total_due
        self._stage = stage
        self.due = due
        if due < timer.next_due:
            timer.schedule(due)

    def check_total(self) -> None:
        """Raise TimedOut if the total timeout is over. Needed while data arrives without a wait."""
        if self._total_due <= self._timer.loop.time():
            self._stage = "total"
            self.expire()
            assert self.error is not None, "an expired deadline has an error"
            raise self.error

    def pause(self) -> None:
        """Stop the clock until the next stage; the caller is not waiting for the network."""
        self.due = _NEVER

    def stop(self) -> None:
        """End the request: the deadline cannot expire any more."""
        self.due = _NEVER
        self._timer.deadlines.discard(self)

    def expire(self) -> None:
        seconds = getattr(self._timeouts, self._stage)
        origin = origin_of(self._url)
        self._fail(TimedOut(f"{_EXPIRED[self._stage]} {origin} within {seconds:g} s (timeout {self._stage!r})"))

    def close(self) -> None:
        error = NetworkError(f"the client was closed while waiting for {origin_of(self._url)}")
        error.retryable = False
        self._fail(error)

    def _fail(self, error: NetworkError) -> None:
        self.due = _NEVER
        if self.error is None:
            self.error = error
            self.on_expired(error)


def _ignore(_: NetworkError) -> None:
    """Nothing is pending yet."""
