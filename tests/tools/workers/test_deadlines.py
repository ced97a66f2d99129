"""At its deadline a call ends with everything that it started, and nothing of it happens afterwards."""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from midspan import Agent
from midspan._types.context import RunContext
from midspan.messages import ToolCall
from midspan.testing import ScriptedProvider
from midspan.tools import WorkerLimits, Workers
from tests.bounds import BOUND
from tests.tools.workers.conftest import TOOLS, Counter, run
from tests.tools.workers.toolfile import HOSTILE


@pytest.mark.requirement("W-01")
@pytest.mark.parametrize("name", HOSTILE)
def test_nothing_happens_after_the_deadline(workers: Workers, counter: Counter, name: str) -> None:
    async def main() -> None:
        for session in ("this", "other"):
            workers.open_session(session)
            assert (await workers.execute_in_session(session, "count", {})).value == 1
        result = await workers.execute_in_session("this", name, {"port": counter.port})
        assert result.is_error
        assert f"{name} timed out after 2 seconds; its process and all processes that it started were killed" in (
            result.value
        )
        assert "Session lost" in result.value
        assert counter.drain(), "the tool has moved the counter"
        counter.assert_it_stands_still()
        assert (await workers.execute_in_session("other", "count", {})).value == 2
        assert (await workers.execute_in_session("this", "count", {})).value == 1

    run(main())


def test_worker_of_the_pool_is_replaced(workers: Workers, counter: Counter) -> None:
    async def main() -> None:
        before = (await workers.execute_in_session(None, "pid", {})).value
        assert (await workers.execute_in_session(None, "busy_loop", {"port": counter.port})).is_error
        after = await workers.execute_in_session(None, "pid", {})
        assert not after.is_error
        assert after.value != before

    run(main())


def test_call_ends_at_the_deadline_of_its_run(workers: Workers, counter: Counter) -> None:
    async def main() -> None:
        await workers.list_tools()
        context = RunContext(None, deadline=time.monotonic() + 1)
        call = ToolCall("1", "ignore_cancellation", {"port": counter.port})  # its own timeout is 60 seconds
        result = await workers.call(call, context)
        assert "timed out" in result.value
        counter.assert_it_stands_still()
        late = await workers.call(call, RunContext(None, deadline=time.monotonic() - 1))
        assert late.value.startswith("ignore_cancellation was not run: ")
        assert counter.drain() == []

    run(main())


HOST = """
import asyncio, sys
from midspan.messages import ToolCall
from midspan.tools import Workers

async def main():
    workers = Workers(sys.argv[1], processes=2, sandbox=sys.argv[3] == "sandbox")
    workers.open_session("s")
    await asyncio.gather(*(workers.execute_in_session(session, "pid", {}) for session in (None, None, "s")))
    port = int(sys.argv[2])
    calls = [
        asyncio.create_task(workers.execute_in_session("s", "daemons", {"port": port})),
        asyncio.create_task(workers.call(ToolCall("1", "ignore_cancellation", {"port": port}))),
    ]
    await workers.execute_in_session(None, "pid", {})  # by now, the others have been sent
    print("ready", flush=True)
    await asyncio.gather(*calls)

asyncio.run(main())
"""


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def processes_with(text: str) -> list[int]:
    """Return the processes that have the text in their command lines: supervisors, workers, and what they forked."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if text.encode() in path.read_bytes():
                pids.append(int(path.parent.name))
    return pids


@pytest.mark.requirement("W-01")
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("mode", ["open", "sandbox"])
def test_no_process_is_left_after_the_host_was_killed(counter: Counter, tmp_path: Path, mode: str) -> None:
    if mode == "sandbox" and shutil.which("bwrap") is None:
        pytest.skip("needs the package bubblewrap")
    tools = tmp_path / "tools_of_this_test.py"
    tools.write_text(TOOLS.read_text())
    command = [sys.executable, "-c", HOST, str(tools), str(counter.port), mode]
    host = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert host.stdout is not None
    with host.stdout:
        assert host.stdout.readline() == "ready\n"
    if mode == "open":  # a sandbox has no network
        while "tool" not in counter.next():
            pass
    assert len(processes_with(str(tools))) > 6, "the host, three supervisors, three workers"
    host.kill()
    host.wait()
    end = time.monotonic() + BOUND
    while processes_with(str(tools)) and time.monotonic() < end:
        time.sleep(0.01)
    assert processes_with(str(tools)) == []
    counter.assert_it_stands_still()


@pytest.mark.parametrize("name", ["wait_politely", "wait_in_thread"])
def test_cancelled_call_is_asked_to_end_and_keeps_its_worker(workers: Workers, counter: Counter, name: str) -> None:
    async def main() -> None:
        before = (await workers.execute_in_session(None, "pid", {})).value
        task = asyncio.create_task(workers.call(ToolCall("1", name, {"port": counter.port})))
        assert await asyncio.to_thread(counter.next) == "started"
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert counter.drain() == ["cancelled True"]
        assert (await workers.execute_in_session(None, "pid", {})).value == before

    run(main())


@pytest.mark.requirement("W-02")
def test_cancelled_call_that_does_not_end_is_killed_after_two_seconds(workers: Workers, counter: Counter) -> None:
    async def main() -> None:
        task = asyncio.create_task(workers.call(ToolCall("1", "ignore_cancellation", {"port": counter.port})))
        assert await asyncio.to_thread(counter.next) == "started"
        begin = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert time.monotonic() - begin >= 1.9
        counter.assert_it_stands_still()

    run(main())


def test_cancelled_call_that_waits_for_a_worker_is_never_started(workers: Workers, counter: Counter) -> None:
    async def main() -> None:
        first = asyncio.create_task(workers.call(ToolCall("1", "wait_politely", {"port": counter.port})))
        assert await asyncio.to_thread(counter.next) == "started"
        second = asyncio.create_task(workers.call(ToolCall("2", "wait_politely", {"port": counter.port})))
        await asyncio.sleep(0.1)
        for task in (second, first):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert counter.drain() == ["cancelled True"]

    run(main())


@pytest.mark.requirement("W-02")
def test_closing_a_stream_cancels_its_call_in_the_worker(workers: Workers, counter: Counter) -> None:
    async def read() -> None:
        model = ScriptedProvider([ToolCall("1", "wait_politely", {"port": counter.port}), "done"])
        async with Agent(model, tools=workers).stream("?") as stream:
            async for _ in stream:
                pass

    async def main() -> None:
        reader = asyncio.create_task(read())
        assert await asyncio.to_thread(counter.next) == "started"
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        assert counter.drain() == ["cancelled True"]

    run(main())


@pytest.mark.requirement("W-03")
def test_worker_that_does_not_react_is_killed_and_replaced(
    make_workers: Callable[..., Workers], counter: Counter
) -> None:
    workers = make_workers(limits=WorkerLimits(stuck_seconds=1, ping_seconds=0.2))

    async def main() -> None:
        await workers.list_tools()
        result = await workers.execute_in_session(None, "stuck", {"port": counter.port})
        assert "did not react any more and was killed" in result.value
        counter.assert_it_stands_still()
        assert not (await workers.execute_in_session(None, "pid", {})).is_error

    run(main())


def test_worker_with_a_deadline_may_hold_the_interpreter_lock_until_then(
    make_workers: Callable[..., Workers], counter: Counter
) -> None:
    workers = make_workers(limits=WorkerLimits(stuck_seconds=0.2, ping_seconds=0.1))

    async def main() -> Any:
        await workers.list_tools()
        return await workers.execute_in_session(None, "hold_gil", {"port": counter.port, "seconds": 1})

    assert not run(main()).is_error


@pytest.mark.requirement("W-04")
def test_memory_and_cpu_time_are_limited(make_workers: Callable[..., Workers]) -> None:
    workers = make_workers(limits=WorkerLimits(max_memory_bytes=2**29, max_cpu_seconds=1))

    async def main() -> None:
        assert not (await workers.execute_in_session(None, "allocate", {"megabytes": 1})).is_error
        memory = await workers.execute_in_session(None, "allocate", {"megabytes": 1000})
        assert memory.value == "allocate failed: MemoryError"
        cpu = await workers.execute_in_session(None, "burn", {})
        assert "it used too much CPU time" in cpu.value

    run(main())


def test_supervisor_that_is_terminated_kills_first(workers: Workers, counter: Counter) -> None:
    async def main() -> None:
        worker = (await workers.execute_in_session(None, "pid", {})).value
        task = asyncio.create_task(workers.call(ToolCall("1", "daemons", {"port": counter.port})))
        await asyncio.to_thread(counter.next)
        os.kill(parent_of(worker), signal.SIGTERM)
        assert "outcome unknown" in (await task).value
        counter.assert_it_stands_still()

    run(main())


SIGNAL_DURING_CLEANUP = """
import os, signal, socket
from midspan.tools.workers.supervisor import supervise

class Connection(socket.socket):
    def sendall(self, data):
        os.kill(os.getpid(), signal.SIGTERM)  # the worker has ended, and its supervisor tells the host
        super().sendall(data)

ours, theirs = socket.socketpair()
supervise(Connection(fileno=ours.detach()), lambda *_: os._exit(7))
print("survived")
"""


def test_signal_that_arrives_while_a_supervisor_cleans_up_is_not_lost() -> None:
    command = [sys.executable, "-c", SIGNAL_DURING_CLEANUP]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=BOUND, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGTERM, "", "")


def test_program_that_ends_right_after_a_timeout_prints_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(
        "from midspan import tool\n\n@tool(timeout=0.5, isolate=True)\n"
        "def spin() -> None:\n    while True:\n        pass\n"
    )
    program = (
        "import asyncio\nfrom midspan.messages import ToolCall\nfrom midspan.tools import execute\n"
        "from slow import spin\n"
        "print(asyncio.run(execute(spin, ToolCall('1', 'spin'))).value)"
    )
    ended = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=BOUND)
    assert "spin timed out after 0.5 seconds" in ended.stdout
    assert "Traceback" not in ended.stderr
    assert "could not be started" not in ended.stderr
