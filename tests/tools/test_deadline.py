import asyncio
from typing import Any

import pytest

from midspan.tools.deadline import Expired, Raised, begun, limited, rest_of


def run(coroutine: Any) -> Any:
    return asyncio.run(coroutine)


async def sleep(seconds: float, value: int = 5) -> int:
    await asyncio.sleep(seconds)
    return value


async def at_once() -> int:
    return 5


@pytest.mark.parametrize("seconds", [None, 5.0])
def test_what_ends_in_time_gives_its_value(seconds: float | None) -> None:
    async def main() -> tuple[int, int, int]:
        return await limited(at_once(), seconds), await limited(sleep(0), seconds), await limited(sleep(0.01), seconds)

    assert run(main()) == (5, 5, 5)


def test_what_takes_longer_is_stopped() -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError):
            await limited(sleep(60), 0.01)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    run(main())


def test_an_exception_passes_through_at_any_moment() -> None:
    async def fail(after: float | None) -> None:
        if after is not None:
            await asyncio.sleep(after)
        raise KeyError("x")

    async def main() -> None:
        for after in (None, 0, 0.01):
            with pytest.raises(KeyError):
                await limited(fail(after), 5)

    run(main())


def test_cancelling_from_outside_is_no_timeout() -> None:

    async def wrapped() -> None:
        await limited(sleep(60), 30)

    async def again() -> None:
        task = asyncio.create_task(wrapped())
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(again())


def test_limits_within_limits_keep_apart() -> None:
    async def inner() -> str:
        try:
            await limited(sleep(60), 0.01)
        except TimeoutError:
            return "inner"
        return "none"

    async def main() -> str:
        return await limited(inner(), 30)

    assert run(main()) == "inner"


def test_a_coroutine_may_clean_up_with_awaits_after_its_time() -> None:
    seen: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)
            seen.append("cleaned")

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await limited(work(), 0.01)

    run(main())
    assert seen == ["cleaned"]


@pytest.mark.parametrize("value", [5, None])
def test_what_comes_too_late_is_not_taken_but_kept(value: int | None) -> None:
    async def stubborn() -> int | None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0)
        return value

    async def main() -> None:
        with pytest.raises(Expired) as caught:
            await limited(stubborn(), 0.01)
        assert caught.value.late == (value,)
        with pytest.raises(Expired) as caught:
            await limited(sleep(60), 0.01)
        assert caught.value.late == ()
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    run(main())


def test_its_own_exception_after_its_time_passes_through() -> None:
    async def work() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise KeyError("x") from None

    async def main() -> None:
        with pytest.raises(KeyError):
            await limited(work(), 0.01)

    run(main())


@pytest.mark.parametrize("seconds", [None, 5.0])
def test_who_closes_a_coroutine_and_who_only_raises_so_are_told_apart(seconds: float | None) -> None:
    error = GeneratorExit("own")

    async def fail(after: float | None) -> None:
        if after is not None:
            await asyncio.sleep(after)
        raise error

    async def main() -> None:
        for after in (None, 0, 0.01):
            with pytest.raises(Raised) as caught:
                await limited(fail(after), seconds)
            assert caught.value.error is error
        sleeping = sleep(60)
        ended, waits_for = begun(sleeping)
        assert not ended
        rest = rest_of(sleeping, waits_for, seconds)
        rest.send(None)
        with pytest.raises(GeneratorExit):
            rest.throw(GeneratorExit())

    run(main())
