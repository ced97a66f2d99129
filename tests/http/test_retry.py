import asyncio
import gc
import weakref
from collections.abc import Sequence
from typing import Any

import pytest

from midspan._http.retry import Clock, RetryPolicy, RetryState, SystemClock, VirtualClock, check_clock
from midspan.errors import (
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
from tests.bounds import BOUND

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
    state = RetryState(policy, clock)
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


def test_what_succeeds_is_tried_once_and_without_a_wait() -> None:
    attempts, clock = Attempts([]), VirtualClock()
    assert outcome(attempts, clock) == "done"
    assert (attempts.count, clock.slept) == (1, [])


def test_waits_double_up_to_the_cap() -> None:
    attempts, clock = Attempts(failures(6)), VirtualClock()
    assert outcome(attempts, clock, RetryPolicy(max_attempts=7, base_seconds=1, max_delay_seconds=10)) == "done"
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
    assert last.__notes__ == ["failed after 5 attempts; the next one would have been in 16.0 s"]
    assert not hasattr(errors[0], "__notes__")


def test_it_ends_before_a_wait_that_would_outlast_the_total() -> None:
    attempts, clock = Attempts(failures(9)), VirtualClock()
    assert isinstance(outcome(attempts, clock, RetryPolicy(max_attempts=9, total_seconds=10)), ServerError)
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
    assert error.__notes__ == ["failed after 3 attempts"]


@pytest.mark.parametrize(("chance", "slept"), [(0.0, 38.2), (0.5, 38.7)])
def test_the_wish_of_the_server_is_obeyed_with_a_little_on_top(chance: float, slept: float) -> None:
    attempts, clock = Attempts([RateLimited("slow down", retry_delay_seconds=38.2)]), VirtualClock([chance])
    assert outcome(attempts, clock, RetryPolicy(max_delay_seconds=5)) == "done"
    assert clock.slept == [pytest.approx(slept)]


def test_a_wish_beyond_the_total_ends_it_at_once() -> None:
    error = RateLimited("tomorrow", retry_delay_seconds=3600)
    attempts, clock = Attempts([error]), VirtualClock([0.0])
    assert outcome(attempts, clock) is error
    assert (attempts.count, clock.slept) == (1, [])
    assert error.__notes__ == ["failed after 1 attempt; the next one would have been in 3600.0 s"]


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


def test_a_cancellation_between_two_tries_is_caused_by_the_failure_before_it() -> None:
    async def main() -> None:
        errors, clock = failures(1), StandingClock()
        assert (await cancelled(Attempts(errors), clock, clock.waits)).__cause__ is errors[0]

    asyncio.run(main())


def test_a_cancellation_within_a_later_try_is_caused_by_the_last_failure() -> None:
    async def main() -> None:
        errors = failures(2)
        attempts = Waiting(errors)
        assert (await cancelled(attempts, VirtualClock(), attempts.waits)).__cause__ is errors[1]

    asyncio.run(main())


def test_a_cancellation_within_the_first_try_has_no_cause() -> None:
    async def main() -> None:
        attempts = Waiting([])
        assert (await cancelled(attempts, VirtualClock(), attempts.waits)).__cause__ is None

    asyncio.run(main())


def test_a_cancellation_that_has_a_cause_keeps_it() -> None:
    async def main() -> None:
        own = asyncio.CancelledError()
        own.__cause__ = KeyError("mine")
        with pytest.raises(asyncio.CancelledError) as caught:
            await retried(Attempts([*failures(1), own]), DEFAULT, VirtualClock())
        assert isinstance(caught.value.__cause__, KeyError)

    asyncio.run(main())


def test_what_failed_before_it_worked_is_not_kept_in_a_circle() -> None:
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


def test_a_thousand_tries_do_not_overflow() -> None:
    attempts, clock = Attempts(failures(2000)), VirtualClock([0.0])
    assert outcome(attempts, clock, RetryPolicy(max_attempts=3000)) == "done"


def test_the_clock_of_the_system_tells_time_and_chance() -> None:
    clock = SystemClock()
    assert clock.monotonic() <= clock.monotonic()
    assert all(0 <= clock.random() < 1 for _ in range(100))
    asyncio.run(clock.sleep(0))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"max_attempts": 0}, "max_attempts must be a positive integer, got 0"),
        ({"max_attempts": "3"}, "max_attempts must be .* got '3'"),
        ({"max_attempts": 1.5}, "max_attempts must be .* got 1.5"),
        ({"max_attempts": True}, "max_attempts must be .* got True"),
        ({"base_seconds": -1}, "base_seconds must be a number of seconds, 0 or more, got -1"),
        ({"base_seconds": None}, "base_seconds must be .* got None"),
        ({"max_delay_seconds": "a"}, "max_delay_seconds must be .* got 'a'"),
        ({"max_delay_seconds": True}, "max_delay_seconds must be .* got True"),
        ({"total_seconds": -0.1}, "total_seconds must be .* got -0.1"),
        ({"total_seconds": float("nan")}, "total_seconds must be .* got nan"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused_by_the_name_of_its_field(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=f"^{words}"):
        RetryPolicy(**settings)


@pytest.mark.parametrize("clock", [5, "now", SystemClock, object()])
def test_what_is_no_clock_is_refused(clock: Any) -> None:
    with pytest.raises(ConfigError, match="clock must be a Clock with monotonic, sleep, random, got "):
        check_clock(clock)


@pytest.mark.parametrize("clock", [None, SystemClock(), VirtualClock()])
def test_a_clock_of_any_kind_passes(clock: Clock | None) -> None:
    check_clock(clock)
