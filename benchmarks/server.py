"""The HTTP server under load, against the strict local Gemini: CPU per run, memory, and runs that get lost.

`python benchmarks/server.py [SECONDS]` runs 256 conversations with two tool turns each, at once and again and again.
CPU per run is compared with that of a bare Starlette application that returns the same bytes, plus that of the loop in
a plain program. Then a thousand clients subscribe to a run that does nothing. Exits 1 if a budget is exceeded.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

CONVERSATIONS = 256
SUBSCRIBERS = 1_000
SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else 60.0
FLOOR_SECONDS = max(3.0, SECONDS / 6)
CPU_BUDGET = 3.0
GROWTH_BUDGET_MB = 20.0
SUBSCRIBERS_BUDGET_MB = 60.0
BODY = json.dumps({"prompt": "What is 1 + 2?"}).encode()
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS = os.sysconf("SC_CLK_TCK")

GEMINI = """
import asyncio
from midspan.emulator import LocalGemini, answer, call

async def main():
    script = [call("add", a=1, b=2), answer("And now: ", call("add", a=3, b=4)), "It is 7."]
    async with LocalGemini(script) as server:
        print(server.url, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""
TOOLS = '''
import asyncio

async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b

async def wait() -> str:
    """Wait forever."""
    await asyncio.Event().wait()
    return "never"
'''
BARE = """
import sys
import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

BYTES = open(sys.argv[1], "rb").read()

async def chat(request):
    await request.body()
    return Response(BYTES, media_type="application/json")

class Server(uvicorn.Server):
    async def startup(self, sockets=None):
        await super().startup(sockets)
        print("http://127.0.0.1:%d" % self.servers[0].sockets[0].getsockname()[1], flush=True)

app = Starlette(routes=[Route("/api/v1/chat", chat, methods=["POST"])])
Server(uvicorn.Config(app, port=0, access_log=False, log_level="warning")).run()
"""
LOOP = """
import asyncio, sys, time
import uvloop
from midspan import Agent, Gemini, tool

sys.path.insert(0, sys.argv[2])
from tools import add

async def main():
    agent = Agent(Gemini("gemini-3.8-flash", api_key="k", base_url=sys.argv[1]), [tool(add)])
    await agent.run("What is 1 + 2?")
    end = time.monotonic() + float(sys.argv[3])
    count = 0
    async def worker():
        nonlocal count
        while time.monotonic() < end:
            result = await agent.run("What is 1 + 2?")
            assert result.text == "It is 7."
            count += 1
    before = time.process_time()
    await asyncio.gather(*[worker() for _ in range(int(sys.argv[4]))])
    print((time.process_time() - before) / count * 1000, flush=True)

uvloop.run(main())
"""


class Load(NamedTuple):
    """What a server did: milliseconds of CPU per request, requests, lost ones, and its memory in MB over time."""

    cpu_ms: float
    requests: int
    lost: int
    memory: list[float]


class Process:
    """A program whose first line of output is its URL."""

    def __init__(self, *command: str, environment: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})}
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        if not self.url:
            sys.exit(f"{command[-1]} did not start")

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def memory_mb(self) -> float:
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * PAGE_BYTES / 1e6

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)


class Client:
    """One keep-alive connection."""

    def __init__(self, url: str) -> None:
        self._host, _, port = url.removeprefix("http://").partition(":")
        self._port = int(port)

    async def connect(self) -> None:
        self.reader, self.writer = await asyncio.open_connection(self._host, self._port)

    async def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        head = (
            f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        )
        self.writer.write(f"{head}\r\n\r\n".encode() + body)
        headers = await self.reader.readuntil(b"\r\n\r\n")
        length = int(headers.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        return int(headers[9:12]), await self.reader.readexactly(length)

    def close(self) -> None:
        self.writer.close()


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "tools.py").write_text(TOOLS)
        gemini = Process(sys.executable, "-c", GEMINI)
        try:
            return report(folder, gemini.url)
        finally:
            gemini.stop()


def report(folder: Path, gemini: str) -> int:
    loop = float(
        subprocess.run(
            [sys.executable, "-c", LOOP, gemini, str(folder), str(FLOOR_SECONDS), str(CONVERSATIONS)],
            capture_output=True, text=True, check=True,
        ).stdout
    )  # fmt: skip
    server = start_server(folder, gemini)
    try:
        sample = asyncio.run(ask_once(server.url))
        load = asyncio.run(drive(server, SECONDS, b"It is 7."))
    finally:
        server.stop()
    (folder / "sample.json").write_bytes(sample)
    bare_server = Process(sys.executable, "-c", BARE, str(folder / "sample.json"))
    try:
        bare = asyncio.run(drive(bare_server, FLOOR_SECONDS, b"It is 7."))
    finally:
        bare_server.stop()
    subscribers_mb = asyncio.run(subscribe(folder))
    floor = bare.cpu_ms + loop
    growth = load.memory[-1] - load.memory[len(load.memory) // 3]
    print(f"bare Starlette: {bare.cpu_ms:.3f} ms of CPU per request")
    print(f"the loop alone: {loop:.3f} ms of CPU per run")
    print(f"the server:     {load.cpu_ms:.3f} ms of CPU per run, {load.requests:,} runs, {load.lost} lost")
    print(f"memory: {load.memory[0]:.0f} MB at the start, {load.memory[-1]:.0f} MB at the end")
    rows = [
        ("CPU per run, as a multiple of bare Starlette and the loop", load.cpu_ms / floor, CPU_BUDGET),
        ("lost runs", load.lost, 0),
        ("MB of growth in the last two thirds", growth, GROWTH_BUDGET_MB),
        (f"MB for {SUBSCRIBERS:,} idle subscribers", subscribers_mb, SUBSCRIBERS_BUDGET_MB),
    ]
    for label, value, budget in rows:
        print(f"{label}: {value:.2f} ({budget}){'  OVER BUDGET' if value > budget else ''}")
    return int(any(value > budget for _, value, budget in rows))


def start_server(folder: Path, gemini: str) -> Process:
    return Process(
        *(sys.executable, "-m", "midspan", "serve", "--port", "0", "--model", "gemini:gemini-3.8-flash"),
        *("--tools", str(folder / "tools.py"), "--journal", str(folder / "journal.db")),
        environment={"GEMINI_API_KEY": "k", "GOOGLE_GEMINI_BASE_URL": gemini, "XDG_CONFIG_HOME": str(folder)},
    )


async def ask_once(url: str) -> bytes:
    client = Client(url)
    await client.connect()
    status, body = await client.post("/api/v1/chat", BODY)
    assert status == 200, body
    client.close()
    return body


async def drive(server: Process, seconds: float, expected: bytes) -> Load:
    """Keep all conversations busy for some seconds."""
    clients = [Client(server.url) for _ in range(CONVERSATIONS)]
    for client in clients:
        await client.connect()
    requests = lost = 0
    end = time.monotonic() + seconds
    memory = [server.memory_mb()]

    async def converse(client: Client) -> None:
        nonlocal requests, lost
        while time.monotonic() < end:
            status, body = await client.post("/api/v1/chat", BODY)
            requests += 1
            lost += status != 200 or expected not in body

    async def watch_memory() -> None:
        while time.monotonic() < end:
            await asyncio.sleep(seconds / 12)
            memory.append(server.memory_mb())

    before = server.cpu_seconds()
    await asyncio.gather(watch_memory(), *map(converse, clients))
    cpu = server.cpu_seconds() - before
    for client in clients:
        client.close()
    return Load(cpu / requests * 1_000, requests, lost, memory)


async def subscribe(folder: Path) -> float:
    """Return how many MB the server takes for subscribers of a run that waits for its tool."""
    script = GEMINI.replace('call("add", a=1, b=2)', 'call("wait")')
    waiting = Process(sys.executable, "-c", script)
    server = start_server(folder, waiting.url)
    try:
        client = Client(server.url)
        await client.connect()
        _, body = await client.post("/api/v1/runs", BODY)
        run_id: Any = json.loads(body)["run_id"]
        head = f"GET /api/v1/runs/{run_id}/events HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        subscribers: list[Client] = []

        async def connect(count: int) -> None:
            for _ in range(count):
                subscriber = Client(server.url)
                await subscriber.connect()
                subscriber.writer.write(head)
                await subscriber.reader.readuntil(b"tool_start")
                subscribers.append(subscriber)

        await connect(1)
        before = server.memory_mb()
        await connect(SUBSCRIBERS)
        after = server.memory_mb()
        for subscriber in subscribers:
            subscriber.close()
    finally:
        server.stop()
        waiting.stop()
    return after - before


if __name__ == "__main__":
    sys.exit(main())
