import asyncio
import logging
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wasat.tools.local import LocalTools
from wasat.tools.schedule import run_calls
from wasat.types.parts import ToolCall, ToolResult


def calls(*names: str) -> list[ToolCall]:
    return [ToolCall(str(number), name) for number, name in enumerate(names)]


@pytest.mark.requirement("S3-09")
def test_calls_run_together_and_results_keep_their_order() -> None:
    async def slow() -> str:
        await asyncio.sleep(0.1)
        return "slow"

    async def fast() -> str:
        return "fast"

    def blocking() -> str:
        time.sleep(0.1)
        return "blocking"

    async def main() -> tuple[float, list[ToolResult]]:
        source = LocalTools([slow, fast, blocking])
        start = time.monotonic()
        results = await run_calls(calls("slow", "fast", "blocking", "slow", "blocking", "nothing"), source.call)
        return time.monotonic() - start, results

    took, results = asyncio.run(main())
    assert [result.id for result in results] == ["0", "1", "2", "3", "4", "5"]
    assert [result.value for result in results[:5]] == ["slow", "fast", "blocking", "slow", "blocking"]
    assert results[5].is_error
    assert took < 0.35


def test_at_most_so_many_run_at_once() -> None:
    at_once = peak = 0

    async def work() -> None:
        nonlocal at_once, peak
        at_once += 1
        peak = max(peak, at_once)
        await asyncio.sleep(0.005)
        at_once -= 1

    asyncio.run(run_calls(calls(*["work"] * 9), LocalTools([work]).call, at_once=3))
    assert peak == 3


def test_cancelling_cancels_all_and_waits_for_their_end() -> None:
    ended: list[str] = []

    async def wait(name: str = "x") -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)
            ended.append(name)

    async def main() -> None:
        task = asyncio.create_task(run_calls(calls("wait", "wait", "wait"), LocalTools([wait]).call))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())
    assert ended == ["x", "x", "x"]


def test_a_source_that_breaks_its_promise_still_gives_one_result_a_call(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(call: ToolCall) -> Any:
        match call.name:
            case "raises":
                raise RuntimeError("no")
            case "other":
                return ToolResult("99", "other", 1)
            case "nothing":
                return None
        return ToolResult(call.id, call.name, "ok")

    with caplog.at_level(logging.ERROR):
        results = asyncio.run(run_calls(calls("raises", "other", "fine", "nothing"), broken))
    assert [(result.id, result.is_error) for result in results] == [("0", True), ("1", True), ("2", False), ("3", True)]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(["ok", "fail", "wait", "missing"]), max_size=8), st.none() | st.integers(1, 4))
def test_every_call_has_exactly_one_result_under_its_id(names: list[str], at_once: int | None) -> None:
    async def ok() -> str:
        return "ok"

    async def fail() -> str:
        raise ValueError

    async def wait() -> str:
        await asyncio.sleep(0)
        return "ok"

    results = asyncio.run(run_calls(calls(*names), LocalTools([ok, fail, wait]).call, at_once=at_once))
    assert [(result.id, result.name) for result in results] == [(call.id, call.name) for call in calls(*names)]
