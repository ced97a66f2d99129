"""The asyncio protocol of one HTTP/1.1 connection, and the response that httptools parses out of its bytes.

Above are the pool, which sends requests, and HttpStream, which reads responses. Nothing here knows about requests,
proxies or timeouts. Parsing never raises: a response that breaks the rules of HTTP gets an `error`, and its reader
receives the body up to that point first.
"""

import asyncio
import re
import select
import socket
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from midspan._http.decompress import Decoder
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
_CODING = r"(?:x-)?(?:gzip|compress)|deflate|br|zstd"
_KNOWN_CODINGS = re.compile(rf"(?:{_CODING})(?:\s*,\s*(?:{_CODING}))*")


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

    # Requests

    def send(self, head: bytes, body: bytes, response: "Response") -> None:
        """Send a request; `response` receives what the server answers."""
        if self.transport.is_closing():
            response.end_of_connection(None, clean=False)
            return
        self._response = response
        response.on_failed = self.abort
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

    def abort(self) -> None:
        """Close the connection at once, without waiting for unsent data or a TLS shutdown."""
        if self._response is not None:
            self._response.detach()
        self._response = self._unsent = None
        self.transport.abort()

    # asyncio callbacks

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
                response.on_drained = self._resume_reading
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
        self._response = None
        response.detach()
        is_sent = self._unsent is None and not self.transport.get_write_buffer_size()
        if response.keep_alive and is_sent and not self.transport.is_closing():
            self._resume_reading()
            response.on_failed = self._abort_if_idle
            self._on_idle(self)
        else:
            self.abort()

    def _abort_if_idle(self) -> None:
        """Distrust a server whose last response turned out to be wrong when it was decompressed."""
        if self._response is None:
            self.transport.abort()

    def _end(self, error: Exception | None, *, clean: bool) -> None:
        response, self._response = self._response, None
        self._unsent = None
        if response is not None:
            response.end_of_connection(error, clean=clean)
            response.detach()

    def _resume_reading(self) -> None:
        if self._is_read_paused:
            self._is_read_paused = False
            self.transport.resume_reading()

    def _send_more(self) -> None:
        while self._unsent is not None and not self._is_write_paused:
            self.transport.write(self._unsent[:_WRITE_PIECE])
            self._unsent = self._unsent[_WRITE_PIECE:] or None


class Headers(Mapping[str, str]):
    """Response headers with case-insensitive names. Most are never looked up, so they are decoded when one is."""

    __slots__ = ("_decoded", "_fields")

    def __init__(self, fields: list[tuple[bytes, bytes]]) -> None:
        self._fields = fields
        self._decoded: dict[str, str] | None = None

    def _by_name(self) -> dict[str, str]:
        if self._decoded is None:
            self._decoded = {}
            for name, value in self._fields:
                key, text = name.lower().decode("latin-1"), value.decode("latin-1")
                self._decoded[key] = f"{self._decoded[key]}, {text}" if key in self._decoded else text
        return self._decoded

    def __getitem__(self, name: str) -> str:
        return self._by_name()[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name())

    def __len__(self) -> int:
        return len(self._by_name())


class Response:
    """A response that is still arriving. `status` is 0 until its head is complete."""

    status = 0
    headers: Mapping[str, str] = Headers([])
    error: NetworkError | None = None
    has_started = False
    """At least one byte has arrived."""
    is_complete = False
    keep_alive = False
    """The connection may carry another request after this response."""
    on_failed: Callable[[], object] | None = None
    """Closes the connection."""
    on_drained: Callable[[], object] | None = None
    """Resumes reading from a connection that was paused."""
    _interim = 0
    _rejection: str | None = None
    """Why a callback stopped the parser."""
    _buffered = 0
    _overhead = 0
    """Bytes since the last ones that belonged to the body."""
    _decoder: "Decoder | None" = None
    _waiter: "asyncio.Future[None] | None" = None

    def __init__(self, loop: asyncio.AbstractEventLoop, origin: str, *, head_only: bool = False) -> None:
        self._loop = loop
        self._origin = origin
        self._head_only = head_only
        self._chunks: list[bytes] = []
        self._fields: list[tuple[bytes, bytes]] = []
        self._parser: HttpResponseParser | None = HttpResponseParser(self)

    # Reading

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
        chunks = self._chunks
        if chunks:
            data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
            chunks.clear()
            self._buffered = 0
            if self.on_drained is not None:
                self.on_drained()
                self.on_drained = None
        else:
            data = b""
        return data if self._decoder is None else self._decode(self._decoder, data)

    def _decode(self, decoder: "Decoder", data: bytes) -> bytes:
        try:
            piece = decoder.decode(data)
            if not piece and self.is_complete:
                decoder.finish()
        except zlib.error:
            message = f"the body is not valid {decoder.coding}, although its Content-Encoding says so"
            self._set_error(self._malformed(message))
            self._decoder = None
            return b""
        return piece

    @property
    def is_drained(self) -> bool:
        """The whole body has been taken."""
        return self.is_complete and not self._chunks and self._decoder is None and self.error is None

    @property
    def is_buffer_full(self) -> bool:
        return self._buffered > _HIGH_WATER

    # Feeding

    def feed(self, data: memoryview) -> None:
        """Parse received bytes and wake the reader."""
        assert self._parser is not None, "a detached response receives no data"
        self.has_started = True
        self._overhead += len(data)
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            self.keep_alive = False  # nobody asked for another protocol
        except HttpParserError as error:
            if error.__context__ is not None and not isinstance(error.__context__, _Stop):
                raise error.__context__ from None
            self.keep_alive = False
            self.fail(self._malformed(self._rejection or str(error)))
        if self._overhead > _MAX_HEAD_BYTES:
            self.fail(self._malformed("its head or trailers are too large"))
        if self._head_only and self.is_complete and bytes(data[-4:]) != b"\r\n\r\n":
            self.keep_alive = False  # the head is followed by something else
        if self.status or self.error:
            self._wake()

    def end_of_connection(self, error: BaseException | None, *, clean: bool) -> None:
        """Handle the end of the connection; a body without a length may only end with a `clean` one."""
        if self.status and clean and not {"content-length", "transfer-encoding"} & self.headers.keys():
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

    def fail(self, error: NetworkError) -> None:
        """End the response with an error, unless it is complete."""
        if not self.is_complete:
            self._set_error(error)

    def detach(self) -> None:
        """Break the reference cycle with the parser; nothing will be fed any more."""
        self._parser = self.on_failed = None

    def close(self) -> None:
        """Stop reading; the connection of an incomplete response is closed."""
        if not self.is_complete:
            self.abandon()

    def abandon(self) -> None:
        """Stop reading and close the connection, even if it is idle already."""
        self._set_error(StreamCut(f"the response of {self._origin} was closed before its end"))

    def _set_error(self, error: NetworkError) -> None:
        if self.error is None:
            self.error = error
            if self.on_failed is not None:
                self.on_failed()
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _malformed(self, reason: str) -> NetworkError:
        error = StreamCut if self.status else NetworkError
        return error(f"the response of {self._origin} is not valid HTTP: {reason}")

    # Parser callbacks. One that raises stops the parser; feed() reports the error.

    def on_message_begin(self) -> None:
        if self.is_complete:
            raise _Stop  # the server sent more than the response

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        assert self._parser is not None, "only the parser calls this"
        fields, self._fields = self._fields, []  # what follows are trailers, which are ignored
        status = self._parser.get_status_code()
        if status < 200 and status != 101:
            self._interim += 1
            if status < 100:
                raise self._reject("invalid status code")
            if self._interim > _MAX_INTERIM_RESPONSES:
                raise self._reject(f"it consists of {self._interim} interim (1xx) responses and no final one")
            return
        if len(fields) > _MAX_HEADERS or self._overhead > _MAX_HEAD_BYTES:
            raise self._reject("its head is too large")
        self.headers = Headers(fields)
        if b"-encoding" in b" ".join(dict(fields)).lower():  # cheaper than decoding all of them
            self._check_encodings(self.headers)
        self.keep_alive = self._parser.should_keep_alive()
        self.status = status
        self._overhead = 0
        self.is_complete = self._head_only

    def _check_encodings(self, headers: Mapping[str, str]) -> None:
        if headers.get("transfer-encoding", "chunked").lower() != "chunked":
            raise self._reject("its Transfer-Encoding is not supported")
        coding = headers.get("content-encoding")
        if coding is not None:
            self._decoder = self._decoder_for(coding.strip().lower())

    def on_body(self, data: bytes) -> None:
        if self.is_complete:
            raise _Stop  # the server sent more than the response
        self._chunks.append(data)
        self._buffered += len(data)
        self._overhead = 0

    def on_message_complete(self) -> None:
        self.is_complete = self.status != 0  # otherwise it was an interim response

    def _decoder_for(self, coding: str) -> "Decoder | None":
        if coding in ("gzip", "deflate"):
            return Decoder(coding)
        if _KNOWN_CODINGS.fullmatch(coding):
            raise self._reject(f"its Content-Encoding is {coding}, which was not asked for")
        return None  # some servers send a charset here; the body can be read as it is

    def _reject(self, reason: str) -> "_Stop":
        self._rejection = reason
        return _Stop()


class _Stop(Exception):
    """Raised in a callback to stop the parser."""
