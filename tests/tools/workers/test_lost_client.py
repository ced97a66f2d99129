"""A call in a worker ends when nobody waits for it any more: it is asked to, and killed after two seconds."""

import asyncio
import json
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

import pytest

from midspan import Agent, BackgroundRuns
from midspan.events import ToolProgress
from midspan.messages import ToolCall
from midspan.testing import ScriptedProvider
from midspan.tools import Workers
from tests.bounds import BOUND
from tests.server.serving import serving, wait_until
from tests.tools.workers.conftest import Counter, is_running, run

pytestmark = pytest.mark.requirement("W-02")


def agent_of(workers: Workers, name: str, counter: Counter) -> Agent:
    return Agent(ScriptedProvider([ToolCall("1", name, {"port": counter.port}), "done"]), tools=workers)


async def stop_reading(agent: Agent, started: Callable[[], Awaitable[None]]) -> None:
    async with agent.stream("?") as stream:
        async for event in stream:
            if isinstance(event, ToolProgress):
                await started()
                break


async def close_stream(agent: Agent, started: Callable[[], Awaitable[None]]) -> None:
    stream = agent.stream("?")

    async def read() -> None:
        async for _ in stream:
            pass

    reader = asyncio.create_task(read())
    await started()
    await stream.aclose()
    await asyncio.wait([reader])


async def cancel_run(agent: Agent, started: Callable[[], Awaitable[None]]) -> None:
    task = asyncio.create_task(agent.run("?"))
    await started()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def cancel_background_run(agent: Agent, started: Callable[[], Awaitable[None]]) -> None:
    async with BackgroundRuns(agent) as runs:
        run_id = runs.start("?")
        await started()
        assert await runs.cancel(run_id)


WAYS = [stop_reading, close_stream, cancel_run, cancel_background_run]


async def _started(counter: Counter) -> None:
    while not (await asyncio.to_thread(counter.next)).startswith("started"):
        pass


@pytest.mark.parametrize("lose", WAYS)
def test_call_that_does_not_end_is_asked_first_and_killed_after_two_seconds(
    workers: Workers, counter: Counter, lose: Callable[..., Awaitable[None]]
) -> None:
    async def main() -> float:
        await workers.list_tools()
        lost_at = 0.0

        async def started() -> None:
            nonlocal lost_at
            await _started(counter)
            lost_at = time.monotonic()

        await lose(agent_of(workers, "refuse_to_end", counter), started)
        return time.monotonic() - lost_at

    assert run(main()) >= 1.9
    assert "asked" in counter.drain()
    counter.assert_it_stands_still()


@pytest.mark.parametrize("lose", WAYS)
def test_call_that_ends_when_it_is_asked_keeps_its_worker(
    workers: Workers, counter: Counter, lose: Callable[..., Awaitable[None]]
) -> None:
    async def main() -> None:
        before = (await workers.execute_in_session(None, "pid", {})).value
        await lose(agent_of(workers, "wait_politely", counter), lambda: _started(counter))
        assert counter.next() == "cancelled True"
        assert (await workers.execute_in_session(None, "pid", {})).value == before

    run(main())


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/v1/chat", {"prompt": "?", "cancel_on_disconnect": True}),
        ("/api/v1/chat", {"prompt": "?", "cancel_on_disconnect": True, "stream": True}),
        ("/v1/chat/completions", {"model": "", "messages": [{"role": "user", "content": "?"}]}),
        ("/v1/chat/completions", {"model": "", "messages": [{"role": "user", "content": "?"}], "stream": True}),
    ],
    ids=["chat", "chat stream", "openai", "openai stream"],
)
def test_call_ends_when_the_http_client_goes_away(
    workers: Workers, counter: Counter, path: str, body: dict[str, Any]
) -> None:
    run(workers.list_tools())
    with serving(agent_of(workers, "refuse_to_end", counter)) as server:
        address = urlsplit(server.url)
        with socket.create_connection((address.hostname, address.port), BOUND) as client:
            content = json.dumps(body).encode()
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            client.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
            while not (text := counter.next()).startswith("started"):
                pass
        worker = int(text.split()[1])
        seen: list[str] = []
        wait_until(lambda: seen.extend(counter.drain()) or not is_running(worker))
        assert "asked" in seen
        counter.assert_it_stands_still()
