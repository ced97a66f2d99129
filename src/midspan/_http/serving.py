"""For our servers: the socket on which one listens, and checks of the Host and Origin headers.

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


def listen(host: str, port: int, *, backlog: int | None = None) -> socket.socket:
    """Return a socket that listens. Raises ConfigError if the address cannot be used."""
    if not 0 <= port <= 65_535:
        raise ConfigError(f"cannot listen on {host}:{port}: the port must be from 0 to 65535")
    try:
        addresses = socket.getaddrinfo(host or None, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = min(addresses, key=lambda item: item[0] != socket.AF_INET)
        is_ipv6 = family == socket.AF_INET6
        return socket.create_server((address[0], port), family=family, backlog=backlog, dualstack_ipv6=is_ipv6)
    except (socket.gaierror, UnicodeError) as error:
        raise ConfigError(f"cannot resolve {host!r}") from error
    except OSError as error:
        reason = os.strerror(error.errno).lower() if error.errno else error  # whose text repeats the address
        raise ConfigError(f"cannot listen on {host}:{port}: {reason}") from error


def url_of(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
