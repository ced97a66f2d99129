import asyncio
import gc
import weakref
from collections.abc import Sequence
from typing import Any

import pytest

from midspan._http.retry import Clock, RetryPolicy, RetryState
from midspan.errors import (
    AuthenticationError,
    ConfigError,
    IncompleteResponseError,
    InvalidRequestError,
    MalformedResponseError,
    NetworkError,
    ProviderError,
    QuotaExhaustedError,
    RateLimitError,
    RequestTimeoutError,
    ServerError,
)
from tests.bounds import BOUND
from tests.virtual_clock import VirtualClock

DEFAULT = RetryPolicy()


class Attempts:
    """Fails with each of these errors in turn, then succeeds; counts how often it was called."""

    def __init__(self, errors: Sequence[BaseException]) -> None:
        self._errors = list(errors)
        self.count = 0

    async def __call__(self) -> str:
        self.count += 1
        if self._errors:
            raise self._errors.pop(0)
        return "done"


async def retried(attempts: Attempts, policy: RetryPolicy, clock: Clock) -> str:
    state = RetryState(policy, clock, clock.monotonic())
    while True:
        try:
            return await attempts()
        except ProviderError as error:
            await state.wait_or_raise(error)
        except asyncio.CancelledError as cancelled:
            state.set_cause(cancelled)
            raise


def outcome(attempts: Attempts, clock: Clock, policy: RetryPolicy = DEFAULT) -> str | ProviderError:
    try:
        return asyncio.run(retried(attempts, policy, clock))
    except ProviderError as error:
        return error


def failures(count: int) -> list[ServerError]:
    return [ServerError(f"busy {number}", status=503) for number in range(count)]


def test_success_needs_one_attempt_and_no_delay() -> None:
    attempts, clock = Attempts([]), VirtualClock()
    assert outcome(attempts, clock) == "done"
    assert (attempts.count, clock.slept) == (1, [])


def test_delay_doubles_up_to_its_maximum() -> None:
    attempts, clock = Attempts(failures(6)), VirtualClock()
    assert outcome(attempts, clock, RetryPolicy(max_attempts=7, base_delay_seconds=1, max_delay_seconds=10)) == "done"
    assert clock.slept == [1, 2, 4, 8, 10, 10]


def test_jitter_covers_the_whole_delay() -> None:
    attempts, clock = Attempts(failures(4)), VirtualClock([0.0, 0.25, 0.5, 0.75])
    assert outcome(attempts, clock) == "done"
    assert clock.slept == [0.0, 0.5, 2.0, 6.0]


def test_fifth_error_is_raised_with_a_note() -> None:
    errors = failures(9)
    attempts, clock = Attempts(errors), VirtualClock()
    last = errors[4]
    assert outcome(attempts, clock) is last
    assert (attempts.count, clock.slept) == (5, [1, 2, 4, 8])
    assert last.__notes__ == ["failed after 5 attempts; the next one would have been in 16.0 s"]
    assert not hasattr(errors[0], "__notes__")


def test_no_attempt_starts_after_max_seconds() -> None:
    attempts, clock = Attempts(failures(9)), VirtualClock()
    assert isinstance(outcome(attempts, clock, RetryPolicy(max_attempts=9, max_seconds=10)), ServerError)
    assert clock.slept == [1, 2, 4]


@pytest.mark.parametrize(
    "kind",
    [RateLimitError, ServerError, NetworkError, RequestTimeoutError, IncompleteResponseError, MalformedResponseError],
)
def test_retryable_errors_are_retried(kind: type[ProviderError]) -> None:
    attempts = Attempts([kind("not now")])
    assert outcome(attempts, VirtualClock()) == "done"
    assert attempts.count == 2


@pytest.mark.parametrize("kind", [QuotaExhaustedError, AuthenticationError, InvalidRequestError, ProviderError])
def test_other_provider_errors_are_raised_unchanged(kind: type[ProviderError]) -> None:
    error = kind("never", retry_delay_seconds=1)
    attempts, clock = Attempts([error]), VirtualClock()
    assert outcome(attempts, clock) is error
    assert (attempts.count, clock.slept) == (1, [])
    assert not hasattr(error, "__notes__")


def test_single_error_can_be_marked_as_not_retryable() -> None:
    error = NetworkError("a certificate that is not trusted")
    error.retryable = False
    assert outcome(Attempts([error]), VirtualClock()) is error


def test_error_that_is_not_retryable_ends_the_attempts_with_a_note() -> None:
    error = AuthenticationError("the key was revoked")
    assert outcome(Attempts([*failures(1), error]), VirtualClock()) is error
    assert error.__notes__ == ["failed after 2 attempts"]


@pytest.mark.parametrize(("chance", "slept"), [(0.0, 38.2), (0.5, 38.7)])
def test_delay_requested_by_the_server_is_used_with_jitter_on_top(chance: float, slept: float) -> None:
    attempts, clock = Attempts([RateLimitError("slow down", retry_delay_seconds=38.2)]), VirtualClock([chance])
    assert outcome(attempts, clock, RetryPolicy(max_delay_seconds=5)) == "done"
    assert clock.slept == [pytest.approx(slept)]


def test_requested_delay_beyond_max_seconds_ends_the_attempts() -> None:
    error = RateLimitError("tomorrow", retry_delay_seconds=3600)
    attempts, clock = Attempts([error]), VirtualClock([0.0])
    assert outcome(attempts, clock) is error
    assert (attempts.count, clock.slept) == (1, [])
    assert error.__notes__ == ["failed after 1 attempt; the next one would have been in 3600.0 s"]


def test_errors_of_other_types_are_not_retried() -> None:
    attempts = Attempts([KeyError("a bug")])
    with pytest.raises(KeyError):
        asyncio.run(retried(attempts, RetryPolicy(), VirtualClock()))
    assert attempts.count == 1


def test_cancellation_ends_the_delay_and_the_attempts() -> None:
    class LongestWaits(Clock):
        def random(self) -> float:
            return 1.0

    async def main() -> None:
        attempts = Attempts(failures(3))
        task = asyncio.create_task(retried(attempts, RetryPolicy(base_delay_seconds=60), LongestWaits()))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert attempts.count == 1

    asyncio.run(main())


class Waiting(Attempts):
    """Fails as often as there are errors, then waits for ever; `waits` says that it does."""

    def __init__(self, errors: Sequence[BaseException]) -> None:
        super().__init__(errors)
        self.waits = asyncio.Event()

    async def __call__(self) -> str:
        await super().__call__()
        self.waits.set()
        await asyncio.get_running_loop().create_future()
        raise AssertionError("nobody ends this wait but by a cancellation")


class StandingClock(VirtualClock):
    """A clock whose sleeps never end."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        self.waits.set()
        await asyncio.get_running_loop().create_future()


async def cancelled(attempts: Attempts, clock: Clock, waits: asyncio.Event) -> asyncio.CancelledError:
    task = asyncio.create_task(retried(attempts, DEFAULT, clock))
    async with asyncio.timeout(BOUND):
        await waits.wait()
    task.cancel()
    try:
        await task
    except asyncio.CancelledError as error:
        return error
    raise AssertionError("it was not cancelled")


def test_cancellation_between_two_attempts_has_the_last_error_as_cause() -> None:
    async def main() -> None:
        errors, clock = failures(1), StandingClock()
        assert (await cancelled(Attempts(errors), clock, clock.waits)).__cause__ is errors[0]

    asyncio.run(main())


def test_cancellation_within_a_later_attempt_has_the_last_error_as_cause() -> None:
    async def main() -> None:
        errors = failures(2)
        attempts = Waiting(errors)
        assert (await cancelled(attempts, VirtualClock(), attempts.waits)).__cause__ is errors[1]

    asyncio.run(main())


def test_cancellation_within_the_first_attempt_has_no_cause() -> None:
    async def main() -> None:
        attempts = Waiting([])
        assert (await cancelled(attempts, VirtualClock(), attempts.waits)).__cause__ is None

    asyncio.run(main())


def test_cancellation_keeps_a_cause_that_it_has() -> None:
    async def main() -> None:
        own = asyncio.CancelledError()
        own.__cause__ = KeyError("mine")
        with pytest.raises(asyncio.CancelledError) as caught:
            await retried(Attempts([*failures(1), own]), DEFAULT, VirtualClock())
        assert isinstance(caught.value.__cause__, KeyError)

    asyncio.run(main())


def test_retried_error_is_freed_without_the_garbage_collector() -> None:
    errors = failures(1)
    watched = weakref.ref(errors[0])
    attempts = Attempts(errors)
    errors.clear()
    gc.disable()
    try:
        assert outcome(attempts, VirtualClock()) == "done"
        assert watched() is None
    finally:
        gc.enable()


def test_thousands_of_attempts_do_not_overflow() -> None:
    attempts, clock = Attempts(failures(2000)), VirtualClock([0.0])
    assert outcome(attempts, clock, RetryPolicy(max_attempts=3000)) == "done"


def test_system_clock_gives_time_and_random_numbers() -> None:
    clock = Clock()
    assert clock.monotonic() <= clock.monotonic()
    assert all(0 <= clock.random() < 1 for _ in range(100))
    asyncio.run(clock.sleep(0))


def test_policy_without_attempts_is_a_config_error() -> None:
    for attempts in (0, None, "3"):
        with pytest.raises(ConfigError, match=f"max_attempts must be an integer of at least 1, got {attempts!r}"):
            RetryPolicy(max_attempts=attempts)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["base_delay_seconds", "max_delay_seconds", "max_seconds"])
@pytest.mark.parametrize("value", [float("nan"), -1, "1", None])
def test_delay_that_is_not_a_number_is_a_config_error(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"^{name} must be a number of at least 0, got "):
        RetryPolicy(**{name: value})


def test_one_attempt_is_the_smallest_number() -> None:
    assert RetryPolicy(max_attempts=1).max_attempts == 1
