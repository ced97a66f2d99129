"""Very many requests in a row over one transport: neither memory nor open files may grow.

    python benchmarks/soak.py [requests]

Half of them are sent and half are streamed; the server is a process of its own, so that its memory does not count.
"""

import asyncio
import gc
import os
import subprocess
import sys
from pathlib import Path

from midspan._http.transport import HttpRequest, Transport

REQUESTS = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
WARM_UP = 2_000
AT_ONCE = 20
MOST_GROWTH_KILOBYTES = 1_024
MOST_GROWTH_FILES = 2

SERVER = r"""
import asyncio
BODY = b'{"candidates": []}' * 50
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY)
STREAM = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"5\r\nhello\r\n" * 20 + b"0\r\n\r\n"

async def serve(reader, writer):
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            await reader.readexactly(int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0]))
            writer.write(STREAM if b"/stream" in head else ANSWER)
    except asyncio.IncompleteReadError:
        writer.close()

async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main())
"""


def main() -> int:
    server = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        before, after = asyncio.run(soak(f"http://127.0.0.1:{int(server.stdout.readline())}"))
    finally:
        server.kill()
        server.wait()
    print(f"{REQUESTS} requests, memory {before[0]} -> {after[0]} kB, open files {before[1]} -> {after[1]}")
    grew = after[0] - before[0] > MOST_GROWTH_KILOBYTES or after[1] - before[1] > MOST_GROWTH_FILES
    return 1 if grew else 0


async def soak(address: str) -> tuple[tuple[int, int], tuple[int, int]]:
    async with Transport() as transport:
        await ask(transport, address, WARM_UP)
        before = measured()
        await ask(transport, address, REQUESTS)
        return before, measured()


async def ask(transport: Transport, address: str, requests: int) -> None:
    await asyncio.gather(*(in_a_row(transport, address, requests // AT_ONCE) for _ in range(AT_ONCE)))


async def in_a_row(transport: Transport, address: str, requests: int) -> None:
    for _ in range(requests // 2):
        assert (await transport.send(HttpRequest("POST", address + "/send", {"x-key": "k"}, b"{}"))).status == 200
        async with transport.stream(HttpRequest("POST", address + "/stream", {"x-key": "k"}, b"{}")) as answer:
            assert sum([len(piece) async for piece in answer]) == 100


def measured() -> tuple[int, int]:
    """Kilobytes of memory that are resident, and open files."""
    gc.collect()
    status = Path("/proc/self/status").read_text("ascii")
    resident = int(status.split("VmRSS:")[1].split()[0])
    return resident, len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a count, not paths


if __name__ == "__main__":
    sys.exit(main())
