import asyncio
import logging
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midspan._types.context import NO_CONTEXT, RunContext
from midspan._types.parts import ToolCall, ToolResult
from midspan._types.specs import Effects, ToolSpec
from midspan.tools.execution import LocalTools, run_call
from midspan.tools.schedule import call_order, each_call, run_calls
from tests.bounds import BOUND


def calls(*names: str) -> list[ToolCall]:
    return [ToolCall(str(number), name) for number, name in enumerate(names)]


def planned(*names: str) -> list[tuple[ToolCall, RunContext[Any]]]:
    return [(call, NO_CONTEXT) for call in calls(*names)]


@pytest.mark.requirement("S3-09", "S4-07")
def test_calls_run_concurrently_and_results_keep_the_order_of_the_calls() -> None:
    all_run = threading.Barrier(4)  # none of them ends before the last one has started

    async def slow() -> str:
        await asyncio.to_thread(all_run.wait, BOUND)
        return "slow"

    async def fast() -> str:
        return "fast"

    def blocking() -> str:
        all_run.wait(BOUND)
        return "blocking"

    source = LocalTools([slow, fast, blocking])
    results = asyncio.run(run_calls(calls("slow", "fast", "blocking", "slow", "blocking", "nothing"), source.call))
    assert [result.id for result in results] == ["0", "1", "2", "3", "4", "5"]
    assert [result.value for result in results[:5]] == ["slow", "fast", "blocking", "slow", "blocking"]
    assert results[5].is_error


def test_max_concurrency_is_not_exceeded() -> None:
    at_once = peak = 0

    async def work() -> None:
        nonlocal at_once, peak
        at_once += 1
        peak = max(peak, at_once)
        await asyncio.sleep(0.005)
        at_once -= 1

    asyncio.run(run_calls(calls(*["work"] * 9), LocalTools([work]).call, max_concurrency=3))
    assert peak == 3


def test_cancellation_cancels_all_calls_and_waits_for_them() -> None:
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


def test_faulty_source_still_gives_one_result_for_each_call(caplog: pytest.LogCaptureFixture) -> None:
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


@settings(max_examples=30)
@given(st.lists(st.sampled_from(["ok", "fail", "wait", "missing"]), max_size=8), st.none() | st.integers(1, 4))
def test_every_call_has_exactly_one_result_under_its_id(names: list[str], max_concurrency: int | None) -> None:
    async def ok() -> str:
        return "ok"

    async def fail() -> str:
        raise ValueError

    async def wait() -> str:
        await asyncio.sleep(0)
        return "ok"

    results = asyncio.run(run_calls(calls(*names), LocalTools([ok, fail, wait]).call, max_concurrency=max_concurrency))
    assert [(result.id, result.name) for result in results] == [(call.id, call.name) for call in calls(*names)]


@pytest.mark.parametrize("max_concurrency", [None, 1, 2])
@pytest.mark.parametrize("many", [1, 5])
@pytest.mark.parametrize("kind", [GeneratorExit, asyncio.CancelledError])
def test_tool_or_source_that_raises_a_base_exception_has_a_result(
    kind: type[BaseException], many: int, max_concurrency: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def leave() -> str:
        raise kind

    async def leave_later() -> str:
        await asyncio.sleep(0)
        raise kind

    async def broken(call: ToolCall) -> Any:
        return await leave()

    async def broken_later(call: ToolCall) -> Any:
        return await leave_later()

    def broken_at_once(call: ToolCall) -> Any:
        raise kind

    async def main() -> None:
        tools = LocalTools([leave, leave_later])
        for name, run in (
            ("leave", tools.call),
            ("leave_later", tools.call),
            ("any", broken),
            ("any", broken_later),
            ("any", broken_at_once),
        ):
            asked = calls(*[name] * many)
            results = await asyncio.wait_for(run_calls(asked, run, max_concurrency=max_concurrency), 5)
            assert [(result.id, result.is_error) for result in results] == [(call.id, True) for call in asked]
            assert all(kind.__name__ in str(result.value) for result in results)

    asyncio.run(main())


def test_result_of_a_source_that_raises_names_its_error() -> None:
    async def broken(call: ToolCall) -> Any:
        raise ValueError("no network")

    (result,) = asyncio.run(run_calls(calls("any"), broken))
    assert result.value == "any failed: ValueError: no network"


@pytest.mark.parametrize("max_concurrency", [None, 2])
def test_tool_that_cancels_its_own_task_does_not_affect_others(max_concurrency: int | None) -> None:
    async def cancel() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(60)

    async def fine() -> str:
        return "fine"

    names = ["cancel", "fine", "cancel", "cancel", "fine"]

    async def main() -> list[ToolResult]:
        return await asyncio.wait_for(
            run_calls(calls(*names), LocalTools([cancel, fine]).call, max_concurrency=max_concurrency), 5
        )

    results = asyncio.run(main())
    assert [(result.id, result.is_error) for result in results] == [
        (str(number), name == "cancel") for number, name in enumerate(names)
    ]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_keyboard_interrupt_and_system_exit_in_one_call_cancel_the_others(kind: type[BaseException]) -> None:
    ended: list[str] = []

    async def interrupt() -> None:
        await asyncio.sleep(0)
        raise kind

    async def wait() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("wait")

    with pytest.raises(kind):
        asyncio.run(run_calls(calls("wait", "interrupt", "wait"), LocalTools([interrupt, wait]).call))
    assert ended == ["wait", "wait"]


@pytest.mark.parametrize(
    ("names", "max_concurrency", "order", "started"),
    [
        (["quick", "wait", "leave", "wait"], 2, {}, ["wait"]),
        (["quick", "leave", "wait", "wait"], None, {2: [1], 3: [1]}, []),
    ],
)
def test_no_further_call_starts_after_system_exit(
    names: list[str], max_concurrency: int | None, order: dict[int, list[int]], started: list[str]
) -> None:
    began: list[str] = []

    async def quick() -> None: ...

    async def leave() -> None:
        raise SystemExit

    async def wait() -> None:
        began.append("wait")
        await asyncio.sleep(60)

    async def main() -> None:
        source = LocalTools([quick, leave, wait])
        results = each_call(planned(*names), source.call, max_concurrency=max_concurrency, order=order)
        assert (await anext(results))[0] == 0
        for _ in range(20):  # nobody waits for a result while the other calls run
            await asyncio.sleep(0)
        await anext(results)

    with pytest.raises(SystemExit):
        asyncio.run(main())
    assert began == started


def test_call_whose_task_another_call_cancels_has_an_error_result() -> None:
    waiting: list[Any] = []

    async def run(call: ToolCall, context: RunContext[Any]) -> ToolResult:
        if call.name == "wait":
            waiting.append(asyncio.current_task())
            await asyncio.sleep(60)
        await asyncio.sleep(0)
        waiting[0].cancel()
        return ToolResult(call.id, call.name, "done")

    async def main() -> dict[int, Any]:
        finished = each_call(planned("wait", "cancel"), run, in_task=False)
        return {position: result.value async for position, result, _ in finished}

    assert asyncio.run(asyncio.wait_for(main(), BOUND)) == {0: "wait was cancelled", 1: "done"}


@pytest.mark.parametrize("many", [1, 3])
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_keyboard_interrupt_and_system_exit_of_a_source_are_raised(kind: type[BaseException], many: int) -> None:
    async def leave(call: ToolCall) -> Any:
        raise kind

    with pytest.raises(kind):
        asyncio.run(run_calls(calls(*["any"] * many), leave))


def test_closing_a_call_cancels_its_source() -> None:
    seen: list[str] = []

    async def wait(call: ToolCall, context: RunContext[Any]) -> ToolResult:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        raise AssertionError("never")

    async def main() -> None:
        running = run_call(wait, ToolCall("1", "wait"), NO_CONTEXT)
        running.send(None)
        await asyncio.sleep(0)
        running.close()
        await asyncio.sleep(0)

    asyncio.run(main())
    assert seen == ["cancelled"]


def test_closing_early_starts_no_further_calls() -> None:
    began: list[str] = []

    async def note() -> None:
        began.append("note")

    async def main() -> None:
        ended = each_call(planned(*["note"] * 9), LocalTools([note]).call, max_concurrency=2)
        await anext(ended)
        await ended.aclose()
        count = len(began)
        await asyncio.sleep(0.01)
        assert len(began) == count

    asyncio.run(main())


def test_calls_continue_while_the_results_are_not_read() -> None:
    ran: list[int] = []

    async def note(call: ToolCall, context: RunContext[Any]) -> ToolResult:
        ran.append(1)
        return ToolResult(call.id, call.name, 1)

    async def main() -> None:
        ended = each_call(planned(*["note"] * 9), note, max_concurrency=2)
        await anext(ended)
        async with asyncio.timeout(BOUND):
            while len(ran) < 9:  # noqa: ASYNC110 - the calls have no event to wait for
                await asyncio.sleep(0)
        assert len([result async for result in ended]) == 8

    asyncio.run(main())


@pytest.mark.parametrize("answer", [None, ToolResult("0", "other", 1), ToolResult("1", "read", 1)])
def test_source_that_returns_another_result_has_failed(answer: Any) -> None:
    async def call(_: ToolCall, __: Any = None) -> Any:
        return answer

    async def main() -> ToolResult:
        return (await run_calls(calls("read"), call))[0]

    result = asyncio.run(main())
    assert (result.id, result.name, result.is_error) == ("0", "read", True)
    assert result.value == "read failed: TypeError: the source did not return a result of this call"


def effects(reads: tuple[str, ...] = (), writes: tuple[str, ...] = ()) -> Effects:
    return Effects(reads, writes)


ACCOUNTS = {
    "balance": ToolSpec("balance", effects=effects(reads=("account:{id}",))),
    "withdraw": ToolSpec("withdraw", effects=effects(reads=("account:{id}",), writes=("account:{id}",))),
    "transfer": ToolSpec("transfer", effects=effects(writes=("account:{source}", "account:{target}"))),
    "audit": ToolSpec("audit", effects=effects(reads=("account:*",))),
    "reset": ToolSpec("reset", effects=effects(writes=("*",))),
    "rates": ToolSpec("rates", effects=effects(reads=("rates",))),
    "send": ToolSpec("send"),
    "ping": ToolSpec("ping", effects=Effects(idempotent=True)),
}


@pytest.mark.parametrize(
    ("names_and_arguments", "order"),
    [
        ([("balance", {"id": "a"}), ("balance", {"id": "a"})], {}),
        ([("withdraw", {"id": "a"}), ("withdraw", {"id": "b"})], {}),
        ([("withdraw", {"id": "a"}), ("withdraw", {"id": "a"})], {1: {0}}),
        ([("balance", {"id": 1}), ("withdraw", {"id": 1.0}), ("balance", {"id": "1"})], {1: {0}, 2: {1}}),
        ([("withdraw", {"id": 1}), ("withdraw", {"id": "1.0"}), ("withdraw", {"id": " 1"})], {1: {0}, 2: {1}}),
        ([("withdraw", {"id": "Oslo"}), ("withdraw", {"id": "oslo "})], {1: {0}}),
        ([("withdraw", {"id": 2**63}), ("withdraw", {"id": 2**63 + 1}), ("withdraw", {"id": 1.5})], {}),
        ([("balance", {"id": "a"}), ("balance", {"id": "a"}), ("withdraw", {"id": "a"})], {2: {0, 1}}),
        (
            [("withdraw", {"id": "a"}), ("withdraw", {"id": "b"}), ("transfer", {"source": "a", "target": "b"})],
            {2: {0, 1}},
        ),
        (
            [("withdraw", {"id": "a"}), ("audit", {}), ("audit", {}), ("withdraw", {"id": "b"})],
            {1: {0}, 2: {0}, 3: {0, 1, 2}},
        ),
        ([("rates", {}), ("withdraw", {"id": "a"}), ("reset", {}), ("rates", {})], {1: {0}, 2: {1}, 3: {2}}),
        ([("withdraw", {}), ("withdraw", {"id": "a"})], {1: {0}}),
        ([("transfer", {"source": "a", "target": "b"}), ("transfer", {"source": "b", "target": "c"})], {1: {0}}),
        ([("send", {}), ("ping", {}), ("send", {}), ("other", {}), ("withdraw", {"id": "a"})], {}),
    ],
)
def test_call_waits_for_earlier_calls_that_it_conflicts_with(
    names_and_arguments: list[tuple[str, dict[str, Any]]], order: dict[int, set[int]]
) -> None:
    conflicting = [
        ToolCall(str(number), name, arguments) for number, (name, arguments) in enumerate(names_and_arguments)
    ]
    assert call_order(conflicting, ACCOUNTS) == order


def test_ordered_calls_run_one_after_the_other_and_the_others_together() -> None:
    log: list[str] = []
    all_started = asyncio.Event()

    async def work(call: ToolCall, context: RunContext[Any]) -> ToolResult:
        log.append(f"start {call.id}")
        if call.id in ("0", "3"):
            if "start 0" in log and "start 3" in log:
                all_started.set()
            await all_started.wait()
        log.append(f"end {call.id}")
        return ToolResult(call.id, call.name, call.id)

    async def main() -> list[str]:
        ended = each_call(planned("a", "b", "c", "d"), work, order={1: {0}, 2: {1}})
        return [result.value async for _, result, _ in ended]

    assert sorted(asyncio.run(asyncio.wait_for(main(), BOUND))) == ["0", "1", "2", "3"]
    assert log.index("end 0") < log.index("start 1") < log.index("end 1") < log.index("start 2")
    assert log.index("start 3") < log.index("end 0")


def test_calls_with_a_concurrency_of_one_run_in_their_order() -> None:
    log: list[str] = []

    async def work(call: ToolCall, context: RunContext[Any]) -> ToolResult:
        await asyncio.sleep(0)
        log.append(call.id)
        return ToolResult(call.id, call.name)

    async def main() -> list[int]:
        ended = each_call(planned("a", "b", "c"), work, max_concurrency=1, order={1: {0}})
        return [position async for position, _, _ in ended]

    assert asyncio.run(main()) == [0, 1, 2]
    assert log == ["0", "1", "2"]


def test_order_of_many_calls_costs_linear_work() -> None:
    many = [ToolCall(str(n), "withdraw", {"id": str(n % 100)}) for n in range(4_000)]
    order = call_order(many, ACCOUNTS)
    assert sum(map(len, order.values())) == 3_900
    mixed = [ToolCall(str(n), ("audit", "withdraw")[n % 2], {"id": str(n)}) for n in range(4_000)]
    assert sum(map(len, call_order(mixed, ACCOUNTS).values())) < 3 * 4_000
