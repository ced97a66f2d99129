"""The way to each address, in the terms of aiohttp, found once."""

import asyncio
from collections.abc import Mapping

import aiohttp
from aiohttp.http_writer import _serialize_headers
from multidict import CIMultiDict
from yarl import URL

from midspan.http.environment import Proxies
from midspan.http.messages import HttpRequest

_MOST_KEPT = 256


class Route:
    """The way to an address. Mostly one set of headers goes that way over and over, so the head is written once."""

    __slots__ = ("_counts", "_headers", "_line", "_written", "way")

    def __init__(self, way: aiohttp.ClientRequest, line: str) -> None:
        self.way = way
        """What the connector wants to know of a request, and the headers that HTTP itself needs."""
        self._line = line
        """The first line of a request that goes there."""
        self._headers: dict[str, str] | None = None
        self._written = b""
        """Line and headers as they were sent last, but for the length of the body."""
        self._counts = "Content-Length" in way.headers
        """The length is told even where there is no body."""

    def head(self, request: HttpRequest) -> bytes:
        """All that is sent before the body."""
        if request.headers != self._headers:
            self._written = _serialize_headers(self._line, _joined(self.way.headers, request.headers))[:-2]
            self._headers = dict(request.headers)
        if request.body or self._counts:
            return b"%bContent-Length: %d\r\n\r\n" % (self._written, len(request.body))
        return self._written + b"\r\n"

    # The line and the headers may hold a key, and a route stands among the locals of whoever waits.
    def __repr__(self) -> str:
        return f"<route to {self.way.host}>"


class Routes:
    """The ways from one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._proxies = Proxies()
        self._known: dict[tuple[str, str], Route] = {}

    def to(self, request: HttpRequest) -> Route:
        """The way that a request takes."""
        route = self._known.get((request.method, request.url))
        if route is None:
            if len(self._known) >= _MOST_KEPT:
                self._known.clear()
            route = self._known[request.method, request.url] = self._find(request)
        return route

    def apart(self, request: HttpRequest) -> Route:
        """The same way, on a connection that nobody had before.

        To name the host for TLS changes nothing but the key under which connections are kept, and under this one none
        is kept.
        """
        return self._find(request, server_hostname=_url(request.url).raw_host)

    def _find(self, request: HttpRequest, *, server_hostname: str | None = None) -> Route:
        url = _url(request.url)
        if url.scheme not in ("http", "https"):
            raise aiohttp.NonHttpUrlClientError(url)
        proxy = self._proxies.proxy_for(request.url)
        way = aiohttp.ClientRequest(
            request.method,
            url,
            loop=self._loop,
            proxy=_url(proxy) if proxy else None,
            server_hostname=server_hostname,
        )
        target = str(url.with_user(None)) if proxy and url.scheme == "http" else url.raw_path_qs
        return Route(way, f"{way.method} {target} HTTP/1.1")


def _joined(needed: Mapping[str, str], wanted: Mapping[str, str]) -> "CIMultiDict[str]":
    headers = CIMultiDict(needed)
    headers.update(wanted)
    for name in ("Content-Length", "Transfer-Encoding"):  # how long a body is, is ours to say
        headers.popall(name, None)
    return headers


def _url(address: str) -> URL:
    try:
        return URL(address)
    except ValueError:
        raise aiohttp.InvalidURL(address) from None
