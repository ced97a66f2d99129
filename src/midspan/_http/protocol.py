"""The asyncio protocol of one HTTP/1.1 connection, and the response that httptools parses out of its bytes.

Above are the pool, which opens and keeps connections, and the transport, whose callers read the responses. Parsing
never raises: a response that breaks the rules of HTTP gets an `error`, and its reader receives the body up to that
point first. The parser appends each piece of a body to a list, and the head is cut out of the received bytes: a Python
callback per header and piece would cost more than all the rest.

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

from midspan import errors
from midspan._http.body import Decompressor
from midspan._http.messages import LENGTH_HEADERS, HttpResponse, Timeouts, find_header

READ_BUFFER_BYTES = 2**16
NEVER = float("inf")
_KEEPALIVE_OPTIONS = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}
"""A model may be silent for minutes. Probes keep gateways from dropping the connection, and detect a dead peer."""
_IDLE_SECONDS = 75.0
"""A tool may well run for a minute between two turns."""
_STALE_SECONDS = 1.0
"""If a reused connection is closed later than this after a request, it was not stale: the server has the request."""
_MAX_BUFFERED_BYTES = 2**18
"""Unread bytes above which the connection stops reading; also the limit for a head, trailers and chunk extensions."""
_COMPRESSIONS = ("gzip", "deflate", "br", "zstd", "compress")
"""Some servers send other words as Content-Encoding, such as a charset; then the body can be read as it is."""

Stage = Literal["connect", "first_byte", "between_bytes", "total"]


def timed_out(stage: Stage, timeouts: Timeouts, origin: str) -> errors.RequestTimeoutError:
    """Return the error for a request that exceeded the timeout of a stage."""
    seconds = getattr(timeouts, stage)
    return errors.RequestTimeoutError(f"the request to {origin} exceeded its timeout {stage!r} of {seconds:g} s")


class HttpProtocol(asyncio.BufferedProtocol):
    """A connection to a server or proxy, and the response to the last request that was sent on it.

    `origin` is its name in error messages. It is in the list `idle` while it can be used for another request. The
    connections of a pool share one `read_buffer`, whose content is parsed before the next read; asyncio would otherwise
    allocate 256 KiB per read. `on_lost` is called when the connection is closed.
    """

    __slots__ = (
        "_buffered", "_chunks", "_decoder", "_due", "_head", "_idle", "_is_stale", "_keep_alive",
        "_loop", "_max_body_bytes", "_on_lost", "_parser", "_poll", "_read_buffer", "_remaining", "_reused_at",
        "_stage", "_status", "_timeouts", "_timer", "_timer_due", "_total_due", "_waiter", "closed", "error", "is_idle",
        "is_pending", "on_body", "origin", "transport",
    )  # fmt: skip
    # A conversation holds an idle connection while its tools run; as a dict, these would be most of its memory.

    def __init__(
        self,
        origin: str,
        idle: "list[HttpProtocol]",
        read_buffer: memoryview,
        max_body_bytes: int,
        on_lost: "Callable[[HttpProtocol], object]",
    ) -> None:
        self.transport: asyncio.Transport
        self._loop = asyncio.get_running_loop()
        self.closed = self._loop.create_future()
        self.is_idle = False
        """Whether the connection is kept for another request."""
        self.is_pending = False
        """Whether a response is awaited or incomplete."""
        self.error: errors.ProviderError | None = None
        self.origin = origin
        self._idle = idle
        self._read_buffer = read_buffer
        self._max_body_bytes = max_body_bytes
        self._on_lost = on_lost
        self._parser: HttpResponseParser
        self._head = b""
        self._chunks: list[bytes] = []
        self.on_body = self._chunks.append
        self._waiter: asyncio.Future[None] | None = None
        self._poll: select.poll | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = NEVER
        self._keep_alive = False
        self._is_stale = False
        """Whether the server closed the connection while it was idle, and so has not seen the request."""

    # Called by the pool

    async def exchange(self, request: bytes, timeouts: Timeouts, started: float, *, whole: bool) -> HttpResponse | None:
        """Send a request and return the response to it, with its body and ready for the next request if `whole`.

        None means that an idle connection was stale: the server closed it before the first byte of the response, or has
        sent something since the last response, such as an unsolicited 408 response.
        """
        self._timeouts = timeouts
        self._status = 0
        """0 until the head of the response is complete."""
        self._decoder: Decompressor | None = None
        self.is_pending = True
        self._buffered = 0
        """Bytes received since the request was sent or the reader took a piece of the body."""
        self._remaining = self._max_body_bytes
        self._total_due = started + (timeouts.total or NEVER)
        was_idle, self.is_idle = self.is_idle, False
        self._reused_at = started if was_idle else -NEVER
        """When this request reused an idle connection."""
        waiter = self._wait("first_byte", timeouts.first_byte, started if was_idle else self._loop.time())
        # The event loop may have been blocked, so look at the socket itself.
        if self.closed.done() or (was_idle and self._poll is not None and self._poll.poll(0)):
            self._end(None)
        else:
            self.transport.write(request)
        await waiter
        if not self._status:
            assert self.error is not None, "only a head or an error wakes the reader"
            if self._is_stale:
                return None
            raise self.error
        if not whole:
            return HttpResponse(self._status, self._head, b"")
        body = self._take()
        if self.is_pending or self.error is not None or self._decoder is not None:
            body += b"".join([piece async for piece in self])
        response = HttpResponse(self._status, self._head, body)
        self.release()
        return response

    def release(self) -> None:
        """End the response. Close the connection, unless it can be kept for another one: then it `is_idle`."""
        if self.is_pending:
            self.fail(errors.IncompleteResponseError(f"the response of {self.origin} was closed before its end"))
        self._head, self._waiter = b"", None  # an idle connection needs little memory
        self._chunks.clear()
        if self._keep_alive and not self.transport.get_write_buffer_size():
            self.is_idle = True
            self._idle.append(self)
            self._due = self._loop.time() + _IDLE_SECONDS
            if self._due < self._timer_due:
                self._start_timer(self._due)
        else:
            self.transport.abort()

    def fail(self, error: errors.ProviderError) -> None:
        """End the response with an error, unless it has one, and close the connection at once."""
        self.error = self.error or error
        self.is_pending = self._keep_alive = False
        self.transport.abort()
        self._wake()

    # Called by the reader of the response

    def _take(self) -> bytes:
        """Return the decoded body bytes that have arrived."""
        chunks, piece = self._chunks, b""
        if chunks:
            piece = chunks[0] if len(chunks) == 1 else b"".join(chunks)
            chunks.clear()
            if self._buffered > _MAX_BUFFERED_BYTES:
                self.transport.resume_reading()
            self._buffered = 0
        if (decoder := self._decoder) is not None:
            try:
                piece = decoder.decode(piece)
                if not piece and not self.is_pending and self.error is None:
                    decoder.finish()
            except zlib.error:
                piece, self._decoder = b"", None
                reason = f"the body is not valid {decoder.coding}, although its Content-Encoding says so"
                self.fail(self._malformed(reason))
        self._remaining -= len(piece)
        if self._remaining >= 0:
            return piece
        error = errors.MalformedResponseError(
            f"the response of {self.origin} is larger than {self._max_body_bytes:,} bytes; "
            "raise the limit with Transport(max_body_bytes=…) if this is expected"
        )
        error.retryable = False  # a retry would not make it smaller
        self.fail(error)
        return b""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        """Return the decoded body bytes that have arrived, or wait for some."""
        while True:
            if self._chunks or self._decoder is not None:  # the decoder may hold more of what arrived
                piece = self._take()
                if piece:
                    return piece
            if self.error is not None:
                raise self.error.with_traceback(None)
            if not self.is_pending:
                raise StopAsyncIteration
            if self._waiter is not None and not self._waiter.done():
                raise RuntimeError("this response is already being read by another task")
            await self._wait("between_bytes", self._timeouts.between_bytes, self._loop.time())

    # Deadlines

    def _wait(self, stage: Stage, seconds: float | None, now: float) -> "asyncio.Future[None]":
        """Return a future for the reader, to whom the timeout of this stage applies while it waits."""
        self._stage = stage
        self._due = due = min(now + (seconds or NEVER), self._total_due)
        if due < self._timer_due:
            self._start_timer(due)
        self._waiter = waiter = self._loop.create_future()
        return waiter

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _start_timer(self, due: float) -> None:
        self._stop_timer()
        self._timer, self._timer_due = self._loop.call_at(due, self._on_timer), due

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_due = None, NEVER

    def _on_timer(self) -> None:
        self._stop_timer()
        is_reader_busy = self._waiter is not None and self._waiter.done()
        due = self._total_due if is_reader_busy else self._due  # an idle connection has no reader
        if self._loop.time() < due:
            if due < NEVER:
                self._start_timer(due)
        elif self.is_idle:
            self.transport.abort()
        elif self.is_pending:
            self.fail(timed_out("total" if self._total_due <= due else self._stage, self._timeouts, self.origin))

    # Called by asyncio

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # create_connection makes no other
        self.transport = transport
        self._parser = HttpResponseParser(self)
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
        """Parse the received bytes and wake the reader."""
        if not self.is_pending:
            self.transport.abort()  # unsolicited data
            return
        data = self._read_buffer[:nbytes]
        if not self._status:
            self._head += data
        self._buffered += nbytes
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self._keep_alive = False
            if self.is_pending:
                self.fail(self._malformed(str(error.__context__ or error)))
        if self._buffered > _MAX_BUFFERED_BYTES and self.is_pending:
            if not self._chunks:
                self.fail(self._malformed("its head or trailers are too large"))
            else:
                self.transport.pause_reading()
        if self._status and (waiter := self._waiter) is not None and not waiter.done():
            waiter.set_result(None)

    def eof_received(self) -> None:
        if self.is_pending and self._status and not any(find_header(self._head, name) for name in LENGTH_HEADERS):
            self.is_pending = False  # nothing else ends a body without a length
            self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc)
        self._keep_alive = False
        self._stop_timer()
        del self._parser  # they refer to each other
        if self in self._idle:
            self._idle.remove(self)
        self._on_lost(self)
        self.closed.set_result(None)

    def _end(self, error: BaseException | None) -> None:
        """Fail the response, which the end of the connection leaves incomplete."""
        if not self.is_pending:
            return
        if self._status:
            failure: errors.NetworkError = errors.IncompleteResponseError(
                f"{self.origin} closed the connection in the middle of the response"
            )
        else:
            self._is_stale = not self._buffered and self._loop.time() - self._reused_at < _STALE_SECONDS
            failure = errors.NetworkError(f"{self.origin} closed the connection without a response; retrying may help")
        failure.__cause__ = error
        self.fail(failure)

    def _malformed(self, reason: str) -> errors.NetworkError:
        error = errors.IncompleteResponseError if self._status else errors.NetworkError
        return error(f"the response of {self.origin} is not valid HTTP: {reason}")

    # Called by the parser, which stops if they raise an error

    def on_message_begin(self) -> None:
        if not self.is_pending:
            raise HttpParserError("the server sent more than the response")

    def on_headers_complete(self) -> None:
        received = self._head.lstrip()
        end = received.find(b"\r\n\r\n")
        status = self._parser.get_status_code()
        if 100 <= status < 200 and status != 101:
            self._head = received[end + 4 :]  # it was an interim response
            return
        self._status = status
        self._head = head = received[:end]
        self._keep_alive = self._parser.should_keep_alive()
        if head.lower().find(b"-encoding:") >= 0:  # `in` is slower: it tries to read an integer first
            self._read_encodings(head)

    def _read_encodings(self, head: bytes) -> None:
        """Prepare to decode the body."""
        framing = (find_header(head, "transfer-encoding") or "chunked").lower()
        if framing != "chunked":
            raise HttpParserError(f"its Transfer-Encoding is {framing}, which is not supported")
        coding = (find_header(head, "content-encoding") or "").lower()
        if coding in ("gzip", "deflate"):
            self._decoder = Decompressor(coding)
        elif any(compression in coding for compression in _COMPRESSIONS):
            raise HttpParserError(f"its Content-Encoding is {coding}, which was not asked for")

    def on_message_complete(self) -> None:
        if self._status:  # otherwise it was an interim response
            self.is_pending = False
