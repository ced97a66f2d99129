"""Send requests to a server of malformed responses: python scripts/fuzz_http.py [--responses N] [--seed N]

Each response is a valid one with random mutations, sent in random pieces, after which the server closes or resets the
connection or waits for the next request. Every request must end with a response or a ProviderError, in time. In
between, requests with a known response check that no connection with leftover data is reused. At the end no task, no
connection and no file may be left open, and asyncio must not have logged an error. Counts last on one line; exits 1 on
a failure.
"""

import project_python  # noqa: F401 - it comes first, before what another Python may not have

# isort: split
import argparse
import asyncio
import gc
import gzip
import os
import random
import socket
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable

from midspan._http.transport import HttpRequest, Timeouts, Transport
from midspan.errors import NetworkError, ProviderError

CONCURRENCY = 32
HANG_SECONDS = 60.0
TIMEOUTS = Timeouts(connect=HANG_SECONDS, first_byte=0.2, between_bytes=0.2, total=2.0)
PATIENT = Timeouts(connect=HANG_SECONDS)
MAX_BODY_BYTES = 2**20

OK = b"HTTP/1.1 200 OK\r\n"
JSON = b'{"candidates": [{"content": {"parts": [{"text": "hello"}]}}]}'
PACKED = gzip.compress(JSON * 20)
VALID = (
    OK + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(JSON) + JSON,
    OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n10;ext=1\r\n0123456789abcdef\r\n0\r\nX-Trailer: 1\r\n\r\n",
    OK + b"Connection: close\r\n\r\nuntil the connection is closed",
    OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(PACKED) + PACKED,
    OK + b"Content-Encoding: deflate\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK + b"Content-Length: 2\r\n\r\nok",
    b"HTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n\x81\x05hello",
    b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nold",
    b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: 4\r\n\r\nslow",
    OK + b"Set-Cookie: a=1\r\nSet-Cookie: b=2\r\nContent-Length: 0\r\n\r\n",
)
INSERTED = (
    b"\0", b"\r", b"\n", b"\r\n", b"\r\n\r\n", b" ", b"\t", b":", b"\xff\xfe", b"-1", b"0", b"99999999999999999999",
    b"Content-Length: 3\r\n", b"Content-Length: 4, 4\r\n", b"Transfer-Encoding: chunked\r\n", b"X: " + b"a" * 200_000,
    b"Transfer-Encoding: gzip, chunked\r\n", b"Content-Encoding: br\r\n", b"Connection: close\r\n", b"X: y\r\n" * 400,
    b" folded\r\n", b"HTTP/1.1 100 Continue\r\n\r\n" * 150, b"\x16\x03\x01\x02\x00", b"ffffffffffffffffff\r\n",
)  # fmt: skip


def flip(data: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(data))
    return data[:place] + bytes([chance.randrange(256)]) + data[place + 1 :]


def insert(data: bytes, chance: random.Random) -> bytes:
    place = chance.choice([chance.randrange(len(data) + 1), data.find(b"\r\n") + 2, data.find(b"\r\n\r\n") + 4])
    return data[:place] + chance.choice(INSERTED) + data[place:]


def delete(data: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(data))
    return data[:place] + data[place + chance.randint(1, 12) :]


def repeat(data: bytes, chance: random.Random) -> bytes:
    place, length = chance.randrange(len(data)), chance.randint(1, 60)
    return data[:place] + data[place : place + length] * 2 + data[place + length :]


def truncate(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data) + 1)]


def append(data: bytes, chance: random.Random) -> bytes:
    return data + chance.choice([*VALID, b"\r\n", b"x", chance.randbytes(300)])


def replace_all(_: bytes, chance: random.Random) -> bytes:
    return chance.randbytes(chance.randint(0, 2_000))


def use_bare_line_feeds(data: bytes, _: random.Random) -> bytes:
    return data.replace(b"\r\n", b"\n")


MUTATIONS: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    flip, flip, insert, insert, insert, delete, repeat, truncate, append, replace_all, use_bare_line_feeds
)  # fmt: skip


def malformed(chance: random.Random) -> bytes:
    data = chance.choice(VALID)
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        data = chance.choice(MUTATIONS)(data, chance) if data else data
    return data


class FuzzServer:
    """Answers `/fuzz/N` with the malformed response of seed N, and `/known/N` with the body `N`."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def open_connections(self) -> int:
        return len(self._tasks)

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, backlog=256)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0] or 0))
                _, kind, number = head.split(b" ")[1].split(b"/")
                if kind == b"known":
                    writer.write(OK + b"Content-Length: %d\r\n\r\n%b" % (len(number), number))
                elif not await send_malformed(random.Random(int(number)), writer):  # noqa: S311 - repeatable
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


async def send_malformed(chance: random.Random, writer: asyncio.StreamWriter) -> bool:
    """Send a response in pieces; False if the connection is to be closed after it."""
    data = malformed(chance)
    places = sorted(chance.randrange(len(data) + 1) for _ in range(chance.choice([0, 0, 1, 3])))
    for start, stop in zip([0, *places], [*places, len(data)], strict=True):
        writer.write(data[start:stop])
        await writer.drain()
        await asyncio.sleep(0)
    end = chance.random()
    if end < 0.1:
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
    return end >= 0.6


async def fuzz(seeds: range) -> tuple[Counter[str], list[str]]:
    """Return how the requests ended, and what went wrong."""
    outcomes: Counter[str] = Counter()
    failures: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(f"asyncio: {context}"[:300]))
    server = FuzzServer()
    base = await server.start()
    files = open_files()
    transport = Transport(TIMEOUTS, max_body_bytes=MAX_BODY_BYTES)
    waiting = iter(seeds)

    async def work() -> None:
        for seed in waiting:
            try:
                async with asyncio.timeout(HANG_SECONDS):
                    chance = random.Random(seed)  # noqa: S311 - repeatable
                    outcomes[await ask(transport, f"{base}/fuzz/{seed}", chance)] += 1
                    body = await ask_known(transport, f"{base}/known/{seed}")
                if body != b"%d" % seed:
                    failures.append(f"seed {seed}: the next request got a wrong response {body[:80]!r}")
            except Exception as error:  # noqa: BLE001 - every other exception is a finding
                failures.append(f"seed {seed}: {type(error).__name__}: {error}")

    await asyncio.gather(*(work() for _ in range(CONCURRENCY)))
    await transport.aclose()
    for _ in range(100):
        if server.open_connections:
            await asyncio.sleep(0.01)
    failures += left_open(server, files)
    await server.close()
    return outcomes, failures


async def ask(transport: Transport, url: str, chance: random.Random) -> str:
    request = HttpRequest(chance.choice(["POST", "GET"]), url, {}, b"")
    try:
        if chance.random() < 0.5:
            await transport.send(request)
        else:
            async with transport.stream(request) as stream:
                async for _ in stream:
                    if chance.random() < 0.05:
                        return "left early"
    except ProviderError as error:
        return type(error).__name__
    return "response"


async def ask_known(transport: Transport, url: str) -> bytes:
    request, started = HttpRequest("POST", url, {}, b"{}"), time.monotonic()
    try:
        return (await transport.send(request, PATIENT)).body
    except NetworkError:
        # A connection that closes a second after a request was sent does not count as stale. On a busy machine that
        # also happens to connections that were.
        if time.monotonic() - started < 1:
            raise
    return (await transport.send(request, PATIENT)).body


def left_open(server: FuzzServer, files_before: int) -> list[str]:
    gc.collect()
    connections = server.open_connections
    tasks = len(asyncio.all_tasks()) - 1 - connections
    files = open_files() - files_before - connections
    counts = {"connections": connections, "tasks": tasks, "files": files}
    return [f"{count} {name} left open" for name, count in counts.items() if count > 0]


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a count, not paths


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--responses", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    options = parser.parse_args(arguments)
    outcomes, failures = asyncio.run(fuzz(range(options.seed, options.seed + options.responses)))
    for failure in failures[:20]:
        print(f"FAILED {failure}")
    print(", ".join(f"{name} {count}" for name, count in outcomes.most_common()))
    print(f"responses={sum(outcomes.values())} failures={len(failures)}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
