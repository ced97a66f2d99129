"""`midspan.lock`: the definitions of tools as they were first seen, so that a server cannot change them unnoticed."""

from collections.abc import Mapping
from difflib import unified_diff
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from midspan._storage.files import replace_file
from midspan._types.texts import encode_sorted
from midspan.errors import ConfigError

LOCK_NAME = "midspan" + ".lock"  # in one piece, the test of imports takes it for a module
"""The name of the file, in the folder of the configuration that names the servers."""

Definition = dict[str, Any]
"""What a server declares of a tool: name, description, schemas and annotations."""


class PinnedTool(Struct, frozen=True):
    """A tool as it was accepted."""

    sha256: str
    definition: Definition
    """To show what has changed."""


class _LockDocument(Struct, frozen=True):
    version: Literal[1] = 1
    servers: dict[str, dict[str, PinnedTool]] = {}


class Lockfile:
    """The pinned tools of the servers of one configuration."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def check(self, server: str, tools: Mapping[str, Definition]) -> dict[str, str]:
        """Pin the tools that are new, and return those that have changed, with the differences."""
        document = self._read()
        pinned = document.servers.get(server, {})
        new = {name: _pin(definition) for name, definition in tools.items() if name not in pinned}
        if new:
            self._write(document, server, pinned | new)
        return {
            name: difference(pinned[name].definition, definition)
            for name, definition in tools.items()
            if name in pinned and pinned[name].sha256 != digest(definition)
        }

    def accept(self, server: str, tools: Mapping[str, Definition]) -> None:
        """Pin the tools as they are now."""
        document = self._read()
        pins = {name: _pin(definition) for name, definition in tools.items()}
        self._write(document, server, document.servers.get(server, {}) | pins)

    def _read(self) -> _LockDocument:
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=_LockDocument)
        except FileNotFoundError:
            return _LockDocument()
        except OSError as error:
            raise ConfigError(f"cannot read {str(self.path)!r}: {error.strerror}") from error
        except msgspec.DecodeError as error:
            raise ConfigError(
                f"{str(self.path)!r} is damaged: {error}; restore it, or delete it to pin again"
            ) from error

    def _write(self, document: _LockDocument, server: str, tools: dict[str, PinnedTool]) -> None:
        changed = msgspec.structs.replace(document, servers=document.servers | {server: tools})
        try:
            replace_file(self.path, msgspec.json.format(encode_sorted(changed), indent=1) + b"\n", mode=0o644)
        except OSError as error:
            raise ConfigError(f"cannot write {str(self.path)!r}: {error.strerror}") from error


def digest(definition: Definition) -> str:
    return sha256(encode_sorted(definition)).hexdigest()


def difference(before: Definition, after: Definition) -> str:
    """Return what has changed between two definitions, as a unified diff."""
    return "\n".join(unified_diff(_lines(before), _lines(after), "accepted", "now", lineterm="", n=1))


def _lines(definition: Definition) -> list[str]:
    return msgspec.json.format(encode_sorted(definition), indent=2).decode().splitlines()


def _pin(definition: Definition) -> PinnedTool:
    return PinnedTool(digest(definition), definition)
