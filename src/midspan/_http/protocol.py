"""The asyncio protocol of one HTTP/1.1 connection, and the response that httptools parses out of its bytes.

Above are the pool, which sends requests, and HttpStream, which reads responses. Nothing here knows about requests,
proxies or timeouts. Parsing never raises: a response that breaks the rules of HTTP gets an `error`, and its reader
receives the body up to that point first.
"""

import asyncio
import select
import socket
import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from midspan._http.messages import RawHeaders, find_header
from midspan.errors import NetworkError, StreamCut

_READ_BUFFER = 2**16
_SINGLE_WRITE = 2**20
"""Larger bodies are written piece by piece, so that an early response stops the upload."""
_WRITE_PIECE = 2**16
_KEEPALIVE_OPTIONS = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}
"""A model may be silent for minutes. Probes keep gateways from dropping the connection, and detect a dead peer."""
_MAX_HEAD_BYTES = 2**17
"""Also the limit for trailers and chunk extensions."""
_MAX_HEADERS = 256
_MAX_INTERIM_RESPONSES = 100
"""A server that sends `102 Processing` every 20 seconds may do so for half an hour."""
_HIGH_WATER = 2**18
"""Unread body bytes above which the connection stops reading."""
_MAX_DECODED_PIECE = 2**18
_CODINGS = {"gzip", "deflate", "br", "zstd", "compress", "x-gzip", "x-compress"}
"""Some servers send other words as Content-Encoding, such as a charset; then the body can be read as it is."""


class HttpProtocol(asyncio.BufferedProtocol):
    """A connection to a server or proxy.

    `read_buffers` is a list of free buffers that the connections of one event loop share: asyncio would otherwise
    allocate 256 KiB per read.
    """

    def __init__(
        self,
        key: object,
        read_buffers: list[memoryview],
        *,
        on_idle: "Callable[[HttpProtocol], object]",
        on_lost: "Callable[[HttpProtocol], object]",
    ) -> None:
        self.transport: asyncio.Transport
        self.key = key
        """Identifies the server and proxy; see Route.key."""
        self.closed = asyncio.get_running_loop().create_future()
        self.idle_since = 0.0
        self._read_buffers = read_buffers
        self._read_buffer: memoryview | None = None
        self._on_idle = on_idle
        self._on_lost = on_lost
        self._response: Response | None = None
        self._unsent: memoryview | None = None
        self._is_write_paused = False
        self._is_read_paused = False
        self._poll: select.poll | None = None

    # Called by the pool and by the response

    def send(self, head: bytes, body: bytes, response: "Response") -> None:
        """Send a request; `response` receives what the server answers."""
        if self.transport.is_closing():
            response.end_of_connection(None, clean=False)
            return
        self._response = response
        response.connection = self
        if len(body) <= _SINGLE_WRITE:
            self.transport.write(head + body)
        else:
            self.transport.write(head)
            self._unsent = memoryview(body)
            self._send_more()

    def can_be_reused(self) -> bool:
        """Whether an idle connection is still open and the server has not sent anything since the last response."""
        if self.transport.is_closing():
            return False
        # The event loop may have been blocked, so look at the socket itself. A gateway that closes an idle connection
        # sends a response nobody asked for (408), or the end of the connection.
        return self._poll is None or not self._poll.poll(0)

    def abort(self, response: "Response | None" = None) -> None:
        """Close the connection at once, without waiting for unsent data or a TLS shutdown.

        With a `response`, only if no other response uses the connection.
        """
        if response is None or self._response in (response, None):
            self._detach()
            self.transport.abort()

    def resume_reading(self) -> None:
        if self._is_read_paused:
            self._is_read_paused = False
            self.transport.resume_reading()

    # Called by asyncio

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # create_connection makes no other
        self.transport = transport
        sock = transport.get_extra_info("socket")
        with suppress(OSError):  # the server may have closed the connection already
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in _KEEPALIVE_OPTIONS.items():
                if (option := getattr(socket, name, None)) is not None:  # not every system has all of them
                    sock.setsockopt(socket.IPPROTO_TCP, option, value)
        if hasattr(select, "poll"):  # not on Windows
            self._poll = select.poll()
            self._poll.register(sock.fileno(), select.POLLIN)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the size is always the same
        if self._read_buffer is None:
            free = self._read_buffers
            self._read_buffer = free.pop() if free else memoryview(bytearray(_READ_BUFFER))
        return self._read_buffer

    def buffer_updated(self, nbytes: int) -> None:
        buffer, self._read_buffer = self._read_buffer, None
        assert buffer is not None, "asyncio asked for a buffer first"
        response = self._response
        if response is None:
            self.transport.abort()  # nobody asked for this
        else:
            response.feed(buffer[:nbytes])
            if response.is_complete:
                self._finish(response)
            elif response.is_buffer_full and response.error is None and not self._is_read_paused:
                self._is_read_paused = True
                self.transport.pause_reading()
        self._read_buffers.append(buffer)

    def eof_received(self) -> None:
        self._end(None, clean=True)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc, clean=False)
        self._on_lost(self)
        if not self.closed.done():
            self.closed.set_result(None)

    def pause_writing(self) -> None:
        self._is_write_paused = True

    def resume_writing(self) -> None:
        self._is_write_paused = False
        self._send_more()

    def _finish(self, response: "Response") -> None:
        is_sent = self._unsent is None and not self.transport.get_write_buffer_size()
        self._detach()
        if response.keep_alive and is_sent and not self.transport.is_closing():
            self.resume_reading()
            self._on_idle(self)
        else:
            self.transport.abort()

    def _end(self, error: Exception | None, *, clean: bool) -> None:
        response = self._detach()
        if response is not None:
            response.end_of_connection(error, clean=clean)

    def _detach(self) -> "Response | None":
        """Forget the current response, which receives no more data."""
        response, self._response, self._unsent = self._response, None, None
        if response is not None:
            response.parser = None  # the parser and the response refer to each other
        return response

    def _send_more(self) -> None:
        while self._unsent is not None and not self._is_write_paused:
            self.transport.write(self._unsent[:_WRITE_PIECE])
            self._unsent = self._unsent[_WRITE_PIECE:] or None


class Response:
    """A response that is still arriving. `status` is 0 until its head is complete."""

    status = 0
    raw_headers: RawHeaders = ()
    error: NetworkError | None = None
    has_started = False
    """At least one byte has arrived."""
    is_complete = False
    keep_alive = False
    """The connection may carry another request after this response."""
    connection: HttpProtocol | None = None
    _interim = 0
    _buffered = 0
    _overhead = 0
    """Bytes since the last ones that belonged to the body."""
    _decoder: "_Decoder | None" = None
    _waiter: "asyncio.Future[None] | None" = None

    def __init__(self, loop: asyncio.AbstractEventLoop, origin: str, *, head_only: bool = False) -> None:
        self._loop = loop
        self._origin = origin
        self._head_only = head_only
        self._chunks: list[bytes] = []
        self._headers: list[tuple[bytes, bytes]] = []
        self.parser: HttpResponseParser | None = HttpResponseParser(self)

    # Called by the reader

    async def wait(self) -> None:
        """Wait until the head, more of the body, the end or an error has arrived."""
        if self._waiter is not None:
            raise RuntimeError("this response is already being read by another task")
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def take(self) -> bytes:
        """Return the decoded body bytes that have arrived; empty if there are none."""
        chunks, data = self._chunks, b""
        if chunks:
            data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
            chunks.clear()
            self._buffered = 0
            if self.connection is not None and self.parser is not None:
                self.connection.resume_reading()
        return data if self._decoder is None else self._decode(self._decoder, data)

    def _decode(self, decoder: "_Decoder", data: bytes) -> bytes:
        try:
            piece = decoder.decode(data)
            if not piece and self.is_complete:
                decoder.finish()
        except zlib.error:
            self._decoder = None
            message = f"the body is not valid {decoder.coding}, although its Content-Encoding says so"
            self.fail(self._malformed(message), even_if_complete=True)
            return b""
        return piece

    @property
    def is_drained(self) -> bool:
        """The whole body has been taken."""
        return self.is_complete and not self._chunks and self._decoder is None and self.error is None

    @property
    def is_buffer_full(self) -> bool:
        return self._buffered > _HIGH_WATER

    def close(self, *, even_if_complete: bool = False) -> None:
        """Stop reading; the connection of an incomplete response is closed."""
        error = StreamCut(f"the response of {self._origin} was closed before its end")
        self.fail(error, even_if_complete=even_if_complete)

    def fail(self, error: NetworkError, *, even_if_complete: bool = False) -> None:
        """End the response with an error and close its connection."""
        if self.error is None and (even_if_complete or not self.is_complete):
            self.error = error
            if self.connection is not None:
                self.connection.abort(self)
            self._wake()

    # Called by the connection

    def feed(self, data: memoryview) -> None:
        """Parse received bytes and wake the reader."""
        assert self.parser is not None, "a detached response receives no data"
        self.has_started = True
        self._overhead += len(data)
        try:
            self.parser.feed_data(data)
        except HttpParserUpgrade:
            self.keep_alive = False  # nobody asked for another protocol
        except HttpParserError as error:
            reason = error.__context__ or error
            if not isinstance(reason, _Rejected | HttpParserError):
                raise reason from None
            self.keep_alive = False
            self.fail(self._malformed(str(reason)))
        if self._overhead > _MAX_HEAD_BYTES:
            self.fail(self._malformed("its head or trailers are too large"))
        if self._head_only and self.is_complete and bytes(data[-4:]) != b"\r\n\r\n":
            self.keep_alive = False  # the head is followed by something else
        if self.status or self.error:
            self._wake()

    def end_of_connection(self, error: BaseException | None, *, clean: bool) -> None:
        """Handle the end of the connection; a body without a length may only end with a `clean` one."""
        has_length = any(find_header(self.raw_headers, name) for name in ("content-length", "transfer-encoding"))
        if self.status and clean and not has_length:
            self.is_complete = True
            self._wake()
            return
        if self.status:
            failure: NetworkError = StreamCut(f"{self._origin} closed the connection in the middle of the response")
        else:
            what = "in the middle of the response head" if self.has_started else "without a response"
            failure = NetworkError(f"{self._origin} closed the connection {what}; retrying may help")
        failure.__cause__ = error
        self.fail(failure)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _malformed(self, reason: str) -> NetworkError:
        error = StreamCut if self.status else NetworkError
        return error(f"the response of {self._origin} is not valid HTTP: {reason}")

    # Called by the parser. A callback that raises stops the parser; feed() reports the error.

    def on_message_begin(self) -> None:
        if self.is_complete:
            raise _Rejected("the server sent more than the response")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        assert self.parser is not None, "only the parser calls this"
        headers, self._headers = self._headers, []  # what follows are trailers, which are ignored
        status = self.parser.get_status_code()
        if status < 200 and status != 101:
            self._interim += 1
            if status < 100:
                raise _Rejected("invalid status code")
            if self._interim > _MAX_INTERIM_RESPONSES:
                raise _Rejected(f"it consists of {self._interim} interim (1xx) responses and no final one")
            return
        if len(headers) > _MAX_HEADERS or self._overhead > _MAX_HEAD_BYTES:
            raise _Rejected("its head is too large")
        if (find_header(headers, "transfer-encoding") or "chunked").lower() != "chunked":
            raise _Rejected("its Transfer-Encoding is not supported")
        coding = (find_header(headers, "content-encoding") or "").strip().lower()
        if coding in ("gzip", "deflate"):
            self._decoder = _Decoder(coding)
        elif not _CODINGS.isdisjoint(coding.replace(" ", "").split(",")):
            raise _Rejected(f"its Content-Encoding is {coding}, which was not asked for")
        self.keep_alive = self.parser.should_keep_alive()
        self.status, self.raw_headers = status, headers
        self._overhead = 0
        self.is_complete = self._head_only

    def on_body(self, data: bytes) -> None:
        if self.is_complete:
            raise _Rejected("the server sent more than the response")
        self._chunks.append(data)
        self._buffered += len(data)
        self._overhead = 0

    def on_message_complete(self) -> None:
        self.is_complete = self.status != 0  # otherwise it was an interim response


class _Rejected(Exception):
    """Raised in a callback of the parser for a response that is not accepted."""


class _Decoder:
    """Decompresses a body, gzip or deflate, in pieces of limited size."""

    def __init__(self, coding: str) -> None:
        self.coding = coding
        self._inflate: Any = None
        self._pending = b""

    def decode(self, data: bytes) -> bytes:
        """Decompress a piece; call again without data until the result is empty."""
        data = self._pending + data
        while True:
            if self._inflate is None or self._inflate.eof:
                if not data:
                    return b""
                self._inflate = zlib.decompressobj(self._window_bits(data))
            piece: bytes = self._inflate.decompress(data, _MAX_DECODED_PIECE)
            data = self._pending = self._inflate.unused_data or self._inflate.unconsumed_tail
            if piece or not data:
                return piece

    def finish(self) -> None:
        """Raise an error if the compressed data ended too early."""
        if self._inflate is not None and not self._inflate.eof:
            raise zlib.error("truncated")

    def _window_bits(self, data: bytes) -> int:
        if self.coding == "gzip":
            return 31
        return 15 if data[0] & 0x0F == 8 else -15  # with or without the zlib header; servers send both
