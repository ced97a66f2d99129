"""Which protocol version each server speaks, so that a server that ignores the question is asked only once.

The SDK waits ten seconds for a server that does not answer an unknown request before it tries the older handshake.
"""

import logging
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from midspan._storage.files import replace_file

_log = logging.getLogger("midspan.tools.mcp")


class ProtocolInfo(Struct, frozen=True):
    """What a server answered when it was asked for its protocol version."""

    mode: str
    """`legacy`, or the version of the stateless protocol, as `mcp.Client` takes it."""
    discover: dict[str, Any] | None = None
    """The answer to `server/discover`, which the stateless protocol needs."""


class ProtocolCache:
    """Protocol versions by server: in memory, and in a file if one is given."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._protocols: dict[str, ProtocolInfo] = {}

    def get(self, server: str) -> ProtocolInfo | None:
        """Return what is known of a server by its identity: its command or its URL."""
        if not self._protocols and self._path is not None:
            self._protocols = self._read(self._path)
        return self._protocols.get(_key(server))

    def remember(self, server: str, info: ProtocolInfo | None) -> None:
        """Store what a server answered; None forgets it."""
        if self.get(server) == info:
            return
        if info is None:
            self._protocols.pop(_key(server), None)
        else:
            self._protocols[_key(server)] = info
        if self._path is not None:
            self._write(self._path)

    def _read(self, path: Path) -> dict[str, ProtocolInfo]:
        try:
            return msgspec.json.decode(path.read_bytes(), type=dict[str, ProtocolInfo])
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.DecodeError) as error:
            _log.debug("the cache %s cannot be read and is ignored: %s", path, error)
            return {}

    def _write(self, path: Path) -> None:
        try:
            replace_file(path, msgspec.json.encode(self._protocols))
        except OSError as error:  # it costs time at the next start, and nothing else
            _log.debug("the cache %s cannot be written: %s", path, error)


PROCESS_CACHE = ProtocolCache()
"""For servers that are not given another one: as long as this process runs."""


def _key(server: str) -> str:
    return sha256(server.encode()).hexdigest()[:32]  # a command line may contain a secret
