"""The two ways to reach an MCP server: an ASGI application, and the standard streams of the process."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from midspan._http.serving import LOOPBACK_HOSTS, LOOPBACK_ORIGINS, AllowedOrigins, listen, url_of
from midspan.errors import ConfigError
from midspan.tools.mcp.serve.server import ToolServer, mcp_server
from midspan.tools.wrap import ToolLike

_SHUTDOWN_SECONDS = 5
"""How long running calls may take after the server was asked to shut down."""
_ALL_ADDRESSES = ("0.0.0.0", "::", "")  # noqa: S104 - compared
_MAX_BODY_BYTES = 4 * 1024 * 1024


def mcp_app(
    tools: ToolLike | Iterable[ToolLike] | ToolServer,
    *,
    name: str = "midspan",
    instructions: str | None = None,
    hosts: Sequence[str] = (),
    origins: Sequence[str] = (),
    stateless: bool = False,
    max_body_bytes: int = _MAX_BODY_BYTES,
) -> "MCPApp":
    """Return an ASGI application that serves tools over MCP (streamable HTTP).

    Serve it alone, or put it into another application: `Route("/mcp", endpoint=mcp_app(tools))`. It answers requests
    whose `Host` is localhost or one of `hosts`, and whose `Origin`, which browsers send, is localhost or one of
    `origins`; `"*"` allows all. With `stateless=True` clients of 2025-11-25 get no sessions, so that several processes
    can serve them; their tools cannot ask questions then.
    """
    server = tools if isinstance(tools, ToolServer) else mcp_server(tools, name=name, instructions=instructions)
    return MCPApp(server, hosts, origins, stateless=stateless, max_body_bytes=max_body_bytes)


async def serve_mcp(
    tools: ToolLike | Iterable[ToolLike] | ToolServer,
    *,
    name: str = "midspan",
    instructions: str | None = None,
    port: int | None = None,
    host: str = "127.0.0.1",
    hosts: Sequence[str] = (),
    on_start: Callable[[str], None] | None = None,
) -> None:
    """Serve tools over stdin and stdout, until stdin ends. What tools print goes to stderr.

    With a port, serve them over HTTP instead, at `/mcp`, until the task is cancelled or the process gets a signal; 0 is
    any free port. Requests are answered whose `Host` is localhost, `host` or one of `hosts`, as in `mcp_app`.
    `on_start` gets the URL.
    """
    server = tools if isinstance(tools, ToolServer) else mcp_server(tools, name=name, instructions=instructions)
    if port is None:
        async with stdio_server() as (read_stream, write_stream):
            await server.run(read_stream, write_stream, server.create_initialization_options())
        return
    import uvicorn  # not needed over stdio

    if host in _ALL_ADDRESSES and not hosts:
        raise ConfigError(
            f"{host!r} can be reached under any name; list the names that clients use with hosts=[…] or "
            '--allowed-host; "*" allows all'
        )
    _check_names("hosts", hosts)
    app = mcp_app(server, hosts=[*hosts, *([host] if host else ())])
    routes = Starlette(routes=[Route("/mcp", endpoint=app)])
    with listen(host, port) as listener:
        async with app:  # what prevents the tools from being listed is raised here
            if on_start is not None:
                on_start(f"{url_of(host, listener.getsockname()[1])}/mcp")
            config = uvicorn.Config(
                routes, log_level="warning", ws="none", lifespan="off", timeout_graceful_shutdown=_SHUTDOWN_SECONDS
            )
            await uvicorn.Server(config).serve(sockets=[listener])


class MCPApp:
    """An ASGI application for one MCP server, at whatever path it is mounted.

    It starts with the lifespan of its ASGI server, or in `async with`, or with the first request: applications that
    mount it do not pass their lifespan on.
    """

    def __init__(
        self, server: ToolServer, hosts: Sequence[str], origins: Sequence[str], *, stateless: bool, max_body_bytes: int
    ) -> None:
        _check_names("hosts", hosts)
        _check_names("origins", origins)
        self.server = server
        self._allowed = AllowedOrigins.of((*LOOPBACK_HOSTS, *hosts), (*LOOPBACK_ORIGINS, *origins))
        self._options: dict[str, Any] = {"stateless": stateless, "max_request_body_size": max_body_bytes}
        self._manager: StreamableHTTPSessionManager | None = None
        self._runner: asyncio.Task[None] | None = None
        self._started: asyncio.Future[None] | None = None
        self._stop = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
        elif scope["type"] == "http":
            if (refusal := self._refuse(Headers(scope=scope))) is not None:
                await refusal(scope, receive, send)
                return
            await self.start()
            assert self._manager is not None, "it was started"
            # Not all servers do what HTTP demands: to ignore spaces around the value of a header.
            headers = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
            await self._manager.handle_request({**scope, "headers": headers}, receive, send)
        else:  # a WebSocket
            await send({"type": "websocket.close", "code": 1000})

    def _refuse(self, headers: Headers) -> PlainTextResponse | None:
        match self._allowed.refused_header(headers.get("host", ""), headers.get("origin")):
            case "host":
                return PlainTextResponse("Invalid Host header", 421)
            case "origin":
                return PlainTextResponse("Invalid Origin header", 403)
        return None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def start(self) -> None:
        """Start the server, once. Raises what prevents the tools from being listed."""
        if self._started is None or self._runner is None or self._runner.done():
            self._started = asyncio.get_running_loop().create_future()
            self._stop = asyncio.Event()
            # A task of its own, because the SDK has to stop the server in the task that started it.
            self._runner = asyncio.create_task(self._run(self._started))
        await asyncio.shield(self._started)

    async def aclose(self) -> None:
        """End all sessions and cancel all calls."""
        self._stop.set()
        if self._runner is not None:
            await asyncio.wait([self._runner])

    async def _run(self, started: "asyncio.Future[None]") -> None:
        manager = StreamableHTTPSessionManager(self.server, **self._options)
        try:
            async with manager.run():
                self._manager = manager
                started.set_result(None)
                await self._stop.wait()
        except Exception as error:  # raised by `start`
            if started.done():
                raise
            started.set_exception(error)

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self.start()
        except Exception as error:  # noqa: BLE001 - the ASGI server reports it
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.aclose()
        await send({"type": "lifespan.shutdown.complete"})


def _check_names(label: str, names: Sequence[str]) -> None:
    if isinstance(names, str):
        raise ConfigError(f"{label} must be a list of names, got {names!r:.80}")
