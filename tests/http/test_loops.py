"""One transport, many event loops: threads, one loop after another, loops that end well and badly."""

import asyncio
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from midspan._http.transport import HttpRequest, Transport
from tests.bounds import BOUND, PATIENT_PROGRAM


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server outside every loop of these tests."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


async def several(transport: Transport, url: str, count: int = 5) -> None:
    bodies = [b"%d" % number for number in range(count)]
    answers = await asyncio.gather(*(transport.send(HttpRequest("POST", url, {}, body)) for body in bodies))
    assert [answer.body for answer in answers] == bodies


def test_one_transport_serves_one_event_loop_after_another(url: str) -> None:
    transport = Transport()
    asyncio.run(several(transport, url))
    before = open_files()
    for _ in range(20):
        asyncio.run(several(transport, url))
    assert open_files() <= before + 5, "the server, who is in this process too, may still be closing those of the last"


def test_one_transport_serves_event_loops_in_several_threads(url: str) -> None:
    transport = Transport()
    together = threading.Barrier(8, timeout=BOUND)

    def work(_: int) -> None:
        async def main() -> None:
            for _ in range(20):
                await several(transport, url)

        together.wait()
        asyncio.run(main())

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))


def test_close_affects_only_the_running_loop_and_later_requests_open_new_connections(url: str) -> None:
    transport = Transport()
    ready, go_on = threading.Event(), threading.Event()

    def elsewhere() -> None:
        async def main() -> None:
            await several(transport, url)
            ready.set()
            await asyncio.to_thread(go_on.wait, 5)
            await several(transport, url)

        asyncio.run(main())

    async def here() -> None:
        await several(transport, url)
        await transport.aclose()
        await transport.aclose()
        await several(transport, url)

    with ThreadPoolExecutor(1) as threads:
        done = threads.submit(elsewhere)
        assert ready.wait(BOUND)
        asyncio.run(here())
        go_on.set()
        done.result(5)


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a count, not paths


ENDINGS = {
    "asyncio.run, and the transport lives on": """
        transport = Transport()
        asyncio.run(several(transport))
    """,
    "asyncio.run, and the transport is thrown away within": """
        async def main():
            await several(Transport())
            await asyncio.sleep(0.01)
            assert open_files() <= before + 3, "only the loop itself has files open"
        asyncio.run(main())
    """,
    "asyncio.run, and it ends at once after the transport is thrown away": """
        async def main():
            await several(Transport())
        asyncio.run(main())
    """,
    "asyncio.run with an error while requests are under way": """
        transport = Transport()
        async def main():
            tasks = [asyncio.create_task(several(transport)) for _ in range(5)]
            await asyncio.sleep(0.005)
            raise KeyError("on purpose")
        try:
            asyncio.run(main())
        except KeyError:
            pass
    """,
    "a stream that nobody leaves": """
        transport = Transport()
        async def main():
            answer = await transport.stream(request()).__aenter__()
            del answer
        asyncio.run(main())
    """,
    "a loop closed without a word after the transport is thrown away": """
        loop = asyncio.new_event_loop()
        async def main():
            await several(Transport())
        loop.run_until_complete(main())
        loop.run_until_complete(asyncio.sleep(0.01))
        loop.close()
        assert open_files() == before
    """,
    "a loop in a thread that is still running": """
        transport = Transport()
        ready = threading.Event()
        def work():
            async def main():
                await several(transport)
                ready.set()
                await asyncio.sleep(60)
            asyncio.run(main())
        threading.Thread(target=work, daemon=True).start()
        assert ready.wait(30)
    """,
    "the transport is thrown away in another thread than that of its loop": """
        transports = [Transport()]
        async def main():
            await several(transports[0])
            thread = threading.Thread(target=transports.clear)
            thread.start()
            await asyncio.to_thread(thread.join)
            await asyncio.sleep(0.01)
            assert open_files() <= before + 3, "only the loop itself has files open"
        asyncio.run(main())
    """,
}

ENDINGS_WITHOUT_THE_LOOP = {
    "the transport lives on": """
        transport = Transport()
        loop = asyncio.new_event_loop()
        loop.run_until_complete(several(transport))
        loop.close()
    """,
    "the transport is thrown away": """
        transport = Transport()
        loop = asyncio.new_event_loop()
        loop.run_until_complete(several(transport))
        loop.close()
        del transport
        gc.collect()
        assert open_files() == before
    """,
    "the next loop finds what it left": """
        transport = Transport()
        loop = asyncio.new_event_loop()
        loop.run_until_complete(several(transport))
        loop.close()
        del loop
        asyncio.run(several(transport))
        gc.collect()
        assert open_files() == before
    """,
}

PROLOGUE = """
import asyncio, gc, os, sys, threading
from midspan._http.transport import HttpRequest, Transport
import midspan._http.pool

def request():
    return HttpRequest("POST", sys.argv[1], {}, b"x" * 100)

async def several(transport):
    await asyncio.gather(*(transport.send(request()) for _ in range(5)))

def open_files():
    return len(os.listdir("/proc/self/fd"))

before = open_files()
"""


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_end_of_a_loop_closes_all_connections_without_warnings(url: str, ending: str) -> None:
    code = PATIENT_PROGRAM + PROLOGUE + textwrap.dedent(ENDINGS[ending])
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", code, url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BOUND)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("ending", ENDINGS_WITHOUT_THE_LOOP)
def test_connections_of_a_closed_loop_are_closed_by_garbage_collection(url: str, ending: str) -> None:
    code = PATIENT_PROGRAM + PROLOGUE + textwrap.dedent(ENDINGS_WITHOUT_THE_LOOP[ending])
    warnings = ["-W", "error", "-W", "ignore::ResourceWarning"]
    command = [sys.executable, "-X", "dev", *warnings, "-c", code, url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BOUND)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
