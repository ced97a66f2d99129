"""The connections of one event loop: aiohttp, arranged for calls to models.

Importing this loads aiohttp and ssl, so nobody imports it before the first request.
"""

import asyncio
import io
import socket
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, cast
from urllib.parse import urlsplit
from weakref import WeakSet

import aiohttp
from aiohttp.client_proto import ResponseHandler

from wasat.http.environment import Proxies, trusted_certificates
from wasat.http.messages import HttpRequest
from wasat.http.response import Response, StaleConnection
from wasat.http.watch import Wait, Watch

_IDLE_SECONDS = 75.0
"""How long a connection is kept for the next request; a tool may well run for a minute between two turns."""
_LONGEST_HEAD_LINE = 2**16
_LONGEST_PLAIN_BODY = 2**20
_PROBES = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}


class Pool:
    """The connections of the running loop."""

    def __init__(self, connections: int | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self.watch = Watch(self._loop)
        self._opening: dict[asyncio.Task[Any] | None, Wait] = {}
        self._resending: set[asyncio.Task[Any] | None] = set()
        self._protocols: WeakSet[ResponseHandler] = WeakSet()
        self._proxies = Proxies()
        self._slots = asyncio.Semaphore(connections) if connections else None
        self._connector = aiohttp.TCPConnector(
            limit=0,
            ssl=trusted_certificates() or True,
            keepalive_timeout=_IDLE_SECONDS,
            resolver=aiohttp.ThreadedResolver(),
            socket_factory=_probing_socket,
        )
        self._session = aiohttp.ClientSession(
            connector=self._connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            response_class=self._response_class(),
            timeout=aiohttp.ClientTimeout(),  # none: a Wait is cheaper
            max_line_size=_LONGEST_HEAD_LINE,
            max_field_size=_LONGEST_HEAD_LINE,
        )

    async def open(self, request: HttpRequest, wait: Wait) -> Response:
        """Send the request and wait for the head of the response, which is to be given back to `done`."""
        if self._slots is None:
            return await self._open(request, wait)
        await self._slots.acquire()
        try:
            return await self._open(request, wait)
        except BaseException:
            self._slots.release()
            raise

    def done(self, response: Response) -> None:
        """Close what is still open of a response, and let the next one have its place."""
        response.done()
        if self._slots is not None:
            self._slots.release()

    async def close(self) -> None:
        """Close all connections and wait until they are closed."""
        self.watch.stop()
        await self._session.close()

    def drop(self) -> None:
        """Close all connections without waiting, for a loop that may never run again."""
        self.watch.stop()
        transports = [protocol.transport for protocol in self._protocols if protocol.transport is not None]
        if self._loop.is_closed():
            _abort_on_closed_loop(self._loop, transports)
        else:
            _abort(transports)
        self._session.detach()
        self._connector.__exit__()

    def _response_class(self) -> type[Response]:
        collections = {"protocols": self._protocols, "opening": self._opening, "resending": self._resending}
        return type("Response", (Response,), collections)

    async def _open(self, request: HttpRequest, wait: Wait) -> Response:
        wait.start()
        task = asyncio.current_task()
        self._opening[task] = wait
        try:
            return await self._ask(request, wait)
        except StaleConnection:
            # The server closed an idle connection just when we wrote to it. aiohttp tries again by itself for methods
            # that are idempotent, but not for POST. To name the host for TLS changes nothing but the key under which
            # connections are kept; nothing is kept under this one, so the connection is new.
            self._resending.add(task)
            return await self._ask(request, wait, server_hostname=urlsplit(request.url).hostname)
        finally:
            del self._opening[task]
            self._resending.discard(task)

    def _ask(self, request: HttpRequest, wait: Wait, **more: Any) -> Awaitable[Response]:
        wait.begin("connect")
        answer = self._session.request(
            request.method,
            request.url,
            headers=request.headers,
            data=_payload(request.body),
            allow_redirects=False,
            proxy=self._proxies.proxy_for(request.url),
            **more,
        )
        return cast("Awaitable[Response]", answer)


def _payload(body: bytes) -> bytes | io.BytesIO | None:
    # aiohttp warns of plain bytes beyond a megabyte, because they are written in one go.
    return io.BytesIO(body) if len(body) > _LONGEST_PLAIN_BODY else body or None


def _probing_socket(address: tuple[Any, ...]) -> socket.socket:
    """A socket whose idle connection is probed: a dead peer is noticed in 90 s, and gateways do not forget a live one.

    A model may think for minutes without a byte, and gateways forget silent connections sooner than that.
    """
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _PROBES.items():
        if (option := getattr(socket, name, None)) is not None:  # not every system has all of them
            made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made


def _abort(transports: Iterable[asyncio.Transport]) -> None:
    for transport in transports:
        transport.abort()


def _abort_on_closed_loop(loop: asyncio.AbstractEventLoop, transports: Iterable[asyncio.Transport]) -> None:
    """Close sockets whose loop was closed before them.

    To close a transport is to have its loop close the socket in the next round, and a closed loop refuses that. So the
    step that it would schedule is taken here. What that step schedules in turn is for tasks that will never run.
    """
    steps: list[tuple[Callable[..., object], tuple[Any, ...]]] = []

    def note(callback: Callable[..., object], *arguments: Any, context: object = None) -> None:  # noqa: ARG001 - as the loop's own
        steps.append((callback, arguments))

    try:
        loop.call_soon = note  # type: ignore[method-assign, assignment]
    except AttributeError:  # a loop in C closes its sockets itself
        return
    _abort(transports)
    for callback, arguments in tuple(steps):
        callback(*arguments)
