"""The connection pool of one event loop, and the deadlines of its requests.

A connection is connecting, busy with one response, idle, or closed. Idle connections are kept per server and proxy and
reused most recent first. Importing this module loads httptools and ssl, so the first request imports it.

Creating and cancelling a TimerHandle per chunk costs more than reading the chunk. A RequestDeadline only records when
it is due. DeadlineTimer keeps a single handle for the earliest deadline and reschedules when the handle fires.
"""

import asyncio
import os
import ssl
from collections.abc import AsyncGenerator, Callable
from typing import Any, Literal

from midspan._http.connection import connect
from midspan._http.messages import HttpRequest, Timeouts
from midspan._http.protocol import HttpProtocol, Response
from midspan._http.routes import Proxies, Route, tls_context
from midspan.errors import NetworkError, TimedOut

_IDLE_SECONDS = 75.0
"""A tool may well run for a minute between two turns."""
_IDLE_CHECK_SECONDS = 15.0
_STALE_SECONDS = 1.0
"""A reused connection that is closed later than this after a request was sent was not stale: the server was at work."""
_MAX_ROUTES = 256
_NEVER = float("inf")

Stage = Literal["connect", "first_byte", "between_bytes", "total"]
_EXPIRED: dict[Stage, str] = {
    "connect": "no connection to",
    "first_byte": "no response from",
    "between_bytes": "no further data from",
    "total": "the request was not finished by",
}


class Pool:
    """The connections of the running event loop."""

    guard: AsyncGenerator[None, None]
    """Closes the pool when the event loop shuts down its asynchronous generators."""

    def __init__(self, max_connections: int | None = None) -> None:
        self.process = os.getpid()
        self._loop = asyncio.get_running_loop()
        self._timer = DeadlineTimer(self._loop)
        self._slots = asyncio.Semaphore(max_connections) if max_connections else None
        self._proxies = Proxies()
        self._routes: dict[tuple[str, str], Route] = {}
        self._connections: set[HttpProtocol] = set()
        self._idle: dict[object, list[HttpProtocol]] = {}
        self._idle_timer: asyncio.TimerHandle | None = None
        self._read_buffers: list[memoryview] = []
        self._tls: ssl.SSLContext | None = None
        self._is_closed = False

    async def open(self, request: HttpRequest, timeouts: Timeouts) -> "tuple[Response, RequestDeadline]":
        """Send a request and wait for the head of the response, which must be passed to `release`."""
        if self._slots is not None:
            await self._slots.acquire()
        deadline = None
        try:
            route = self._route(request)
            deadline = RequestDeadline(self._timer, timeouts, route.origin)
            if self._is_closed:  # while the request waited for a slot
                raise deadline.close()
            return await self._open(request, route, deadline), deadline
        except BaseException:
            self.release(None, deadline)
            raise

    def release(self, response: Response | None, deadline: "RequestDeadline | None") -> None:
        """Close the response if it is incomplete, and allow the next request."""
        if response is not None:
            response.close()
        if deadline is not None:
            deadline.stop()
        if self._slots is not None:
            self._slots.release()

    async def close(self) -> None:
        """Fail all pending requests, close all connections and wait until they are closed."""
        self._is_closed = True
        self._timer.close()
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

    async def _open(self, request: HttpRequest, route: Route, deadline: "RequestDeadline") -> Response:
        connection = self._take_idle(route.key)
        if connection is not None:
            sent_at = self._loop.time()
            response = await self._exchange(connection, route, request, deadline)
            is_stale = not response.has_started and self._loop.time() - sent_at < _STALE_SECONDS
            if response.error is None or deadline.error is not None or not is_stale:
                return _with_head(response)
        connection = await self._connect(route, deadline)
        return _with_head(await self._exchange(connection, route, request, deadline))

    async def _exchange(
        self, connection: HttpProtocol, route: Route, request: HttpRequest, deadline: "RequestDeadline"
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

    async def _connect(self, route: Route, deadline: "RequestDeadline") -> HttpProtocol:
        connection = HttpProtocol(
            route.key, self._read_buffers, on_idle=self._keep_idle, on_lost=self._connections.discard
        )
        try:
            async with asyncio.timeout(None) as timeout:
                deadline.on_expired = lambda _: timeout.reschedule(0)
                deadline.enter("connect")
                await connect(route, connection, await self._tls_context(route))
        except TimeoutError:
            assert deadline.error is not None, "only the deadline ends the block"
        else:
            if not connection.closed.done():
                self._connections.add(connection)
            return connection
        raise deadline.error

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

    def _keep_idle(self, connection: HttpProtocol) -> None:
        connection.idle_since = self._loop.time()
        self._idle.setdefault(connection.key, []).append(connection)
        if self._idle_timer is None:
            self._idle_timer = self._loop.call_later(_IDLE_CHECK_SECONDS, self._close_idle)

    def _close_idle(self) -> None:
        """Close the connections that have been idle for too long."""
        idle = [connection for connections in self._idle.values() for connection in connections]
        self._idle.clear()
        for connection in idle:
            if connection.idle_since <= self._loop.time() - _IDLE_SECONDS:
                connection.abort()
            else:
                self._idle.setdefault(connection.key, []).append(connection)
        self._idle_timer = self._loop.call_later(_IDLE_CHECK_SECONDS, self._close_idle) if self._idle else None

    def _stop_timers(self) -> None:
        self._timer.stop()
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


class DeadlineTimer:
    """Fires the deadlines of all requests on one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.deadlines: set[RequestDeadline] = set()
        self.next_due = _NEVER
        self._handle: asyncio.TimerHandle | None = None

    def schedule(self, due: float) -> None:
        """Make sure the timer fires no later than `due`."""
        if due < self.next_due:
            self.stop()
            self.next_due = due
            self._handle = self.loop.call_at(due, self._fire)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self.next_due = _NEVER

    def close(self) -> None:
        """Fail all pending requests because their transport is being closed."""
        for deadline in tuple(self.deadlines):
            deadline.close()

    def _fire(self) -> None:
        # If the loop was blocked, the awaited bytes may have arrived meanwhile. Let their callbacks run first.
        self.loop.call_soon(self._expire, self.loop.time())

    def _expire(self, now: float) -> None:
        self.next_due = _NEVER
        for deadline in tuple(self.deadlines):
            if deadline.due <= now:
                deadline.expire()
        self.schedule(min((deadline.due for deadline in self.deadlines), default=_NEVER))


class RequestDeadline:
    """The deadline of one request, which moves from stage to stage.

    When it expires, it sets `error` and calls `on_expired`, which must end the pending wait.
    """

    def __init__(self, timer: DeadlineTimer, timeouts: Timeouts, origin: str) -> None:
        self.error: NetworkError | None = None
        self.on_expired: Callable[[NetworkError], object] = lambda _: None
        self._timer = timer
        self._timeouts = timeouts
        self._origin = origin
        self._stage: Stage = "total"
        self._total_due = _NEVER if timeouts.total is None else timer.loop.time() + timeouts.total
        self.due = self._total_due
        timer.deadlines.add(self)

    def enter(self, stage: Stage) -> None:
        """Start the timeout of a stage."""
        seconds: float | None = getattr(self._timeouts, stage)
        due = _NEVER if seconds is None else self._timer.loop.time() + seconds
        self._stage, self.due = ("total", self._total_due) if self._total_due < due else (stage, due)
        self._timer.schedule(self.due)

    def pause(self) -> None:
        """Stop the clock until the next stage, because the caller does not wait for the network. The total goes on."""
        self._stage, self.due = "total", self._total_due

    def stop(self) -> None:
        """End the request: the deadline cannot expire any more."""
        self._timer.deadlines.discard(self)

    def expire(self) -> None:
        seconds = getattr(self._timeouts, self._stage)
        self._fail(TimedOut(f"{_EXPIRED[self._stage]} {self._origin} within {seconds:g} s (timeout {self._stage!r})"))

    def close(self) -> NetworkError:
        """Fail the request because its transport is closed."""
        error = NetworkError(f"the client was closed while waiting for {self._origin}")
        error.retryable = False
        self._fail(error)
        return error

    def _fail(self, error: NetworkError) -> None:
        self.due = self._total_due = _NEVER
        if self.error is None:
            self.error = error
            self.on_expired(error)
