"""`MCPServer`: the tools of one MCP server.

The connection is opened when the tools are first listed, and opened again when the server is gone. The SDK is imported
then, because that takes most of a second.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, Unpack

from msgspec import Struct
from msgspec.structs import replace

from midspan._types.context import NO_CONTEXT, RunContext
from midspan._types.parts import FORBIDDEN, NOT_RUN, ToolCall, ToolResult
from midspan._types.specs import ToolSpec
from midspan.errors import ConfigError, SchemaError
from midspan.tools.mcp.lock import Definition, Lockfile
from midspan.tools.mcp.oauth import AUTHORIZATION_SECONDS, OAuth
from midspan.tools.mcp.options import MCPOptions, read_options
from midspan.tools.mcp.protocols import PROCESS_CACHE, ProtocolInfo
from midspan.tools.source import (
    ToolListing,
    ToolSource,
    UnavailableSource,
    bulleted,
    describe_error,
    unknown_tool_result,
)
from midspan.tools.wrap import OwnerLoop

if TYPE_CHECKING:
    from midspan.tools.mcp.calls import Calls
    from midspan.tools.mcp.connection import MCPConnection, ServerTransport
    from midspan.tools.mcp.conversion import RemoteTool

_log = logging.getLogger("midspan.tools.mcp")

_MAX_ATTEMPTS = 2
"""Of a call that was not sent, or that can be repeated."""
_MAX_BACKOFF_SECONDS = 60.0
_MAX_LISTING_SECONDS = 300.0
"""How long a listing is used. Most servers report changes earlier."""
_MAX_ERROR_OUTPUT = 500
_HELD_BACK = "its definition has changed since it was accepted, so it is held back"


class Unavailable(Exception):
    """The server cannot be used now."""


class _PreparedCall(Struct, frozen=True, eq=False):
    """A call that can be sent, and where to."""

    connection: "MCPConnection"
    calls: "Calls"
    tool: "RemoteTool"
    call: ToolCall
    """With coerced and defaulted arguments."""
    changes: tuple[str, ...]
    """What was changed in the arguments."""


class MCPServer(ToolSource):
    """The tools of an MCP server: `MCPServer("npx -y …")`, `MCPServer([…])` or `MCPServer(url="https://…")`.

    Give it to an agent as one of its tools; the agent closes it. Runs in several event loops can use it at once.
    """

    def __init__(
        self, command: str | Sequence[str] | None = None, *, url: str | None = None, **options: Unpack[MCPOptions]
    ) -> None:
        self.config = read_options(command, url, options)
        self._auth = options.get("auth")
        self._approve = options.get("approve") or None
        self._protocol_cache = options.get("protocol_cache", PROCESS_CACHE)
        lock = options.get("lock")
        self._lock = lock if isinstance(lock, Lockfile | None) else Lockfile(lock)
        self._bound_loop = OwnerLoop()
        self._connection: MCPConnection | None = None
        self._calls: Calls | None = None
        self._lost: MCPConnection | None = None
        """The connection that ended last."""
        self._opening: asyncio.Lock | None = None
        self._opening_loop: asyncio.AbstractEventLoop | None = None
        self._tools: dict[str, RemoteTool] = {}
        self._definitions: dict[str, Definition] = {}
        self._held_back: dict[str, str] = {}
        self._listing = ToolListing(name=self.name)
        self._listed_at = 0.0
        self._is_stale = True
        self._version = 0
        self._failures = 0
        self._retry_at = 0.0
        self._last_error = ""
        self._warned = ""
        """The message that was logged last. Each attempt would log the same."""

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def held_back(self) -> Mapping[str, str]:
        """The tools that have changed since they were accepted, with the differences."""
        return self._held_back

    @property
    def protocol_version(self) -> str | None:
        """The version of the protocol that the server speaks; None if it is not connected."""
        connection = self._connection
        return None if connection is None or not connection.is_open else connection.session.protocol_version

    def __repr__(self) -> str:
        return f"MCPServer({self.name!r})"

    async def list_tools(self) -> ToolListing:
        """Return the tools of the server. If it cannot be reached, the listing names it as unavailable."""
        return await self._bound_loop.run(self._list_tools())

    async def call(self, call: ToolCall, context: RunContext[Any] = NO_CONTEXT) -> ToolResult:
        return await self._bound_loop.run(self._call(call, context))

    async def aclose(self) -> None:
        """End the session, and the process of the server. A later call starts it again."""
        await self._bound_loop.run(self._close())

    def accept_changes(self) -> None:
        """Pin the tools as the server lists them now, so that none of them is held back."""
        if self._lock is not None:
            self._lock.accept(self.name, self._definitions)
        self._is_stale = True

    async def _list_tools(self) -> ToolListing:
        try:
            await self._connected()
        except Unavailable as error:
            return ToolListing(unavailable=(UnavailableSource(self.name, str(error)),), name=self.name)
        return self._listing

    async def _connected(self) -> "MCPConnection":
        """Return an open connection whose tools are listed."""
        connection = self._usable()
        if connection is not None and not self._is_outdated():
            return connection
        if self._opening is None or self._opening_loop is not _loop():
            self._opening, self._opening_loop = asyncio.Lock(), _loop()
        async with self._opening:
            connection = self._usable()
            if connection is not None and not self._is_outdated():
                return connection
            if monotonic() < self._retry_at:
                wait = self._retry_at - monotonic()
                raise Unavailable(f"{self._last_error}; the next attempt is made in {wait:.0f} seconds")
            try:
                async with asyncio.timeout(self._startup_seconds):
                    if connection is None:
                        return await self._open()
                    await self._refresh(connection)
                    return connection
            except ConfigError:
                await self._close()
                raise
            except Exception as error:
                raise await self._failed(error, connection) from error

    @property
    def _startup_seconds(self) -> float | None:
        seconds = self.config.startup_timeout
        return seconds if seconds is None or not isinstance(self._auth, OAuth) else seconds + AUTHORIZATION_SECONDS

    def _usable(self) -> "MCPConnection | None":
        connection = self._connection
        if connection is None or not connection.is_open or connection.loop is not _loop():
            return None
        return connection

    def _is_outdated(self) -> bool:
        return self._is_stale or monotonic() - self._listed_at > _MAX_LISTING_SECONDS

    async def _open(self) -> "MCPConnection":
        """Connect as it worked last time, or find out which protocol version the server speaks; list the tools."""
        protocol = self._protocol_cache.get(self.config.identity)
        try:
            connection = await self._connect(protocol)
        except (ConfigError, OSError):
            raise
        except Exception:  # the server may speak another version by now
            if protocol is None or self._connection is None:  # None: closed meanwhile
                raise
            self._protocol_cache.remember(self.config.identity, None)
            connection = await self._connect(None)
        self._protocol_cache.remember(self.config.identity, connection.protocol)
        return connection

    async def _connect(self, protocol: ProtocolInfo | None) -> "MCPConnection":
        try:
            from midspan.tools.mcp.calls import Calls
            from midspan.tools.mcp.connection import MCPConnection
        except ModuleNotFoundError as error:
            raise ConfigError("MCP servers need the package mcp: pip install 'midspan[mcp]'") from error
        self._calls = Calls(self.name)
        connection = self._connection = MCPConnection(
            self._transport(), protocol, elicit=self._calls.elicit, on_tools_changed=self._note_change
        )
        try:
            await connection.open()
            await self._refresh(connection)
        except BaseException:
            await connection.close()
            raise
        return connection

    def _transport(self) -> "ServerTransport":
        config = self.config
        if config.url is not None:
            from midspan.tools.mcp.http import HttpTransport

            auth = self._auth.provider(config.url) if isinstance(self._auth, OAuth) else self._auth
            return HttpTransport(
                config.url, headers=config.headers, auth=auth, max_message_bytes=config.max_message_bytes
            )
        from midspan.tools.mcp.stdio import StdioTransport

        return StdioTransport(
            config.command, env=config.environment, cwd=config.cwd, max_message_bytes=config.max_message_bytes
        )

    async def _refresh(self, connection: "MCPConnection") -> None:
        """List the tools again. The version of the listing changes only if the tools have changed."""
        from midspan.tools.mcp.conversion import remote_tool

        self._is_stale = False  # before the request: a change during it is not in its answer
        try:
            listed = await connection.list_tools()
        except BaseException:
            self._is_stale = True
            raise
        tools: dict[str, RemoteTool] = {}
        missing: dict[str, str] = {}
        for tool in listed:
            if not self.config.uses(tool.name) or tool.name in tools:
                continue
            try:
                tools[tool.name] = remote_tool(tool, self.name, self.config.overrides.get(tool.name, {}))
            except SchemaError as error:
                missing[tool.name] = str(error)
        self._definitions = {name: tool.definition for name, tool in tools.items()}
        self._held_back = {} if self._lock is None else self._lock.check(self.name, self._definitions)
        missing |= {name: f"{_HELD_BACK}:\n{change}" for name, change in self._held_back.items()}
        self._tools = {name: tool for name, tool in tools.items() if name not in self._held_back}
        self._listed_at = monotonic()
        self._warned = ""
        specs = tuple(map(self._declared, self._tools.values()))
        unavailable = tuple(UnavailableSource(f"{self.name}.{name}", why) for name, why in missing.items())
        if not self._version or (specs, unavailable) != (self._listing.tools, self._listing.unavailable):
            self._version += 1
            self._listing = ToolListing(specs, self._version, unavailable, self.name)
            for source in unavailable:
                text = "the MCP tool %s is left out: %s"
                _log.warning(text, source.name, source.message, extra={"unavailable": source.name})
            names = [tool.name for tool in listed]
            for name in sorted({*(self.config.include or ()), *self.config.overrides}.difference(names)):
                text = "the options of the MCP server %s name the tool %r, but the tools are: %s"
                _log.warning(text, self.name, name, ", ".join(names) or "none")

    def _declared(self, tool: "RemoteTool") -> ToolSpec:
        """Return the spec for the run, which refuses calls that need approval; not if this source asks for it."""
        return replace(tool.spec, needs_approval=False) if self._approve is not None else tool.spec

    def _note_change(self) -> None:
        self._is_stale = True

    async def _failed(self, error: Exception, listed: "MCPConnection | None") -> Unavailable:
        """Return the error of opening a connection, or of listing tools again on an open one (`listed`).

        The next attempts are made with growing intervals. An open connection may have calls in flight, so it is
        closed only if listing fails twice.
        """
        self._is_stale = True
        stays_open = listed is not None and listed.is_open and not self._failures
        if self._connection is not None and self._connection.loop is _loop() and not stays_open:
            await self._connection.close()
        message = self._describe(error)
        if message != self._warned:
            text = "the tools of the MCP server %s cannot be listed and are left out: %s"
            _log.warning(text, self.name, message, extra={"unavailable": self.name})
            self._warned = message
        self._back_off(message)
        return Unavailable(message)

    def _back_off(self, message: str) -> None:
        # The first attempt is made at once: most servers that die can be started again.
        wait = min(2.0 ** (self._failures - 1), _MAX_BACKOFF_SECONDS) if self._failures else 0.0
        self._failures += 1
        self._retry_at = monotonic() + wait
        self._last_error = message

    def _describe(self, error: Exception) -> str:
        if isinstance(error, TimeoutError):
            message = f"the server did not answer within {self._startup_seconds:g} seconds"
        elif isinstance(error, OSError) and self.config.command:
            message = f"the command {self.config.command[0]!r} cannot be started: {error.strerror or error}"
        elif isinstance(error, ValueError):  # pydantic's, about what the server sent
            from midspan.tools.mcp.conversion import describe_invalid

            message = describe_invalid(error)
        else:
            from mcp import MCPError
            from mcp.types import CONNECTION_CLOSED

            inner = error  # the task groups of the SDK wrap it
            while isinstance(inner, ExceptionGroup) and len(inner.exceptions) == 1:
                inner = inner.exceptions[0]
            message = inner.error.message if isinstance(inner, MCPError) else describe_error(inner)
            exit_code = None if self._connection is None else self._connection.transport.exit_code
            if isinstance(inner, MCPError) and inner.error.code == CONNECTION_CLOSED and exit_code is not None:
                message = f"the command {self.config.command[0]!r} ended with code {exit_code} before it answered"
        output = "" if self._connection is None else self._connection.transport.error_output
        return f"{message}; its stderr ends with: {output[-_MAX_ERROR_OUTPUT:]}" if output else message

    async def _close(self) -> None:
        connection, self._connection = self._connection, None
        self._is_stale, self._retry_at, self._failures = True, 0.0, 0
        if connection is not None and connection.loop is _loop():
            await connection.close()

    async def _call(self, call: ToolCall, context: RunContext[Any]) -> ToolResult:
        caller_deadline = context.deadline
        approved: ToolCall | None = None
        unknown: ToolResult | None = None  # of the first attempt, if the server may have run it
        for attempt in range(_MAX_ATTEMPTS):
            prepared = await self._prepare(call, approved)
            if isinstance(prepared, ToolResult):
                return unknown or prepared
            tool, checked, connection = prepared.tool, prepared.call, prepared.connection
            approved = checked if tool.spec.needs_approval else None
            context.start(self.config.timeout)
            timeout = _timeout(self.config.timeout, caller_deadline)
            if unknown is not None and timeout == 0:
                return unknown
            result, lost = await prepared.calls.run(connection, checked, tool, context, self.config, timeout=timeout)
            if lost is None:
                self._failures = 0
                return replace(result, notes=(*prepared.changes, *result.notes)) if prepared.changes else result
            if lost.ends_session:
                await connection.close()
            if not lost.is_not_sent:
                unknown = result
            can_retry = lost.is_not_sent or (tool.spec.safe_to_retry and not lost.is_misbehaviour)
            if attempt + 1 == _MAX_ATTEMPTS or not can_retry:
                if self._lost is not connection:  # its end counts once, and not once for each call in flight
                    self._lost = connection if lost.ends_session else None
                    self._back_off(lost.message)
                result = unknown or result
                note = f"The call was tried {attempt + 1} times."
                return replace(result, notes=(*result.notes, note)) if attempt else result
        raise AssertionError("the last attempt returns")

    async def _prepare(self, call: ToolCall, approved: ToolCall | None) -> "_PreparedCall | ToolResult":
        """Connect, validate the arguments and ask for approval; return the result of a call that cannot be sent.

        `approved` is the call as it was approved before, so that nobody is asked twice.
        """
        try:
            connection, calls = await self._connection_for(call)
        except Unavailable as error:
            message = f"{call.name} was not run: the server {self.name} is not available: {error}"
            return call.error_result(message, NOT_RUN)
        tool = self._tools.get(call.name)
        if tool is None:
            return self._unknown(call)
        validated = tool.parameters.validate(call.arguments)
        if validated.problems:
            return call.error_result(f"invalid parameters:{bulleted(map(str, validated.problems))}", NOT_RUN)
        checked = call if validated.arguments is call.arguments else replace(call, arguments=validated.arguments)
        if tool.spec.needs_approval and checked != approved and not await self._is_approved(checked):
            message = f"{call.name} was not run: it requires approval, and the user did not approve it"
            return call.error_result(message, FORBIDDEN)
        return _PreparedCall(connection, calls, tool, checked, validated.changes)

    async def _connection_for(self, call: ToolCall) -> "tuple[MCPConnection, Calls]":
        connection = self._usable()
        if connection is None or call.name not in self._tools:
            connection = await self._connected()
        assert self._calls is not None, "there is a connection"
        return connection, self._calls

    def _unknown(self, call: ToolCall) -> ToolResult:
        if call.name in self._held_back:
            return call.error_result(f"{call.name} was not run: {_HELD_BACK}", FORBIDDEN)
        return unknown_tool_result(call, self._tools)

    async def _is_approved(self, call: ToolCall) -> bool:
        return self._approve is True or (callable(self._approve) and await self._approve(call) is True)


def _timeout(timeout: float | None, caller_deadline: float | None) -> float | None:
    """Return how long a call may take: the timeout of the server, or less if the tool that makes the call has less."""
    if caller_deadline is None:
        return timeout
    seconds = max(0.0, caller_deadline - monotonic())
    return seconds if timeout is None else min(seconds, timeout)


def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()
