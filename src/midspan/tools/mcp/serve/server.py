"""An MCP server for tools: lists them, runs their calls, and notices when they change.

Above are the terminal and ASGI applications. Below are a `ToolSource` and the official SDK, which speaks both
versions of the protocol: 2025-11-25 with sessions, and 2026-07-28 without. This module knows nothing of HTTP or stdio.
"""

import asyncio
import logging
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any

import mcp_types
from mcp.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from midspan._types.context import RunContext
from midspan._types.parts import FORBIDDEN, ToolCall, ToolResult, local_id
from midspan._version import VERSION
from midspan.errors import ConfigError
from midspan.tools.execution import LocalTools, run_call
from midspan.tools.mcp.serve.call import Request, ServedCall
from midspan.tools.mcp.serve.encode import ServedTool
from midspan.tools.source import ToolListing, ToolSource, describe_error, unknown_tool_result
from midspan.tools.wrap import ToolLike, list_source, source_of

_log = logging.getLogger("midspan.tools")

_ANSWER_SECONDS = 600.0
"""How long the state is valid that clients send back with an answer."""
_MAX_WAITING = 1_000
"""Calls that wait for answers at the same time."""
_MAX_SESSIONS = 1_000
"""Sessions of 2025-11-25 that are notified of changes; older ones are forgotten."""
_NOTIFY_SECONDS = 10.0
_MAX_DEPTH = 10


def mcp_server(
    tools: ToolLike | Iterable[ToolLike], *, name: str = "midspan", instructions: str | None = None
) -> "ToolServer":
    """Return an MCP server for functions, tools and sources of tools.

    It is a `Server` of the official SDK, so prompts, resources and other methods can be added with its
    `add_request_handler`. `instructions` tell the model of a client how to use the tools. Sources are not closed with
    the server.
    """
    return ToolServer(source_of(tools), name, instructions)


class _LegacySession:
    """A session of 2025-11-25: how to reach its client, and the log messages that the client wants."""

    def __init__(self) -> None:
        self.session: ServerSession | None = None
        self.log_level: str = "info"


class ToolServer(Server[None]):
    """An MCP server for one source of tools."""

    def __init__(self, source: ToolSource, name: str, instructions: str | None) -> None:
        self.bus = InMemorySubscriptionBus()
        super().__init__(
            name,
            version=VERSION,
            instructions=instructions,
            lifespan=_lifespan,
            get_tool_input_schema=self._input_schema,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_subscriptions_listen=ListenHandler(self.bus),
        )
        self.add_request_handler("logging/setLevel", mcp_types.SetLevelRequestParams, self._set_log_level)
        security = RequestStateSecurity.ephemeral(ttl=_ANSWER_SECONDS)
        self.middleware.append(RequestStateBoundary(security, default_audience=name))
        self.source = source
        self.answer_seconds = _ANSWER_SECONDS
        """How long a tool waits for the request that brings the answer of the user."""
        self._listing: ToolListing | None = None
        self._tools: dict[str, ServedTool] = {}
        self._running: set[asyncio.Task[Any]] = set()
        self._waiting: dict[str, tuple[ServedCall, asyncio.TimerHandle]] = {}
        """Calls whose tools wait for answers, under the request state that the client has to send back."""
        self._sessions: OrderedDict[str, _LegacySession] = OrderedDict()
        self._refresh_task: asyncio.Task[None] | None = None

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        options = notification_options or NotificationOptions(tools_changed=True)
        return super().create_initialization_options(options, experimental_capabilities, extensions)

    async def refresh(self) -> None:
        """List the tools again, and notify the clients if they have changed."""
        listing = await list_source(self.source)
        if listing.is_same_as(self._listing):
            return
        is_first, self._listing = self._listing is None, listing
        validates = type(self.source) is not LocalTools
        self._tools = {spec.name: ServedTool(spec, validates=validates) for spec in listing}
        if not is_first:
            await self.bus.publish(ToolsListChanged())
            for legacy in self._sessions.values():
                if legacy.session is not None:
                    self._track_task(asyncio.create_task(_notify_of_change(legacy.session)))

    async def aclose(self) -> None:
        """Cancel all calls, including those that wait for answers."""
        for served, timer in self._waiting.values():
            timer.cancel()
            served.cancel()
        self._waiting.clear()
        for task in self._running:
            task.cancel()

    def _input_schema(self, name: str) -> dict[str, Any] | None:
        tool = self._tools.get(name)
        return None if tool is None else tool.declaration.input_schema

    async def _list_tools(
        self, request: Request, _params: mcp_types.PaginatedRequestParams | None
    ) -> mcp_types.ListToolsResult:
        await self.refresh()
        if request.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            self._legacy_session(request).session = request.session
        return mcp_types.ListToolsResult(tools=[tool.declaration for tool in self._tools.values()])

    async def _call_tool(
        self, request: Request, params: mcp_types.CallToolRequestParams
    ) -> mcp_types.CallToolResult | mcp_types.InputRequiredResult:
        tool = await self._find(params.name)
        call = ToolCall(local_id(), params.name, params.arguments or {})
        if tool is None:
            raise MCPError(mcp_types.INVALID_PARAMS, str(unknown_tool_result(call, self._tools).value))
        if params.request_state is None:
            validated = tool.validate(call)
            if isinstance(validated, ToolResult):
                return tool.encode(validated)
            served = self._start(request, params, validated)
        else:
            served = self._resume(request, params)
        result = await served.wait()
        if result is None:
            return self._input_required(served)
        if type(self.source) is not LocalTools:
            self._refresh_later()
        return tool.encode(result)

    async def _find(self, name: str) -> ServedTool | None:
        if name not in self._tools:
            await self.refresh()
        return self._tools.get(name)

    def _start(self, request: Request, params: mcp_types.CallToolRequestParams, call: ToolCall) -> ServedCall:
        served = ServedCall(self, request, params.input_responses)
        # An id of its own for each call, so that idempotency keys differ and questions reach the client that called.
        context: RunContext[Any] = RunContext(run_id=f"{self.name}-{local_id()}", call_id=call.id, host=served)
        self._track_task(served.start(self._run(call, context), call.name))
        return served

    def _track_task(self, task: "asyncio.Task[Any]") -> None:
        """Hold a task that nobody awaits, until it ends or the server does."""
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _run(self, call: ToolCall, context: RunContext[Any]) -> ToolResult:
        try:
            result, _ = await run_call(self.source.call, call, context, in_task=type(self.source) is not LocalTools)
        except SystemExit as error:  # the call of one client must not end the server for all
            _log.error("tool %s raised SystemExit", call.name, exc_info=error, extra=context.log_fields)
            return call.error_result(f"{call.name} failed: {describe_error(error)}")
        return result

    def _resume(self, request: Request, params: mcp_types.CallToolRequestParams) -> ServedCall:
        waiting = self._waiting.pop(params.request_state or "", None)
        if waiting is None:
            raise MCPError(
                mcp_types.INVALID_PARAMS,
                f"no call of {params.name} waits for this answer: it has ended, or the server was restarted",
            )
        served, timer = waiting
        timer.cancel()
        served.resume(request, params.input_responses)
        return served

    def _input_required(self, served: ServedCall) -> mcp_types.InputRequiredResult:
        if len(self._waiting) >= _MAX_WAITING:
            served.cancel()
            raise MCPError(mcp_types.INTERNAL_ERROR, "too many calls wait for answers; the call was cancelled")
        state = secrets.token_urlsafe(16)
        timer = served.loop.call_later(self.answer_seconds, self._expire, state)
        self._waiting[state] = served, timer
        return mcp_types.InputRequiredResult(input_requests={**served.questions}, request_state=state)

    def _expire(self, state: str) -> None:
        served, _ = self._waiting.pop(state)
        _log.warning(
            "a call was cancelled, because its question was not answered within %g seconds", self.answer_seconds
        )
        served.cancel()

    async def call_nested(
        self, host: ServedCall, parent: RunContext[Any], name: str, arguments: dict[str, Any]
    ) -> ToolResult:
        """Run a call that a tool makes. As in a run, only read-only tools that need no approval can be called."""
        call = ToolCall(local_id(), name, arguments)
        tool = await self._find(name)
        if tool is None:
            return unknown_tool_result(call, self._tools)
        if parent.cancelled or parent.depth >= _MAX_DEPTH or tool.spec.changes is not False:
            return call.error_result(
                f"{name} was not run: a tool may only call tools declared read-only, {_MAX_DEPTH} deep at most",
                FORBIDDEN,
            )
        if tool.spec.needs_approval:
            message = f"{name} was not run: it needs the approval of a person, and nobody can be asked"
            return call.error_result(message, FORBIDDEN)
        context: RunContext[Any] = RunContext(
            run_id=parent.run_id, call_id=call.id, depth=parent.depth + 1, deadline=parent.deadline, host=host
        )
        return await self._run(call, context)

    def log_level(self, request: Request) -> str | None:
        """Return the lowest level of log messages that the client wants for this request; None if it wants none."""
        if request.protocol_version in MODERN_PROTOCOL_VERSIONS:
            level = (request.meta or {}).get(mcp_types.LOG_LEVEL_META_KEY)
            return level if isinstance(level, str) else None
        return self._legacy_session(request).log_level

    async def _set_log_level(self, request: Request, params: mcp_types.SetLevelRequestParams) -> mcp_types.EmptyResult:
        self._legacy_session(request).log_level = params.level
        return mcp_types.EmptyResult()

    def _legacy_session(self, request: Request) -> _LegacySession:
        headers = getattr(request.request, "headers", {})  # there is no request over stdio, where one session is all
        id = headers.get("mcp-session-id", "")
        session = self._sessions.setdefault(id, _LegacySession())
        self._sessions.move_to_end(id)
        if len(self._sessions) > _MAX_SESSIONS:
            self._sessions.popitem(last=False)
        return session

    def _refresh_later(self) -> None:
        """A call may have changed the tools. The client does not wait for finding that out."""
        if self._refresh_task is None or self._refresh_task.done():
            self._refresh_task = asyncio.create_task(self._try_refresh())
            self._track_task(self._refresh_task)

    async def _try_refresh(self) -> None:
        try:
            await self.refresh()
        except ConfigError as error:  # the next listing raises it for its client
            _log.warning("the tools of the MCP server %s cannot be listed: %s", self.name, error)


async def _notify_of_change(session: ServerSession) -> None:
    """Tell a client of 2025-11-25 that the tools have changed. It may be gone, or not read any more."""
    with suppress(Exception):
        async with asyncio.timeout(_NOTIFY_SECONDS):
            await session.send_tool_list_changed()


@asynccontextmanager
async def _lifespan(server: Server[None]) -> AsyncIterator[None]:
    assert isinstance(server, ToolServer), "it is the lifespan of this class alone"
    await server.refresh()  # the SDK reads the schemas of `_input_schema` before the first listing
    try:
        yield
    finally:
        await server.aclose()
