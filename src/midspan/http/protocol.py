"""The asyncio protocol of one HTTP/1.1 connection: bytes in, bytes out, one response at a time.

It does not know about requests, proxies or timeouts. When a response is complete and the connection can carry another
one, the protocol gives itself back to its pool.
"""

import asyncio
import select
import socket
from collections.abc import Callable
from contextlib import suppress

from midspan.http.response import Response

_READ_BUFFER = 2**16
_SINGLE_WRITE = 2**20
"""Larger bodies are written piece by piece, so that an early response stops the upload."""
_WRITE_PIECE = 2**16
_KEEPALIVE_OPTIONS = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}
"""A model may be silent for minutes. Probes keep gateways from dropping the connection, and detect a dead peer."""


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

    def send(self, head: bytes, body: bytes, response: Response) -> None:
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

    def _finish(self, response: Response) -> None:
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
