"""For our servers: checks of the Host and Origin headers, and the error if a server cannot listen on its address.

A web page can make the browser of its visitor send requests to a server on the visitor's machine: across origins, or
to its own host name, which its DNS server resolves to 127.0.0.1 (DNS rebinding). These two headers show both cases.
"""

import os
import re
import socket
from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

from midspan.errors import ConfigError

LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")
LOOPBACK_ORIGINS = tuple(
    f"{scheme}://{host}:*" for scheme in ("http", "https") for host in ("127.0.0.1", "localhost", "[::1]")
)
ANY = "*"
_PORT = re.compile(r":\d+$")


class AllowedOrigins(Struct, frozen=True):
    """The allowed values of both headers. `"*"` allows every value."""

    hosts: frozenset[str]
    """Names and addresses, with any port unless they name one."""
    origins: frozenset[str]
    """Such as `https://example.org`, or with any port `http://localhost:*`."""

    @classmethod
    def of(cls, hosts: Iterable[str], origins: Iterable[str]) -> "AllowedOrigins":
        """`hosts` may have IPv6 addresses with or without brackets."""
        bracketed = (f"[{host}]" if host.count(":") > 1 and not host.startswith("[") else host for host in hosts)
        return cls(
            frozenset(host.lower() for host in bracketed), frozenset(origin.lower().rstrip("/") for origin in origins)
        )

    def refused_header(self, host: str, origin: str | None) -> Literal["host", "origin"] | None:
        """Return which header of a request is not allowed. Pages of the server itself are always allowed."""
        host = host.lower()
        if not self.hosts & {ANY, host, _PORT.sub("", host)}:
            return "host"
        if origin is None or origin.lower().partition("://")[2] == host:
            return None
        origin = origin.lower()
        return None if self.origins & {ANY, origin, f"{_PORT.sub('', origin)}:*"} else "origin"


def listen_error(host: str, port: int, error: Exception) -> ConfigError:
    """Return the error for an address that a server cannot listen on."""
    if isinstance(error, socket.gaierror):
        return ConfigError(f"cannot resolve {host!r}")
    errno = error.errno if isinstance(error, OSError) else None
    # The texts of asyncio and `socket.create_server` repeat the address.
    return ConfigError(f"cannot listen on {host}:{port}: {os.strerror(errno).lower() if errno else error}")
