"""When to try again, and how long to wait before.

    tries = Tries(policy, clock)
    while True:
        try:
            return await ask()
        except ProviderError as error:
            await tries.after(error)
        except CancelledError as cancelled:
            tries.explain(cancelled)
            raise

A stream may be tried again only until its first byte has reached whoever reads it, because nobody can take back what
was read. So wait for its first piece within the `try`, and read the rest outside.
"""

import asyncio

from msgspec import Struct
from msgspec.structs import asdict

from midspan.errors import ConfigError, ProviderError
from midspan.http.clock import Clock, SystemClock

_MOST_DOUBLINGS = 60
"""A wait is far beyond any cap by then, and a float still holds it."""


class RetryPolicy(Struct, frozen=True):
    """How often and how long to try: `RetryPolicy(tries=1)` never does so again."""

    tries: int = 5
    base_seconds: float = 1.0
    """The longest first wait; each further one may be twice as long."""
    cap_seconds: float = 60.0
    total_seconds: float = 600.0
    """Nothing is tried again later than this after the first try began."""

    def __post_init__(self) -> None:
        if type(self.tries) is not int or self.tries < 1:
            raise ConfigError(f"tries is {self.tries!r}; it is 1 for a single try, or more")
        for name, value in asdict(self).items():
            if name != "tries" and not (type(value) in (int, float) and value >= 0):  # which NaN is not either
                raise ConfigError(f"{name} is {value!r}; it is a number of seconds, 0 or more")


_DEFAULT_POLICY = RetryPolicy()
_SYSTEM_CLOCK = SystemClock()


class Tries:
    """The tries of one request, of which the first is always allowed."""

    __slots__ = ("_begun", "_clock", "_count", "_last", "_policy")

    def __init__(self, policy: RetryPolicy = _DEFAULT_POLICY, clock: Clock = _SYSTEM_CLOCK) -> None:
        self._policy = policy
        self._clock = clock
        self._begun = clock.monotonic()
        self._count = 0
        self._last: ProviderError | None = None

    async def after(self, error: ProviderError) -> None:
        """Wait until it can be tried again after this error; raises it where it cannot."""
        self._count += 1
        wait = _wait_after(error, self._count, self._policy, self._clock)
        late = self._clock.monotonic() + wait - self._begun > self._policy.total_seconds
        if late or self._count >= self._policy.tries or not error.retryable:
            _note(error, self._count, wait)
            raise error
        # Without its traceback, whose frames hold these tries and so the error itself.
        self._last = error.with_traceback(None)
        try:
            await self._clock.sleep(wait)
        except asyncio.CancelledError as cancelled:
            self.explain(cancelled)
            raise

    def explain(self, cancelled: asyncio.CancelledError) -> None:
        """Name the last failure as the cause of a cancellation: whoever ran out of time learns what took it.

        It is for a try that is cancelled; the wait between two tries sees to it itself.
        """
        if self._last is not None and cancelled.__cause__ is None:
            cancelled.__cause__ = self._last


def _wait_after(error: ProviderError, tried: int, policy: RetryPolicy, clock: Clock) -> float:
    """The server's wish if it has one, else up to twice as long as last time; by chance, lest all come back at once."""
    if error.retry_delay_seconds is not None:
        return error.retry_delay_seconds + clock.random() * policy.base_seconds
    longest: float = policy.base_seconds * 2 ** min(tried - 1, _MOST_DOUBLINGS)
    return clock.random() * min(policy.cap_seconds, longest)


def _note(error: ProviderError, tried: int, wait: float) -> None:
    if tried == 1 and not error.retryable:
        return
    times = "once" if tried == 1 else f"{tried} times"
    more = f"; the next try would have been in {wait:.1f} s" if error.retryable else ""
    error.add_note(f"tried {times}{more}")
