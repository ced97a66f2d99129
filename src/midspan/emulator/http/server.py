"""The server: connections on loopback, in the running event loop or in a thread of its own."""

import asyncio
import socket
import struct
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Self

from midspan._http.retry import Clock
from midspan.emulator.http.messages import (
    BadRequest,
    Disconnect,
    Reply,
    Request,
    RequestParser,
    Wait,
    reply,
    without_body,
)
from midspan.errors import ConfigError

Handler = Callable[[Request], Awaitable[Reply]]
_MAX_PORT = 65_535
_MAX_PIPELINED = 64
"""Requests that a client may send on one connection before it has read their replies."""
_JOIN_SECONDS = 5.0


class HttpServer:
    """Answers requests with the replies of a handler.

    `with` runs the server in a thread of its own, `async with` in the running event loop.
    """

    def __init__(self, handler: Handler, *, host: str, port: int, clock: Clock) -> None:
        if not isinstance(host, str) or not host.isascii() or not host.isprintable() or len(host.split()) != 1:
            raise ConfigError(f"host must be an address of this machine such as '127.0.0.1', got {host!r:.80}")
        if type(port) is not int or not 0 <= port <= _MAX_PORT:
            raise ConfigError(f"port must be a number up to {_MAX_PORT}, or 0 for any free port, got {port!r:.80}")
        self._handler = handler
        self._address = host, port
        self._clock = clock
        self._connections: set[_Connection] = set()
        self._server: asyncio.Server | None = None
        self._thread: threading.Thread | None = None
        self._stop_thread: Callable[[], object] | None = None

    @property
    def url(self) -> str:
        """The base URL for clients."""
        host, port = self._address
        if port == 0:
            raise ConfigError(f"the server is not running yet; use: with {type(self).__name__}(...) as server")
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    @property
    def open_connections(self) -> int:
        return len(self._connections)

    async def start(self) -> None:
        """Listen, in the running event loop."""
        if self._server is not None:
            raise ConfigError(f"this server is already running at {self.url}")
        host, port = self._address
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(self._connect, host, port, backlog=2_048)
        except (OSError, ValueError) as error:  # ValueError: the host name cannot be encoded
            reason = getattr(error, "strerror", None) or error
            raise ConfigError(f"cannot listen on {host}:{port}: {reason}") from error
        self._address = host, self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening and close every connection."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        for connection in tuple(self._connections):
            connection.abort()
            await connection.closed.wait()
        await server.wait_closed()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.stop()

    def __enter__(self) -> Self:
        started: Future[Callable[[], object]] = Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._run_in_thread(started)), name="midspan-http-server", daemon=True
        )
        self._thread.start()
        self._stop_thread = started.result()
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._thread is not None and self._stop_thread is not None:
            self._stop_thread()
            self._thread.join(_JOIN_SECONDS)
        self._thread = self._stop_thread = None

    async def _run_in_thread(self, started: "Future[Callable[[], object]]") -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        try:
            await self.start()
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that entered the server
            started.set_exception(error)
            return
        started.set_result(lambda: loop.call_soon_threadsafe(stop.set))
        await stop.wait()
        await self.stop()

    def _connect(self) -> "_Connection":
        return _Connection(self._handler, self._clock, self._connections)


class _Connection(asyncio.Protocol):
    """Answers the requests of one connection in their order."""

    def __init__(self, handler: Handler, clock: Clock, connections: "set[_Connection]") -> None:
        self._handler = handler
        self._clock = clock
        self._connections = connections
        self._parser = RequestParser()
        self._received: asyncio.Queue[Request | BadRequest] = asyncio.Queue()
        self._is_writable = asyncio.Event()
        self._is_writable.set()
        self.closed = asyncio.Event()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # create_server makes no other
        self._transport = transport
        self._connections.add(self)
        self._task = asyncio.create_task(self._answer_all())

    def data_received(self, data: bytes) -> None:
        had_error = self._parser.error is not None
        for request in self._parser.feed(data):
            self._received.put_nowait(request)
        if self._parser.error is not None and not had_error:
            self._received.put_nowait(self._parser.error)
        if self._parser.awaits_continue:
            self._parser.awaits_continue = False
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if self._received.qsize() >= _MAX_PIPELINED:
            self._transport.pause_reading()

    def connection_lost(self, _error: Exception | None) -> None:
        self._connections.discard(self)
        self._is_writable.set()
        self._task.cancel()
        self.closed.set()

    def pause_writing(self) -> None:
        self._is_writable.clear()

    def resume_writing(self) -> None:
        self._is_writable.set()

    def abort(self) -> None:
        self._transport.abort()

    async def _answer_all(self) -> None:
        try:
            while await self._answer(await self._received.get()):
                self._transport.resume_reading()
        finally:
            self._transport.close()

    async def _answer(self, received: Request | BadRequest) -> bool:
        """Send the reply to a request; whether the connection stays open."""
        if isinstance(received, BadRequest):
            # The bytes that follow cannot be understood.
            await self._send(reply(str(received).encode(), received.status, "text/plain"))
            return False
        steps = await self._handler(received)
        await self._send(without_body(steps) if received.method == "HEAD" else steps)
        return received.keep_alive and not self._transport.is_closing()

    async def _send(self, steps: Reply) -> None:
        for step in steps:
            if isinstance(step, bytes):
                self._transport.write(step)
                await self._is_writable.wait()
            elif isinstance(step, Wait):
                await self._clock.sleep(step.seconds)
            else:
                self._disconnect(step)
            if self._transport.is_closing():
                return

    def _disconnect(self, how: Disconnect) -> None:
        if how is Disconnect.RESET:
            # Closing with a linger time of zero sends RST instead of FIN.
            sock: socket.socket = self._transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._transport.abort()
        else:
            self._transport.close()
