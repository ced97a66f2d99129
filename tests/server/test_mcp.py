"""/mcp: the tools of the server for MCP clients, within the limits of their tokens."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import httpx2 as httpx

from midspan import Agent, MCPServer, RunContext, tool
from midspan._server.app import McpEndpoint
from midspan._server.config import OWNER
from midspan.messages import ToolCall, ToolResult
from midspan.server import create_app
from midspan.tools import ToolListing, ToolSource, ToolSpec
from tests.bounds import BOUND
from tests.server.serving import Served, bearer, serving, sum_agent, sums, wait_until
from tests.server.test_runs import Gate

ANN, BOB = "ann-secret-token-0001", "bob-secret-token-0002"
TOKENS = {"ann": ANN, "bob": BOB}
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}
LIST = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}


def run(main: Awaitable[None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(BOUND):
            await main

    asyncio.run(bounded())


@asynccontextmanager
async def connected(server: Served, token: str) -> AsyncIterator[MCPServer]:
    source = MCPServer(url=f"{server.url}/mcp", headers=bearer(token))
    try:
        yield source
    finally:
        await source.aclose()


def test_tools_are_served_to_owners_of_a_token() -> None:
    async def main(server: Served) -> None:
        async with httpx.AsyncClient() as anonymous:
            assert (await anonymous.post(f"{server.url}/mcp", json={})).status_code == 401
        async with connected(server, ANN) as source:
            assert [spec.name for spec in await source.list_tools()] == ["add"]
            result = await source.call(ToolCall("c", "add", {"a": 1, "b": 2}))
            assert (result.is_error, result.value) == (False, 3)

    with serving(sum_agent(), tokens=TOKENS) as server:
        run(main(server))


def test_calls_count_as_runs_of_their_token() -> None:
    gate = Gate()

    def start(server: Served, token: str) -> int:
        return server.post("/api/v1/runs", {"prompt": "Wait."}, token).status_code

    async def main(server: Served) -> None:
        async with connected(server, ANN) as ann, connected(server, BOB) as bob:
            await ann.list_tools()
            await bob.list_tools()
            calling = asyncio.create_task(ann.call(ToolCall("1", "wait", {})))
            await asyncio.to_thread(gate.entered.wait, BOUND)
            assert start(server, ANN) == 429
            refused = await ann.call(ToolCall("2", "wait", {}))
            assert refused.is_error
            assert "1 runs of this token are running, which is its limit; try again later" in str(refused.value)
            assert start(server, BOB) == 202
            refused = await bob.call(ToolCall("3", "wait", {}))
            assert "2 runs are running, which is the limit of this server" in str(refused.value)
            gate.open.set()
            assert not (await calling).is_error
            assert not (await ann.call(ToolCall("4", "wait", {}))).is_error

    with serving(gate.agent(), tokens=TOKENS, max_runs=2, max_runs_per_token=1) as server:
        run(main(server))
        assert wait_until(lambda: start(server, ANN) == 202)


def test_call_that_takes_too_long_is_cancelled() -> None:
    gate = Gate()

    async def main(server: Served) -> None:
        async with connected(server, ANN) as source:
            result = await source.call(ToolCall("1", "wait", {}))
            assert result.is_error
            assert "wait was cancelled after 0.2 seconds" in str(result.value)
            assert gate.cancelled.is_set()

    with serving(gate.agent(), tokens=TOKENS, max_run_seconds=0.2) as server:
        run(main(server))


def post(server: Served, message: Any, token: str, session: str | None = None) -> httpx.Response:
    headers = {**bearer(token), "Accept": "application/json, text/event-stream"}
    if session is not None:
        headers |= {"Mcp-Session-Id": session, "Mcp-Protocol-Version": "2025-06-18"}
    return server.client.post("/mcp", json=message, headers=headers)


def test_session_of_another_token_does_not_exist() -> None:
    with serving(sum_agent(), tokens=TOKENS) as server:
        session = post(server, INITIALIZE, ANN).headers["mcp-session-id"]
        assert post(server, LIST, ANN, session).status_code == 200
        assert post(server, LIST, BOB, session).status_code == 404
        headers = {**bearer(BOB), "Mcp-Session-Id": session}
        assert server.client.delete("/mcp", headers=headers).status_code == 404
        assert post(server, LIST, ANN, session).status_code == 200


def test_tool_that_calls_another_tool_counts_as_one_run() -> None:
    @tool(read_only=True)
    def price() -> int:
        """Return the price."""
        return 3

    @tool
    async def total(context: RunContext) -> str:
        """Return the total, by another tool."""
        return f"{(await context.call_tool('price', {})).value} euros"

    async def main(server: Served) -> None:
        async with connected(server, ANN) as source:
            result = await source.call(ToolCall("1", "total", {}))
            assert (result.is_error, result.value) == (False, "3 euros")

    with serving(Agent(sums(), [total, price]), tokens=TOKENS, max_runs=1) as server:
        run(main(server))


def test_timeout_of_a_source_is_not_reported_as_the_limit_of_the_server() -> None:
    class Database(ToolSource):
        async def list_tools(self) -> ToolListing:
            return ToolListing((ToolSpec("query", "Query.", {"type": "object", "properties": {}}),))

        async def call(self, call: ToolCall, context: Any = None) -> ToolResult:
            raise TimeoutError("the database did not answer within 2 seconds")

    async def main(server: Served) -> None:
        async with connected(server, ANN) as source:
            result = await source.call(ToolCall("1", "query", {}))
            assert result.is_error
            assert "the database did not answer within 2 seconds" in str(result.value)

    with serving(Agent(sums(), [Database()]), tokens=TOKENS) as server:
        run(main(server))


def test_call_that_ends_in_time_is_answered_at_shutdown() -> None:
    gate = Gate()

    async def main() -> None:
        with serving(gate.agent(), tokens=TOKENS) as server:
            async with connected(server, ANN) as source:
                await source.list_tools()
                calling = asyncio.create_task(source.call(ToolCall("1", "wait", {})))
                await asyncio.to_thread(gate.entered.wait, BOUND)
                server.stop()
                await asyncio.to_thread(wait_until, lambda: server.app.service.is_draining)
                gate.open.set()
                assert (await calling).value == "done"

    run(main())
    assert not gate.cancelled.is_set()


def test_applications_without_open_requests_are_closed_if_there_are_too_many() -> None:
    gate = Gate()
    call = {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "wait", "arguments": {}}}

    async def main() -> None:
        endpoint = McpEndpoint(create_app(gate.agent()).service, max_apps=2)

        async def app(scope: Any, receive: Any, send: Any) -> None:
            scope[OWNER] = dict(scope["headers"])[b"x-owner"].decode()
            await endpoint(scope, receive, send)

        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:

            async def post(owner: str, message: Any, session: str | None = None) -> httpx.Response:
                headers = {"X-Owner": owner, "Accept": "application/json, text/event-stream"}
                if session is not None:
                    headers |= {"Mcp-Session-Id": session, "Mcp-Protocol-Version": "2025-06-18"}
                return await client.post("/mcp", json=message, headers=headers)

            owners = ("busy", "old", "new", "newest")
            sessions = {"busy": (await post("busy", INITIALIZE)).headers["mcp-session-id"]}
            calling = asyncio.create_task(post("busy", call, sessions["busy"]))
            await asyncio.to_thread(gate.entered.wait, BOUND)
            for owner in owners[1:]:
                sessions[owner] = (await post(owner, INITIALIZE)).headers["mcp-session-id"]
            gate.open.set()
            assert "done" in (await calling).text
            statuses = {owner: (await post(owner, LIST, sessions[owner])).status_code for owner in ("newest", "old")}
            assert statuses == {"newest": 200, "old": 404}
        await endpoint.aclose()

    run(main())
