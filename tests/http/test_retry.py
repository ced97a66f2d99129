import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from wasat.errors import (
    AuthenticationError,
    ConfigError,
    InvalidRequest,
    MalformedResponse,
    NetworkError,
    ProviderError,
    QuotaExhausted,
    RateLimited,
    ServerError,
    StreamCut,
    TimedOut,
)
from wasat.http.clock import Clock, SystemClock, VirtualClock
from wasat.http.retry import RetryPolicy, Tries

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
    tries = Tries(policy, clock)
    while True:
        try:
            return await attempts()
        except ProviderError as error:
            await tries.after(error)


def outcome(attempts: Attempts, clock: Clock, policy: RetryPolicy = DEFAULT) -> str | ProviderError:
    try:
        return asyncio.run(retried(attempts, policy, clock))
    except ProviderError as error:
        return error


def failures(count: int) -> list[ServerError]:
    return [ServerError(f"busy {number}", status=503) for number in range(count)]


def test_what_succeeds_is_tried_once_and_without_a_wait() -> None:
    attempts, clock = Attempts([]), VirtualClock()
    assert outcome(attempts, clock) == "done"
    assert (attempts.count, clock.slept) == (1, [])


def test_waits_double_up_to_the_cap() -> None:
    attempts, clock = Attempts(failures(6)), VirtualClock()
    assert outcome(attempts, clock, RetryPolicy(tries=7, base_seconds=1, cap_seconds=10)) == "done"
    assert clock.slept == [1, 2, 4, 8, 10, 10]


def test_the_whole_wait_is_left_to_chance() -> None:
    attempts, clock = Attempts(failures(4)), VirtualClock([0.0, 0.25, 0.5, 0.75])
    assert outcome(attempts, clock) == "done"
    assert clock.slept == [0.0, 0.5, 2.0, 6.0]


def test_it_ends_after_five_tries_with_the_last_error_and_a_note() -> None:
    errors = failures(9)
    attempts, clock = Attempts(errors), VirtualClock()
    last = errors[4]
    assert outcome(attempts, clock) is last
    assert (attempts.count, clock.slept) == (5, [1, 2, 4, 8])
    assert last.__notes__ == ["tried 5 times; the next try would have been in 16.0 s"]
    assert not hasattr(errors[0], "__notes__")


def test_it_ends_before_a_wait_that_would_outlast_the_total() -> None:
    attempts, clock = Attempts(failures(9)), VirtualClock()
    assert isinstance(outcome(attempts, clock, RetryPolicy(tries=9, total_seconds=10)), ServerError)
    assert clock.slept == [1, 2, 4]


@pytest.mark.parametrize("kind", [RateLimited, ServerError, NetworkError, TimedOut, StreamCut, MalformedResponse])
def test_errors_that_may_pass_are_tried_again(kind: type[ProviderError]) -> None:
    attempts = Attempts([kind("not now")])
    assert outcome(attempts, VirtualClock()) == "done"
    assert attempts.count == 2


@pytest.mark.parametrize("kind", [QuotaExhausted, AuthenticationError, InvalidRequest, ProviderError])
def test_errors_that_will_not_pass_are_given_at_once_and_as_they_are(kind: type[ProviderError]) -> None:
    error = kind("never", retry_delay_seconds=1)
    attempts, clock = Attempts([error]), VirtualClock()
    assert outcome(attempts, clock) is error
    assert (attempts.count, clock.slept) == (1, [])
    assert not hasattr(error, "__notes__")


def test_a_single_error_may_say_for_itself_that_it_will_not_pass() -> None:
    error = NetworkError("a certificate that is not trusted")
    error.retryable = False
    assert outcome(Attempts([error]), VirtualClock()) is error


def test_an_error_that_will_not_pass_ends_the_tries_with_a_note() -> None:
    error = AuthenticationError("the key was revoked")
    assert outcome(Attempts([*failures(2), error]), VirtualClock()) is error
    assert error.__notes__ == ["tried 3 times"]


@pytest.mark.parametrize(("chance", "slept"), [(0.0, 38.2), (0.5, 38.7)])
def test_the_wish_of_the_server_is_obeyed_with_a_little_on_top(chance: float, slept: float) -> None:
    attempts, clock = Attempts([RateLimited("slow down", retry_delay_seconds=38.2)]), VirtualClock([chance])
    assert outcome(attempts, clock, RetryPolicy(cap_seconds=5)) == "done"
    assert clock.slept == [pytest.approx(slept)]


def test_a_wish_beyond_the_total_ends_it_at_once() -> None:
    error = RateLimited("tomorrow", retry_delay_seconds=3600)
    attempts, clock = Attempts([error]), VirtualClock([0.0])
    assert outcome(attempts, clock) is error
    assert (attempts.count, clock.slept) == (1, [])
    assert error.__notes__ == ["tried once; the next try would have been in 3600.0 s"]


def test_other_errors_pass_through_at_once() -> None:
    attempts = Attempts([KeyError("a bug")])
    with pytest.raises(KeyError):
        asyncio.run(retried(attempts, RetryPolicy(), VirtualClock()))
    assert attempts.count == 1


def test_cancelling_ends_the_wait_and_the_tries() -> None:
    class LongestWaits(SystemClock):
        def random(self) -> float:
            return 1.0

    async def main() -> None:
        attempts = Attempts(failures(3))
        task = asyncio.create_task(retried(attempts, RetryPolicy(base_seconds=60), LongestWaits()))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert attempts.count == 1

    asyncio.run(main())


def test_a_thousand_tries_do_not_overflow() -> None:
    attempts, clock = Attempts(failures(2000)), VirtualClock([0.0])
    assert outcome(attempts, clock, RetryPolicy(tries=3000)) == "done"


def test_the_clock_of_the_system_tells_time_and_chance() -> None:
    clock = SystemClock()
    assert clock.monotonic() <= clock.monotonic()
    assert all(0 <= clock.random() < 1 for _ in range(100))
    asyncio.run(clock.sleep(0))


@pytest.mark.parametrize("settings", [{"tries": 0}, {"base_seconds": -1}, {"total_seconds": -0.1}])
def test_a_policy_that_makes_no_sense_is_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        RetryPolicy(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "settings",
    [{"tries": "3"}, {"tries": 1.5}, {"tries": True}, {"base_seconds": None}, {"total_seconds": float("nan")}],
)
def test_a_policy_that_makes_no_sense_is_refused_in_words(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        RetryPolicy(**settings)
