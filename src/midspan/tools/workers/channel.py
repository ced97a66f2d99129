"""The host's end of a worker's socket: any thread sends, and the event loop of the pool or of a caller reads."""

import asyncio
import socket
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress

from midspan.tools.workers.job import call_in

_READ_BYTES = 65_536
_LEND_SECONDS = 0.05
"""How long the event loop of a caller reads after the last bytes have come."""


class Channel:
    """A socket that belongs to the event loop of a pool, in which it is created and closed.

    To wake the thread of the pool, and then the thread of the caller, takes longer than a short call. So while an event
    loop makes short calls one after another, it reads their results itself.
    """

    def __init__(
        self, connection: socket.socket, on_data: Callable[[bytes], None], on_end: Callable[[], object]
    ) -> None:
        """`on_data` is called in the event loop that reads, by one thread at a time; `on_end` in that of the pool."""
        self._socket = connection
        self._on_data = on_data
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._caller_loop: asyncio.AbstractEventLoop | None = None
        """The event loop of a caller in which `_read` is registered, in place of or beside that of the pool."""
        self._read_lock = threading.Lock()
        self._reads = 0
        self._send_lock = threading.Lock()
        self._unsent = bytearray()
        self._is_closed = False
        # An event loop that was asked to close the socket, but ended before, drops that request and this object.
        weakref.finalize(self, connection.close)
        connection.setblocking(False)
        self._loop.add_reader(connection, self._read)

    def send(self, data: bytes) -> None:
        """Send bytes, from any thread. What the socket does not take at once is sent by the event loop."""
        with self._send_lock:
            if not self._unsent:
                data = data[self._send_some(data) :]
                if data:
                    self._loop.call_soon_threadsafe(self._send_later)
            self._unsent += data

    def _send_some(self, data: bytes | bytearray) -> int:
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0
        except OSError:  # `_read` notices it
            return len(data)

    def _send_later(self) -> None:
        if not self._is_closed:
            self._loop.add_writer(self._socket, self._send_rest)

    def _send_rest(self) -> None:
        with self._send_lock:
            del self._unsent[: self._send_some(self._unsent)]
            if not self._unsent:
                self._loop.remove_writer(self._socket)

    def _read(self) -> None:
        with self._read_lock:
            try:
                data = self._socket.recv(_READ_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if data:
                self._reads += 1
                self._on_data(data)
                return
        asyncio.get_running_loop().remove_reader(self._socket)
        call_in(self._loop, self._on_end)

    def lend(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let the event loop of a caller read, because its next call will follow soon."""
        caller_loop = self._caller_loop  # its own thread may set it to None now
        if caller_loop is not None and caller_loop.is_closed():
            self._caller_loop = None
        if self._caller_loop is None and sys.platform != "win32":  # whose usual event loop has no readers
            self._caller_loop = loop
            self._loop.remove_reader(self._socket)
            call_in(loop, self._read_here)
            self._loop.call_later(_LEND_SECONDS, self._take_back, self._reads)

    def _take_back(self, last_reads: int) -> None:
        """Read in the event loop of the pool again, unless more has come. The other one may be blocked or closed."""
        if self._is_closed:
            return
        if self._reads != last_reads:
            self._loop.call_later(_LEND_SECONDS, self._take_back, self._reads)
            return
        assert self._caller_loop is not None, "it is set until `_leave` was called"
        self._loop.add_reader(self._socket, self._read)
        call_in(self._caller_loop, self._leave)

    def _read_here(self) -> None:
        asyncio.get_running_loop().add_reader(self._socket, self._read)

    def _leave(self) -> None:
        """End the reading in the event loop of a caller, if that is the current one."""
        if self._caller_loop is asyncio.get_running_loop():
            self._caller_loop.remove_reader(self._socket)
            self._caller_loop = None

    def end_stream(self) -> None:
        """Send nothing more. Closing would not tell the other side if a forked process had a copy of the socket."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close the socket, once. An event loop in which it is registered has to forget it before."""
        self._is_closed = True
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        if not call_in(self._caller_loop or self._loop, self._close):
            self._close()

    def _close(self) -> None:
        self._leave()
        with self._send_lock:
            self._socket.close()
