"""When to try again, and how long to wait before.

    tries = Tries(policy, clock)
    while True:
        try:
            return await ask()
        except ProviderError as error:
            await tries.after(error)

A stream may be tried again only until its first byte has reached whoever reads it, because nobody can take back what
was read. So wait for its first piece within the `try`, and read the rest outside.
"""

from msgspec import Struct

from wasat.errors import ConfigError, ProviderError
from wasat.http.clock import Clock, SystemClock

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
        for seconds in (self.base_seconds, self.cap_seconds, self.total_seconds):
            if not isinstance(seconds, int | float) or not seconds >= 0:  # which NaN is not either
                raise ConfigError(f"a time in {self!r} is no number of seconds, or below 0")


_DEFAULT_POLICY = RetryPolicy()
_SYSTEM_CLOCK = SystemClock()


class Tries:
    """The tries of one request, of which the first is always allowed."""

    __slots__ = ("_begun", "_clock", "_count", "_policy")

    def __init__(self, policy: RetryPolicy = _DEFAULT_POLICY, clock: Clock = _SYSTEM_CLOCK) -> None:
        self._policy = policy
        self._clock = clock
        self._begun = clock.monotonic()
        self._count = 0

    async def after(self, error: ProviderError) -> None:
        """Wait until it can be tried again after this error; raises it where it cannot."""
        self._count += 1
        wait = _wait_after(error, self._count, self._policy, self._clock)
        late = self._clock.monotonic() + wait - self._begun > self._policy.total_seconds
        if late or self._count >= self._policy.tries or not error.retryable:
            _note(error, self._count, wait)
            raise error
        await self._clock.sleep(wait)


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
