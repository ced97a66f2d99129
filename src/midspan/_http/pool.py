"""The connection pool of one event loop, and how its connections are opened: TCP, proxy tunnel, TLS.

A connection is connecting, busy with one response, idle, or closed. Idle connections are kept per server and proxy and
reused most recent first. Error messages name the host, never a header, a query or a proxy's password. Importing this
module loads httptools and ssl, so the first request imports it.
"""

import asyncio
import os
import socket
import ssl
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from midspan._http.messages import HttpRequest, HttpResponse, Timeouts
from midspan._http.protocol import NEVER, READ_BUFFER_BYTES, HttpProtocol, timed_out
from midspan._http.routes import Address, Route, tls_context
from midspan.errors import MidspanError, NetworkError

_MAX_ROUTES = 256
_HAPPY_EYEBALLS_SECONDS = 0.25
"""How long to wait before the next address of a host is tried in parallel; RFC 8305 recommends 250 ms."""
_NO_TIMEOUTS = Timeouts(None, None, None)
"""For CONNECT requests; the connect timeout covers them."""
_PROXY = "the proxy set in HTTPS_PROXY, HTTP_PROXY or ALL_PROXY"


class Pool:
    """The connections of the running event loop."""

    closer: AsyncGenerator[None, None]
    """Closes the pool when the event loop shuts down its asynchronous generators."""

    def __init__(self, max_connections: int | None, max_body_bytes: int) -> None:
        self.process = os.getpid()
        self._slots = None if max_connections is None else asyncio.Semaphore(max_connections)
        """Held while a request is sent and its response is read; None without a limit."""
        self._loop = asyncio.get_running_loop()
        self._max_body_bytes = max_body_bytes
        self._route = lru_cache(_MAX_ROUTES)(Route)
        self._idle: defaultdict[object, list[HttpProtocol]] = defaultdict(list)
        self._connections: set[HttpProtocol] = set()
        self._connecting: set[asyncio.Timeout] = set()
        self._read_buffer = memoryview(bytearray(READ_BUFFER_BYTES))
        self._is_closed = False

    async def send(self, request: HttpRequest, timeouts: Timeouts, *, whole: bool) -> tuple[HttpProtocol, HttpResponse]:
        """Send a request and return the response and its connection.

        Unless `whole`, the response has only a head; the caller reads the body from the connection and passes it to
        `release`.
        """
        if self._slots is not None:
            await self._slots.acquire()
        connection, is_streamed = None, False
        try:
            route = self._route(request.method, request.url)
            idle = self._idle[route.key]
            data = route.encode(request)
            started = self._loop.time()
            connection = idle.pop() if idle else await self._connect(route, idle, timeouts, started)
            response = await connection.exchange(data, timeouts, started, whole=whole)
            if response is None:
                connection = await self._connect(route, idle, timeouts, started)
                response = await connection.exchange(data, timeouts, started, whole=whole)
                assert response is not None, "a new connection is not stale"
            is_streamed = not whole
            return connection, response
        except BaseException as error:
            if connection is not None:
                connection.release()
            if not isinstance(error, MidspanError | asyncio.CancelledError):
                raise
            # Without its traceback, whose frames hold header values and proxy credentials.
            failure = error.with_traceback(None)
        finally:
            data = b""  # it has secrets, and a traceback may show local variables
            if self._slots is not None and not is_streamed:
                self._slots.release()
        raise failure  # outside the `except` block, which would add the original as context

    def release(self, connection: HttpProtocol) -> None:
        """Reuse or close a connection whose response the caller has read."""
        connection.release()
        if self._slots is not None:
            self._slots.release()

    async def close(self) -> None:
        """Fail all pending requests, close all connections and wait until they are closed."""
        closing = [connection.closed for connection in self._connections]
        self.drop()
        if closing:
            await asyncio.wait(closing)

    def drop(self) -> None:
        """Fail all pending requests and close all connections without waiting."""
        self._is_closed = True
        for timeout in self._connecting:
            if not timeout.expired():
                timeout.reschedule(0)
        for connection in tuple(self._connections):
            if connection.is_pending:
                connection.fail(_closed_error(connection.origin))
            else:
                connection.transport.abort()

    async def _connect(
        self, route: Route, idle: list[HttpProtocol], timeouts: Timeouts, started: float
    ) -> HttpProtocol:
        on_lost = self._connections.discard
        connection = HttpProtocol(route.origin, idle, self._read_buffer, self._max_body_bytes, on_lost)
        connect, total = timeouts.connect or NEVER, timeouts.total or NEVER
        timeout = asyncio.timeout_at(started + min(connect, total))
        try:
            async with timeout:
                self._connecting.add(timeout)
                await self._open(route, connection)
        except TimeoutError:
            if self._is_closed:
                raise _closed_error(route.origin) from None
            raise timed_out("connect" if connect <= total else "total", timeouts, route.origin) from None
        finally:
            self._connecting.discard(timeout)
        if self._is_closed:
            connection.transport.abort()
            raise _closed_error(route.origin)
        if not connection.closed.done():
            self._connections.add(connection)
        return connection

    async def _open(self, route: Route, connection: HttpProtocol) -> None:
        """Connect to the server of a route, through its proxy if it has one."""
        server, proxy = route.server, route.proxy
        peer = f"{server.host}:{server.port}"
        if proxy is None:
            await _open_socket(connection, server, peer)
        elif not server.tls:
            await _open_socket(connection, proxy, _PROXY)
        else:
            name = f"the proxy for {route.origin}"
            tunnel = HttpProtocol(name, [], self._read_buffer, 0, self._connections.discard)
            await _open_socket(tunnel, proxy, _PROXY)
            try:
                response = await tunnel.exchange(route.tunnel_request(), _NO_TIMEOUTS, 0.0, whole=False)
                assert response is not None, "a new connection is not stale"
                if response.status // 100 != 2:
                    error = NetworkError(f"{tunnel.origin} refused the connection with status {response.status}")
                    error.retryable = response.status >= 500
                    raise error
                tls = await asyncio.to_thread(tls_context)
                with _network_errors(peer):
                    transport = await self._loop.start_tls(
                        tunnel.transport, connection, tls, server_hostname=server.host
                    )
            except BaseException:
                tunnel.transport.abort()
                raise
            assert transport is not None, "the transports of create_connection support start_tls"
            connection.connection_made(transport)


def _closed_error(origin: str) -> NetworkError:
    error = NetworkError(f"the client was closed while waiting for {origin}")
    error.retryable = False
    return error


async def _open_socket(connection: HttpProtocol, address: Address, peer: str) -> None:
    loop = asyncio.get_running_loop()
    options: dict[str, Any] = {"ssl": await asyncio.to_thread(tls_context)} if address.tls else {}
    is_ip_address = ":" in address.host or address.host.rpartition(".")[2].isdigit()
    if not is_ip_address and isinstance(loop, asyncio.BaseEventLoop):  # uvloop does not support it
        options["happy_eyeballs_delay"] = _HAPPY_EYEBALLS_SECONDS
    with _network_errors(peer):
        await loop.create_connection(lambda: connection, address.host, address.port, **options)


@contextmanager
def _network_errors(peer: str) -> Iterator[None]:
    """Raise a NetworkError that names the peer, instead of the errors of sockets and TLS."""
    try:
        yield
    except OSError as error:
        failure = NetworkError(describe_connect_error(error, peer))
        failure.retryable = not isinstance(error, ssl.SSLCertVerificationError)
        raise failure from error


def describe_connect_error(error: OSError, peer: str) -> str:
    """Say why `peer` cannot be reached, and what would help."""
    match error:
        case socket.gaierror():
            return f"cannot resolve the name of {peer}; check the URL and your network connection"
        case ssl.SSLCertVerificationError():
            return (
                f"the certificate of {peer} is not trusted: {error.verify_message or 'verification failed'}; if your "
                "own certificate authority issued it, set SSL_CERT_FILE to a file with the authority's certificate"
            )
        case ssl.SSLError():
            return f"TLS handshake with {peer} failed; is this an https URL?"
    reason = os.strerror(error.errno).lower() if error.errno else "no address of the host accepts connections"
    return f"cannot connect to {peer}: {reason}; check the URL and whether the server is running"
