"""Failures of HTTP servers: each costs the call that it happened to."""

import asyncio
import json
import logging
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from midspan._types.parts import ToolCall, ToolResult
from midspan.tools import MCPServer
from midspan.tools.mcp.protocols import ProtocolCache
from tests.bounds import BOUND
from tests.listening import listening

pytestmark = pytest.mark.requirement("MC-02")

Answer = Callable[["RawServer", dict[str, Any], dict[str, str], asyncio.StreamWriter], Awaitable[None]]
TOOLS = [
    {"name": "good", "inputSchema": {"type": "object"}},
    {"name": "bad", "inputSchema": {"type": "object"}},
    {"name": "reading", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}},
]


class RawServer:
    """An HTTP server of the older protocol, written by hand."""

    def __init__(self, bad: Answer) -> None:
        self.bad = bad
        self.calls: list[str] = []
        self.sessions = 0
        self.lost: set[str] = set()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self.answer_one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def answer_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        if not head.startswith("POST"):
            send(writer, 405, b"")
            return True
        message = json.loads(body)
        if headers.get("mcp-session-id") in self.lost:
            send(writer, 404, b"gone")
        elif "id" not in message:
            send(writer, 202, b"")
        elif message["method"] == "initialize":
            self.sessions += 1
            capabilities = {"tools": {}}
            info = {"name": "raw", "version": "1"}
            result = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info}
            send_result(writer, message, result, **{"mcp-session-id": f"s{self.sessions}"})
        elif message["method"] == "tools/list":
            send_result(writer, message, {"tools": TOOLS})
        elif message["method"] == "tools/call":
            self.calls.append(message["params"]["name"])
            if message["params"]["name"] == "good" or len(self.calls) > 1:
                send_result(writer, message, {"content": [{"type": "text", "text": "fine"}]})
            else:
                await self.bad(self, message, headers, writer)
                return False
        else:
            error = {"code": -32601, "message": "Method not found"}
            send(writer, 200, json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}).encode())
        return True


def send(writer: asyncio.StreamWriter, status: int, body: bytes, **headers: str) -> None:
    headers = {"content-type": "application/json", **headers, "content-length": str(len(body))}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    writer.write(f"HTTP/1.1 {status} X\r\n{lines}\r\n".encode() + body)


def send_result(writer: asyncio.StreamWriter, message: Any, result: Any, **headers: str) -> None:
    send(writer, 200, json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode(), **headers)


async def large_json(_server: RawServer, message: Any, _headers: Any, writer: asyncio.StreamWriter) -> None:
    send_result(writer, message, {"content": [{"type": "text", "text": "x" * 50_000_000}]})


async def large_event(_server: RawServer, message: Any, _headers: Any, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: ")
    writer.write(b"x" * 50_000_000 + b"\n\n")


async def cut_json(_server: RawServer, message: Any, _headers: Any, writer: asyncio.StreamWriter) -> None:
    writer.write(b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 900\r\n\r\n{"jsonrpc"')


async def cut_events(_server: RawServer, message: Any, _headers: Any, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: {")


async def no_response(_server: RawServer, message: Any, _headers: Any, writer: asyncio.StreamWriter) -> None:
    pass


async def server_error(_server: RawServer, message: Any, _headers: Any, writer: asyncio.StreamWriter) -> None:
    send(writer, 500, b"<html>oops</html>", **{"content-type": "text/html"})


async def forbidden(_server: RawServer, message: Any, _headers: Any, writer: asyncio.StreamWriter) -> None:
    send(writer, 403, b'{"error": "no"}')


async def compressed(_server: RawServer, message: Any, _headers: Any, writer: asyncio.StreamWriter) -> None:
    send(writer, 200, b"bomb", **{"content-encoding": "gzip"})


async def html(_server: RawServer, message: Any, _headers: Any, writer: asyncio.StreamWriter) -> None:
    send(writer, 200, b"<html>", **{"content-type": "text/html"})


async def session_lost(server: RawServer, message: Any, headers: Any, writer: asyncio.StreamWriter) -> None:
    server.lost.add(headers["mcp-session-id"])
    send(writer, 404, b"gone")


@asynccontextmanager
async def connected(bad: Answer) -> AsyncGenerator[tuple[RawServer, MCPServer], None]:
    raw = RawServer(bad)
    async with listening(raw.handle) as port:
        url = f"http://127.0.0.1:{port}/mcp"
        source = MCPServer(url=url, name="raw", protocol_cache=ProtocolCache(), timeout=BOUND)
        try:
            async with asyncio.timeout(BOUND * 2):
                yield raw, source
        finally:
            await source.aclose()


def call_twice(bad: Answer, first: str = "bad") -> tuple[ToolResult, ToolResult, RawServer]:
    async def main() -> tuple[ToolResult, ToolResult, RawServer]:
        async with connected(bad) as (raw, source):
            return (
                await source.call(ToolCall("1", first, {})),
                await source.call(ToolCall("2", "good", {})),
                raw,
            )

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (large_json, "bad failed: the server sent a message of more than 10,000,000 bytes"),
        (large_event, "the connection to raw was lost during bad: SSE stream failed"),
        (cut_json, "The outcome is unknown"),
        (cut_events, "The outcome is unknown"),
        (no_response, "The outcome is unknown"),
        (server_error, "bad failed: the server answered with HTTP status 500"),
        (forbidden, "bad failed: the server answered with HTTP status 403"),
        (compressed, "bad failed: the server sent a compressed response"),
        (html, "bad failed: Unexpected content type"),
    ],
)
def test_failure_costs_one_call(bad: Answer, message: str) -> None:
    failed, after, raw = call_twice(bad)
    assert failed.is_error
    assert message in failed.value
    assert after.model_value == "fine"
    assert raw.calls == ["bad", "good"]


def test_call_that_changes_nothing_is_made_again_after_a_lost_connection() -> None:
    first, _, raw = call_twice(no_response, "reading")
    assert first.model_value == "fine"
    assert raw.calls == ["reading", "reading", "good"]


def test_call_is_made_again_in_a_new_session_if_the_old_one_is_unknown() -> None:
    first, after, raw = call_twice(session_lost)
    assert (first.model_value, after.model_value) == ("fine", "fine")
    assert raw.sessions == 2


def test_query_of_the_url_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    server = MCPServer(url=f"http://127.0.0.1:{port}/mcp?key=secret", name="gone", protocol_cache=ProtocolCache())

    async def main() -> None:
        assert (await server.list_tools()).unavailable
        await server.aclose()

    asyncio.run(main())
    assert f"HTTP Request: POST http://127.0.0.1:{port}/mcp " in caplog.text
    assert "secret" not in caplog.text


def test_server_that_cannot_be_reached_is_unavailable() -> None:
    async def main() -> tuple[int, Any]:
        listener = await asyncio.start_server(lambda _r, _w: None, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        listener.close()
        await listener.wait_closed()
        source = MCPServer(
            url=f"http://me:word@127.0.0.1:{port}/mcp?key=secret", name="gone", protocol_cache=ProtocolCache()
        )
        try:
            return port, await source.list_tools()
        finally:
            await source.aclose()

    port, listing = asyncio.run(main())
    (source,) = listing.unavailable
    assert source.name == "gone"
    hint = "connection refused; check the URL and whether the server is running"
    assert source.message == f"cannot connect to http://127.0.0.1:{port}/mcp: {hint}"
