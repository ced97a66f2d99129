"""The stdio transport: a server process that reads and writes JSON-RPC messages as lines, each of limited size.

The transport of the SDK keeps a line of any length in memory. This one skips a line that is too long and answers the
request that it belongs to with an error, so that one message costs one call and not the connection.
"""

import asyncio
import logging
import os
import re
import signal
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import cast

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp.types import INTERNAL_ERROR, ErrorData, JSONRPCError, jsonrpc_message_adapter
from msgspec import Struct

_log = logging.getLogger("midspan.tools.mcp")

Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]
"""What the SDK reads from and writes to."""

EXIT_SECONDS = 2.0
"""How long a server may take to exit after its stdin was closed, and again after SIGTERM."""
_MAX_SKIPPED = 20
"""A line that is this many times too long ends the connection."""
_EDGE_BYTES = 512
"""How much of a skipped line is kept, to find the id of its request."""
_MAX_WAITING_BYTES = 2**20
"""Reading pauses while more than this waits to be parsed."""
_STDERR_BYTES = 4_000

_ID = rb'"id"\s*:\s*(\d{1,18}|"[^"\\]{1,200}")'
_ID_FIRST = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?' + _ID)
_RESPONSE = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?(?:' + _ID + rb'\s*,\s*)?"(?:result|error)"')
_ID_LAST = re.compile(_ID + rb'\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$')


class LongLine(Struct, frozen=True):
    """A line that was too long, and skipped."""

    size: int
    head: bytes
    tail: bytes


def request_id(head: bytes, tail: bytes) -> str | int | None:
    """Return the id of a response that cannot be read, if it is its first or its last field, as SDKs write it.

    A request of the server has an id of its own, which may be equal to that of one of our requests.
    """
    if not _RESPONSE.match(head) and (b'"method"' in head or b'"method"' in tail):
        return None
    match = _ID_FIRST.match(head) or _ID_LAST.search(tail)
    if match is None:
        return None
    return match[1].strip(b'"').decode(errors="replace") if match[1].startswith(b'"') else int(match[1])


class LineSplitter:
    """Splits a stream of bytes into lines of at most `max_bytes`."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._pending = bytearray()
        self._skipped: LongLine | None = None

    def feed(self, data: bytes) -> Iterator[bytes | LongLine]:
        """Yield the lines that `data` completes."""
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._add(line)
            yield self._take()
        self._add(rest)

    @property
    def skipped_bytes(self) -> int:
        """The length of the line that is being skipped."""
        return 0 if self._skipped is None else self._skipped.size

    def _add(self, data: bytes) -> None:
        skipped = self._skipped
        if skipped is not None:
            tail = (skipped.tail + data)[-_EDGE_BYTES:]
            self._skipped = LongLine(skipped.size + len(data), skipped.head, tail)
            return
        self._pending += data
        if len(self._pending) > self._max_bytes:
            line = self._pending
            self._skipped = LongLine(len(line), bytes(line[:_EDGE_BYTES]), bytes(line[-_EDGE_BYTES:]))
            self._pending = bytearray()

    def _take(self) -> bytes | LongLine:
        if self._skipped is not None:
            line, self._skipped = self._skipped, None
            return line
        taken = bytes(self._pending)
        self._pending.clear()
        return taken


class ServerProcess(asyncio.SubprocessProtocol):
    """A server process and its pipes."""

    transport: asyncio.SubprocessTransport

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._splitter = LineSplitter(max_bytes)
        self._lines: deque[bytes | LongLine] = deque()
        self._waiting_bytes = 0
        self._has_ended = False
        self._wake = asyncio.Event()
        self._can_write = asyncio.Event()
        self._can_write.set()
        self.exited = asyncio.Event()
        self.stderr = bytearray()
        """The end of what the server wrote to stderr."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.SubprocessTransport", transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self.stderr += data
            del self.stderr[:-_STDERR_BYTES]
            _log.debug("stderr of process %s: %s", self.transport.get_pid(), data.decode(errors="replace").rstrip())
            return
        self._lines.extend(self._splitter.feed(data))
        self._waiting_bytes += len(data)
        if self._splitter.skipped_bytes > _MAX_SKIPPED * self._max_bytes:
            self._end()
        elif self._waiting_bytes > _MAX_WAITING_BYTES and self._lines:
            self._stdout.pause_reading()
        self._wake.set()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002 - of the protocol
        if fd == 1:
            self._end()
        self._can_write.set()

    def process_exited(self) -> None:
        self.exited.set()

    def pause_writing(self) -> None:
        self._can_write.clear()

    def resume_writing(self) -> None:
        self._can_write.set()

    def _end(self) -> None:
        self._has_ended = True
        self._wake.set()

    @property
    def _stdout(self) -> asyncio.ReadTransport:
        return cast("asyncio.ReadTransport", self.transport.get_pipe_transport(1))

    @property
    def _stdin(self) -> asyncio.WriteTransport:
        return cast("asyncio.WriteTransport", self.transport.get_pipe_transport(0))

    async def read_lines(self) -> AsyncGenerator[bytes | LongLine, None]:
        """Yield the lines of stdout until the process closes it."""
        while True:
            while self._lines:
                yield self._lines.popleft()
            if self._has_ended:
                return
            if self._waiting_bytes > _MAX_WAITING_BYTES:
                self._stdout.resume_reading()
            self._waiting_bytes = 0
            self._wake.clear()
            await self._wake.wait()

    async def write(self, data: bytes) -> None:
        if self._stdin.is_closing():
            raise BrokenPipeError("the server has closed its stdin")
        self._stdin.write(data)
        await self._can_write.wait()

    async def stop(self) -> None:
        """Close stdin, wait, and kill the process if it does not exit, and its children in any case."""
        self._stdin.close()
        if not await self._has_exited():
            self._signal("SIGTERM")
            await self._has_exited()
        self._signal("SIGKILL")
        await self._has_exited()
        self.transport.close()

    async def _has_exited(self) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(EXIT_SECONDS):
                await self.exited.wait()
        return self.exited.is_set()

    def _signal(self, name: str) -> None:
        with suppress(ProcessLookupError, PermissionError):
            if sys.platform == "win32":
                self.transport.terminate()
            else:
                os.killpg(self.transport.get_pid(), getattr(signal, name))


class StdioTransport:
    """Starts a server process, for one connection."""

    is_remote = False

    def __init__(
        self, command: Sequence[str], *, env: Mapping[str, str], cwd: str | Path | None, max_message_bytes: int
    ) -> None:
        self._command = command
        self._env = env
        self._cwd = cwd
        self._max_bytes = max_message_bytes
        self.process: ServerProcess | None = None

    @property
    def error_output(self) -> str:
        """The last lines that the server wrote to stderr."""
        return "" if self.process is None else self.process.stderr.decode(errors="replace").strip()

    @property
    def exit_code(self) -> int | None:
        """The exit code of the server; None while it is running, and if a signal ended it."""
        code = None if self.process is None else self.process.transport.get_returncode()
        return code if code is not None and code >= 0 else None

    @asynccontextmanager
    async def open(self, on_end: Callable[[], None]) -> AsyncGenerator[Streams, None]:
        loop = asyncio.get_running_loop()
        _, process = await loop.subprocess_exec(
            lambda: ServerProcess(self._max_bytes),
            *self._command,
            env=self._env,
            cwd=self._cwd,
            start_new_session=True,
        )
        self.process = process
        try:
            async with self._streams(process, on_end) as streams:
                yield streams
        finally:
            with anyio.CancelScope(shield=True):
                await process.stop()

    @asynccontextmanager
    async def _streams(self, process: ServerProcess, on_end: Callable[[], None]) -> AsyncGenerator[Streams, None]:
        to_session, from_server = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        to_server, from_session = anyio.create_memory_object_stream[SessionMessage](0)

        async def read() -> None:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                async with to_session:
                    async for line in process.read_lines():
                        message = self._parse(line)
                        if message is not None:
                            await to_session.send(message)
            on_end()

        async def write() -> None:
            try:
                async with from_session:
                    async for message in from_session:
                        await process.write(
                            message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
                        )
            except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
                await to_session.aclose()

        async with anyio.create_task_group() as group, from_server, to_server:
            group.start_soon(read)
            group.start_soon(write)
            try:
                yield from_server, to_server
            finally:
                group.cancel_scope.cancel()

    def _parse(self, line: bytes | LongLine) -> SessionMessage | None:
        """Return the message of a line; None for a line that is not for us, as of a server that prints to stdout."""
        if isinstance(line, LongLine):
            problem = f"the server sent a message of {line.size:,} bytes; the limit is {self._max_bytes:,}"
            return _error(request_id(line.head, line.tail), problem)
        if not line.strip():
            return None
        try:
            return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        except ValueError:
            id = request_id(line[:_EDGE_BYTES], line[-_EDGE_BYTES:])
            return _error(id, "the server sent a message that cannot be read")


def _error(id: str | int | None, problem: str) -> SessionMessage | None:
    """Return the answer to a request in place of a message that cannot be used."""
    if id is None:
        _log.debug("%s, and it was ignored", problem)
        return None
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=id, error=ErrorData(code=INTERNAL_ERROR, message=problem)))
