"""The options of `MCPServer`, validated."""

import os
import shlex
import sys
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypedDict

import msgspec
from msgspec import Meta, Struct

from midspan._types.parts import ToolCall
from midspan._types.specs import ToolSpec
from midspan.errors import ConfigError
from midspan.tools.function import is_async
from midspan.tools.mcp.lock import Lockfile
from midspan.tools.mcp.protocols import ProtocolCache

Approve = Callable[[ToolCall], Awaitable[bool]]
"""Asked before each call of a tool that needs approval. Only True approves it."""

_INHERITED = (
    *("HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"),
    *("NODE_EXTRA_CA_CERTS", "SSL_CERT_DIR", "SSL_CERT_FILE"),
)
_INHERITED_ON_WINDOWS = (
    *("APPDATA", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATHEXT", "PROCESSOR_ARCHITECTURE", "SYSTEMDRIVE"),
    *("SYSTEMROOT", "TEMP", "USERNAME", "USERPROFILE"),
)
_OVERRIDABLE = ToolSpec.__struct_fields__[1:]
"""All fields of a ToolSpec but the name."""


class MCPOptions(TypedDict, total=False):
    """The options of a server other than its command or URL."""

    name: str
    """The name of the server, which is the prefix of its tools where names clash."""
    env: Mapping[str, str]
    """Environment variables for the command. Only a few harmless ones are inherited, such as PATH and HOME."""
    cwd: str | Path
    """The working directory of the command."""
    headers: Mapping[str, str]
    """Headers of each request to the URL."""
    auth: Any
    """`OAuth(…)`, or an `httpx2.Auth` such as the providers of the SDK."""
    include: Collection[str] | None
    """Use only these tools."""
    exclude: Collection[str]
    """Do not use these tools."""
    overrides: Mapping[str, Mapping[str, Any]]
    """By tool, fields of its `ToolSpec` that you declare in place of the server: `{"read": {"read_only": True}}`."""
    approve: bool | Approve | None
    """Whether calls of tools that need approval may run: True, or an async function that is asked about each call."""
    timeout: float | None
    """Of one call, in seconds; 60 by default. The time in which the user answers a question does not count."""
    startup_timeout: float | None
    """Of starting the server and listing its tools; 60 seconds by default."""
    max_message_bytes: int
    """Larger messages of the server are refused; 10,000,000 by default."""
    max_result_chars: int
    """Longer texts are cut before a model pays for them; 200,000 by default."""
    lock: str | Path | Lockfile | None
    """A file in which the definitions of tools are pinned. A tool that changes is held back until it is accepted."""
    protocol_cache: ProtocolCache
    """Where to remember the protocol version of the server."""


class MCPConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The validated options of a server."""

    command: tuple[str, ...] = ()
    url: str | None = None
    name: str
    env: dict[str, str] = {}
    cwd: str | None = None
    headers: dict[str, str] = {}
    include: frozenset[str] | None = None
    exclude: frozenset[str] = frozenset()
    overrides: dict[str, dict[str, Any]] = {}
    timeout: Annotated[float, Meta(gt=0)] | None = 60.0
    startup_timeout: Annotated[float, Meta(gt=0)] | None = 60.0
    max_message_bytes: Annotated[int, Meta(gt=0)] = 10_000_000
    max_result_chars: Annotated[int, Meta(gt=0)] = 200_000

    @property
    def identity(self) -> str:
        """What the server is, to remember its protocol version."""
        return self.url or shlex.join(self.command)

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the command: a few variables of ours, and those that were given."""
        names = _INHERITED if sys.platform != "win32" else (*_INHERITED, *_INHERITED_ON_WINDOWS)
        return {name: os.environ[name] for name in names if name in os.environ} | self.env

    def uses(self, tool: str) -> bool:
        return tool not in self.exclude and (self.include is None or tool in self.include)


def read_options(command: str | Sequence[str] | None, url: str | None, options: MCPOptions) -> MCPConfig:
    if (command is None) == (url is None):
        raise ConfigError("an MCP server needs a command or a url, and not both")
    for option in options:
        if option not in MCPOptions.__annotations__:
            raise ConfigError(
                f"unknown option {option!r} of an MCP server; known: {', '.join(MCPOptions.__annotations__)}"
            )
    try:
        words = tuple(shlex.split(command) if isinstance(command, str) else command or ())
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the command {command!r} cannot be split into words: {error}") from error
    if command is not None and not words:
        raise ConfigError("the command of an MCP server is empty")
    if url is not None and not str(url).startswith(("http://", "https://")):
        raise ConfigError(f"the url of an MCP server must start with http:// or https://, got {url!r}")
    approve = options.get("approve")
    if approve is not None and not isinstance(approve, bool) and not is_async(approve):
        raise ConfigError(f"approve must be True or an async function, got {approve!r:.80}")
    fields: dict[str, Any] = {name: value for name, value in options.items() if name in MCPConfig.__struct_fields__}
    fields.setdefault("name", _default_name(words, url))
    if "cwd" in fields:
        fields["cwd"] = os.fspath(fields["cwd"])
    try:
        config = msgspec.convert({**fields, "command": words, "url": url}, MCPConfig)
        for tool, changes in config.overrides.items():
            for field in changes.keys() - _OVERRIDABLE:
                raise ConfigError(
                    f"overrides: {tool!r} has the unknown field {field!r}; known: {', '.join(_OVERRIDABLE)}"
                )
            msgspec.convert({"name": tool, **changes}, ToolSpec)
    except msgspec.ValidationError as error:
        raise ConfigError(f"the MCP server {fields['name']!r}: {error}") from error
    return config


def _default_name(words: Sequence[str], url: str | None) -> str:
    """Return the host of a URL, or the last word of a command that is a name: `npx -y server-time` is `server-time`."""
    if url is not None:
        from urllib.parse import urlsplit

        return urlsplit(url).hostname or "server"
    names = [word for word in words if not word.startswith("-") and not word.startswith(("/", "."))]
    name = names[-1] if len(names) > 1 else words[0]
    return Path(name.rpartition("@")[0] or name).stem or "server"
