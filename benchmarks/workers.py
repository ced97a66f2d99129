"""What workers cost, as ratios in one run: a call, two processes against one, and the memory of a process.

- A call to a warm worker, compared with a Unix-socket echo of the same bytes between two asyncio processes.
- CPU-bound calls of at least 200 ms in one process, compared with two processes. The best of five rounds counts.
- The resident memory of a worker, compared with a Python process that has imported asyncio, msgspec and jsonschema-rs.

Exits 1 if a ratio is over its budget.
"""

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from midspan._types.context import RunContext
from midspan.messages import ToolCall, ToolResult
from midspan.tools import Workers
from midspan.tools.workers.job import Job, encode_json
from midspan.tools.workers.protocol import Result, encode

ROUNDS, CALLS = 200, 20
"""The fastest round of each case counts: other programs make rounds slower, never faster."""
CPU_ROUNDS, CPU_CALLS, CPU_SECONDS = 5, 8, 0.25
BUDGETS = {"call": 3.0, "two processes": 1.6, "memory": 1.3}
"""The largest ratios; of two processes, the smallest."""

TOOLS = '''
import os, time

def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b

async def add_async(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b

def burn(steps: int) -> float:
    """Use CPU time; return how much."""
    start = time.process_time()
    for _ in range(steps):
        pass
    return time.process_time() - start

def pids() -> list[int]:
    """The process and its supervisor."""
    return [os.getpid(), os.getppid()]
'''
ECHO = """
import asyncio, os, sys

class Echo(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.transport.write(data)

    def connection_lost(self, error):
        os._exit(0)

async def main():
    server = await asyncio.get_running_loop().create_unix_server(Echo, sys.argv[1])
    print("ready", flush=True)
    await server.serve_forever()

asyncio.run(main())
"""
FLOOR = "import asyncio, msgspec, jsonschema_rs; print('ready', flush=True); input()"


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "bench_tools.py"
        file.write_text(TOOLS)
        results = asyncio.run(measure(file))
    call, processes, memory = results
    is_exceeded = call > BUDGETS["call"] or processes < BUDGETS["two processes"] or memory > BUDGETS["memory"]
    return int(is_exceeded)


async def measure(file: Path) -> tuple[float, float, float]:
    async with Workers(file, processes=1) as one, Workers(file, processes=2) as two:
        memory = await memory_ratio(one)
        call = await call_ratio(one, file.parent)
        processes = await process_ratio(one, two)
    return call, processes, memory


async def call_ratio(workers: Workers, folder: Path) -> float:
    path = str(folder / "echo")
    server = start(ECHO, path)
    sent = len(encode(Job(_call("add"), RunContext()).message(1, 30.0)))
    received = len(encode(Result(1, encode_json(ToolResult("1", "add", 3)))))
    _, client = await asyncio.get_running_loop().create_unix_connection(_Client, path)
    cases: dict[str, Callable[[], Awaitable[object]]] = {
        "echo": lambda: client.exchange((sent + received) // 2),
        "add": lambda: workers.call(_call("add")),
        "add_async": lambda: workers.call(_call("add_async")),
    }
    rounds = [{name: await _microseconds(case) for name, case in cases.items()} for _ in range(ROUNDS)]
    server.kill()
    server.communicate()
    fastest = {name: min(sample[name] for sample in rounds) for name in cases}
    print(f"echo of {(sent + received) // 2} bytes: {fastest['echo']:.0f} µs")
    for name in ("add", "add_async"):
        kind = "an async function" if name == "add_async" else "a plain function"
        ratio = fastest[name] / fastest["echo"]
        print(f"call of {kind}: {fastest[name]:.0f} µs, {ratio:.2f}x ({BUDGETS['call']})")
    return max(fastest["add"], fastest["add_async"]) / fastest["echo"]


def start(code: str, *arguments: str) -> "subprocess.Popen[bytes]":
    """Start a Python program and wait until it has printed a line."""
    program = subprocess.Popen([sys.executable, "-c", code, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert program.stdout is not None
    program.stdout.readline()
    return program


class _Client(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._missing = 0

    async def exchange(self, size: int) -> None:
        self._missing = size
        self._done = asyncio.get_running_loop().create_future()
        self._transport.write(bytes(size))
        await self._done

    def data_received(self, data: bytes) -> None:
        self._missing -= len(data)
        if not self._missing:
            self._done.set_result(None)


def _call(name: str) -> ToolCall:
    return ToolCall("1", name, {"a": 1, "b": 2})


async def _microseconds(case: Callable[[], Awaitable[object]]) -> float:
    start = time.perf_counter()
    for _ in range(CALLS):
        await case()
    return (time.perf_counter() - start) / CALLS * 1e6


async def process_ratio(one: Workers, two: Workers) -> float:
    steps = 1_000_000
    while (await _burn(one, steps)) < CPU_SECONDS:
        steps = int(steps * 1.5)
    seconds: list[tuple[float, float]] = []
    for _ in range(CPU_ROUNDS):
        times = []
        for workers in (one, two):
            start = time.perf_counter()
            used = await asyncio.gather(*(_burn(workers, steps) for _ in range(CPU_CALLS)))
            times.append(time.perf_counter() - start)
            assert min(used) >= 0.2, "a call takes at least 200 ms"
        seconds.append((times[0], times[1]))
    ratios = [first / second for first, second in seconds]
    best = max(ratios)
    rounds = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    print(
        f"{CPU_CALLS} CPU-bound calls of {CPU_SECONDS * 1e3:.0f} ms: two processes are {best:.2f}x as fast ({rounds})"
    )
    return best


async def _burn(workers: Workers, steps: int) -> float:
    result = await workers.call(ToolCall("1", "burn", {"steps": steps}))
    assert not result.is_error, result.value
    return float(result.value)


async def memory_ratio(workers: Workers) -> float:
    worker, supervisor = (await workers.call(ToolCall("1", "pids"))).value
    floor = start(FLOOR)
    rss, floor_rss = _kilobytes(worker, "Rss"), _kilobytes(floor.pid, "Rss")
    private = sum(_kilobytes(supervisor, f"Private_{kind}") for kind in ("Clean", "Dirty"))
    floor.communicate(b"\n")
    print(f"memory of a Python process with the same libraries: {floor_rss / 1024:.1f} MB resident")
    print(f"worker: {rss / 1024:.1f} MB resident, {rss / floor_rss:.2f}x ({BUDGETS['memory']})")
    print(f"its supervisor: {private / 1024:.1f} MB that no other process shares")
    return rss / floor_rss


def _kilobytes(pid: int, name: str) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    sys.exit(main())
