import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters

from tests.bounds import BOUND
from tests.tools.mcp_serve.serving import ERAS

pytestmark = pytest.mark.anyio

PROGRAM = str(Path(__file__).parent / "stdio_program.py")
INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "raw", "version": "1"},
}


@pytest.mark.requirement("MS-10")
@pytest.mark.parametrize("era", ERAS)
async def test_what_tools_print_does_not_reach_the_client(era: str) -> None:
    async with Client(StdioServerParameters(command=sys.executable, args=[PROGRAM]), mode=era) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["shout", "wait", "leave"]
        for _ in range(2):
            result = await client.call_tool("shout", {"words": "hello"})
            assert result.content == [mcp_types.TextContent(text="HELLO")]


class RawClient:
    """Writes lines to a server, and reads its messages."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process, self._stdin, self._stdout = process, process.stdin, process.stdout

    def send(self, line: bytes) -> None:
        self._stdin.write(line + b"\n")

    def send_message(self, method: str, id: int | None = None, **params: Any) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        self.send(json.dumps(message if id is None else {**message, "id": id}).encode())

    async def response(self, id: int) -> dict[str, Any]:
        """Return the response with this id; others are skipped."""
        async with asyncio.timeout(BOUND):
            while True:
                message: dict[str, Any] = json.loads(await self._stdout.readline())
                if message.get("id") == id:
                    return message

    async def shout(self, id: int) -> str:
        self.send_message("tools/call", id, name="shout", arguments={"words": "still here"})
        return str((await self.response(id))["result"]["content"][0]["text"])

    async def end(self) -> int:
        self._stdin.close()
        return await asyncio.wait_for(self.process.wait(), BOUND)


@asynccontextmanager
async def started() -> AsyncIterator[RawClient]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        PROGRAM,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        limit=2**26,
    )
    client = RawClient(process)
    try:
        client.send_message("initialize", 0, **INITIALIZE)
        await client.response(0)
        client.send_message("notifications/initialized")
        yield client
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.requirement("MS-11")
async def test_hostile_lines_do_not_end_the_server() -> None:
    async with started() as client:
        for line in (
            b"",
            b"garbage",
            b"\xff\xfe\x00",
            b"{" * 100_000,
            b'{"jsonrpc": "2.0"}',
            b'[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]',
            b'{"jsonrpc": "1.0", "id": 7, "method": "ping"}',
            b'{"jsonrpc": "2.0", "id": {"a": 1}, "method": "ping"}',
            b'{"jsonrpc": "2.0", "id": 99, "result": {}}',
            b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 12345}}',
            b'{"jsonrpc": "2.0", "method": "notifications/unknown"}',
            b'{"jsonrpc": "2.0", "id": 8, "method": "tools/call", "params": {"name": 5}}',
            b'{"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": ["a"]}',
            b'{"jsonrpc": "2.0", "id": 1' + b"0" * 10_000 + b', "method": "ping"}',
        ):
            client.send(line)
        assert await client.shout(10) == "STILL HERE"
        client.send_message("tools/call", 11, name="shout", arguments={"words": "x" * 5_000_000})
        assert (await client.response(11))["result"]["content"][0]["text"].startswith("XXXXX")
        client.send_message("unknown/method", 12)
        assert (await client.response(12))["error"]["code"] == mcp_types.METHOD_NOT_FOUND
        client.send_message("tools/call", 13, name="shout", arguments="words")
        assert (await client.response(13))["error"]["code"] == mcp_types.INVALID_PARAMS
        assert await client.shout(14) == "STILL HERE"
        assert await client.end() == 0


@pytest.mark.requirement("MS-11")
async def test_cancelled_calls_do_not_end_the_server() -> None:
    async with started() as client:
        for id in range(100, 150):
            client.send_message("tools/call", id, name="wait", arguments={})
            client.send_message("notifications/cancelled", requestId=id)
        assert await client.shout(1) == "STILL HERE"
        client.send_message("tools/call", 2, name="wait", arguments={})
        assert await client.end() == 0, "the end of stdin ends calls in flight"


@pytest.mark.requirement("MS-11")
async def test_tool_that_exits_does_not_end_the_server() -> None:
    async with started() as client:
        client.send_message("tools/call", 1, name="leave", arguments={})
        result = (await client.response(1))["result"]
        assert (result["isError"], result["content"][0]["text"]) == (True, "leave failed: SystemExit: 3")
        assert await client.shout(2) == "STILL HERE"
        assert await client.end() == 0
