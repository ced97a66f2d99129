"""The connection pool of one event loop.

A connection is connecting, busy with one response, idle, or closed. Idle connections are kept per server and proxy and
reused most recent first. Importing this module loads httptools and ssl, so the first request imports it.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

from midspan._http.connection import connect
from midspan._http.deadlines import DeadlineTimer, RequestDeadline
from midspan._http.environment import Proxies, tls_context
from midspan._http.messages import HttpRequest
from midspan._http.protocol import HttpProtocol, Response
from midspan._http.routes import Route

_IDLE_SECONDS = 75.0
"""A tool may well run for a minute between two turns."""
_STALE_SECONDS = 1.0
"""A reused connection that is closed later than this after a request was sent was not stale: the server was at work."""
_MAX_ROUTES = 256


class Pool:
    """The connections of the running event loop."""

    def __init__(self, max_connections: int | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self.timer = DeadlineTimer(self._loop)
        self._slots = asyncio.Semaphore(max_connections) if max_connections else None
        self._proxies = Proxies()
        self._routes: dict[tuple[str, str], Route] = {}
        self._connections: set[HttpProtocol] = set()
        self._idle: dict[object, list[HttpProtocol]] = {}
        self._idle_timer: asyncio.TimerHandle | None = None
        self._read_buffers: list[memoryview] = []
        self._tls: ssl.SSLContext | None = None
        self._is_closed = False

    def open(self, request: HttpRequest, deadline: RequestDeadline) -> Awaitable[Response]:
        """Send a request and wait for the head of the response, which must be passed to `release`."""
        return self._open(request, deadline) if self._slots is None else self._open_in_slot(request, deadline)

    async def _open_in_slot(self, request: HttpRequest, deadline: RequestDeadline) -> Response:
        assert self._slots is not None, "there is a limit"
        await self._slots.acquire()
        try:
            return await self._open(request, deadline)
        except BaseException:
            self._slots.release()
            raise

    def release(self, response: Response) -> None:
        """Close the response if it is incomplete, and allow the next request."""
        response.close()
        if self._slots is not None:
            self._slots.release()

    async def close(self) -> None:
        """Fail all pending requests, close all connections and wait until they are closed."""
        self._is_closed = True
        self.timer.close()
        self._stop_timers()
        closing = [connection.closed for connection in self._connections]
        self._abort_all()
        if closing:
            await asyncio.wait(closing)

    def drop(self) -> None:
        """Close all connections without waiting, for an event loop that may never run again."""
        self._is_closed = True
        self._stop_timers()
        if self._loop.is_closed():
            _run_on_closed_loop(self._loop, self._abort_all)
        else:
            self._abort_all()
        self._connections.clear()

    async def _open(self, request: HttpRequest, deadline: RequestDeadline) -> Response:
        route = self._route(request)
        deadline.start()
        if self._is_closed:  # while the request waited for a slot
            deadline.close()
            assert deadline.error is not None, "closing a deadline sets its error"
            raise deadline.error
        connection = self._take_idle(route.key)
        if connection is not None:
            sent_at = self._loop.time()
            response = await self._exchange(connection, route, request, deadline)
            if response.error is None:
                return response
            was_stale = not response.has_started and self._loop.time() - sent_at < _STALE_SECONDS
            if deadline.error is not None or not was_stale:
                return _with_head(response)
        connection = await self._connect(route, deadline)
        return _with_head(await self._exchange(connection, route, request, deadline))

    async def _exchange(
        self, connection: HttpProtocol, route: Route, request: HttpRequest, deadline: RequestDeadline
    ) -> Response:
        """Send the request and wait until the response has a head or an error."""
        response = Response(self._loop, route.origin, head_only=route.is_head)
        deadline.on_expired = response.fail
        deadline.enter("first_byte")
        connection.send(route.head(request), request.body, response)
        try:
            while not response.status and response.error is None:
                await response.wait()
        except BaseException:
            response.close()
            raise
        deadline.pause()
        return response

    async def _connect(self, route: Route, deadline: RequestDeadline) -> HttpProtocol:
        task = asyncio.current_task()
        assert task is not None, "requests are sent by tasks"
        cancelling = task.cancelling()
        deadline.on_expired = lambda _: task.cancel()
        deadline.enter("connect")
        connection = HttpProtocol(route.key, self._read_buffers, on_idle=self._keep_idle, on_lost=self._forget)
        try:
            await connect(route, connection, await self._tls_context(route))
        except asyncio.CancelledError:
            if deadline.error is None or task.uncancel() > cancelling:
                raise
            failure = deadline.error
        else:
            if not connection.closed.done():
                self._connections.add(connection)
            return connection
        raise failure

    async def _tls_context(self, route: Route) -> ssl.SSLContext | None:
        if not route.server.tls and (route.proxy is None or not route.proxy.address.tls):
            return None
        if self._tls is None:
            self._tls = await asyncio.to_thread(tls_context)
        return self._tls

    def _route(self, request: HttpRequest) -> Route:
        key = (request.method, request.url)
        route = self._routes.get(key)
        if route is None:
            route = Route(request.method, request.url, self._proxies.proxy_for(request.url))
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

    def _keep_idle(self, connection: HttpProtocol) -> None:
        connection.idle_since = self._loop.time()
        self._idle.setdefault(connection.key, []).append(connection)
        if self._idle_timer is None:
            self._idle_timer = self._loop.call_later(_IDLE_SECONDS, self._close_idle)

    def _close_idle(self) -> None:
        """Close the connections that have been idle for too long."""
        self._idle_timer = None
        now = self._loop.time()
        for key, connections in tuple(self._idle.items()):
            while connections and (connections[0].idle_since <= now - _IDLE_SECONDS):
                connections.pop(0).abort()
            if not connections:
                del self._idle[key]
        if self._idle:
            oldest = min(connections[0].idle_since for connections in self._idle.values())
            self._idle_timer = self._loop.call_at(oldest + _IDLE_SECONDS, self._close_idle)

    def _forget(self, connection: HttpProtocol) -> None:
        self._connections.discard(connection)

    def _stop_timers(self) -> None:
        self.timer.stop()
        if self._idle_timer is not None:
            self._idle_timer.cancel()

    def _abort_all(self) -> None:
        for connection in tuple(self._connections):
            connection.abort()


def _with_head(response: Response) -> Response:
    if response.error is not None and not response.status:
        raise response.error
    return response


def _run_on_closed_loop(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    """Run a function whose `loop.call_soon` callbacks would be refused because the loop is closed.

    Closing a transport schedules the step that closes its socket, so that step has to be taken here. What the step
    schedules in turn concerns tasks that will never run.
    """
    callbacks: list[tuple[Callable[..., object], tuple[Any, ...]]] = []

    def call_soon(callback: Callable[..., object], *arguments: Any, context: object = None) -> None:  # noqa: ARG001 - the loop's signature
        callbacks.append((callback, arguments))

    try:
        loop.call_soon = call_soon  # type: ignore[method-assign, assignment]
    except AttributeError:  # uvloop closes its sockets itself
        return
    function()
    for callback, arguments in tuple(callbacks):
        callback(*arguments)
