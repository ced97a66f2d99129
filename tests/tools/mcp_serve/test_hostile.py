import asyncio
import json
from typing import Any

import httpx2
import mcp_types
import pytest
from mcp import Client
from starlette.applications import Starlette
from starlette.routing import Route

from midspan.tools import mcp_app
from tests.bounds import BOUND, MANY
from tests.tools.mcp_serve.serving import ERAS, served

pytestmark = pytest.mark.anyio

HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
MODERN = {**HEADERS, "mcp-protocol-version": "2026-07-28"}


async def echo(text: str) -> str:
    """Return the text."""
    await asyncio.sleep(0)
    return text


def call(id: Any = 1, **params: Any) -> bytes:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"name": "echo", "arguments": {"text": "hi"}, "_meta": meta} | params
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).encode()


CALL_HEADERS = {**MODERN, "mcp-method": "tools/call", "mcp-name": "echo"}


async def works(url: str) -> bool:
    async with Client(url) as client:
        result = await client.call_tool("echo", {"text": "still here"})
    return result.content == [mcp_types.TextContent(text="still here")]


@pytest.mark.requirement("MS-12")
@pytest.mark.parametrize("headers", [HEADERS, CALL_HEADERS])
async def test_requests_of_other_hosts_and_origins_are_refused(headers: dict[str, str]) -> None:
    app = mcp_app([echo], hosts=["tools.example.com"], origins=["https://app.example.com"])
    async with served(app) as url, httpx2.AsyncClient() as client:
        for host, origin, status in (
            ("evil.example.com", None, 421),
            ("localhost.evil.example.com:80", None, 421),
            ("127.0.0.1.evil.example.com", None, 421),
            ("", None, 421),
            ("tools.example.com:8080", "https://evil.example.com", 403),
            ("localhost", "null", 403),
            ("localhost", "http://localhost.evil.example.com", 403),
            ("localhost", "http://localhost:80@evil.example.com", 403),
        ):
            other = {"host": host} | ({} if origin is None else {"origin": origin})
            for method in ("POST", "GET", "DELETE", "OPTIONS"):
                response = await client.request(method, url, headers={**headers, **other}, content=call())
                assert response.status_code == status, (method, host, origin)
        for host, origin in (
            ("localhost:1234", "http://localhost:3000"),
            ("127.0.0.1", "http://127.0.0.1"),
            ("[::1]:80", None),
            ("tools.example.com", "https://app.example.com"),
        ):
            other = {"host": host} | ({} if origin is None else {"origin": origin})
            response = await client.post(url, headers={**CALL_HEADERS, **other}, content=call())
            assert response.status_code == 200, (host, origin)


@pytest.mark.requirement("MS-11")
async def test_hostile_requests_are_refused_and_the_server_goes_on() -> None:
    async with served(mcp_app([echo], max_body_bytes=100_000)) as url, httpx2.AsyncClient() as client:
        for headers in (HEADERS, CALL_HEADERS):
            for body, statuses in (
                (b"", (400,)),
                (b"garbage", (400,)),
                (b"\xff\xfe", (400,)),
                (b"[" * 50_000, (400,)),
                (b'{"a":' * 10_000, (400,)),
                (b"null", (400,)),
                (b"[]", (400,)),
                (b"[" + call() + b"]", (400,)),
                (b'{"jsonrpc": "2.0", "id": null, "method": "tools/call"}', (400,)),
                (b'{"jsonrpc": "2.0", "id": 1, "method": 5}', (400,)),
                (b"1" * 5_000, (400,)),
                (b"x" * 200_000, (413,)),
            ):
                response = await client.post(url, headers=headers, content=body)
                assert response.status_code in statuses, (body[:40], response.text[:200])
        for name, status in (("PUT", 405), ("PATCH", 405)):
            assert (await client.request(name, url, headers=MODERN)).status_code == status
        assert (await client.post(url, headers={"accept": "text/html"}, content=call())).status_code in (400, 406)
        assert (await client.post(url, headers={**HEADERS, "mcp-session-id": "x"}, content=call())).status_code == 404
        for params in (
            {"arguments": "text"},
            {"arguments": {"text": None}},
            {"arguments": {"text": "hi", "more": 1}},
            {"arguments": {"text": {"a": [[[[[1]]]]]}}},
            {"name": "echo", "arguments": None},
            {"name": None},
            {"requestState": "forged"},
            {"requestState": 5},
            {"inputResponses": {"a": {"action": "accept"}}},
            {"_meta": None},
        ):
            response = await client.post(url, headers=CALL_HEADERS, content=call(**params))
            assert response.status_code in (200, 400), params
            assert "Traceback" not in response.text
        unknown = await client.post(url, headers={**CALL_HEADERS, "mcp-name": "ecco"}, content=call(name="ecco"))
        assert "did you mean echo" in unknown.text
        assert await works(url)


@pytest.mark.requirement("MS-11")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("number", [100, MANY], ids=["hundred", "thousand"])
async def test_parallel_calls_are_answered(era: str, number: int) -> None:
    async with served(mcp_app([echo])) as url, Client(url, mode=era) as client:
        calls = (client.call_tool("echo", {"text": str(n)}) for n in range(number))
        results = await asyncio.wait_for(asyncio.gather(*calls), 10 * BOUND)
    assert [result.content for result in results] == [[mcp_types.TextContent(text=str(n))] for n in range(number)]


@pytest.mark.requirement("MS-11")
async def test_clients_that_leave_in_the_middle_leave_nothing_behind() -> None:
    running: set[int] = set()
    started, idle = asyncio.Event(), asyncio.Event()

    async def wait(number: int) -> str:
        running.add(number)
        idle.clear()
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            running.discard(number)
            if not running:
                idle.set()
        return "never"

    async with served(mcp_app([echo, wait])) as url:
        port = httpx2.URL(url).port
        for number in range(20):
            body = call(name="wait", arguments={"number": number})
            head = "".join(f"{name}: {value}\r\n" for name, value in {**CALL_HEADERS, "mcp-name": "wait"}.items())
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"POST /mcp HTTP/1.1\r\nhost: localhost\r\n{head}content-length: {len(body)}\r\n\r\n".encode())
            writer.write(body)
            await asyncio.wait_for(started.wait(), BOUND)
            started.clear()
            writer.transport.abort()
        await asyncio.wait_for(idle.wait(), BOUND)
        assert await works(url)


async def test_app_is_mounted_without_a_lifespan_of_its_own() -> None:
    app = mcp_app([echo])
    async with served(Starlette(routes=[Route("/tools/mcp", endpoint=app)])) as url:
        assert await works(url.replace("/mcp", "/tools/mcp"))
    await app.aclose()
    async with app, served(Starlette(routes=[Route("/mcp", endpoint=app)])) as url:
        assert await works(url), "it can be started again"


@pytest.mark.requirement("MS-11")
@pytest.mark.parametrize("era", ERAS)
async def test_tool_that_exits_does_not_end_the_server_of_others(era: str) -> None:
    def leave() -> None:
        raise SystemExit(3)

    async def leave_later() -> None:
        await asyncio.sleep(0)
        raise SystemExit(3)

    async with served(mcp_app([echo, leave, leave_later])) as url, Client(url, mode=era) as client:
        for name in ("leave", "leave_later"):
            result = await asyncio.wait_for(client.call_tool(name, {}), BOUND)
            assert result.is_error
            assert result.content == [mcp_types.TextContent(text=f"{name} failed: SystemExit: 3")]
        assert await works(url)
