"""One session with a server.

The SDK works with task groups, which must be entered and left in the same task. So the session lives in a task of its
own, from the handshake to the end; requests are made from the tasks of the calls.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any, Protocol, Self, cast

from mcp import Client, types
from mcp.client import ClientRequestContext, ClientSession, IncomingMessage, Transport
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from pydantic import TypeAdapter, ValidationError

from midspan._types.texts import count_noun
from midspan._version import VERSION
from midspan.tools.mcp.conversion import describe_invalid
from midspan.tools.mcp.protocols import ProtocolInfo
from midspan.tools.source import describe_error

_log = logging.getLogger("midspan.tools.mcp")

logging.getLogger("mcp").addHandler(logging.NullHandler())  # silent unless the program configures logging

CLOSE_SECONDS = 10.0
"""How long a session may take to end before its task is cancelled."""
_MAX_PAGES = 1_000
_MAX_TOOLS = 10_000
_MAX_PARTS = 10_000
"""Of one result."""
_RELISTEN_SECONDS = 5.0
_CLIENT_INFO = types.Implementation(name="midspan", version=VERSION)
_RESULT: TypeAdapter[types.CallToolResult | types.InputRequiredResult] = TypeAdapter(
    types.CallToolResult | types.InputRequiredResult
)
_MAX_NAMED = 3
"""Unknown types of content in a log record."""
_CONTENT_TYPES = frozenset(("text", "image", "audio", "resource", "resource_link"))
_LOG_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "notice": logging.INFO, "warning": logging.WARNING}

Answers = tuple[dict[str, Any] | None, str | None]
"""To the questions of the server, and the state that it gets back with them."""
Elicit = Callable[[types.ElicitRequestParams], Awaitable[types.ElicitResult | types.ErrorData]]


class ServerTransport(Protocol):
    """The stdio or the HTTP transport."""

    is_remote: bool
    """Whether each request is a connection of its own, which can end alone."""

    @property
    def error_output(self) -> str:
        """What a server process wrote to stderr."""

    @property
    def exit_code(self) -> int | None:
        """The exit code of a server process that has ended by itself."""

    def open(self, on_end: Callable[[], None]) -> Any:
        """Return an async context manager that yields the streams of the SDK.

        `on_end` is called if the server ends the connection.
        """


class MCPConnection:
    """A session with a server, and the task that it lives in."""

    def __init__(
        self,
        transport: ServerTransport,
        protocol: ProtocolInfo | None,
        *,
        elicit: Elicit,
        on_tools_changed: Callable[[], None],
    ) -> None:
        self.transport = transport
        self._protocol = protocol
        self._elicit = elicit
        self._on_tools_changed = on_tools_changed
        self._end = asyncio.Event()
        self._client: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._session: ClientSession | None = None
        self._task: asyncio.Task[None] | None = None
        self.loop = asyncio.get_running_loop()
        self.is_closed = False

    async def open(self) -> None:
        """Start the server or connect to it, and agree on a protocol version. Cancel it to give up."""
        self._task = asyncio.create_task(self._run_session(), name="MCP session")
        try:
            await asyncio.wait([self._client])
        except asyncio.CancelledError:
            await self.close()
            raise
        self._client.result()

    async def close(self) -> None:
        """End the session. A server process is stopped."""
        self.is_closed = True  # at once: calls in flight have an unknown outcome, and no other call may use it
        self._end.set()
        task = self._task
        if task is None or task.done():
            return
        if not self._client.done():
            task.cancel()
        await asyncio.wait([task], timeout=CLOSE_SECONDS)
        if not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=CLOSE_SECONDS)

    async def _run_session(self) -> None:
        client = self._client
        try:
            async with self._connect() as connected:
                self._session = connected.session
                client.set_result(connected)
                watcher = asyncio.create_task(self._watch_tools(connected), name="MCP tool list")
                try:
                    await self._end.wait()
                finally:
                    watcher.cancel()
                    with suppress(asyncio.CancelledError):
                        await watcher
        except Exception as error:  # noqa: BLE001 - of the SDK, the server and the network; the caller gets it
            _log.debug("the session ended: %s", describe_error(error), exc_info=error)
            if not client.done():
                client.set_exception(error)
        finally:
            self.is_closed = True
            if not client.done():  # `close` was called during `open`
                client.set_exception(MCPError(types.CONNECTION_CLOSED, "the connection was closed"))
            client.exception()  # so that asyncio does not log it if `open` was cancelled

    def _connect(self) -> Client:
        protocol = self._protocol
        return Client(
            cast("Transport", self._streams()),
            mode="auto" if protocol is None else protocol.mode,
            prior_discover=None
            if protocol is None or protocol.discover is None
            else types.DiscoverResult.model_validate(protocol.discover),
            elicitation_callback=self._on_elicitation,
            logging_callback=_log_message,
            message_handler=self._on_message,
            client_info=_CLIENT_INFO,
            cache=None,
        )

    @asynccontextmanager
    async def _streams(self) -> AsyncGenerator[Any, None]:
        async with self.transport.open(self._lost) as (messages, requests):
            yield _ReadableMessages(messages, self._protocol_version), requests

    def _protocol_version(self) -> str | None:
        return None if self._session is None else self._session.protocol_version

    def _lost(self) -> None:
        self.is_closed = True
        self._end.set()

    @property
    def is_open(self) -> bool:
        """Whether requests can be made: the session was agreed on and has not ended."""
        return self._session is not None and not self.is_closed

    @property
    def session(self) -> ClientSession:
        assert self._session is not None, "the connection was opened"
        return self._session

    @property
    def protocol(self) -> ProtocolInfo:
        """What to remember of the server."""
        discovered = self.session.discover_result
        if discovered is None:
            return ProtocolInfo("legacy")
        assert self.session.protocol_version is not None, "it was negotiated"
        return ProtocolInfo(
            self.session.protocol_version, discovered.model_dump(mode="json", by_alias=True, exclude_none=True)
        )

    async def list_tools(self) -> list[types.Tool]:
        """Return all pages of the list of tools."""
        tools: list[types.Tool] = []
        cursor: str | None = None
        seen: set[str] = set()
        for _ in range(_MAX_PAGES):
            page = await self.session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
            tools += page.tools
            if len(tools) > _MAX_TOOLS:
                raise MCPError(types.INTERNAL_ERROR, _too_many_tools())
            cursor = page.next_cursor
            if not cursor or cursor in seen:
                return tools
            seen.add(cursor)
        return tools

    async def call_tool(
        self, name: str, arguments: dict[str, Any], on_progress: ProgressFnT, answers: Answers | None
    ) -> types.CallToolResult | types.InputRequiredResult:
        """Make the call. The result is validated by the caller, whose validator limits the work of hostile schemas."""
        responses, state = answers or (None, None)
        params = types.CallToolRequestParams(
            name=name, arguments=arguments, input_responses=responses, request_state=state
        )
        return await self.session.send_request(
            types.CallToolRequest(params=params), _RESULT, progress_callback=on_progress
        )

    async def answer(self, asked: types.InputRequiredResult) -> Answers:
        """Return the answers to what the server asks for, with which the call has to be made again."""
        session = self.session
        responses: dict[str, Any] = {}
        for key, request in (asked.input_requests or {}).items():
            meta = None if request.params is None else request.params.meta
            context = ClientRequestContext(session=session, request_id=key, meta=meta)
            response = await session.dispatch_input_request(context, request)
            if isinstance(response, types.ErrorData):
                raise MCPError(response.code, response.message, response.data)
            responses[key] = response
        if not responses:
            await asyncio.sleep(0.1)  # no questions: the server asks to be polled
        return responses or None, asked.request_state

    async def _on_elicitation(
        self,
        context: ClientRequestContext,  # noqa: ARG002 - of the SDK
        params: types.ElicitRequestParams,
    ) -> types.ElicitResult | types.ErrorData:
        return await self._elicit(params)

    async def _on_message(self, message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._on_tools_changed()

    async def _watch_tools(self, client: Client) -> None:
        """Subscribe to changes of the list of tools, where the protocol version sends them to subscribers only."""
        tools = client.server_capabilities.tools
        if self.session.discover_result is None or tools is None or not tools.list_changed:
            return
        while not self._end.is_set():
            try:
                async with client.listen(tools_list_changed=True) as changes:
                    self._on_tools_changed()  # they may have changed before the subscription
                    async for _ in changes:
                        self._on_tools_changed()
            except (MCPError, SubscriptionLost, TimeoutError) as error:
                _log.debug("the subscription to changes of tools ended: %s", describe_error(error))
            await asyncio.sleep(_RELISTEN_SECONDS)


class _ReadableMessages:
    """The messages of a server, without tools and content that the SDK cannot read: it would refuse a whole message."""

    def __init__(self, stream: Any, protocol_version: Callable[[], str | None]) -> None:
        self._stream = stream
        self._protocol_version = protocol_version

    @property
    def last_context(self) -> Any:
        """The context variables of the sender, which the SDK passes on."""
        return getattr(self._stream, "last_context", None)

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._stream.__aexit__(*exc_info)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        item = await anext(self._stream)
        if isinstance(item, SessionMessage) and isinstance(item.message, types.JSONRPCResponse):
            return replace(item, message=self._readable(item.message))
        return item

    def _readable(self, response: types.JSONRPCResponse) -> types.JSONRPCResponse | types.JSONRPCError:
        """Remove what cannot be read, or refuse a message whose parts would take too long to check one by one."""
        result = response.result
        content, tools = result.get("content"), result.get("tools")
        if isinstance(content, list):
            if len(content) > _MAX_PARTS:
                return _refused(response, f"the server sent a result of more than {_MAX_PARTS:,} parts")
            result["content"] = _known_blocks(content)
        if isinstance(tools, list):
            if len(tools) > _MAX_TOOLS:
                return _refused(response, _too_many_tools())
            result["tools"] = _readable_tools(tools, self._protocol_version() or types.LATEST_PROTOCOL_VERSION)
        return response


def _refused(response: types.JSONRPCResponse, problem: str) -> types.JSONRPCError:
    error = types.ErrorData(code=types.INTERNAL_ERROR, message=problem)
    return types.JSONRPCError(jsonrpc="2.0", id=response.id, error=error)


def _too_many_tools() -> str:
    return f"the server lists more than {_MAX_TOOLS:,} tools"


def _readable_tools(tools: list[Any], version: str) -> list[Any]:
    readable: list[Any] = []
    problem = ""
    for tool in tools:
        # The other fields are what a listing needs, and not those of the server: they may be large.
        listing = {"tools": [tool], "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        try:
            types.methods.validate_server_result("tools/list", version, listing)
        except ValidationError as error:
            name = tool.get("name") if isinstance(tool, dict) else None
            problem = problem or f"{name!r:.80}: {describe_invalid(error)}"
        else:
            readable.append(tool)
    if problem:
        text = "%s of an MCP server cannot be read and left out; the first is %s"
        _log.warning(text, count_noun(len(tools) - len(readable), "tool"), problem)
    return readable


def _known_blocks(content: list[Any]) -> list[Any]:
    unknown = [str(block["type"])[:80] for block in content if _is_unknown(block)]
    if unknown:
        text = "%s of a result left out, because the type is unknown: %s"
        _log.warning(text, count_noun(len(unknown), "part"), ", ".join(map(repr, sorted(set(unknown))[:_MAX_NAMED])))
    return [_omitted(block) if _is_unknown(block) else block for block in content]


def _is_unknown(block: Any) -> bool:
    content_type = block.get("type") if isinstance(block, dict) else None
    return isinstance(content_type, str) and content_type not in _CONTENT_TYPES


def _omitted(block: dict[str, Any]) -> dict[str, Any]:
    return {"type": "text", "text": f"[content of the unknown type {block['type']!r:.80} was left out]"}


async def _log_message(params: types.LoggingMessageNotificationParams) -> None:
    _log.log(_LOG_LEVELS.get(params.level, logging.ERROR), "%s: %s", params.logger or "server", params.data)
