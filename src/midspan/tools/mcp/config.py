"""Servers from configuration files: `mcpServers` in `.mcp.json`, as other programs write it."""

import logging
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, Unpack

import msgspec
from msgspec import Meta, Struct

from midspan._schema.conversion import settings_of
from midspan.errors import ConfigError
from midspan.tools.mcp.options import MCPOptions
from midspan.tools.mcp.server import MCPServer

_log = logging.getLogger("midspan.tools.mcp")

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_IGNORED = frozenset(("autoApprove", "alwaysAllow", "description", "trust", "$schema"))
"""Fields of other programs, which are not reported."""


class ServerEntry(Struct, frozen=True, rename="camel"):
    """One server in a configuration file."""

    command: str | None = None
    args: list[str] = []
    env: dict[str, str] = {}
    cwd: str | None = None
    type: Literal["stdio", "http", "streamable-http", "streamableHttp"] | None = None
    url: str | None = None
    http_url: str | None = None
    headers: dict[str, str] = {}
    include_tools: list[str] | None = None
    exclude_tools: list[str] = []
    timeout: Annotated[float, Meta(gt=0)] | None = None
    """Of one call, in milliseconds, as in other programs."""
    startup_timeout: Annotated[float, Meta(gt=0)] | None = None
    """In milliseconds."""
    disabled: bool = False

    @property
    def target(self) -> str:
        """What starting the server means, for people: its command or its URL. An entry with both is not valid."""
        command = None if self.command is None else " ".join((self.command, *self.args))
        targets = [target for target in (command, self.url or self.http_url) if target]
        return " and ".join(targets) + (" (not valid: only one of them is allowed)" if len(targets) > 1 else "")


def load_mcp_servers(path: str | Path, **options: Unpack[MCPOptions]) -> list[MCPServer]:
    """Return the servers of a configuration file. `options` are those of `MCPServer`, for all of them.

    A `midspan.lock` is used only if it is given as `lock=`.
    """
    path = Path(path)
    return [server_of(name, entry, path, options) for name, entry in read_config(path).items() if not entry.disabled]


def read_config(path: Path, *, expand: bool = True) -> dict[str, ServerEntry]:
    """Return the servers of a file by name. Raises ConfigError if something is wrong.

    Without `expand`, variables are not replaced, so that no secret is shown.
    """
    try:
        document = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"cannot read {str(path)!r}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{str(path)!r} is not valid JSON: {error}") from error
    servers = document.get("mcpServers") if isinstance(document, dict) else None
    if not isinstance(servers, dict):
        raise ConfigError(f"{str(path)!r} is not a configuration of MCP servers; it needs an object 'mcpServers'")
    return {name: _entry(name, fields, path, expand=expand) for name, fields in servers.items()}


def _entry(name: str, fields: Any, path: Path, *, expand: bool) -> ServerEntry:
    where = f"the server {name!r} in {str(path)!r}"
    if not isinstance(fields, dict):
        raise ConfigError(f"{where} must be an object with a command or a url")
    if fields.get("type") == "sse":
        raise ConfigError(
            f"{where} uses the transport sse, which the protocol has replaced; use its streamable HTTP URL"
        )
    for field in fields.keys() - set(ServerEntry.__struct_encode_fields__) - _IGNORED:
        _log.warning("%s has a field %r, which is ignored", where, field)
    if fields.get("disabled") is True and expand:
        fields = {"disabled": True}
    try:
        expanded = _map_strings(fields, _expand) if expand else fields
    except KeyError as error:
        raise ConfigError(f"{where} uses ${{{error.args[0]}}}, which is not set; set it, or write a default") from error
    try:
        return msgspec.convert(expanded, ServerEntry)
    except msgspec.ValidationError:
        # The error quotes values: as they are in the file, and none that may be secret.
        hidden = {field: _map_strings(fields[field], lambda _: "…") for field in fields.keys() & {"env", "headers"}}
        return settings_of(ServerEntry, fields | hidden, where, fields)


def _map_strings(value: Any, function: Callable[[str], str]) -> Any:
    match value:
        case str():
            return function(value)
        case dict():
            return {key: _map_strings(item, function) for key, item in value.items()}
        case list():
            return [_map_strings(item, function) for item in value]
    return value


def _expand(text: str) -> str:
    """Replace `${NAME}` and `${NAME:-default}`. Raises KeyError for a variable that is not set."""
    return _VARIABLE.sub(lambda match: _variable(match[1], match[2]), text)


def _variable(name: str, default: str | None) -> str:
    if os.environ.get(name):
        return os.environ[name]
    if default is None and name not in os.environ:
        raise KeyError(name)
    return default or ""


def server_of(name: str, entry: ServerEntry, path: Path, options: MCPOptions) -> MCPServer:
    """Return the server of an entry. Relative paths of `cwd` are relative to the file."""
    url = entry.url or entry.http_url
    fields = options.copy()
    fields["name"] = name
    fields["exclude"] = entry.exclude_tools
    if entry.include_tools is not None:
        fields["include"] = entry.include_tools
    for option, milliseconds in (("timeout", entry.timeout), ("startup_timeout", entry.startup_timeout)):
        if milliseconds is not None:
            fields[option] = milliseconds / 1_000  # type: ignore[literal-required]  # names of options
    try:
        if entry.command is None or url is not None:
            fields["headers"] = entry.headers
            return MCPServer(entry.command, url=url, **fields)
        fields["env"] = entry.env
        if entry.cwd is not None:
            fields["cwd"] = path.parent / Path(entry.cwd).expanduser()
        fields.pop("auth", None)
        return MCPServer([entry.command, *entry.args], **fields)
    except ConfigError as error:
        raise ConfigError(f"the server {name!r} in {str(path)!r}: {error}") from error
