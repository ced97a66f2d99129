"""Authorization by OAuth, against an authorization server on loopback."""

import asyncio
import os
import stat
import urllib.request
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
import uvicorn
from mcp.server.mcpserver import MCPServer as SdkServer
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route

from midspan._types.parts import ToolCall
from midspan.tools import MCPServer, OAuth
from midspan.tools.mcp.protocols import ProtocolCache
from tests.bounds import BOUND

pytestmark = pytest.mark.requirement("MC-01")


class ProtectedServer:
    """An MCP server that wants a token, and the authorization server that gives it."""

    def __init__(self) -> None:
        self.url = ""
        self.registrations = 0
        self.authorizations = 0
        self.accepts = True
        self.resource_headers: list[str | None] = []
        server = SdkServer("protected")

        @server.tool(structured_output=False)
        def secret() -> str:
            """Returns a secret."""
            return "42"

        self._inner = server.streamable_http_app()
        self.app = Starlette(
            routes=[
                Route("/.well-known/oauth-protected-resource/mcp", self._resource),
                Route("/.well-known/oauth-authorization-server", self._metadata),
                Route("/register", self._register, methods=["POST"]),
                Route("/authorize", self._authorize),
                Route("/token", self._token, methods=["POST"]),
                Mount("/", self._protected),
            ],
            lifespan=lambda _: self._inner.router.lifespan_context(self._inner),
        )

    async def _protected(self, scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope)
        self.resource_headers.append(request.headers.get("authorization"))
        if request.headers.get("authorization") == "Bearer good-token":
            await self._inner(scope, receive, send)
            return
        where = f"{self.url}/.well-known/oauth-protected-resource/mcp"
        await Response(status_code=401, headers={"WWW-Authenticate": f'Bearer resource_metadata="{where}"'})(
            scope, receive, send
        )

    async def _resource(self, _request: Request) -> Response:
        return JSONResponse({"resource": f"{self.url}/mcp", "authorization_servers": [self.url]})

    async def _metadata(self, _request: Request) -> Response:
        return JSONResponse(
            {
                "issuer": self.url,
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
                "registration_endpoint": f"{self.url}/register",
                "response_types_supported": ["code"],
                "code_challenge_methods_supported": ["S256"],
            }
        )

    async def _register(self, request: Request) -> Response:
        self.registrations += 1
        return JSONResponse({**await request.json(), "client_id": "c1"}, 201)

    async def _authorize(self, request: Request) -> Response:
        self.authorizations += 1
        query = {"code": "abc"} if self.accepts else {"error": "access_denied"}
        query["state"] = request.query_params["state"]
        return RedirectResponse(f"{request.query_params['redirect_uri']}?{urlencode(query)}")

    async def _token(self, request: Request) -> Response:
        fields = parse_qs((await request.body()).decode())
        assert fields["code"] == ["abc"]
        return JSONResponse({"access_token": "good-token", "token_type": "Bearer", "expires_in": 3600})


@asynccontextmanager
async def protected() -> AsyncGenerator[ProtectedServer, None]:
    server = ProtectedServer()
    runner = uvicorn.Server(uvicorn.Config(server.app, port=0, log_level="error"))
    task = asyncio.create_task(runner.serve())
    while not runner.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.01)
    server.url = f"http://127.0.0.1:{runner.servers[0].sockets[0].getsockname()[1]}"
    try:
        yield server
    finally:
        runner.should_exit = True
        await task


async def browse(url: str) -> None:
    """Stand for the user, whose browser follows the redirect."""
    assert urlsplit(url).path == "/authorize"
    browsing.append(asyncio.create_task(asyncio.to_thread(lambda: urllib.request.urlopen(url).read())))


browsing: list[asyncio.Task[Any]] = []


def source(server: ProtectedServer, tokens: Path, open_url: Any = browse) -> MCPServer:
    auth = OAuth(tokens, open_url)
    return MCPServer(url=f"{server.url}/mcp", name="protected", auth=auth, protocol_cache=ProtocolCache())


async def secret_of(server: MCPServer) -> Any:
    try:
        async with asyncio.timeout(BOUND):
            return await server.call(ToolCall("1", "secret", {}))
    finally:
        await server.aclose()


def test_user_authorizes_once_and_the_token_is_kept_in_a_private_file(tmp_path: Path) -> None:
    tokens = tmp_path / "state" / "tokens.json"

    async def main() -> None:
        async with protected() as server:
            assert (await secret_of(source(server, tokens))).model_value == "42"
            assert (await secret_of(source(server, tokens, None))).model_value == "42"
            assert (server.registrations, server.authorizations) == (1, 1)

    os.umask(0o022)
    asyncio.run(main())
    assert stat.S_IMODE(tokens.stat().st_mode) == 0o600


def test_user_who_declines_leaves_the_server_unavailable(tmp_path: Path) -> None:
    async def main() -> Any:
        async with protected() as server:
            server.accepts = False
            return await secret_of(source(server, tmp_path / "tokens.json"))

    result = asyncio.run(main())
    assert result.is_error
    assert "the user did not authorize the client: access_denied" in result.value


def test_port_is_free_again_if_the_url_cannot_be_shown(tmp_path: Path) -> None:
    ports: list[int] = []

    async def fail(url: str) -> None:
        ports.append(callback_port(url))
        raise OSError("no browser")

    async def main() -> Any:
        async with protected() as server:
            result = await secret_of(source(server, tmp_path / "tokens.json", fail))
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", ports[0])
            return result

    assert "no browser" in asyncio.run(main()).value


def callback_port(url: str) -> int:
    (redirect_uri,) = parse_qs(urlsplit(url).query)["redirect_uri"]
    port = urlsplit(redirect_uri).port
    assert port is not None
    return port


def test_idle_connection_of_the_browser_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("midspan.tools.mcp.oauth._REQUEST_SECONDS", 0.0)
    received: list[bytes] = []

    async def connect_only(url: str) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", callback_port(url))
        received.append(await asyncio.wait_for(reader.read(), 5))
        writer.close()
        raise OSError("no browser")

    async def main() -> None:
        async with protected() as server:
            await secret_of(source(server, tmp_path / "tokens.json", connect_only))

    asyncio.run(main())
    assert received == [b""]


def test_authorization_does_not_wait_for_an_idle_connection(tmp_path: Path) -> None:
    async def main() -> Any:
        idle: list[asyncio.StreamWriter] = []

        async def show(url: str) -> None:
            idle.append((await asyncio.open_connection("127.0.0.1", callback_port(url)))[1])
            await browse(url)

        async with protected() as server:
            result = await secret_of(source(server, tmp_path / "tokens.json", show))
        idle[0].close()
        return result

    assert asyncio.run(main()).model_value == "42"


def test_without_a_user_the_server_is_unavailable(tmp_path: Path) -> None:
    async def main() -> Any:
        async with protected() as server:
            return await secret_of(source(server, tmp_path / "tokens.json", None))

    result = asyncio.run(main())
    assert result.is_error
    assert "the server requires OAuth authorization; pass open_url=… to OAuth" in result.value


@pytest.mark.requirement("MC-03")
def test_no_token_of_ours_is_sent_to_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "secret")
    netrc = tmp_path / ".netrc"
    netrc.write_text("machine 127.0.0.1 login a password b\n")
    monkeypatch.setenv("NETRC", str(netrc))

    async def main() -> list[str | None]:
        async with protected() as server:
            plain = MCPServer(url=f"{server.url}/mcp", name="plain", protocol_cache=ProtocolCache())
            result = await secret_of(plain)
            assert "HTTP status 401" in result.value
            return server.resource_headers

    assert set(asyncio.run(main())) == {None}
