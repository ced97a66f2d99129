"""Errors of servers that cannot listen."""

import os
import socket

from midspan.errors import ConfigError


def listen_error(host: str, port: int, error: Exception) -> ConfigError:
    """Return the error for an address that a server cannot listen on."""
    if isinstance(error, socket.gaierror):
        return ConfigError(f"cannot resolve {host!r}")
    number = error.errno if isinstance(error, OSError) else None
    # The texts of asyncio and `socket.create_server` repeat the address.
    return ConfigError(f"cannot listen on {host}:{port}: {os.strerror(number).lower() if number else error}")
