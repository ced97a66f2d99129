"""The tools of a command: of files and modules, and of MCP servers.

MCP servers come from `--mcp FILE`, or from the project and the user's own configuration. Starting one runs a program.
A user who names a file, or writes a configuration, consents to that. A `.mcp.json` in the current folder may have
another author, so the user is asked first.
"""

import os
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from midspan._cli.questions import TERMINAL
from midspan._cli.settings import settings_path, user_directory, user_path, write_private
from midspan._cli.text import print_line
from midspan.tools.files import tools_in

_READY = "ready"
_PROJECT_CONFIG = ".mcp.json"


def load_tools(names: Iterable[str] | None) -> list[Any]:
    """Load the tools of files and modules. `ready`, the default, means the ready tools."""
    tools: list[Any] = []
    for name in dict.fromkeys((_READY,) if names is None else names):
        if name == _READY:
            from midspan.toolsets import ready_tools

            tools += ready_tools()
        else:
            tools += tools_in(str(user_path(name)) if name.startswith("~") else name)
    return tools


def mcp_sources(options: Namespace) -> list[Any]:
    """Return the servers for a run; none with `--no-tools`."""
    if options.no_tools:
        return []
    paths = [path for path in config_paths(options) if not needs_trust(options, path) or accept(path)]
    return make_servers(paths, approve=True if options.yes else TERMINAL.approve) if paths else []


def config_paths(options: Namespace) -> list[Path]:
    """Return the configuration files of a command that exist, or were named."""
    if options.mcp:
        return [*map(user_path, options.mcp)]
    user_config = settings_path().with_name("mcp.json")
    return [path for path in (user_config, Path.cwd() / _PROJECT_CONFIG) if path.is_file()]


def needs_trust(options: Namespace, path: Path) -> bool:
    """Return whether the file comes with the project, and the user has not accepted it as it is now."""
    return not options.mcp and path == Path.cwd() / _PROJECT_CONFIG and not _trust_marker(path).exists()


def make_servers(paths: list[Path], *, approve: Any = None) -> list[Any]:
    """Return the servers of several files; of two with the same name, the later one."""
    from midspan.tools.mcp.config import read_config, server_of
    from midspan.tools.mcp.lock import LOCK_NAME
    from midspan.tools.mcp.oauth import OAuth
    from midspan.tools.mcp.options import MCPOptions
    from midspan.tools.mcp.protocols import ProtocolCache

    cache = ProtocolCache(user_directory("cache") / "mcp-protocols.json")
    auth = OAuth(user_directory("state") / "mcp-tokens.json", _open_url if TERMINAL.is_interactive else None)
    entries = {name: (entry, path) for path in paths for name, entry in read_config(path).items()}
    options: MCPOptions = {"protocol_cache": cache, "approve": approve, "auth": auth}
    return [
        server_of(name, entry, path, {**options, "lock": path.with_name(LOCK_NAME)})
        for name, (entry, path) in entries.items()
        if not entry.disabled
    ]


async def _open_url(url: str) -> None:
    import webbrowser  # loaded for OAuth, which few servers use

    print_line(f"open this page to authorize Midspan: {url}")
    webbrowser.open(url)


def accept(path: Path, *, ask: bool = True) -> bool:
    """Show what the servers of a file would start, and return whether the user accepts that. A yes is remembered.

    Raises ConfigError if nobody can be asked.
    """
    from midspan.tools.mcp.config import read_config

    print_line(f"{path} would start these MCP servers:")
    for name, entry in read_config(path, expand=False).items():
        variables = f" with {', '.join(entry.env)}" if entry.env else ""
        print_line(f"{name}: {entry.target}{variables}", prefix="  ")
    if ask and not TERMINAL.confirm("Start these servers now and in the future?"):
        print_line(f"the servers of {path} are not used")
        return False
    write_private(_trust_marker(path), b"")
    return True


def _trust_marker(path: Path) -> Path:
    """Return the file that exists if the user has accepted a configuration with this path and content."""
    from hashlib import sha256  # loaded for the configuration of a project

    digest = sha256(b"%b\0%b" % (os.fsencode(path.resolve()), path.read_bytes())).hexdigest()
    return user_directory("state") / "trusted-mcp" / digest
