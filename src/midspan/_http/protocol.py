"""The asyncio protocol of one HTTP/1.1 connection, and the response that httptools parses out of its bytes.

Above are the pool, which opens and keeps connections, and the transport, whose callers read the responses. Parsing
never raises: a response that breaks the rules of HTTP gets an `error`, and its reader receives the body up to that
point first.

Creating and cancelling a timer per request costs more than parsing its response. A connection has one timer for all
its deadlines, which are only recorded; when the timer fires too early, it is set again.
"""

import asyncio
import select
import socket
import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import Literal, Self

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from midspan._http.body import Decoder
from midspan._http.messages import HttpRequest, RawHeaders, Timeouts, find_header
from midspan._http.routes import Route
from midspan.errors import MalformedResponse, NetworkError, ProviderError, StreamCut, TimedOut

READ_BUFFER_BYTES = 2**16
NEVER = float("inf")
_SINGLE_WRITE = 2**20
"""Larger bodies are written piece by piece, so that an early response stops the upload."""
_WRITE_PIECE = 2**16
_KEEPALIVE_OPTIONS = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}
"""A model may be silent for minutes. Probes keep gateways from dropping the connection, and detect a dead peer."""
_IDLE_SECONDS = 75.0
"""A tool may well run for a minute between two turns."""
_MAX_HEAD_BYTES = 2**17
"""Also the limit for trailers and chunk extensions."""
_MAX_HEADERS = 256
_MAX_INTERIM_RESPONSES = 100
"""A server that sends `102 Processing` every 20 seconds may do so for half an hour."""
_HIGH_WATER = 2**18
"""Unread body bytes above which the connection stops reading."""
_CODINGS = {"gzip", "deflate", "br", "zstd", "compress", "x-gzip", "x-compress"}
"""Some servers send other words as Content-Encoding, such as a charset; then the body can be read as it is."""

Stage = Literal["connect", "first_byte", "between_bytes", "total"]
_EXPIRED: dict[Stage, str] = {
    "connect": "no connection to",
    "first_byte": "no response from",
    "between_bytes": "no further data from",
    "total": "the request was not finished by",
}


def timed_out(stage: Stage, timeouts: Timeouts, origin: str) -> TimedOut:
    """Return the error for a request that exceeded the timeout of a stage."""
    seconds = getattr(timeouts, stage)
    return TimedOut(f"{_EXPIRED[stage]} {origin} within {seconds:g} s (timeout {stage!r})")


class HttpProtocol(asyncio.BufferedProtocol):
    """A connection to a server or proxy, and the response to the last request that was sent on it.

    `key` identifies the server and the proxy. The connections of a pool share one `read_buffer`, whose content is
    parsed before the next read; asyncio would otherwise allocate 256 KiB per read.
    """

    __slots__ = (
        "_buffered", "_chunks", "_decoder", "_due", "_has_started", "_headers", "_interim", "_is_busy", "_is_head",
        "_is_read_paused", "_is_write_paused", "_keep_alive", "_loop", "_max_body_bytes", "_on_lost", "_overhead",
        "_parser", "_poll", "_read_buffer", "_received", "_stage", "_timeouts", "_timer", "_timer_due",
        "_total_due", "_unsent", "_waiter", "closed", "error", "is_complete", "is_stale", "key", "origin",
        "raw_headers", "status", "transport",
    )  # fmt: skip
    # A conversation holds an idle connection while its tools run; as a dict, these would be most of its memory.

    def __init__(
        self,
        key: object,
        read_buffer: memoryview,
        max_body_bytes: int | None,
        on_lost: "Callable[[HttpProtocol], object]",
    ) -> None:
        self.transport: asyncio.Transport
        self.key = key
        self.closed = asyncio.get_running_loop().create_future()
        self._loop = self.closed.get_loop()
        self._read_buffer = read_buffer
        self._max_body_bytes = max_body_bytes
        self._on_lost = on_lost
        self._parser: HttpResponseParser | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._unsent: memoryview | None = None
        self._is_write_paused = False
        self._is_read_paused = False
        self._poll: select.poll | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = NEVER
        self._due = self._total_due = NEVER
        self._stage: Stage = "total"
        self._is_busy = False
        """Between `exchange` and `release`."""

    # Called by the pool

    async def exchange(self, route: Route, request: HttpRequest, timeouts: Timeouts, total_due: float) -> None:
        """Send a request, and wait until the response to it has a head or an error."""
        self._is_busy = True
        self.origin = route.origin
        self.status = 0
        """0 until the head of the response is complete."""
        self.raw_headers: RawHeaders = ()
        self.error: ProviderError | None = None
        self.is_complete = False
        self.is_stale = False
        """The connection was lost before the first byte of the response."""
        self._is_head = route.is_head
        self._timeouts = timeouts
        self._total_due = total_due
        self._has_started = self._keep_alive = False
        self._headers: list[tuple[bytes, bytes]] = []
        self._chunks: list[bytes] = []
        self._decoder: Decoder | None = None
        self._interim = self._buffered = self._overhead = self._received = 0
        self._parser = HttpResponseParser(self)
        self._enter("first_byte")
        self._send(route.head(request), request.body)
        while not self.status and self.error is None:
            await self._changed()
        self._pause_deadline()

    def _send(self, head: bytes, body: bytes) -> None:
        if self.transport.is_closing():
            self._end(None, clean=False)
        elif len(body) <= _SINGLE_WRITE:
            self.transport.write(head + body)
        else:
            self.transport.write(head)
            self._unsent = memoryview(body)
            self._send_more()

    @property
    def is_pending(self) -> bool:
        """Whether a response is awaited or incomplete."""
        return self._is_busy and not self.is_complete and self.error is None

    def release(self) -> bool:
        """End the response, and return whether the connection can be kept for another one; otherwise it is closed."""
        if self.is_pending:
            self.fail(StreamCut(f"the response of {self.origin} was closed before its end"))
        self._is_busy = False
        self.raw_headers, self._waiter, self._parser = (), None, None  # an idle connection needs little memory
        is_sent = self._unsent is None and not self.transport.get_write_buffer_size()
        if not (self.is_complete and self._keep_alive and is_sent) or self.transport.is_closing():
            self.abort()
            return False
        self._set_due(self._loop.time() + _IDLE_SECONDS)
        return True

    def can_be_reused(self) -> bool:
        """Whether an idle connection is still open and the server has not sent anything since the last response."""
        if self.transport.is_closing():
            return False
        # The event loop may have been blocked, so look at the socket itself. A gateway that closes an idle connection
        # sends a response nobody asked for (408), or the end of the connection.
        return self._poll is None or not self._poll.poll(0)

    def abort(self) -> None:
        """Close the connection at once, without waiting for unsent data or a TLS shutdown."""
        self._unsent = None
        self.transport.abort()

    def fail(self, error: ProviderError) -> None:
        """End the response with an error and close the connection."""
        if self.error is None:
            self.error = error
            self.abort()
            self._wake()

    # Called by the reader of the response

    def _changed(self) -> "asyncio.Future[None]":
        """Return a future for the next change: the head, more of the body, the end or an error."""
        if self._waiter is not None and not self._waiter.done():
            raise RuntimeError("this response is already being read by another task")
        self._waiter = self._loop.create_future()
        return self._waiter

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        """Return the decoded body bytes that have arrived, or wait for some."""
        while not (piece := self._take()):
            if self.error is not None:
                raise self.error.with_traceback(None)
            if self.is_complete:
                raise StopAsyncIteration
            self._enter("between_bytes")
            try:
                await self._changed()
            finally:
                self._pause_deadline()
        self._received += len(piece)
        if self._max_body_bytes is not None and self._received > self._max_body_bytes:
            error = MalformedResponse(
                f"the response of {self.origin} is larger than {self._max_body_bytes:,} bytes; "
                "raise the limit with Transport(max_body_bytes=…) if this is expected"
            )
            error.retryable = False  # a retry would not make it smaller
            self.fail(error)
            raise error
        return piece

    async def read(self) -> bytes:
        """Return the rest of the body."""
        pieces = []
        async for piece in self:
            pieces.append(piece)
            if self.is_complete and not self._chunks and self._decoder is None and self.error is None:
                break  # so that a body in one piece takes one step
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _take(self) -> bytes:
        chunks, data = self._chunks, b""
        if chunks:
            data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
            chunks.clear()
            self._buffered = 0
            self._resume_reading()
        return data if self._decoder is None else self._decode(self._decoder, data)

    def _decode(self, decoder: Decoder, data: bytes) -> bytes:
        try:
            piece = decoder.decode(data)
            if not piece and self.is_complete:
                decoder.finish()
        except zlib.error:
            self._decoder = None
            message = f"the body is not valid {decoder.coding}, although its Content-Encoding says so"
            self.fail(self._malformed(message))
            return b""
        return piece

    def _resume_reading(self) -> None:
        if self._is_read_paused:
            self._is_read_paused = False
            self.transport.resume_reading()

    # Deadlines

    def _enter(self, stage: Stage) -> None:
        """Start the timeout of a stage."""
        seconds: float | None = getattr(self._timeouts, stage)
        due = NEVER if seconds is None else self._loop.time() + seconds
        self._stage = stage
        if self._total_due < due:
            self._stage, due = "total", self._total_due
        self._set_due(due)

    def _pause_deadline(self) -> None:
        """Stop the clock, because the caller does not wait for the network. The total goes on."""
        self._stage, self._due = "total", self._total_due

    def _set_due(self, due: float) -> None:
        self._due = due
        if due < self._timer_due:
            self._stop_timer()
            self._timer, self._timer_due = self._loop.call_at(due, self._on_timer), due

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_due = None, NEVER

    def _on_timer(self) -> None:
        # If the loop was blocked, the awaited bytes may have arrived meanwhile. Let their callbacks run first.
        self._stop_timer()
        self._loop.call_soon(self._expire, self._loop.time())

    def _expire(self, now: float) -> None:
        if self.transport.is_closing():
            return
        if self._due > now:
            self._set_due(self._due)
        elif not self._is_busy:
            self.abort()
        elif not self.is_complete:
            self.fail(timed_out(self._stage, self._timeouts, self.origin))

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
        return self._read_buffer

    def buffer_updated(self, nbytes: int) -> None:
        if not self._is_busy:
            self.abort()  # nobody asked for this
            return
        self._feed(self._read_buffer[:nbytes])
        if self._buffered > _HIGH_WATER and self.is_pending and not self._is_read_paused:
            self._is_read_paused = True
            self.transport.pause_reading()

    def eof_received(self) -> None:
        self._end(None, clean=True)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc, clean=False)
        self._stop_timer()
        self._parser = None  # they refer to each other
        self._on_lost(self)
        if not self.closed.done():
            self.closed.set_result(None)

    def pause_writing(self) -> None:
        self._is_write_paused = True

    def resume_writing(self) -> None:
        self._is_write_paused = False
        self._send_more()

    def _send_more(self) -> None:
        while self._unsent is not None and not self._is_write_paused:
            self.transport.write(self._unsent[:_WRITE_PIECE])
            self._unsent = self._unsent[_WRITE_PIECE:] or None

    def _feed(self, data: memoryview) -> None:
        """Parse received bytes and wake the reader."""
        if self._parser is None or self.error is not None:
            return
        self._has_started = True
        self._overhead += len(data)
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            self._keep_alive = False  # nobody asked for another protocol
        except HttpParserError as error:
            reason = error.__context__ or error
            if not isinstance(reason, _Rejected | HttpParserError):
                raise reason from None
            self._reject(str(reason))
        if self._overhead > _MAX_HEAD_BYTES:
            self._reject("its head or trailers are too large")
        if self.status or self.error:
            self._wake()

    def _reject(self, reason: str) -> None:
        self._keep_alive = False
        if not self.is_complete:
            self.fail(self._malformed(reason))

    def _end(self, error: BaseException | None, *, clean: bool) -> None:
        """Handle the end of the connection; a body without a length may only end with a `clean` one."""
        if not self._is_busy or self.is_complete or self.error is not None:
            return
        has_length = any(find_header(self.raw_headers, name) for name in ("content-length", "transfer-encoding"))
        if self.status and clean and not has_length:
            self.is_complete = True
            self._wake()
            return
        if self.status:
            failure: NetworkError = StreamCut(f"{self.origin} closed the connection in the middle of the response")
        else:
            what = "in the middle of the response head" if self._has_started else "without a response"
            failure = NetworkError(f"{self.origin} closed the connection {what}; retrying may help")
            self.is_stale = not self._has_started
        failure.__cause__ = error
        self.fail(failure)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _malformed(self, reason: str) -> NetworkError:
        error = StreamCut if self.status else NetworkError
        return error(f"the response of {self.origin} is not valid HTTP: {reason}")

    # Called by the parser. A callback that raises stops the parser; _feed() reports the error.

    def on_message_begin(self) -> None:
        if self.is_complete:
            raise _Rejected("the server sent more than the response")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        assert self._parser is not None, "only the parser calls this"
        headers, self._headers = self._headers, []  # what follows are trailers, which are ignored
        status = self._parser.get_status_code()
        if status < 200 and status != 101:
            self._interim += 1
            if status < 100:
                raise _Rejected("invalid status code")
            if self._interim > _MAX_INTERIM_RESPONSES:
                raise _Rejected(f"it consists of {self._interim} interim (1xx) responses and no final one")
            return
        if len(headers) > _MAX_HEADERS or self._overhead > _MAX_HEAD_BYTES:
            raise _Rejected("its head is too large")
        names = {name.lower() for name, _ in headers}
        if b"transfer-encoding" in names and (find_header(headers, "transfer-encoding") or "").lower() != "chunked":
            raise _Rejected("its Transfer-Encoding is not supported")
        if b"content-encoding" in names:
            self._set_decoder((find_header(headers, "content-encoding") or "").strip().lower())
        # After the response to HEAD the parser would wait for a body, so nothing tells what follows it.
        self._keep_alive = self._parser.should_keep_alive() and not self._is_head
        self.status, self.raw_headers = status, headers
        self._overhead = 0
        self.is_complete = self._is_head

    def _set_decoder(self, coding: str) -> None:
        if coding in ("gzip", "deflate"):
            self._decoder = Decoder(coding)
        elif not _CODINGS.isdisjoint(coding.replace(" ", "").split(",")):
            raise _Rejected(f"its Content-Encoding is {coding}, which was not asked for")

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
