"""When to retry a request, and how long to wait before: one RetryState per request.

Others also repeat requests: `_http/pool.py` after a stale connection, `providers/gemini` without validation of tools or
without a cache, `providers/fallback.py` with another model, `_loop/policies.py` after a response that cannot be used.
"""

import asyncio
import os
import time
from collections.abc import Callable

from msgspec import Struct

from midspan._types.texts import count_noun
from midspan.errors import ConfigError, ProviderError


class Clock:
    """Time, sleeping and random numbers of the system; tests replace them."""

    monotonic = staticmethod(time.monotonic)
    sleep = staticmethod(asyncio.sleep)

    def random(self) -> float:
        """Return a number in [0, 1)."""
        return int.from_bytes(os.urandom(6), "big") / 2**48  # the module `random` is slow to import


class RetryPolicy(Struct, frozen=True):
    """Exponential backoff with full jitter. `RetryPolicy(max_attempts=1)` never retries."""

    max_attempts: int = 5
    base_delay_seconds: float = 1.0
    """The longest first delay; it doubles with each further attempt."""
    max_delay_seconds: float = 60.0
    max_seconds: float = 600.0
    """No attempt starts later than this after the first one."""

    def __post_init__(self) -> None:
        if not isinstance(self.max_attempts, int) or self.max_attempts < 1:
            raise ConfigError(f"max_attempts must be an integer of at least 1, got {self.max_attempts!r}")
        for name in ("base_delay_seconds", "max_delay_seconds", "max_seconds"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not value >= 0:  # NaN is not
                raise ConfigError(f"{name} must be a number of at least 0, got {value!r}")


class RetryState(Struct):
    """The attempts of one request."""

    policy: RetryPolicy
    clock: Clock
    started_at: float
    """When the first attempt started."""
    on_retry: Callable[[int, float, ProviderError], None] | None = None
    """Called before each wait."""
    failed_attempts: int = 0
    last_error: ProviderError | None = None

    async def wait_or_raise(self, error: ProviderError) -> None:
        """Wait until the next attempt after this error, or raise the error if there is none."""
        self.failed_attempts += 1
        delay = self._delay_after(error)
        is_late = self.clock.monotonic() + delay - self.started_at > self.policy.max_seconds
        if is_late or self.failed_attempts >= self.policy.max_attempts or not error.retryable:
            if self.failed_attempts > 1 or error.retryable:
                attempts = count_noun(self.failed_attempts, "attempt")
                later = f"; the next one would have been in {delay:.1f} s" if error.retryable else ""
                error.add_note(f"failed after {attempts}{later}")
            raise error
        # Without its traceback, whose frames refer to this object and so to the error itself.
        self.last_error = error.with_traceback(None)
        if self.on_retry is not None:
            self.on_retry(self.failed_attempts, delay, error)
        try:
            await self.clock.sleep(delay)
        except asyncio.CancelledError as cancelled:
            self.set_cause(cancelled)
            raise

    def set_cause(self, cancelled: asyncio.CancelledError) -> None:
        """Make the last error the cause of a cancellation, so that the caller learns what used up the time."""
        if self.last_error is not None and cancelled.__cause__ is None:
            cancelled.__cause__ = self.last_error

    def _delay_after(self, error: ProviderError) -> float:
        """Return the delay the server asked for plus some jitter, or a random part of the exponential backoff."""
        policy, jitter = self.policy, self.clock.random()
        if error.retry_delay_seconds is not None:
            return error.retry_delay_seconds + jitter * policy.base_delay_seconds
        doublings = min(self.failed_attempts - 1, 60)  # more would not fit into a float
        backoff: float = policy.base_delay_seconds * 2**doublings
        return jitter * min(policy.max_delay_seconds, backoff)
