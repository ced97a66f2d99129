"""Sessions: state stays in a process of its own, and its loss is reported."""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from midspan import Agent
from midspan.errors import UnknownSessionError
from midspan.messages import ToolCall, ToolResult
from midspan.testing import ScriptedProvider
from midspan.tools import WorkerLimits, Workers
from tests.tools.workers.conftest import run


def execute(workers: Workers, session: str, name: str = "count") -> ToolResult:
    return run(workers.execute_in_session(session, name, {}))


@pytest.mark.requirement("S0-15", "S0-16")
def test_sessions_keep_their_state_in_processes_of_their_own(workers: Workers) -> None:
    for session in ("user_123", "user_456"):
        workers.open_session(session)
    assert [execute(workers, "user_123").value for _ in range(3)] == [1, 2, 3]
    assert execute(workers, "user_456").value == 1
    pids = {execute(workers, session, "pid").value for session in ("user_123", "user_456", "user_123")}
    assert len(pids | {os.getpid()}) == 3


@pytest.mark.requirement("S0-12", "S0-16")
def test_unknown_session_is_an_error(workers: Workers) -> None:
    workers.open_session("known")
    for use in (workers.list_tools, workers.close_session, lambda name: workers.execute_in_session(name, "count", {})):
        with pytest.raises(UnknownSessionError, match="unknown session 'other'; open ones: 'known'"):
            run(use("other"))
    with pytest.raises(UnknownSessionError):
        workers.source("other")
    run(workers.close_session("known"))
    with pytest.raises(UnknownSessionError):
        execute(workers, "known")


@pytest.mark.requirement("S0-16")
def test_session_can_have_tools_of_its_own(workers: Workers, tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text("def only_here() -> int:\n    'Is only here.'\n    return 5\n")
    workers.open_session("own", file)
    workers.open_session("common")
    assert [spec.name for spec in run(workers.list_tools("own"))] == ["only_here"]
    assert "count" in [spec.name for spec in run(workers.list_tools("common"))]
    assert execute(workers, "own", "only_here").value == 5
    assert execute(workers, "common", "only_here").is_error
    assert "unknown tool" in execute(workers, "own", "count").value


@pytest.mark.requirement("W-06")
def test_loss_of_a_session_is_reported_once(workers: Workers) -> None:
    workers.open_session("s")
    assert execute(workers, "s").value == 1
    os.kill(execute(workers, "s", "pid").value, signal.SIGKILL)

    async def until_lost() -> ToolResult:
        while True:
            result = await workers.execute_in_session("s", "count", {})
            if result.is_error:
                return result
            await asyncio.sleep(0.01)

    lost = run(until_lost())
    assert "ession lost" in lost.value
    assert execute(workers, "s").value == 1


@pytest.mark.requirement("W-06")
def test_call_for_a_session_whose_process_is_ending_was_not_run(workers: Workers) -> None:
    workers.open_session("s")
    assert execute(workers, "s").value == 1
    pool = workers._open_pool()
    worker = pool._sessions._sessions["s"].worker
    assert worker is not None

    async def main() -> ToolResult:
        pool.loop.call_soon_threadsafe(worker.kill, "died")
        return await workers.execute_in_session("s", "count", {})

    assert run(main()).value == (
        "count was not run: session lost: the process of session 's' was killed by SIGKILL, and its state is gone; the "
        "next call starts anew"
    )
    assert execute(workers, "s").value == 1


def test_calls_of_a_session_run_one_after_another(workers: Workers) -> None:
    workers.open_session("s")

    async def main() -> list[int]:
        results = await asyncio.gather(*(workers.execute_in_session("s", "count", {}) for _ in range(10)))
        return [result.value for result in results]

    assert run(main()) == list(range(1, 11))


@pytest.mark.requirement("W-06")
def test_session_that_was_idle_longest_makes_room_and_is_told(make_workers: Callable[..., Workers]) -> None:
    workers = make_workers(limits=WorkerLimits(max_sessions=2))
    for session in ("a", "b", "c"):
        workers.open_session(session)
        assert execute(workers, session).value == 1
    assert execute(workers, "c").value == 2
    assert execute(workers, "b").value == 2
    lost = execute(workers, "a")
    assert lost.value == (
        "count was not run: session lost: the process of session 'a' was ended to make room for another session, and "
        "its state is gone; the next call starts anew"
    )
    assert execute(workers, "a").value == 1


def test_no_session_is_evicted_while_it_is_busy(make_workers: Callable[..., Workers], counter: object) -> None:
    workers = make_workers(limits=WorkerLimits(max_sessions=1))
    port = counter.port  # type: ignore[attr-defined]

    async def main() -> ToolResult:
        workers.open_session("a")
        workers.open_session("b")
        busy = asyncio.create_task(workers.execute_in_session("a", "wait_politely", {"port": port}))
        await asyncio.to_thread(counter.next)  # type: ignore[attr-defined]
        refused = await workers.execute_in_session("b", "count", {})
        busy.cancel()
        await asyncio.gather(busy, return_exceptions=True)
        return refused

    assert run(main()).value == "count was not run: all 1 sessions are busy, and no more are allowed"


@pytest.mark.requirement("W-06")
def test_idle_session_loses_its_process(make_workers: Callable[..., Workers]) -> None:
    workers = make_workers(limits=WorkerLimits(idle_seconds=0.2, ping_seconds=0.1))
    workers.open_session("s")
    pid = execute(workers, "s", "pid").value

    async def until_it_ended() -> None:
        while True:
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                return
            await asyncio.sleep(0.01)

    run(until_it_ended())
    assert "seconds without a call" in execute(workers, "s").value


def test_session_is_a_source_for_an_agent(workers: Workers) -> None:
    workers.open_session("s")
    agent = Agent(ScriptedProvider([ToolCall("1", "count"), ToolCall("2", "count"), "done"]), tools=workers.source("s"))
    assert [tool_run.value for tool_run in agent.run_sync("?").tool_calls] == [1, 2]
    assert execute(workers, "s").value == 3


def test_calls_outside_a_run_have_idempotency_keys_of_their_own(workers: Workers) -> None:
    workers.open_session("s")
    keys = {run(workers.execute_in_session(name, "idempotency_key", {})).value for name in ("s", "s", None)}
    assert len(keys) == 3
    assert all(keys)
