"""The connection pool of one event loop, and how its connections are opened: TCP, proxy tunnel, TLS.

A connection is connecting, busy with one response, idle, or closed. Idle connections are kept per server and proxy and
reused most recent first. Error messages name the host, never a header, a query or a proxy's password. Importing this
module loads httptools and ssl, so the first request imports it.
"""

import asyncio
import errno
import os
import re
import socket
import ssl
from collections.abc import AsyncGenerator, Callable
from typing import Any

from midspan._http.messages import HttpRequest, Timeouts
from midspan._http.protocol import NEVER, READ_BUFFER_BYTES, HttpProtocol, timed_out
from midspan._http.routes import Address, Proxies, Route, tls_context
from midspan.errors import MidspanError, NetworkError

_STALE_SECONDS = 1.0
"""A reused connection that is closed later than this after a request was sent was not stale: the server was at work."""
_MAX_ROUTES = 256
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})\b")
_MAX_TUNNEL_HEAD = 2**16
_HAPPY_EYEBALLS_SECONDS = 0.25
"""How long to wait before the next address of a host is tried in parallel; RFC 8305 recommends 250 ms."""
_HINTS = {
    errno.ECONNREFUSED: "connection refused; check the URL and whether the server is running",
    errno.ENETUNREACH: "network unreachable; check your network connection",
    errno.EHOSTUNREACH: "host unreachable; check your network connection",
    errno.EMFILE: "too many open files; raise the limit of this process or send fewer requests at once",
}


class Pool:
    """The connections of the running event loop."""

    guard: AsyncGenerator[None, None]
    """Closes the pool when the event loop shuts down its asynchronous generators."""

    def __init__(self, max_connections: int | None = None, max_body_bytes: int | None = None) -> None:
        self.process = os.getpid()
        self._loop = asyncio.get_running_loop()
        self._slots = asyncio.Semaphore(max_connections) if max_connections else None
        self._max_body_bytes = max_body_bytes
        self._proxies = Proxies()
        self._routes: dict[tuple[str, str], Route] = {}
        self._connections: set[HttpProtocol] = set()
        self._connecting: set[asyncio.Timeout] = set()
        self._idle: dict[object, list[HttpProtocol]] = {}
        self._read_buffer = memoryview(bytearray(READ_BUFFER_BYTES))
        self._tls: ssl.SSLContext | None = None
        self._is_closed = False

    async def open(self, request: HttpRequest, timeouts: Timeouts) -> HttpProtocol:
        """Send a request and wait for the head of the response. The connection must be passed to `release`."""
        if self._slots is not None:
            await self._slots.acquire()
        connection = None
        try:
            route = self._route(request)
            if self._is_closed:  # while the request waited for a slot
                raise _closed_error(route.origin)
            start = self._loop.time()
            total_due = NEVER if timeouts.total is None else start + timeouts.total
            connection = self._take_idle(route.key)
            if connection is not None:
                await connection.exchange(route, request, timeouts, total_due)
                if not connection.is_stale or self._loop.time() - start >= _STALE_SECONDS:
                    return _with_head(connection)
            connection = await self._connect(route, timeouts, total_due)
            await connection.exchange(route, request, timeouts, total_due)
            return _with_head(connection)
        except (MidspanError, asyncio.CancelledError) as error:
            # Without its traceback, whose frames hold header values and proxy credentials.
            failure = error.with_traceback(None)
            self.release(connection)
        except BaseException:
            self.release(connection)
            raise
        raise failure  # outside the `except` block, which would add the original as context

    def release(self, connection: HttpProtocol | None) -> None:
        """Keep the connection if its response is complete, close it otherwise, and allow the next request."""
        if connection is not None and connection.release():
            self._idle.setdefault(connection.key, []).append(connection)
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
                connection.abort()

    async def _connect(self, route: Route, timeouts: Timeouts, total_due: float) -> HttpProtocol:
        connection = HttpProtocol(route.key, self._read_buffer, self._max_body_bytes, self._forget)
        connect_due = NEVER if timeouts.connect is None else self._loop.time() + timeouts.connect
        due = min(connect_due, total_due)
        timeout = asyncio.timeout_at(None if due == NEVER else due)
        self._connecting.add(timeout)
        try:
            async with timeout:
                await connect(route, connection, await self._tls_context(route))
        except TimeoutError:
            error: NetworkError | None = timed_out(
                "connect" if connect_due <= total_due else "total", timeouts, route.origin
            )
        else:
            error = None
            if not connection.closed.done():
                self._connections.add(connection)
        finally:
            self._connecting.discard(timeout)
        if self._is_closed:
            error = _closed_error(route.origin)
        if error is not None:
            if connection in self._connections:
                connection.abort()
            raise error
        return connection

    def _forget(self, connection: HttpProtocol) -> None:
        self._connections.discard(connection)
        idle = self._idle.get(connection.key, [])
        if connection in idle:
            idle.remove(connection)

    async def _tls_context(self, route: Route) -> ssl.SSLContext | None:
        if not route.server.tls and (route.proxy is None or not route.proxy.tls):
            return None
        if self._tls is None:
            self._tls = await asyncio.to_thread(tls_context)
        return self._tls

    def _route(self, request: HttpRequest) -> Route:
        key = (request.method, request.url)
        route = self._routes.get(key)
        if route is None:
            route = Route(request.method, request.url, self._proxies)
            if len(self._routes) >= _MAX_ROUTES:
                self._routes.clear()
            self._routes[key] = route
        route.check(request)
        return route

    def _take_idle(self, key: object) -> HttpProtocol | None:
        connections = self._idle.get(key)
        while connections:
            connection = connections.pop()
            if connection.can_be_reused():
                return connection
            connection.abort()
        return None


def _with_head(connection: HttpProtocol) -> HttpProtocol:
    if connection.error is not None and not connection.status:
        raise connection.error
    return connection


def _closed_error(origin: str) -> NetworkError:
    error = NetworkError(f"the client was closed while waiting for {origin}")
    error.retryable = False
    return error


async def connect(route: Route, protocol: HttpProtocol, tls: ssl.SSLContext | None) -> None:
    """Connect `protocol` to the server of a route, through its proxy if it has one."""
    try:
        if route.proxy is None:
            await _open(lambda: protocol, route.server, tls)
        elif route.server.tls:
            await _open_tunnel(protocol, route, tls)
        else:
            await _open(lambda: protocol, route.proxy, tls)
    except OSError as error:
        failure = _translate(error, route)
    else:
        return
    raise failure


async def _open(
    make_protocol: Callable[[], asyncio.BaseProtocol], address: Address, tls: ssl.SSLContext | None
) -> asyncio.Transport:
    loop = asyncio.get_running_loop()
    options: dict[str, Any] = {"ssl": tls} if address.tls else {}
    if not _is_ip_address(address.host) and isinstance(loop, asyncio.BaseEventLoop):  # uvloop does not support it
        options["happy_eyeballs_delay"] = _HAPPY_EYEBALLS_SECONDS
    transport, _ = await loop.create_connection(make_protocol, address.host, address.port, **options)
    return transport


def _is_ip_address(host: str) -> bool:
    return ":" in host or host.rpartition(".")[2].isdigit()


async def _open_tunnel(protocol: HttpProtocol, route: Route, tls: ssl.SSLContext | None) -> None:
    """Ask the proxy for a tunnel to the server, then start TLS inside the tunnel."""
    assert route.proxy is not None, "only a proxy opens tunnels"
    assert tls is not None, "only https goes through a tunnel"
    loop = asyncio.get_running_loop()
    tunnel = _TunnelProtocol(loop)
    try:
        transport = await _open(lambda: tunnel, route.proxy, tls)
    except OSError as error:
        raise _ProxyError from error
    try:
        transport.write(route.tunnel_head())
        _check_tunnel(await tunnel.head, route.origin)
        encrypted = await loop.start_tls(transport, protocol, tls, server_hostname=route.server.host)
    except BaseException:
        transport.abort()
        raise
    assert encrypted is not None, "the transports of create_connection support start_tls"
    protocol.connection_made(encrypted)


class _TunnelProtocol(asyncio.Protocol):
    """Receives the proxy's response to CONNECT."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.head: asyncio.Future[bytes] = loop.create_future()
        self._received = b""

    def data_received(self, data: bytes) -> None:
        self._received += data
        if (b"\r\n\r\n" in self._received or len(self._received) > _MAX_TUNNEL_HEAD) and not self.head.done():
            self.head.set_result(self._received)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - required by asyncio.Protocol
        if not self.head.done():
            self.head.set_result(self._received)


def _check_tunnel(head: bytes, origin: str) -> None:
    match = _STATUS.match(head)
    if match is None or not head.partition(b"\r\n\r\n")[1]:
        raise NetworkError(f"the proxy for {origin} did not send a valid response to CONNECT")
    status = int(match[1])
    if not 200 <= status < 300:
        error = NetworkError(f"the proxy for {origin} refused the connection with status {status}")
        error.retryable = status >= 500
        raise error
    if not head.endswith(b"\r\n\r\n"):
        raise NetworkError(f"the proxy for {origin} sent data before the TLS handshake")


class _ProxyError(OSError):
    """The proxy itself, not the server behind it, could not be reached; the reason is the cause."""


def _translate(error: OSError, route: Route) -> NetworkError:
    place, cause = f"{route.server.host}:{route.server.port}", error
    if isinstance(error, _ProxyError) or (route.proxy is not None and not route.server.tls):
        place = "the proxy set in HTTPS_PROXY, HTTP_PROXY or ALL_PROXY"
        cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
    failure = NetworkError(_describe(cause, place))
    failure.retryable = not isinstance(cause, ssl.SSLCertVerificationError)
    failure.__cause__ = cause.with_traceback(None)
    cause.__cause__, cause.__suppress_context__ = None, True
    cause.__context__ = None
    return failure


def _describe(error: OSError, place: str) -> str:
    match error:
        case socket.gaierror():
            return f"cannot resolve the name of {place}; check the URL and your network connection"
        case ssl.SSLCertVerificationError():
            return (
                f"the certificate of {place} is not trusted: {error.verify_message or 'verification failed'}; if your "
                "own certificate authority issued it, set SSL_CERT_FILE to a file with the authority's certificate"
            )
        case ssl.SSLError():
            return f"TLS handshake with {place} failed; is this an https URL?"
    hint = _HINTS.get(error.errno or 0) or error.strerror or "check the URL and whether the server is running"
    return f"cannot connect to {place}: {hint}"
