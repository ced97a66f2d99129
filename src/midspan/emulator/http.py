"""A small HTTP/1.1 server whose replies can pause and break off; it knows nothing about Gemini."""

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from http.client import responses
from typing import Annotated, Self, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from msgspec import Meta, Struct

from midspan._http.retry import Clock
from midspan._http.serving import listen, url_of
from midspan.errors import ConfigError
from midspan.tools.loop_thread import LoopThread

JSON = "application/json; charset=UTF-8"
HTML = "text/html; charset=UTF-8"
_BACKLOG = 2_048
"""Connections that wait to be accepted: tests open many at once."""


class Request(Struct, frozen=True):
    method: str
    target: str
    headers: dict[str, str] = {}
    """By lower-case name."""
    body: bytes = b""
    keep_alive: bool = True


PauseSeconds = Annotated[float, Meta(ge=0, le=31_536_000)]
"""Up to a year."""


class Wait(Struct, frozen=True):
    """Send nothing for this long."""

    seconds: PauseSeconds


class Reset(Struct, frozen=True):
    """Reset the connection, as a crash does."""


Step = bytes | Wait | Reset
Reply = list[Step]
"""What the server does on the connection, in this order."""
Handler = Callable[[Request], Awaitable[Reply]]


def reply(body: bytes, status: int = 200, content_type: str = JSON) -> Reply:
    """Return a reply that is sent at once."""
    return [head(status, content_type, f"Content-Length: {len(body)}"), body]


def head(status: int, content_type: str, framing: str) -> bytes:
    """Return the head of a reply; `framing` is the header that says how the end of the body is found."""
    reason = responses.get(status, "")
    return f"HTTP/1.1 {status} {reason}\r\nContent-Type: {content_type}\r\n{framing}\r\n\r\n".encode()


def chunk(data: bytes) -> bytes:
    """Frame a piece of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


class _Connection(asyncio.Protocol):
    """Collects the requests of one connection and answers them in their order."""

    transport: asyncio.Transport

    def __init__(self, server: "HttpServer") -> None:
        self._server = server
        self._parser = HttpRequestParser(self)
        self._received: asyncio.Queue[Request] = asyncio.Queue()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._answering = asyncio.get_running_loop().create_task(self._answer_all())
        self._server._connections[self._answering] = self.transport

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - of the base class
        self._answering.cancel()
        del self._server._connections[self._answering]

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            body = f"not valid HTTP: {error!r}".encode()
            self.transport.write(head(400, "text/plain", f"Content-Length: {len(body)}") + body)
            self.transport.close()

    def on_message_begin(self) -> None:
        self._target = b""
        self._headers: dict[str, str] = {}
        self._body = bytearray()

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1").strip()

    def on_body(self, data: bytes) -> None:
        self._body += data

    def on_message_complete(self) -> None:
        if self._parser.should_upgrade():
            return  # the parser does not read the body; the request is rejected
        method, target = self._parser.get_method().decode("ascii"), self._target.decode("latin-1")
        keep_alive = self._parser.should_keep_alive()
        self._received.put_nowait(Request(method, target, self._headers, bytes(self._body), keep_alive))

    async def _answer_all(self) -> None:
        """Answer requests until one of them, or its reply, ends the connection."""
        keep_alive = True
        while keep_alive and not self.transport.is_closing():
            request = await self._received.get()
            keep_alive = request.keep_alive
            for step in await self._server._handler(request):
                if isinstance(step, bytes):
                    self.transport.write(step)
                elif isinstance(step, Wait):
                    await self._server._clock.sleep(step.seconds)
                else:
                    # Closing with a linger time of zero sends RST instead of FIN.
                    sock: socket.socket = self.transport.get_extra_info("socket")
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    self.transport.abort()
        self.transport.close()


class HttpServer:
    """Answers requests on loopback with the replies of a handler.

    `with` runs the server in a thread of its own, `async with` in the running event loop.
    """

    def __init__(self, handler: Handler, *, host: str, port: int, clock: Clock) -> None:
        self._handler = handler
        self._clock = clock
        self._connections: dict[asyncio.Task[None], asyncio.Transport] = {}
        """The open connections, by the task that answers."""
        self._address = host, port
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        """The base URL for clients."""
        host, port = self._address
        if port == 0:
            raise ConfigError(f"the server is not running yet; use: with {type(self).__name__}(...) as server")
        return url_of(host, port)

    @property
    def open_connections(self) -> int:
        return len(self._connections)

    async def __aenter__(self) -> Self:
        listener = listen(*self._address, backlog=_BACKLOG)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), sock=listener, backlog=_BACKLOG)
        self._address = self._address[0], listener.getsockname()[1]
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Stop listening and close every connection."""
        assert self._server is not None, "it was entered"
        # Python 3.11 never closes a connection that it accepted just before `Server.close`. So accept no more, and wait
        # for connections that have been accepted: the first step creates their transports, the second calls their
        # connection_made.
        with suppress(NotImplementedError):  # on Windows
            for listener in self._server.sockets:
                asyncio.get_running_loop().remove_reader(listener)
        for _ in range(2):
            await asyncio.sleep(0)
        self._server.close()
        for task, transport in tuple(self._connections.items()):
            transport.abort()
            await asyncio.wait([task])
        await self._server.wait_closed()

    def __enter__(self) -> Self:
        self._thread = LoopThread("midspan-emulator")
        loop = self._thread.loop()
        try:
            return asyncio.run_coroutine_threadsafe(self.__aenter__(), loop).result()
        except BaseException:
            self._thread.close()
            raise

    def __exit__(self, *exc_info: object) -> None:
        asyncio.run_coroutine_threadsafe(self.__aexit__(), self._thread.loop()).result()
        self._thread.close()
