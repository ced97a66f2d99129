import asyncio
import contextvars
import gc
import logging
import weakref
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from midspan.tools import tasks
from midspan.tools.tasks import Expired, ToolRaised, run_in_task, with_timeout
from tests.bounds import BOUND, time_passes

variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="none")


def run(main: Callable[[], Awaitable[Any]]) -> Any:
    """Run within a time limit and check that the main task keeps no cancellation."""

    async def bounded() -> Any:
        async with asyncio.timeout(BOUND):
            value = await main()
            task = asyncio.current_task()
            assert task is not None
            assert task.cancelling() == 0
            return value

    return asyncio.run(bounded())


async def sleep(seconds: float, value: int = 5) -> int:
    await asyncio.sleep(seconds)
    return value


async def return_at_once() -> int:
    return 5


async def return_late(value: Any) -> Any:
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        await asyncio.sleep(0)
    return value


@pytest.mark.parametrize("timeout", [None, BOUND])
def test_value_is_returned_and_no_task_is_left(timeout: float | None) -> None:
    async def main() -> None:
        for _ in range(3):
            assert await run_in_task(return_at_once, timeout=timeout) == 5
            assert await run_in_task(sleep, 0, timeout=timeout) == 5
            assert await run_in_task(sleep, 0.01, 7, timeout=timeout) == 7
        assert len(asyncio.all_tasks()) == 1

    run(main)


@pytest.mark.parametrize("timeout", [None, BOUND])
def test_function_runs_in_one_task_and_one_context_of_its_own(timeout: float | None) -> None:
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
            tasks, seen = await run_in_task(work, timeout=timeout)
            assert seen == ["outside", "inside", "inside", "inside"]
            assert len(set(tasks)) == 1
            assert tasks[0] is not asyncio.current_task()
            assert variable.get() == "outside"

    run(main)


def test_tasks_can_be_nested() -> None:
    async def inner(waits: bool) -> Any:
        if waits:
            await asyncio.sleep(0)
        return asyncio.current_task()

    async def outer(waits: bool) -> tuple[Any, Any, Any]:
        before = asyncio.current_task()
        return before, await run_in_task(inner, waits), asyncio.current_task()

    async def main() -> None:
        for waits in (False, True, False, True):
            before, within, after = await run_in_task(outer, waits)
            assert before is after
            assert within is not before

    run(main)


@pytest.mark.parametrize("steps", range(5))
def test_cancelling_the_caller_cancels_the_task_at_any_step(steps: int) -> None:
    seen: list[str] = []

    async def work() -> None:
        seen.append("started")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async def main() -> None:
        task = asyncio.create_task(run_in_task(work))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert seen in ([], ["started", "cancelled"])
        assert len(asyncio.all_tasks()) == 1

    run(main)


def test_second_cancellation_of_the_caller_abandons_the_task_at_once(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        started, release = asyncio.Event(), asyncio.Event()

        async def ignore_cancellation() -> None:
            started.set()
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    continue

        task = asyncio.create_task(run_in_task(ignore_cancellation, name="stubborn"))
        await started.wait()
        task.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(asyncio.all_tasks()) == 2
        release.set()
        while len(asyncio.all_tasks()) > 1:  # noqa: ASYNC110 - nobody waits for an abandoned task
            await asyncio.sleep(0)

    with caplog.at_level(logging.ERROR):
        run(main)
    assert "tool stubborn was cancelled but did not end" in caplog.text


def test_task_that_ignores_its_timeout_is_abandoned_after_the_grace_period(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "CANCEL_GRACE_SECONDS", 0.02)

    async def main() -> None:
        release = asyncio.Event()

        async def ignore_cancellation() -> None:
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    continue

        with pytest.raises(Expired) as caught:
            await run_in_task(ignore_cancellation, timeout=0.01)
        assert "may still be running" in str(caught.value)
        release.set()
        while len(asyncio.all_tasks()) > 1:  # noqa: ASYNC110 - nobody waits for an abandoned task
            await asyncio.sleep(0)

    run(main)


def test_cancellation_of_the_caller_ends_with_the_grace_period(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "CANCEL_GRACE_SECONDS", 0.02)

    async def main() -> None:
        started, release = asyncio.Event(), asyncio.Event()

        async def ignore_cancellation() -> None:
            started.set()
            while not release.is_set():
                with suppress(asyncio.CancelledError):
                    await release.wait()

        caller = asyncio.create_task(run_in_task(ignore_cancellation))
        await started.wait()
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        release.set()
        while len(asyncio.all_tasks()) > 1:  # noqa: ASYNC110 - nobody waits for an abandoned task
            await asyncio.sleep(0)

    run(main)


def test_abandoned_task_is_not_garbage_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "CANCEL_GRACE_SECONDS", 0)

    async def main() -> None:
        waiting: list[weakref.ref[asyncio.Future[None]]] = []
        ended = asyncio.Event()

        async def ignore_cancellation() -> None:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(BOUND)
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            waiting.append(weakref.ref(future))
            await future
            ended.set()

        with pytest.raises(Expired, match="was abandoned"):
            await run_in_task(ignore_cancellation, timeout=0)
        gc.collect()
        future = waiting[0]()
        assert future is not None
        future.set_result(None)
        await ended.wait()

    run(main)


def test_result_of_an_abandoned_task_is_garbage_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "CANCEL_GRACE_SECONDS", 0)

    async def main() -> None:
        released = asyncio.Event()
        results: list[weakref.ref[asyncio.Event]] = []

        async def ignore_cancellation() -> asyncio.Event:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(BOUND)
            await released.wait()
            result = asyncio.Event()
            results.append(weakref.ref(result))
            return result

        with pytest.raises(Expired, match="was abandoned"):
            await run_in_task(ignore_cancellation, timeout=0)
        released.set()
        while len(asyncio.all_tasks()) > 1:  # noqa: ASYNC110 - nobody waits for an abandoned task
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        gc.collect()
        assert [result() for result in results] == [None]

    run(main)


def test_time_limits_and_task_groups_of_the_function_affect_only_itself() -> None:
    async def own_timeout() -> str:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.sleep(60)
        except TimeoutError:
            return "timed out"
        return "not reached"

    async def failing_group() -> str:
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
        assert await run_in_task(own_timeout, timeout=5) == "timed out"
        assert await run_in_task(failing_group, timeout=5) == "failed"

    run(main)


@pytest.mark.parametrize("error", [OSError("x"), GeneratorExit(), asyncio.CancelledError()])
@pytest.mark.parametrize("waits", [False, True])
def test_exceptions_arrive_as_tool_raised(error: BaseException, waits: bool) -> None:
    async def work() -> None:
        if waits:
            await asyncio.sleep(0)
        raise error

    async def main() -> None:
        with pytest.raises(ToolRaised) as caught:
            await run_in_task(work, timeout=BOUND)
        assert type(caught.value.error) is type(error)

    run(main)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("waits", [False, True])
def test_keyboard_interrupt_and_system_exit_are_raised_in_the_caller(
    kind: type[BaseException], waits: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        if waits:
            await asyncio.sleep(0)
        raise kind

    async def main() -> None:
        with pytest.raises(kind):
            await run_in_task(work, timeout=BOUND)
        await asyncio.sleep(0)

    run(main)
    assert not caplog.records


def test_system_exit_during_the_cancellation_is_raised() -> None:
    async def exit_when_cancelled() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise SystemExit(3) from None

    async def main() -> None:
        with pytest.raises(SystemExit):
            await run_in_task(exit_when_cancelled, timeout=0.01)
        caller = asyncio.create_task(as_outcome(run_in_task(exit_when_cancelled)))
        for _ in range(3):
            await asyncio.sleep(0)
        caller.cancel()
        assert isinstance(await caller, SystemExit)

    async def as_outcome(coroutine: Any) -> BaseException | None:
        try:
            await coroutine
        except BaseException as error:  # noqa: BLE001 - a SystemExit left to asyncio would stop the event loop
            return error
        return None

    run(main)


def test_timeout_cancels_the_task_and_tells_what_became_of_it() -> None:
    async def main() -> None:
        with pytest.raises(Expired, match=r"^timed out and was cancelled$"):
            await run_in_task(sleep, 60, timeout=0.01)
        with pytest.raises(Expired, match="returned too late; its result was discarded"):
            await run_in_task(return_late, "late", timeout=0.01)

    run(main)


@pytest.mark.parametrize("timeout", [None, 5.0])
def test_with_timeout_returns_what_ends_in_time(timeout: float | None) -> None:
    async def main() -> tuple[int, int, int]:
        return (
            await with_timeout(return_at_once(), timeout),
            await with_timeout(sleep(0), timeout),
            await with_timeout(sleep(0.01), timeout),
        )

    assert run(main) == (5, 5, 5)


def test_with_timeout_cancels_what_takes_longer() -> None:
    async def main() -> None:
        with pytest.raises(Expired):
            await with_timeout(sleep(60), 0.01)

    run(main)


def test_with_timeout_passes_exceptions_through() -> None:
    async def fail(after: float | None) -> None:
        if after is not None:
            await asyncio.sleep(after)
        raise KeyError("x")

    async def main() -> None:
        for after in (None, 0, 0.01):
            with pytest.raises(KeyError):
                await with_timeout(fail(after), 5)

    run(main)


def test_cancellation_during_with_timeout_is_not_a_timeout() -> None:
    async def main() -> None:
        task = asyncio.create_task(with_timeout(sleep(60), 30))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main)


def test_cancellation_takes_precedence_over_a_timeout_at_the_same_moment() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.create_task(with_timeout(sleep(60), 10))
        await asyncio.sleep(0)
        loop.call_later(11, task.cancel)
        time_passes(12)  # both are due before the task continues
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()

    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:  # uvloop has a clock of its own
        runner.run(main())


def test_timeout_of_an_outer_call_passes_through_an_inner_one() -> None:
    async def main() -> None:
        with pytest.raises(Expired):
            await with_timeout(with_timeout(sleep(60), 30), 0.01)

    run(main)


def test_cancellation_with_a_message_is_not_taken_for_a_timeout() -> None:
    async def main() -> None:
        task = asyncio.create_task(run_in_task(return_late, "late"))
        await asyncio.sleep(0.01)
        task.cancel("enough")
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main)


def test_nested_timeouts_are_distinguished() -> None:
    async def inner() -> str:
        try:
            await with_timeout(sleep(60), 0.01)
        except TimeoutError:
            return "inner"
        return "none"

    async def main() -> str:
        return await with_timeout(inner(), 30)

    assert run(main) == "inner"


def test_cleanup_after_a_timeout_may_await() -> None:
    seen: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)
            seen.append("cleaned")

    async def main() -> None:
        with pytest.raises(Expired):
            await with_timeout(work(), 0.01)
        with pytest.raises(Expired):
            await run_in_task(work, timeout=0.01)

    run(main)
    assert seen == ["cleaned"] * 2


@pytest.mark.parametrize("value", [5, None])
def test_with_timeout_returns_a_late_result(value: int | None) -> None:
    async def main() -> None:
        assert await with_timeout(return_late(value), 0.01) is value
        task = asyncio.current_task()
        assert task is not None
        assert not task.cancelling()

    run(main)


def test_exception_raised_after_the_timeout_passes_through() -> None:
    async def work() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise KeyError("x") from None

    async def main() -> None:
        with pytest.raises(KeyError):
            await with_timeout(work(), 0.01)
        with pytest.raises(ToolRaised) as caught:
            await run_in_task(work, timeout=0.01)
        assert isinstance(caught.value.error, KeyError)

    run(main)


def test_closing_the_caller_cancels_the_task() -> None:
    seen: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            seen.append("cancelled")

    async def main() -> None:
        for steps in range(1, 4):
            running = run_in_task(work, timeout=BOUND)
            running.send(None)
            for _ in range(steps):
                await asyncio.sleep(0)
            running.close()
            for _ in range(3):
                await asyncio.sleep(0)
            assert len(asyncio.all_tasks()) == 1
        assert seen == ["cancelled"] * 3

    run(main)
