"""Where a request goes, and the bytes of its head.

A Route belongs to one method and URL. Requests to the same URL usually carry the same headers, so the encoded request
line and headers are kept as a template; only Content-Length differs.
"""

import re
from base64 import b64encode
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import SplitResult, quote, unquote, urlsplit

from midspan._http.messages import DEFAULT_PORTS, HttpRequest, origin_of
from midspan._version import VERSION
from midspan.errors import ConfigError

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_CONTROL_CHARACTER = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_URL_CHARACTERS = "!$%&'()*+,/:;=?@[]~"
"""Characters that stay as they are in a request target; `%` because the URL may be quoted already."""
_FRAMING_HEADERS = ("content-length", "transfer-encoding")
"""Headers that describe the length of the body, which only the transport knows."""
_METHODS_WITH_BODY = ("POST", "PUT", "PATCH")


class Address(NamedTuple):
    """The host and port of a server or proxy, and whether TLS is used."""

    host: str
    port: int
    tls: bool


class Route:
    """The server, the proxy and the request head for one method and URL."""

    __slots__ = (
        "_always_length",
        "_defaults",
        "_headers",
        "_line",
        "_template",
        "is_head",
        "key",
        "origin",
        "proxy",
        "server",
    )

    def __init__(self, method: str, url: str, proxy: str | None) -> None:
        if not isinstance(method, str) or not _TOKEN.fullmatch(method):
            raise ConfigError(f"{method!r} is not a valid HTTP method")
        parts, self.server = _parse(url)
        self.origin = origin_of(url)
        self.proxy = None if proxy is None else Proxy(proxy)
        self.key = (self.server, proxy)
        """Connections with the same key are interchangeable."""
        target = quote(parts.path or "/", safe=_URL_CHARACTERS)
        if parts.query:
            target += "?" + quote(parts.query, safe=_URL_CHARACTERS)
        self._defaults = {"Host": _netloc(self.server, parts.scheme), "Accept": "*/*"}
        self._defaults |= {"Accept-Encoding": "gzip, deflate", "User-Agent": f"midspan/{VERSION}"}
        if credentials := _basic_credentials(parts):
            self._defaults["Authorization"] = credentials
        if self.proxy is not None and not self.server.tls:
            target = f"{parts.scheme}://{self._defaults['Host']}{target}"
            if self.proxy.credentials:
                self._defaults["Proxy-Authorization"] = self.proxy.credentials
        self._line = f"{method.upper()} {target} HTTP/1.1\r\n"
        self.is_head = method.upper() == "HEAD"
        self._always_length = method.upper() in _METHODS_WITH_BODY
        self._headers: dict[str, str] | None = None
        self._template = b""

    def check(self, request: HttpRequest) -> None:
        """Raise a ConfigError if the headers or the body cannot be sent."""
        if not isinstance(request.body, bytes):
            raise ConfigError("the request body has the wrong type; it must be bytes")
        if request.headers != self._headers:
            self._template = self._encode(request.headers)
            self._headers = dict(request.headers)

    def head(self, request: HttpRequest) -> bytes:
        """Encode everything that is sent before the body of a request that was checked."""
        if request.body or self._always_length:
            return b"%bContent-Length: %d\r\n\r\n" % (self._template, len(request.body))
        return self._template + b"\r\n"

    def tunnel_head(self) -> bytes:
        """Encode the CONNECT request that asks the proxy for a tunnel to the server."""
        assert self.proxy is not None, "only a proxy opens tunnels"
        host = f"{_bracketed(self.server.host)}:{self.server.port}"
        lines = [f"CONNECT {host} HTTP/1.1", f"Host: {host}"]
        if self.proxy.credentials:
            lines.append(f"Proxy-Authorization: {self.proxy.credentials}")
        return "\r\n".join([*lines, "", ""]).encode()

    def _encode(self, headers: Mapping[str, str]) -> bytes:
        lines = [self._line]
        names = set()
        for name, value in headers.items():
            if not isinstance(name, str) or not isinstance(value, str):
                raise ConfigError("a request header has the wrong type; names and values must be str")
            if not _TOKEN.fullmatch(name) or _CONTROL_CHARACTER.search(value):
                raise ConfigError("a request header has an invalid name or contains a control character")
            names.add(name.lower())
            if name.lower() not in _FRAMING_HEADERS:
                lines.append(f"{name}: {value}\r\n")
        lines += [f"{name}: {value}\r\n" for name, value in self._defaults.items() if name.lower() not in names]
        try:
            return "".join(lines).encode()
        except UnicodeEncodeError:
            raise ConfigError("a request header contains an unpaired surrogate") from None


class Proxy:
    """A proxy's address and the value of its Proxy-Authorization header."""

    __slots__ = ("address", "credentials")

    def __init__(self, url: str) -> None:
        parts, self.address = _parse(url)
        self.credentials = _basic_credentials(parts)


def _parse(url: str) -> tuple[SplitResult, Address]:
    try:
        parts = urlsplit(url)
        port = parts.port or DEFAULT_PORTS[parts.scheme]
        host = (parts.hostname or "").encode("idna").decode()  # also checks the length of each label
        quote(parts.path + parts.query)  # fails on unpaired surrogates
    except (AttributeError, KeyError, TypeError, ValueError):
        host = ""
    if not host or _CONTROL_CHARACTER.search(host) or " " in host:
        raise ConfigError(f"cannot send a request to {origin_of(url)}: not a valid http or https URL")
    return parts, Address(host, port, parts.scheme == "https")


def _basic_credentials(parts: SplitResult) -> str | None:
    if parts.username is None and parts.password is None:
        return None
    pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    return "Basic " + b64encode(pair.encode()).decode()


def _netloc(address: Address, scheme: str) -> str:
    host = _bracketed(address.host)
    return host if address.port == DEFAULT_PORTS[scheme] else f"{host}:{address.port}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
