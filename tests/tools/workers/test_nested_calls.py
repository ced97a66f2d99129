"""Calls that tools in workers make to tools in workers of the same source: no call waits for itself."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from midspan import Agent, RunContext, Tool, tool
from midspan.messages import ToolCall
from midspan.testing import ScriptedProvider
from midspan.tools import Prefixed, ToolLike, WorkerLimits, Workers
from tests.bounds import BOUND
from tests.server.serving import wait_until
from tests.tools.workers.conftest import TOKEN, TOOLS, Counter, Dial, is_running, run

DEADLOCK = "descend was not run: all workers that could run it are busy with calls that wait for it, directly or not"


@pytest.fixture
def host(make_workers: Callable[..., Workers]) -> Workers:
    """Has only the workers that a test starts."""
    limits = WorkerLimits(start_seconds=BOUND)
    workers = make_workers(None, listen="tcp:127.0.0.1:0", token=TOKEN, limits=limits)
    run(workers.start())
    return workers


def barrier(parties: int) -> Tool[..., Any]:
    """Return a tool of the host whose calls wait until there are so many of them."""
    gate = asyncio.Barrier(parties)

    @tool(read_only=True, name="barrier")
    async def wait() -> str:
        """Waits for other calls."""
        await gate.wait()
        return "passed"

    return wait


async def ask(tools: ToolLike | list[ToolLike], *calls: ToolCall) -> list[Any]:
    """Run calls in one turn and return their values."""
    result = await Agent(ScriptedProvider([[*calls], "done"]), tools=tools).run("?")
    return [tool_run.value for tool_run in result.tool_calls]


@pytest.mark.requirement("W-11")
def test_nested_call_that_no_connected_worker_can_run_fails_at_once(host: Workers, dial: Dial) -> None:
    dial(host)
    [[pid, problem]] = run(ask(host, ToolCall("1", "descend", {"levels": 1})))
    assert isinstance(pid, int)
    assert problem == DEADLOCK
    assert isinstance(run(host.execute_in_session(None, "pid", {})).value, int)


@pytest.mark.requirement("W-11")
def test_parallel_calls_whose_nested_calls_need_the_workers_of_each_other_do_not_deadlock(
    host: Workers, dial: Dial
) -> None:
    dial(host)
    dial(host)

    async def main() -> list[Any]:
        call = {"names": ["barrier", "descend"]}
        return await ask([host, barrier(2)], ToolCall("1", "call_in_order", call), ToolCall("2", "call_in_order", call))

    values = [nested for _, nested in run(main())]
    assert values.count(DEADLOCK) == 1
    assert [type(value) for value in values if value != DEADLOCK] == [list]


@pytest.mark.requirement("W-11")
def test_nested_call_waits_for_a_worker_that_runs_an_unrelated_call(
    host: Workers, dial: Dial, counter: Counter
) -> None:
    dial(host)
    dial(host)

    async def main() -> None:
        unrelated = asyncio.create_task(host.execute_in_session(None, "wait_politely", {"port": counter.port}))
        assert await asyncio.to_thread(counter.next) == "started"

        @tool(read_only=True)
        async def end_unrelated() -> str:
            """Frees the other worker, after the nested call began to wait for it."""
            for _ in range(100):
                await asyncio.sleep(0)
            unrelated.cancel()
            return "ended"

        call = ToolCall("1", "call_at_once", {"names": ["descend", "end_unrelated"]})
        [[pids, ended]] = await ask([host, end_unrelated], call)
        assert (len(pids), ended) == (1, "ended")

    run(main())


@pytest.mark.requirement("W-11")
def test_nested_call_that_waits_fails_when_the_other_worker_is_lost(
    host: Workers, dial: Dial, counter: Counter
) -> None:
    first = dial(host)

    async def main() -> None:
        unrelated = asyncio.create_task(host.execute_in_session(None, "wait_politely", {"port": counter.port}))
        assert await asyncio.to_thread(counter.next) == "started"
        dial(host)

        @tool(read_only=True)
        async def kill_first() -> str:
            """Ends the worker for which the nested call waits."""
            for _ in range(100):
                await asyncio.sleep(0)
            first.kill()
            return "killed"

        call = ToolCall("1", "call_at_once", {"names": ["descend", "kill_first"]})
        assert await ask([host, kill_first], call) == [[DEADLOCK, "killed"]]
        assert "outcome unknown" in (await unrelated).value

    run(main())


@pytest.mark.requirement("W-11")
def test_nested_call_through_an_agent_of_the_host_is_part_of_the_chain(host: Workers, dial: Dial) -> None:
    dial(host)

    @tool(read_only=True)
    async def ask_another_agent() -> Any:
        """Runs an agent that uses the same workers."""
        return await ask(host, ToolCall("1", "descend"))

    [[values]] = run(ask([host, ask_another_agent], ToolCall("1", "call_in_order", {"names": ["ask_another_agent"]})))
    assert values == [DEADLOCK]


@pytest.mark.requirement("W-11")
def test_nested_calls_of_a_pool_get_processes_when_all_are_occupied(make_workers: Callable[..., Workers]) -> None:
    workers = make_workers(processes=2)

    async def main() -> list[Any]:
        call = {"names": ["barrier", "call_more"]}

        @tool(read_only=True)
        async def call_more(context: RunContext[None]) -> Any:
            """Calls tools of the workers from the host."""
            results = await asyncio.gather(*(context.call_tool("descend", {"levels": 1}) for _ in range(4)))
            return [result.value for result in results]

        calls = [ToolCall(str(number), "call_in_order", call) for number in range(2)]
        return await ask([workers, barrier(2), call_more], *calls)

    for _, nested in run(main()):
        assert [len(pids) for pids in nested] == [2, 2, 2, 2]
        assert all(isinstance(pid, int) for pids in nested for pid in pids)


@pytest.mark.requirement("W-11")
def test_processes_that_nested_calls_needed_are_retired(make_workers: Callable[..., Workers]) -> None:
    workers = make_workers(limits=WorkerLimits(ping_seconds=0.1))
    [pids] = run(ask(workers, ToolCall("1", "descend", {"levels": 2})))
    assert len(set(pids)) == 3
    wait_until(lambda: sum(map(is_running, pids)) == 1)
    assert run(workers.execute_in_session(None, "pid", {})).value in pids


@pytest.mark.requirement("W-11")
def test_nested_call_fails_if_no_further_process_can_be_started(
    make_workers: Callable[..., Workers], tmp_path: Path
) -> None:
    file = tmp_path / "changing.py"
    file.write_text(TOOLS.read_text())
    workers = make_workers(file)

    @tool(read_only=True)
    def break_file() -> str:
        """Makes the file of the workers unusable."""
        file.write_text("import nothing_of_this_name")
        return "broken"

    call = ToolCall("1", "call_in_order", {"names": ["break_file", "descend"]})
    [[_, problem]] = run(ask([workers, break_file], call))
    assert "descend was not run: cannot load the tools in" in problem


@pytest.mark.requirement("W-11")
def test_sessions_that_call_each_other_do_not_deadlock(workers: Workers) -> None:
    for session in ("a", "b"):
        workers.open_session(session)

    async def main() -> list[Any]:
        tools = [Prefixed(workers.source("a"), "a_"), Prefixed(workers.source("b"), "b_"), barrier(2)]
        return await asyncio.gather(
            ask(tools, ToolCall("1", "a_call_in_order", {"names": ["barrier", "b_descend"]})),
            ask(tools, ToolCall("1", "b_call_in_order", {"names": ["barrier", "a_descend"]})),
        )

    values = [nested for [[_, nested]] in run(main())]
    refused = [value for value in values if "occupies the session" in str(value)]
    assert len(refused) == 1
