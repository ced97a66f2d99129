"""The connection pool of one event loop.

A connection is connecting, busy with one response, idle, or closed. Idle connections are kept per server and proxy and
reused most recent first. Importing this module loads httptools and ssl, so the first request imports it.
"""

import asyncio
import os
import ssl
from collections.abc import AsyncGenerator

from midspan._http.connection import connect
from midspan._http.messages import HttpRequest, Timeouts
from midspan._http.protocol import NEVER, READ_BUFFER_BYTES, HttpProtocol, timed_out
from midspan._http.routes import Proxies, Route, tls_context
from midspan.errors import MidspanError, NetworkError

_STALE_SECONDS = 1.0
"""A reused connection that is closed later than this after a request was sent was not stale: the server was at work."""
_MAX_ROUTES = 256


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
            if self._is_closed:
                connection.abort()
            else:
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
