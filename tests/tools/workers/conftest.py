"""A counter that tools move, and workers that end with their test."""

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from midspan.tools import Workers
from tests.bounds import BOUND

TOOLS = Path(__file__).with_name("toolfile.py")
TOKEN = "secret-of-the-host"
T = TypeVar("T")
Dial = Callable[..., subprocess.Popen[str]]


class Counter:
    """Counts datagrams on the loopback interface."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**20)
        self.port: int = self._socket.getsockname()[1]

    def drain(self) -> list[str]:
        """Return what has arrived."""
        texts = []
        self._socket.setblocking(False)
        try:
            while True:
                texts.append(self._socket.recv(100).decode())
        except BlockingIOError:
            return texts

    def next(self) -> str:
        """Wait for the next datagram."""
        self._socket.settimeout(BOUND)
        return self._socket.recv(100).decode()

    def assert_it_stands_still(self) -> None:
        """Nothing is sent any more: what was sent is in the buffer already."""
        self.drain()
        time.sleep(0.3)
        assert self.drain() == []

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def counter() -> Iterator[Counter]:
    counter = Counter()
    yield counter
    counter.close()


@pytest.fixture
def make_workers() -> Iterator[Callable[..., Workers]]:
    made: list[Workers] = []

    def make(tools: Any = TOOLS, **options: Any) -> Workers:
        made.append(Workers(tools, **{"processes": 1, **options}))
        return made[-1]

    yield make
    for workers in made:
        run(workers.aclose())


@pytest.fixture
def workers(make_workers: Callable[..., Workers]) -> Workers:
    return make_workers()


@pytest.fixture
def dial() -> Iterator[Dial]:
    started: list[subprocess.Popen[str]] = []

    def start(host: Workers, token: str = TOKEN, tools: Any = TOOLS, **streams: Any) -> subprocess.Popen[str]:
        assert host.address is not None
        command = [sys.executable, "-m", "midspan", "worker", str(tools), "--connect", host.address]
        environment = {**os.environ, "MIDSPAN_WORKER_TOKEN": token}
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        started.append(subprocess.Popen(command, env=environment, **{**pipes, **streams}))
        return started[-1]

    yield start
    for process in started:
        process.terminate()
        process.communicate(timeout=BOUND)


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(BOUND):
            return await coroutine

    return asyncio.run(bounded())


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
