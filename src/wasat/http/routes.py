"""The way to each address, in the terms of aiohttp, found once."""

import asyncio
from typing import NamedTuple

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from wasat.http.environment import Proxies
from wasat.http.messages import HttpRequest

_MOST_KEPT = 256


class Route(NamedTuple):
    """The way to an address."""

    way: aiohttp.ClientRequest
    """What the connector wants to know of a request, and the headers that HTTP itself needs."""
    line: str
    """The first line of a request that goes there."""

    def head(self, request: HttpRequest) -> "CIMultiDict[str]":
        """The headers of a request that goes there."""
        head = CIMultiDict(self.way.headers)
        head.update(request.headers)
        if request.body:
            head["Content-Length"] = str(len(request.body))
        return head

    # The line may hold a key, and a route stands among the locals of whoever waits.
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


def _url(address: str) -> URL:
    try:
        return URL(address)
    except ValueError:
        raise aiohttp.InvalidURL(address) from None
