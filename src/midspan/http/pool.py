"""The connections of one event loop: aiohttp, arranged for calls to models.

Of aiohttp we take what is hard: the connector, which makes, keeps and reuses connections through proxies and TLS, and
the parser of responses. Its session, which can do much that services do not need, would cost as much as both.
Importing this loads aiohttp and ssl, so nobody imports it before the first request.
"""

import asyncio
from contextlib import suppress
from weakref import WeakSet

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import StreamWriter

from midspan.http.environment import trusted_certificates
from midspan.http.messages import HttpRequest
from midspan.http.response import OnlyInterim, PoolClosed, Response, StaleConnection, close
from midspan.http.routes import Route, Routes
from midspan.http.sockets import abort, abort_on_closed_loop, has_unread, probing_socket, read_in_small_buffers
from midspan.http.unreadable import check_coding
from midspan.http.watch import Wait, Watch

_IDLE_SECONDS = 75.0
"""How long a connection is kept for the next request; a tool may well run for a minute between two turns."""
_SOON_SECONDS = 1.0
"""A connection that breaks later than this after a request was sent did not break because it had been idle."""
_MOST_INTERIM = 100
"""Of answers before the answer: one that says every 20 s that it is at it may do so for half an hour."""
_LONGEST_HEAD_LINE = 2**16
_LONGEST_IN_ONE_GO = 2**20
_PIECE = 2**16
_NO_TIMEOUT = aiohttp.ClientTimeout()
"""A Wait is cheaper."""


class Pool:
    """The connections of the running loop."""

    def __init__(self, connections: int | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self.watch = Watch(self._loop)
        self._routes = Routes(self._loop)
        self._protocols: WeakSet[ResponseHandler] = WeakSet()
        """The connections that carried a request before."""
        self._slots = asyncio.Semaphore(connections) if connections else None
        self._is_closed = False
        self._connector = aiohttp.TCPConnector(
            limit=0,
            ssl=trusted_certificates() or True,
            keepalive_timeout=_IDLE_SECONDS,
            resolver=aiohttp.ThreadedResolver(),
            socket_factory=probing_socket,
        )

    async def open(self, request: HttpRequest, wait: Wait) -> Response:
        """Send the request and wait for the head of the response, which is to be given back to `done`."""
        if self._slots is not None:
            await self._slots.acquire()
        wait.start()
        try:
            if self._is_closed:  # while it waited for its place
                raise PoolClosed
            try:
                return await self._ask(request, self._routes.to(request), wait)
            except StaleConnection:  # the server closed an idle connection just when we wrote to it
                return await self._ask(request, self._routes.apart(request), wait)
        except BaseException:
            if self._slots is not None:
                self._slots.release()
            raise

    def done(self, response: Response) -> None:
        """Close what is still open of a response, and let the next one have its place."""
        response.done()
        if self._slots is not None:
            self._slots.release()

    async def close(self) -> None:
        """Close all connections and wait until they are closed."""
        self._is_closed = True
        self.watch.close()
        await self._connector.close()

    def drop(self) -> None:
        """Close all connections without waiting, for a loop that may never run again."""
        self.watch.stop()
        transports = [protocol.transport for protocol in self._protocols if protocol.transport is not None]
        if self._loop.is_closed():
            abort_on_closed_loop(self._loop, transports)
        else:
            abort(transports)
        self._connector.__exit__()

    async def _ask(self, request: HttpRequest, route: Route, wait: Wait) -> Response:
        wait.begin("connect")
        connection = await self._connector.connect(route.way, traces=[], timeout=_NO_TIMEOUT)
        wait.begin("first_byte")
        protocol = connection.protocol
        assert protocol is not None, "a connection is open when it is given"
        kept = protocol in self._protocols
        upload: asyncio.Task[None] | None = None
        interim, sent_at = 0, self._loop.time()
        try:
            if not kept:
                self._meet(protocol, route)
            elif protocol.should_close or (protocol.transport is not None and has_unread(protocol.transport)):
                # It holds an answer to a question that nobody asked, or its end.
                raise aiohttp.ClientConnectionResetError("the connection cannot be used again")
            protocol.set_response_params(
                skip_payload=route.way.method == "HEAD",
                read_until_eof=True,
                max_line_size=_LONGEST_HEAD_LINE,
                max_field_size=_LONGEST_HEAD_LINE,
            )
            upload = self._send(request, route, protocol)
            message, content = await protocol.read()
            while 100 <= message.code < 200 and message.code != 101:  # only that the server is at it
                interim += 1
                if interim > _MOST_INTERIM:
                    raise OnlyInterim(interim)
                message, content = await protocol.read()
            if message.compression is None and (coding := message.headers.get("Content-Encoding")) is not None:
                check_coding(coding)
        except BaseException as error:
            close(connection, upload)
            soon = self._loop.time() - sent_at < _SOON_SECONDS
            if kept and soon and not interim and _is_stale(error):
                raise StaleConnection from error
            raise
        return Response(connection, message, content, upload)

    def _send(self, request: HttpRequest, route: Route, protocol: ResponseHandler) -> "asyncio.Task[None] | None":
        """Send the request; a task goes on with what is too much to be written at once."""
        transport = protocol.transport
        if transport is None or transport.is_closing():
            raise aiohttp.ClientConnectionResetError("the connection was closed before anything was sent")
        if len(request.body) > _LONGEST_IN_ONE_GO:
            transport.write(route.head(request))
            return self._loop.create_task(_upload(request.body, StreamWriter(protocol, self._loop)))
        transport.write(route.head(request) + request.body)
        return None

    def _meet(self, protocol: ResponseHandler, route: Route) -> None:
        self._protocols.add(protocol)
        if protocol.transport is not None:
            read_in_small_buffers(protocol.transport)
        if protocol.closed is not None:
            protocol.closed.add_done_callback(_take_note)
        if route.way.server_hostname is not None:
            protocol.force_close()


async def _upload(body: bytes, writer: StreamWriter) -> None:
    """Send a large body piece by piece, as the server takes it; it may answer before the end."""
    view = memoryview(body)
    with suppress(aiohttp.ClientError, OSError):  # the connection is gone, which whoever waits for the answer is told
        for start in range(0, len(view), _PIECE):
            await writer.write(view[start : start + _PIECE])


def _is_stale(error: BaseException) -> bool:
    """Whether nothing of a head had come when the connection broke; of one that was reset, aiohttp does not tell."""
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return isinstance(error.message, str)
    return isinstance(error, OSError)


def _take_note(gone: "asyncio.Future[None]") -> None:
    """Whoever asks for this future has to look at it, or asyncio logs that nobody did."""
    if not gone.cancelled():
        gone.exception()
