"""Addresses at which a host listens for workers: `unix:/run/tools.sock`, `tcp:127.0.0.1:7000`."""

import socket
import stat
from pathlib import Path

from msgspec import Struct

from midspan.errors import ConfigError

_CONNECT_SECONDS = 10.0
_KEEPALIVE = (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))
"""A machine that is gone is noticed after about 20 seconds, on both sides."""


class HostAddress(Struct, frozen=True):
    """A Unix socket, or a host and a port."""

    path: str | None = None
    host: str = ""
    port: int = 0

    @classmethod
    def of(cls, text: str) -> "HostAddress":
        scheme, _, rest = text.partition(":")
        if scheme == "unix" and rest:
            return cls(path=rest)
        host, _, port = rest.rpartition(":")
        if scheme != "tcp" or not host or not port.isdecimal() or int(port) > 65_535:
            raise ConfigError(f"invalid address {text!r}; use 'unix:/run/tools.sock' or 'tcp:127.0.0.1:7000'")
        return cls(host=host.strip("[]"), port=int(port))

    def __str__(self) -> str:
        if self.path is not None:
            return f"unix:{self.path}"
        return f"tcp:[{self.host}]:{self.port}" if ":" in self.host else f"tcp:{self.host}:{self.port}"

    def connect(self) -> socket.socket:
        """Return a connected socket. Raises OSError."""
        if self.path is None:
            connection = socket.create_connection((self.host, self.port), _CONNECT_SECONDS)
            keep_alive(connection)
        else:
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(self.path)
        connection.settimeout(None)
        return connection

    def listen(self) -> socket.socket:
        """Return a socket that is bound to the address; a Unix socket is for its owner only. Raises OSError."""
        if self.path is None:
            family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
            return socket.create_server((self.host, self.port), family=family)
        path = Path(self.path)
        if path.exists() and stat.S_ISSOCK(path.stat().st_mode) and not _is_in_use(self.path):
            path.unlink()
        server = socket.socket(socket.AF_UNIX)
        try:
            server.bind(self.path)
            path.chmod(0o600)
        except OSError:
            server.close()
            raise
        return server

    def bound_to(self, server: socket.socket) -> "HostAddress":
        """Return the address with the port that the system chose."""
        return self if self.path is not None else HostAddress(host=self.host, port=server.getsockname()[1])

    def remove(self) -> None:
        """Remove the file of a Unix socket."""
        if self.path is not None:
            Path(self.path).unlink(missing_ok=True)


def keep_alive(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, True)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
    for name, value in _KEEPALIVE:
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _is_in_use(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except OSError:
            return False
        return True
