"""Servers for tests: real ones, on loopback, in a thread or in a process of their own."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import httpx2 as httpx

from midspan import Agent, tool
from midspan._server.app import ServerApp
from midspan._server.config import ServerConfig
from midspan._server.listen import Server
from midspan._types.exchange import FinishReason, ModelResponse
from midspan.messages import Message, Text, ToolCall
from midspan.server import create_app
from midspan.testing import ScriptedProvider
from tests.bounds import BOUND

Event = tuple[int, str, dict[str, Any]]
"""The id, the kind and the data of a server-sent event."""


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def sums() -> ScriptedProvider:
    """A model that calls `add` once and then gives the sum."""

    def respond(request: Any) -> Any:
        last = request.history[-1]
        if last.results:
            return [Text("It is"), Text(f" {last.results[-1].value}.")]
        return [Text("Let me see."), ToolCall("c1", "add", {"a": 1, "b": 2})]

    return ScriptedProvider(respond)


def sum_agent() -> Agent:
    return Agent(sums(), [add])


def pausing_agent(*parts_after: Any) -> Agent:
    """A model that pauses twice, makes the calls `parts_after` if there are any, and ends its answer."""
    pauses = [ModelResponse(Message("model", (Text(text),)), FinishReason.CONTINUES) for text in ("One ", "two ")]
    calls = [[*parts_after]] if parts_after else []
    return Agent(ScriptedProvider([*pauses, *calls, "three."]), [add])


class Served:
    """A running server and a client for it."""

    def __init__(self, app: ServerApp, url: str, server: Server) -> None:
        self.app = app
        self._server = server
        self.url = url
        self.client = httpx.Client(base_url=url, timeout=BOUND)

    def post(self, path: str, document: Any, token: str | None = None, **options: Any) -> httpx.Response:
        return self.client.post(path, json=document, headers=bearer(token), **options)

    def stop(self) -> None:
        """Begin the shutdown."""
        self._server.should_exit = True

    def get(self, path: str, token: str | None = None, **options: Any) -> httpx.Response:
        return self.client.get(path, headers=bearer(token), **options)


def bearer(token: str | None) -> dict[str, str]:
    return {} if token is None else {"Authorization": f"Bearer {token}"}


@contextmanager
def serving(agent: Agent, **settings: Any) -> Iterator[Served]:
    """Serve an agent in a thread, with uvicorn."""
    app = create_app(agent, **settings)
    fields = {name: value for name, value in settings.items() if name in ServerConfig.__struct_fields__}
    config = ServerConfig(**{**fields, "port": 0})
    urls: list[str] = []
    started = threading.Event()

    def on_start(url: str) -> None:
        urls.append(url)
        started.set()

    server = Server(app, config, on_start)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        assert started.wait(BOUND)
        served = Served(app, urls[0], server)
        with served.client:
            yield served
    finally:
        server.should_exit = True
        thread.join(BOUND)
        assert not thread.is_alive()


def events_of(lines: Iterator[str]) -> Iterator[Event]:
    """Read server-sent events."""
    id, kind = -1, ""
    for line in lines:
        name, _, value = line.partition(": ")
        if name == "id":
            id = int(value)
        elif name == "event":
            kind = value
        elif name == "data":
            yield id, kind, json.loads(value)


def data_lines(text: str) -> list[Any]:
    """The data of a stream of server-sent events, without its `[DONE]`."""
    values = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(value) for value in values if value != "[DONE]"]


class ServerProcess:
    """`midspan serve` in a process of its own."""

    def __init__(self, *arguments: str, folder: Path, environment: dict[str, str] | None = None) -> None:
        variables = {name: value for name, value in os.environ.items() if not name.startswith(("MIDSPAN_", "GEMINI_"))}
        with (folder / "stderr.txt").open("w") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "midspan", "serve", *arguments],
                env={**variables, "XDG_STATE_HOME": str(folder), "XDG_CONFIG_HOME": str(folder), **(environment or {})},
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        if not self.url:
            self.__exit__()
            raise AssertionError((folder / "stderr.txt").read_text())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(BOUND)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def end(self, signal_number: int = signal.SIGTERM) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(signal_number)
        return self.process.wait(BOUND)


def wait_until(condition: Callable[[], Any]) -> Any:
    """Poll until a condition holds, for states that nobody announces."""
    deadline = time.monotonic() + BOUND
    while not (value := condition()):
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)
    return value
