"""Foreign coroutines in tasks of their own, whose first step is made at once."""

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from midspan.tools.apart import apart
from midspan.tools.deadline import Expired, Raised
from midspan.tools.own_task import begun_apart
from tests.bounds import BOUND

variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="none")


def run(main: Callable[[], Awaitable[Any]]) -> Any:
    async def limited() -> Any:
        async with asyncio.timeout(BOUND):
            return await main()

    return asyncio.run(limited())


def test_what_never_waits_ends_at_once_and_nothing_is_left() -> None:
    async def quick() -> int:
        return 5

    async def main() -> None:
        for _ in range(3):
            assert begun_apart(quick()) == ((True, 5), None)
        assert len(asyncio.all_tasks()) == 1

    run(main)


@pytest.mark.parametrize("seconds", [None, 1.0])
def test_it_has_one_task_and_one_context_from_its_first_step_to_its_last(seconds: float | None) -> None:
    async def work() -> tuple[list[Any], list[str]]:
        tasks, seen = [asyncio.current_task()], [variable.get()]
        variable.set("inside")
        for _ in range(3):
            await asyncio.sleep(0)
            tasks.append(asyncio.current_task())
            seen.append(variable.get())
        return tasks, seen

    async def main() -> None:
        variable.set("outside")
        for _ in range(3):
            tasks, seen = await apart(work(), seconds)
            assert seen == ["outside", "inside", "inside", "inside"]
            assert len(set(tasks)) == 1
            assert tasks[0] is not asyncio.current_task()
            assert variable.get() == "outside"

    run(main)


def test_one_may_begin_within_the_first_step_of_another() -> None:
    async def inner(waits: bool) -> Any:
        if waits:
            await asyncio.sleep(0)
        return asyncio.current_task()

    async def outer(waits: bool) -> tuple[Any, Any, Any]:
        before = asyncio.current_task()
        return before, await apart(inner(waits), None), asyncio.current_task()

    async def main() -> None:
        for waits in (False, True, False, True):
            before, within, after = await apart(outer(waits), None)
            assert before is after
            assert within is not before

    run(main)


@pytest.mark.parametrize("steps", range(4))
def test_who_cancels_us_cancels_it_however_far_it_is(steps: int) -> None:
    told: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            told.append("cancelled")
            raise

    async def main() -> None:
        task = asyncio.create_task(apart(work(), None))
        await asyncio.sleep(0)  # now its first step is made
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert told == ["cancelled"]
        assert len(asyncio.all_tasks()) == 1

    run(main)


def test_its_own_limits_are_its_own() -> None:
    async def limited() -> str:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.sleep(60)
        except TimeoutError:
            return "over"
        return "not reached"

    async def grouped() -> str:
        async def fail() -> None:
            raise OSError("no")

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(fail())
        except* OSError:
            pass
        await asyncio.sleep(0)
        return "failed"

    async def main() -> None:
        assert await apart(limited(), 5) == "over"
        assert await apart(grouped(), 5) == "failed"
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    run(main)


@pytest.mark.parametrize("error", [OSError("x"), SystemExit(1), GeneratorExit(), asyncio.CancelledError()])
@pytest.mark.parametrize("waits", [False, True])
def test_what_it_raises_is_told_and_harms_nobody(error: BaseException, waits: bool) -> None:
    async def work() -> None:
        if waits:
            await asyncio.sleep(0)
        raise error

    async def main() -> None:
        with pytest.raises(Raised) as caught:
            await apart(work(), 5)
        assert type(caught.value.error) is type(error)

    run(main)


def test_the_end_of_its_time_stops_it_and_a_late_value_is_told() -> None:
    async def stops() -> None:
        await asyncio.sleep(60)

    async def goes_on() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "late"
        return "not reached"

    async def main() -> None:
        with pytest.raises(Expired) as caught:
            await apart(stops(), 0.01)
        assert (caught.value.late, caught.value.is_left) == ((), False)
        with pytest.raises(Expired) as caught:
            await apart(goes_on(), 0.01)
        assert caught.value.late == ("late",)

    run(main)
