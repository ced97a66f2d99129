"""A small HTTP/1.1 server whose replies can pause and break off; it knows nothing about Gemini."""

import asyncio
import socket
import struct
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from http import HTTPStatus
from typing import Annotated, Self

from httptools import HttpParserError, HttpRequestParser
from msgspec import Meta, Struct

from midspan._http.retry import Clock
from midspan._http.serving import listen_error
from midspan.errors import ConfigError

_MAX_HEAD_BYTES = 2**16
"""Also the limit for trailers and chunk extensions."""
_MAX_BODY_BYTES = 2**28
_JOIN_SECONDS = 5.0

JSON = "application/json; charset=UTF-8"
HTML = "text/html; charset=UTF-8"
EVENT_STREAM = "text/event-stream"
LAST_CHUNK = b"0\r\n\r\n"


class Request(Struct, frozen=True):
    method: str
    target: str
    headers: dict[str, str] = {}
    """By lower-case name; several headers of one name are joined by commas."""
    body: bytes = b""
    keep_alive: bool = True


class BadRequest(Exception):
    """The bytes are not a valid HTTP request, or there are too many of them."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


Seconds = Annotated[float, Meta(ge=0, le=31_536_000)]
"""Up to a year."""


class Wait(Struct, frozen=True):
    """Send nothing for this long."""

    seconds: Seconds


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
    reason = "Client Closed Request" if status == 499 else HTTPStatus(status).phrase
    return f"HTTP/1.1 {status} {reason}\r\nContent-Type: {content_type}\r\n{framing}\r\n\r\n".encode()


def chunk(data: bytes) -> bytes:
    """Frame a piece of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


class RequestParser:
    """Collects requests from the bytes of one connection."""

    awaits_continue = False
    """The client waits for `100 Continue` before it sends the body."""

    def __init__(self, receive: Callable[[Request], object]) -> None:
        """Call `receive` with each complete request."""
        self._receive = receive
        self._parser = HttpRequestParser(self)
        self._overhead = 0
        """Bytes since the last ones that belonged to a body."""
        self.on_message_begin()

    def feed(self, data: bytes) -> None:
        """Parse received bytes. After an error the bytes that follow cannot be understood."""
        self._overhead += len(data)
        try:
            self._parser.feed_data(data)
        except HttpParserError as error:
            reason = error.__context__  # what a callback raised
            raise reason if isinstance(reason, BadRequest) else BadRequest(400, f"not valid HTTP: {error}") from error
        if self._overhead > _MAX_HEAD_BYTES:
            raise BadRequest(431, "the head or the trailers of the request are too large")

    # Parser callbacks. One that raises stops the parser; feed() raises the error again.

    def on_message_begin(self) -> None:
        self._target = b""
        self._headers: dict[str, str] = {}
        self._body = bytearray()

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1").strip()
        self._headers[key] = f"{self._headers[key]}, {text}" if key in self._headers else text

    def on_headers_complete(self) -> None:
        if self._parser.get_http_version() != "1.1":
            raise BadRequest(505, "this server supports HTTP/1.1 only")
        if self._parser.should_upgrade():
            raise BadRequest(501, "this server does not support protocol upgrades")
        if self._headers.get("transfer-encoding", "chunked").lower() != "chunked":
            raise BadRequest(501, "the Transfer-Encoding of the request is not supported; use chunked")
        if self._headers.get("content-encoding", "identity").lower() != "identity":
            raise BadRequest(415, "the Content-Encoding of the request is not supported; send it uncompressed")
        if int(self._headers.get("content-length", 0)) > _MAX_BODY_BYTES:
            raise BadRequest(413, "the body of the request is too large")
        self.awaits_continue = self._headers.get("expect", "").lower() == "100-continue"

    def on_body(self, data: bytes) -> None:
        self._overhead = 0
        self._body += data
        if len(self._body) > _MAX_BODY_BYTES:
            raise BadRequest(413, "the body of the request is too large")

    def on_message_complete(self) -> None:
        self._overhead = 0
        self.awaits_continue = False
        method, target = self._parser.get_method().decode("ascii"), self._target.decode("latin-1")
        keep_alive = self._parser.should_keep_alive()
        self._receive(Request(method, target, self._headers, bytes(self._body), keep_alive))


class HttpServer:
    """Answers requests on loopback with the replies of a handler.

    `with` runs the server in a thread of its own, `async with` in the running event loop.
    """

    def __init__(self, handler: Handler, *, host: str, port: int, clock: Clock) -> None:
        self._handler = handler
        self._address = host, port
        self._clock = clock
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
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
        try:
            self._server = await asyncio.start_server(self._connected, host, port, backlog=2_048)
        except (OSError, ValueError, OverflowError) as error:  # the host name cannot be encoded; the port is too large
            raise listen_error(host, port, error) from error
        self._address = host, self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening and close every connection."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        for task, writer in tuple(self._connections.items()):
            writer.transport.abort()
            await asyncio.wait([task])
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

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._connections[task] = writer
        task.add_done_callback(self._connections.pop)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read the requests of one connection until either side closes it."""
        received: asyncio.Queue[Request | BadRequest] = asyncio.Queue()
        answering = asyncio.create_task(self._answer_all(received, writer))
        parser = RequestParser(received.put_nowait)
        with suppress(ConnectionError):
            try:
                while data := await reader.read(_MAX_HEAD_BYTES):
                    parser.feed(data)
                    if parser.awaits_continue:
                        parser.awaits_continue = False
                        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            except BadRequest as error:
                received.put_nowait(error)
                while await reader.read(_MAX_HEAD_BYTES):
                    pass  # closing with unread bytes would reset the connection before the reply is read
        answering.cancel()
        await asyncio.wait([answering])
        writer.transport.abort()

    async def _answer_all(self, received: "asyncio.Queue[Request | BadRequest]", writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection in their order, until one of them ends it."""
        keep_alive = True
        with suppress(ConnectionError):  # the client is gone
            while keep_alive and not writer.is_closing():
                request = await received.get()
                if isinstance(request, BadRequest):
                    keep_alive = False
                    steps = reply(str(request).encode(), request.status, "text/plain")
                else:
                    keep_alive = request.keep_alive
                    steps = await self._handler(request)
                    steps = steps[:1] if request.method == "HEAD" else steps
                await self._send(steps, writer)
        writer.close()

    async def _send(self, steps: Reply, writer: asyncio.StreamWriter) -> None:
        for step in steps:
            if isinstance(step, bytes):
                writer.write(step)
                await writer.drain()
            elif isinstance(step, Wait):
                await self._clock.sleep(step.seconds)
            else:
                # Closing with a linger time of zero sends RST instead of FIN.
                sock: socket.socket = writer.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
                return
