"""The ASGI application: routes, middleware and lifespan."""

import asyncio
import inspect
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from importlib.util import find_spec
from time import monotonic
from typing import TYPE_CHECKING, Any

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from midspan._http.serving import ANY, AllowedOrigins
from midspan._loop.agent import Agent
from midspan._schema.conversion import settings_of
from midspan._server.api import ApiEndpoints
from midspan._server.config import OWNER, AccessTokens, ServerConfig
from midspan._server.http import HttpError, read_body, replay, unexpected_error
from midspan._server.metrics import Metrics
from midspan._server.openai import OpenAIApi
from midspan._server.openapi import openapi_document, openapi_page
from midspan._server.service import OwnedTools, Service
from midspan._server.ui_stream import UiApi
from midspan._storage.journal import Journal
from midspan.errors import ConfigError

if TYPE_CHECKING:
    from midspan.tools.mcp.serve.app import MCPApp

_MAX_MCP_APPS = 1_000
"""For more owners than this, MCP applications without an open request are closed. Their clients connect again."""
_SECONDS_FOR_MCP_RESPONSES = 1
"""How long the responses of calls that have ended may take at shutdown."""
OPEN_PATHS = frozenset(("/", "/health", "/openapi.json", "/docs"))
"""What can be read without a token: nothing in there depends on runs."""
Authenticate = Callable[[Mapping[str, str]], str | None]
"""Returns the owner of a request by its headers, or None if the request is not allowed."""
Endpoint = Callable[[Request], Awaitable[Response | ASGIApp]]


class ServerApp:
    """The server as an ASGI application.

    A program that mounts it passes `app.lifespan` as its own lifespan, or enters it there: mounted applications get no
    lifespan events. Until it is left, the application serves requests; then it waits for its runs or cancels them.
    """

    def __init__(self, service: Service, app: ASGIApp, routes: Sequence[BaseRoute], owned: Sequence[Any]) -> None:
        """`owned` is closed at the end, after the service."""
        self.service = service
        self.routes = routes
        self._app = app
        self._lifespan = Router(lifespan=self.lifespan)
        self._owned = owned

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope["app"] = self
            await self._app(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(scope, receive, send)
        else:  # a WebSocket
            await send({"type": "websocket.close", "code": 1008})

    @asynccontextmanager
    async def lifespan(self, _: Any = None) -> AsyncIterator[None]:
        """Mark the runs of an earlier process as interrupted; at the end, wait for the runs or cancel them."""
        await self.service.ready()
        try:
            yield
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        """Wait for the runs, or cancel them, and close what the application owns."""
        await self.service.aclose()
        owned, self._owned = self._owned, ()
        for item in owned:
            await item.aclose()


def create_app(
    agent: Agent,
    *,
    journal: Journal | None = None,
    tokens: Mapping[str, str] | AccessTokens | None = None,
    authenticate: Authenticate | None = None,
    provider: str | None = None,
    close_agent: bool = False,
    **settings: Any,
) -> ServerApp:
    """Return an ASGI application that serves an agent.

    `journal` keeps runs and sessions; by default the last thousand runs are kept in memory. `tokens` has the token of
    each owner; `authenticate` is a function that returns the owner of a request by its headers, or None.
    `provider` is the name that requests use for the provider of the agent's model. With `close_agent`, the end of the
    application closes the agent and the journal. `settings` are the fields of the configuration, such as `max_runs`.
    """
    config = settings_of(ServerConfig, settings, "create_app")
    if inspect.iscoroutinefunction(authenticate):
        raise ConfigError("authenticate must be a sync function, which returns the owner or None; it cannot be async")
    known = tokens if isinstance(tokens, AccessTokens) else AccessTokens(tokens)
    is_authenticated = authenticate is not None or bool(known)
    service = Service(agent, config, journal, provider)
    metrics, mcp = Metrics(service), McpEndpoint(service)
    routes = _routes(service, metrics, mcp, has_tokens=is_authenticated)
    app: ASGIApp = AccessMiddleware(
        Router(routes, redirect_slashes=False),
        allowed=config.allowed_origins(has_tokens=is_authenticated),
        authenticate=authenticate or known.authenticate,
        metrics=metrics,
    )
    if config.cors_origins:
        app = CORSMiddleware(
            app,
            allow_origins=config.cors_origins,
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["authorization", "content-type", "last-event-id"],
            expose_headers=["x-run-id", "location", "retry-after"],
        )
    owned = (mcp, metrics)
    return ServerApp(service, app, routes, (*owned, agent, service.journal) if close_agent else owned)


def _routes(service: Service, metrics: Metrics, mcp: "McpEndpoint", *, has_tokens: bool) -> list[BaseRoute]:
    api, openai, ui = ApiEndpoints(service), OpenAIApi(service), UiApi(service)
    document = openapi_document(service.models, has_tokens=has_tokens)
    table: list[tuple[str, str, Endpoint]] = [
        ("POST", "/api/v1/chat", api.chat),
        ("POST", "/api/v1/runs", api.start_run),
        ("GET", "/api/v1/runs", api.list_runs),
        ("GET", "/api/v1/runs/{run_id}", api.get_run),
        ("POST", "/api/v1/runs/{run_id}/cancel", api.cancel_run),
        ("GET", "/api/v1/runs/{run_id}/events", api.run_events),
        ("GET", "/api/v1/sessions", api.list_sessions),
        ("GET", "/api/v1/sessions/{session_id}", api.get_session),
        ("DELETE", "/api/v1/sessions/{session_id}", api.delete_session),
        ("GET", "/api/v1/sessions/{session_id}/export", api.export_session),
        ("GET", "/api/v1/tools", api.tools),
        ("GET", "/api/v1/models", api.models),
        ("GET", "/api/v1/health", api.health),
        ("GET", "/health", api.alive),
        ("POST", "/api/v1/ui/chat", ui.chat),
        ("GET", "/api/v1/ui/chat/{session_id}/stream", ui.resume),
        ("POST", "/v1/chat/completions", openai.completions),
        ("GET", "/v1/models", openai.models),
        ("GET", "/v1/models/{model:path}", openai.model),
        ("GET", "/metrics", metrics.endpoint),
    ]
    endpoints: dict[str, dict[str, Endpoint]] = {}
    for method, path, endpoint in table:
        endpoints.setdefault(path, {})[method] = endpoint
    # One route for all methods of a path: the Allow header of a 405 response names all of them.
    routes = [Route(path, _endpoint(service, methods), methods=[*methods]) for path, methods in endpoints.items()]
    constant = {
        "/openapi.json": Response(document, media_type="application/json"),
        "/docs": openapi_page(document),
        "/": RedirectResponse("docs"),
    }
    routes += [Route(path, response, methods=["GET"]) for path, response in constant.items()]
    return [*routes, Route("/mcp", mcp)]


def _endpoint(service: Service, methods: Mapping[str, Endpoint]) -> Callable[[Request], Awaitable[Any]]:
    """Return one endpoint for all methods of a path."""

    async def endpoint(request: Request) -> Response | ASGIApp:
        await service.ready()
        try:
            return await methods["GET" if request.method == "HEAD" else request.method](request)
        except ClientDisconnect:
            return Response(status_code=499)  # nobody reads it

    return endpoint


class AccessMiddleware:
    """Around all endpoints: checks Host, Origin and token, turns exceptions into responses, and counts requests."""

    def __init__(self, app: ASGIApp, *, allowed: AllowedOrigins, authenticate: Authenticate, metrics: Metrics) -> None:
        self._app = app
        self._allowed = allowed
        self._authenticate = authenticate
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started, status = monotonic(), 0

        async def send_and_record_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            self._check(scope)
            await self._app(scope, receive, send_and_record_status)
        except Exception as error:  # noqa: BLE001 - clients get a sentence, whatever the error is
            failure = error if isinstance(error, HttpError) else unexpected_error(error, scope)
            if status:
                raise ConnectionAbortedError("the response was cut off by an error") from None
            await failure.response(scope)(scope, receive, send_and_record_status)
        finally:
            self._metrics.count_request(scope, status or 500, monotonic() - started)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        match self._allowed.refused_header(headers.get("host", ""), headers.get("origin")):
            case "host":
                raise HttpError(403, "this value of the Host header is not allowed here; see allowed_hosts")
            case "origin":
                raise HttpError(403, "web pages of this origin are not allowed here; see cors_origins")
        owner = self._authenticate(headers)
        scope[OWNER] = owner if isinstance(owner, str) and owner else None  # False must not be accepted as an owner
        if scope[OWNER] is None and scope["path"].removeprefix(scope.get("root_path", "")) not in OPEN_PATHS:
            challenge = {"WWW-Authenticate": "Bearer"}
            raise HttpError(401, "send a valid token as `Authorization: Bearer TOKEN`", headers=challenge)


class McpEndpoint:
    """/mcp: the tools of the server for MCP clients. The MCP package is imported with the first request."""

    def __init__(self, service: Service, *, max_apps: int = _MAX_MCP_APPS) -> None:
        self._service = service
        self._max_apps = max_apps
        self._apps: dict[str, MCPApp] = {}
        """One application for each owner, so that nobody can use the MCP session of another owner. The application
        that was used last is the last one."""
        self._posts: Counter[str] = Counter()
        """The number of open POST requests of each owner."""
        self._answered = asyncio.Event()
        """Set when the last open POST request has its response."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "POST":  # the MCP package has no time limit for it
            try:
                receive = replay(await read_body(Request(scope, receive), self._service.config), receive)
            except ClientDisconnect:
                await Response(status_code=499)(scope, receive, send)  # nobody reads it
                return
        self._service.check_open()
        await self._serve(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        owner = scope[OWNER]
        app = self._apps.pop(owner) if owner in self._apps else self._new_app(owner)
        self._apps[owner] = app
        request = Counter({owner: int(scope["method"] == "POST")})
        self._posts += request
        try:
            if len(self._apps) > self._max_apps:
                unused = [other for other in self._apps if other != owner and other not in self._posts]
                for other in unused[:1]:
                    await self._apps.pop(other).aclose()
            await app(scope, receive, send)
        finally:
            self._posts -= request
            if not self._posts:
                self._answered.set()

    def _new_app(self, owner: str) -> "MCPApp":
        if find_spec("mcp") is None:
            raise HttpError(404, "this server does not speak MCP: it needs pip install 'midspan[mcp]'")
        from midspan.tools.mcp.serve.app import mcp_app  # slow to import

        tools, limit = OwnedTools(self._service, owner), self._service.config.max_body_bytes
        # AccessMiddleware has checked Host and Origin.
        return mcp_app(tools, hosts=[ANY], origins=[ANY], max_body_bytes=limit)

    async def aclose(self) -> None:
        """Send the results of the calls that have ended, then end all sessions and cancel the other calls."""
        if self._posts and not self._service.is_busy:
            self._answered.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(_SECONDS_FOR_MCP_RESPONSES):
                    await self._answered.wait()
        for app in self._apps.values():
            await app.aclose()
