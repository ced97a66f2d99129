"""One connection: requests in, replies out in their order, and everything let go when the other side leaves."""

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Awaitable, Callable
from typing import cast

from midspan._http.retry import Clock
from midspan.emulator.refusal import Refusal
from midspan.emulator.serving.refused import BadRequest
from midspan.emulator.serving.replies import Break, Reply, Wait, refused, whole, without_body
from midspan.emulator.serving.requests import Request, RequestReader

Handler = Callable[[Request], Reply | Awaitable[Reply]]
_MOST_WAITING = 64
"""Requests that one connection may send ahead of their replies."""


class Connection(asyncio.Protocol):
    """Replies that are bytes and nothing else are written at once; only those that wait need a task."""

    def __init__(self, handler: Handler, clock: Clock, open_connections: "set[Connection]") -> None:
        self._handler = handler
        self._clock = clock
        self._open = open_connections
        self._reader = RequestReader()
        self._waiting: deque[Request] = deque()
        self._task: asyncio.Task[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self.lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._open.add(self)

    def connection_lost(self, _error: Exception | None) -> None:
        self._open.discard(self)
        self._waiting.clear()
        self._writable.set()
        self.lost.set()
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        for request in self._reader.feed(data):
            self._receive(request)
        if self._reader.failure is not None and self._task is None:
            self._refuse(self._reader.failure)
        if self._reader.wants_continue:
            self._reader.wants_continue = False
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def abort(self) -> None:
        self._transport.abort()

    def _refuse(self, failure: BadRequest) -> None:
        """The last that is said here: what follows cannot be told from what is wrong."""
        if not self._transport.is_closing():
            for step in whole(str(failure).encode(), failure.status, "text/plain"):
                assert isinstance(step, bytes), "what is whole is bytes"
                self._transport.write(step)
            self._transport.close()

    def _receive(self, request: Request) -> None:
        if self._transport.is_closing():
            return
        if self._task is not None:
            self._waiting.append(request)
            if len(self._waiting) >= _MOST_WAITING:
                self._transport.pause_reading()
            return
        reply = self._reply(request)
        if isinstance(reply, list) and len(reply) == 1 and isinstance(reply[0], bytes):
            self._transport.write(reply[0])
            if not request.keep_alive:
                self._transport.close()
        else:
            self._task = asyncio.ensure_future(self._perform(request, reply))

    def _reply(self, request: Request) -> Reply | Awaitable[Reply]:
        reply = self._handler(request)
        return without_body(reply) if request.method == "HEAD" and isinstance(reply, list) else reply

    async def _perform(self, request: Request, reply: Reply | Awaitable[Reply]) -> None:
        """Replies that take their time, one after another until none waits."""
        try:
            while not self._transport.is_closing():
                await self._send(reply if isinstance(reply, list) else await reply)
                if not request.keep_alive:
                    self._transport.close()
                if not self._waiting:
                    break
                request = self._waiting.popleft()
                reply = self._reply(request)
        except Refusal as refusal:
            await self._send(refused(refusal))
        finally:
            self._task = None
            if self._reader.failure is not None:
                self._refuse(self._reader.failure)
            if not self._transport.is_closing():
                self._transport.resume_reading()

    async def _send(self, reply: Reply) -> None:
        for step in reply:
            if isinstance(step, bytes):
                self._transport.write(step)
                if not self._writable.is_set():
                    await self._writable.wait()
            elif isinstance(step, Wait):
                await self._clock.sleep(step.seconds)
            elif step is Break.RESET:
                self._reset()
            else:
                self._transport.close()
            if self._transport.is_closing():
                return

    def _reset(self) -> None:
        made: socket.socket = self._transport.get_extra_info("socket")
        made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()
