"""Calls from several event loops and threads, of which each reads results itself, and reading inside a worker."""

import asyncio
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from midspan import Agent, tool
from midspan._types.context import RunContext
from midspan.messages import ToolCall, ToolResult
from midspan.testing import ScriptedProvider
from midspan.tools import WorkerLimits, Workers
from midspan.tools.workers.protocol import Call, FrameDecoder
from midspan.tools.workers.worker import _Worker
from tests.bounds import BOUND
from tests.tools.workers.conftest import Counter, is_running, run

MIXED = """
import time
from midspan import RunContext

def add(a: int, b: int) -> int:
    return a + b

async def add_async(a: int, b: int) -> int:
    return a + b

def add_slowly(a: int, b: int) -> int:
    time.sleep(0.06)
    return a + b

def add_by_host(a: int, b: int, context: RunContext) -> int:
    return context.run_blocking(context.call_tool("sum_up", {"a": a, "b": b})).value

def read_clock(context: RunContext) -> float:
    end = time.monotonic() + 30
    while not context.cancelled and time.monotonic() < end:
        time.sleep(0.001)
    return time.monotonic()
"""
READ_ONLY = """
import os, time
from midspan import tool

@tool(read_only=True)
def add(a: int, b: int) -> int:
    return a + b

@tool(read_only=True)
async def add_async(a: int, b: int) -> int:
    return a + b

@tool(read_only=True)
def add_slowly(a: int, b: int) -> int:
    time.sleep(0.05)
    return a + b

@tool(read_only=True)
def pid() -> int:
    return os.getpid()
"""


@pytest.fixture
def mixed(make_workers: Callable[..., Workers], tmp_path: Path) -> Workers:
    file = tmp_path / "mixed.py"
    file.write_text(MIXED)
    return make_workers(file)


def add(number: int, name: str = "add") -> ToolCall:
    return ToolCall(str(number), name, {"a": number, "b": number})


def test_results_reach_their_callers_in_many_event_loops(make_workers: Callable[..., Workers], tmp_path: Path) -> None:
    file = tmp_path / "mixed.py"
    file.write_text(MIXED)
    workers = make_workers(file, processes=2)
    names = ("add", "add_async", "add", "add_slowly")
    failures: list[object] = []

    async def one_after_another(start: int) -> None:
        for number in range(start, start + 50):
            result = await workers.call(add(number, names[number % 4]))
            if (result.id, result.value) != (str(number), 2 * number):
                failures.append(result)

    async def calls(start: int) -> None:
        await asyncio.gather(*(one_after_another(start + 1_000 * lane) for lane in range(3)))

    threads = [threading.Thread(target=run, args=(calls(10_000 * index),)) for index in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND)
    assert not any(thread.is_alive() for thread in threads)
    assert failures == []


async def call_at_random(workers: Workers, random: Random, start: int, failures: list[object]) -> None:
    """Make calls one after another; some are cancelled at any moment, and some block the event loop meanwhile."""
    for number in range(start, start + 10):
        task = asyncio.create_task(workers.call(add(number, random.choice(("add", "add_async", "add_slowly", "add")))))
        await asyncio.sleep(random.choice((0, 0, 0.001)))
        if not number % 7:
            task.cancel()
        elif not number % 11:
            time.sleep(random.choice((0.01, 0.06, 0.12)))  # noqa: ASYNC251 - the pool has to read meanwhile
        await asyncio.wait([task], timeout=BOUND)
        if not task.done():
            failures.append(task)
        elif not task.cancelled() and not is_answer(task.result(), number):
            failures.append(task.result())


def is_answer(result: ToolResult, number: int) -> bool:
    """Whether a call got its own result, or an error that says that its workers were killed."""
    if result.is_error:
        return result.id == str(number) and "killed by SIGKILL" in str(result.value)
    return (result.id, result.value) == (str(number), 2 * number)


@pytest.mark.parametrize("kills", [False, True])
def test_no_result_is_lost_while_event_loops_are_closed_and_workers_die(
    make_workers: Callable[..., Workers], tmp_path: Path, kills: bool
) -> None:
    file = tmp_path / "read_only.py"
    file.write_text(READ_ONLY)
    workers = make_workers(file, processes=2)
    failures: list[object] = []
    end = time.monotonic() + 3

    async def calls(random: Random, start: int) -> None:
        lanes = [asyncio.create_task(call_at_random(workers, random, start + 100 * lane, failures)) for lane in (1, 2)]
        if random.random() < 0.3:  # the event loop is closed at any moment
            await asyncio.wait(lanes, timeout=random.random() / 20)
        else:
            await asyncio.gather(*lanes)
        if kills:
            pid = (await workers.call(ToolCall("1", "pid"))).value
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def loops(seed: int) -> None:
        random, start = Random(seed), 1_000_000 * seed
        while time.monotonic() < end and not failures:
            run(calls(random, start))
            start += 1_000

    threads = [threading.Thread(target=loops, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND)
    assert not any(thread.is_alive() for thread in threads)
    assert failures == []


def test_kinds_of_functions_alternate_in_one_worker(mixed: Workers) -> None:
    @tool(read_only=True)
    def sum_up(a: int, b: int) -> int:
        return a + b

    names = ["add", "add_by_host", "add_async", "add_slowly", "add", "add_by_host", "add_slowly", "add_async"]
    calls = [add(number, name) for number, name in enumerate(names)]
    agent = Agent(ScriptedProvider([*calls, "done"]), tools=[mixed, sum_up])
    results = [tool_run.value for tool_run in run(agent.run("go")).tool_calls if tool_run.name != "sum_up"]
    assert results == [2 * number for number in range(len(names))]


def test_worker_outlives_the_event_loop_that_read_its_results(
    make_workers: Callable[..., Workers],
) -> None:
    workers = make_workers(limits=WorkerLimits(ping_seconds=0.1, stuck_seconds=0.5))
    pid = run(workers.call(ToolCall("1", "pid"))).value
    assert run(workers.call(ToolCall("2", "pid"))).value == pid
    time.sleep(1)  # longer than stuck_seconds: without a reader, its pongs would be missed
    assert run(workers.call(ToolCall("3", "pid"))).value == pid
    os.kill(pid, signal.SIGKILL)
    end = time.monotonic() + BOUND
    while is_running(pid) and time.monotonic() < end:
        time.sleep(0.01)
    assert run(workers.call(ToolCall("4", "pid"))).value != pid


def test_event_loop_keeps_no_reader_of_a_worker_that_died(workers: Workers) -> None:
    """A descriptor that is closed while it is registered would break the next socket that gets its number."""

    async def main() -> None:
        for _ in range(3):
            for number in range(20):
                pid = (await workers.call(ToolCall(str(number), "pid"))).value
            os.kill(pid, signal.SIGKILL)
            await workers.call(ToolCall("1", "pid"))
            pairs = [socket.socketpair() for _ in range(20)]
            for first, second in pairs:
                first.setblocking(False)
                second.send(b"x")
                assert await asyncio.get_running_loop().sock_recv(first, 1) == b"x"
            for pair in pairs:
                for end in pair:
                    end.close()

    run(main())


def test_deadline_kills_while_the_event_loop_of_the_caller_is_blocked(workers: Workers, counter: Counter) -> None:
    async def main() -> None:
        for number in range(20):
            await workers.call(ToolCall(str(number), "pid"))
        context = RunContext(None, deadline=time.monotonic() + 0.5)
        call = ToolCall("1", "ignore_cancellation", {"port": counter.port})
        task = asyncio.create_task(workers.call(call, context))
        await asyncio.sleep(0)  # it is sent
        time.sleep(2)  # noqa: ASYNC251 - the point of this test
        counter.assert_it_stands_still()
        assert "timed out after 0.5 seconds" in (await task).value

    run(main())


def test_plain_function_sees_its_cancellation_soon(mixed: Workers) -> None:
    async def main() -> None:
        for number in range(5):  # the main thread of the worker reads by now
            await mixed.call(add(number))
        context = RunContext[None]()
        task = asyncio.create_task(mixed.call(ToolCall("1", "read_clock"), context))
        await asyncio.sleep(0.01)
        start = time.monotonic()
        task.cancel()
        await asyncio.wait([task])
        assert time.monotonic() - start < 1.5  # it was not killed, which takes two seconds
        assert (await mixed.call(add(9))).value == 18

    run(main())


def test_call_that_the_event_loop_of_a_worker_has_read_does_not_wait_for_another_one() -> None:
    """The main thread has sent a result and not yet looked for the next call, which is already there."""

    async def main() -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            plain = {"add": tool(lambda: 1, name="add", description="Add.")}
            worker = _Worker(ours, FrameDecoder(Call), -1, plain, None)
            worker.loop = asyncio.get_running_loop()
            worker._start(Call(1, "id", "add", b"{}"))
            assert worker._next_plain_call() is None  # it must not read: that would wait for half a second
            assert worker._main_reads
            assert worker._plain_calls.get_nowait() is not None
            worker._read_in_loop()
            worker.loop.remove_reader(ours)

    asyncio.run(main())
