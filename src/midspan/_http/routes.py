"""Where a request goes, and the bytes of its head; proxies and certificates that environment variables name.

A Route belongs to one method and URL. Requests to the same URL usually carry the same headers, so the encoded request
line and headers are kept; only Content-Length differs.
"""

import os
import re
import ssl
from base64 import b64encode
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import SplitResult, quote, unquote, urlsplit

from midspan._http.messages import DEFAULT_PORTS, LENGTH_HEADERS, HttpRequest, host_and_port
from midspan._version import VERSION
from midspan.errors import ConfigError

_CONTROL_CHARACTER = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_URL_CHARACTERS = "!$%&'()*+,/:;=?@[]~"
"""Characters that stay as they are in a request target; `%` because the URL may be quoted already."""


class Address(NamedTuple):
    """The host and port of a server or proxy, and whether TLS is used."""

    host: str
    port: int
    tls: bool


class Route:
    """The server, the proxy and the request head for one method and URL."""

    def __init__(self, method: str, url: str) -> None:
        parts, self.server = _parse(url)
        proxy = proxy_for(url)
        self.origin = host_and_port(url)
        self.key = (self.server, proxy)
        """Connections with the same key are interchangeable."""
        self._always_has_length = method in ("POST", "PUT", "PATCH")
        host = f"[{self.server.host}]" if ":" in self.server.host else self.server.host
        self._host_and_port = f"{host}:{self.server.port}"
        netloc = host if self.server.port == DEFAULT_PORTS[parts.scheme] else self._host_and_port
        target = quote(parts.path or "/", safe=_URL_CHARACTERS)
        if parts.query:
            target += "?" + quote(parts.query, safe=_URL_CHARACTERS)
        self._defaults = {"Host": netloc, "Accept-Encoding": "gzip, deflate", "User-Agent": f"midspan/{VERSION}"}
        self._defaults |= _credentials("Authorization", parts)
        self.proxy: Address | None = None
        self._proxy_credentials: dict[str, str] = {}
        if proxy is not None:
            proxy_parts, self.proxy = _parse(proxy)
            self._proxy_credentials = _credentials("Proxy-Authorization", proxy_parts)
            if not self.server.tls:
                target = f"{parts.scheme}://{netloc}{target}"
                self._defaults |= self._proxy_credentials
        self._line = f"{method} {target} HTTP/1.1\r\n"
        self._headers: dict[str, str] | None = None
        self._encoded = b""

    def encode(self, request: HttpRequest) -> bytes:
        """Return the bytes of a request. Raises ConfigError if its headers cannot be sent."""
        body = request.body
        if request.headers != self._headers:
            self._encoded = self._encode(request.headers)
            self._headers = dict(request.headers)
        if body or self._always_has_length:
            return b"".join((self._encoded, b"Content-Length: ", str(len(body)).encode(), b"\r\n\r\n", body))
        return self._encoded + b"\r\n"

    def tunnel_request(self) -> bytes:
        """Return the CONNECT request that asks the proxy for a tunnel to the server."""
        headers = {"Host": self._host_and_port, **self._proxy_credentials}
        lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
        return f"CONNECT {self._host_and_port} HTTP/1.1\r\n{''.join(lines)}\r\n".encode()

    def _encode(self, headers: Mapping[str, str]) -> bytes:
        headers = {name: value for name, value in headers.items() if name.lower() not in LENGTH_HEADERS}
        names = {name.lower() for name in headers}
        defaults = {name: value for name, value in self._defaults.items() if name.lower() not in names}
        lines = [f"{name}: {value}" for name, value in {**headers, **defaults}.items()]
        try:
            encoded = "".join([self._line, *(f"{line}\r\n" for line in lines)]).encode()
        except UnicodeEncodeError:
            raise ConfigError("a request header contains an unpaired surrogate") from None
        if any(map(_CONTROL_CHARACTER.search, lines)):
            raise ConfigError("a request header contains a control character")
        return encoded


def _parse(url: str) -> tuple[SplitResult, Address]:
    try:
        parts = urlsplit(url)
        default_port = DEFAULT_PORTS[parts.scheme]
        port = parts.port or default_port
        host = (parts.hostname or "").encode("idna").decode()  # also checks the length of each label
        quote(parts.path + parts.query)  # fails on unpaired surrogates
    except (KeyError, ValueError):
        host = ""
    if not host or _CONTROL_CHARACTER.search(host) or " " in host:
        raise ConfigError(f"cannot send a request to {host_and_port(url)}: not a valid http or https URL")
    return parts, Address(host, port, parts.scheme == "https")


def _credentials(header: str, parts: SplitResult) -> dict[str, str]:
    if parts.username is None:
        return {}
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {header: "Basic " + b64encode(pair.encode()).decode()}


def proxy_for(url: str) -> str | None:
    """Return the proxy for a URL from HTTPS_PROXY, HTTP_PROXY or ALL_PROXY; None if there is none, or NO_PROXY has it.

    The names of the variables in lower case take precedence.
    """
    if not any(value and name.lower().endswith("_proxy") for name, value in os.environ.items()):
        return None
    from urllib.request import getproxies, proxy_bypass  # slow to import, and few programs use a proxy

    parts, proxies = urlsplit(url), getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    names = (parts.hostname or "", parts.netloc.rpartition("@")[2])
    if not proxy or any(proxy_bypass(name) for name in names):
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    scheme = urlsplit(proxy).scheme
    if scheme not in DEFAULT_PORTS:
        raise ConfigError(f"unsupported proxy scheme {scheme!r} for {parts.scheme}; use http or https")
    return proxy


def tls_context() -> ssl.SSLContext:
    """Return the TLS settings, which trust SSL_CERT_FILE and SSL_CERT_DIR or the certificates of the system."""
    file, folder = os.environ.get("SSL_CERT_FILE") or None, os.environ.get("SSL_CERT_DIR") or None
    try:
        return _load_context(file, folder)
    except OSError as error:  # ssl.SSLError is an OSError
        raise ConfigError(f"cannot read certificates from SSL_CERT_FILE {file!r}") from error


@lru_cache(maxsize=4)
def _load_context(file: str | None, folder: str | None) -> ssl.SSLContext:
    """Cached, because reading a certificate bundle takes 10 ms."""
    context = ssl.create_default_context(cafile=file, capath=folder)
    context.set_alpn_protocols(["http/1.1"])
    return context
