"""`midspan serve`: the HTTP server."""

import asyncio
import logging
import os
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from midspan._cli.arguments import add_model_arguments, add_path, add_tool_arguments, comma_list, port_number
from midspan._cli.conversation import build_agent, with_fallback
from midspan._cli.settings import Settings, load_settings, private_directory, read_toml, user_directory, user_path
from midspan._cli.text import announce, print_line
from midspan._cli.tool_sources import config_paths, load_tools, make_servers
from midspan._http.serving import listen
from midspan._loop.telemetry import Telemetry
from midspan._schema.conversion import settings_of
from midspan._server.config import AccessTokens, ServerConfig
from midspan.errors import ConfigError
from midspan.providers.registry import family_name

if TYPE_CHECKING:
    from midspan._storage.sqlite import SqliteJournal

_MEMORY = "memory"
_AGENT_SETTINGS = tuple(name for name in Settings.__struct_fields__ if name not in ("log", "log_days"))
"""A server stores runs in its journal and not in the log."""
_FLAGS = ("host", "port", "models", "allow_anonymous", "journal")


class ServeSettings(ServerConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of the file of `--config`, without the settings of the agent."""

    journal: str | None = None
    mcp: tuple[str, ...] = ()


def add_arguments(parser: ArgumentParser) -> None:
    host, port = os.environ.get("SERVER_HOST") or None, os.environ.get("SERVER_PORT") or None
    host_help = "the address to listen on (default: $SERVER_HOST, or 127.0.0.1)"
    parser.add_argument("--host", metavar="H", default=host, help=host_help)
    port_help = "the port to listen on (default: $SERVER_PORT, or 8081)"
    parser.add_argument("--port", metavar="N", type=port_number, default=port, help=port_help)
    add_model_arguments(parser)
    models_help = "other models that requests may name, as provider:model"
    parser.add_argument("--models", metavar="MODEL,…", type=comma_list, help=models_help)
    add_tool_arguments(parser)
    add_path(parser, "--config", metavar="FILE", help="take settings from a TOML file")
    add_path(parser, "--journal", metavar="FILE", help='store runs and sessions in FILE; "memory" stores nothing')
    format_help = "the form of log lines on stderr"
    parser.add_argument("--log-format", choices=["text", "json"], default="text", help=format_help)
    telemetry_help = "record runs with OpenTelemetry, as its environment variables say"
    parser.add_argument("--telemetry", action="store_true", help=telemetry_help)
    anonymous_help = "listen on an address that other machines reach, without requiring tokens"
    parser.add_argument("--allow-anonymous", action="store_true", default=None, help=anonymous_help)


def run(options: Namespace) -> int:
    try:
        from midspan._server.app import create_app
        from midspan._server.listen import log_json, serve
    except ModuleNotFoundError as error:
        raise ConfigError(f"the server needs {error.name}: pip install 'midspan[server]'") from error
    if options.log_format == "json":
        log_json(logging.DEBUG if options.verbose > 1 else logging.INFO)
    path = None if options.config is None else user_path(options.config).absolute()
    values = {} if path is None else read_toml(path)
    agent_values = {name: values.pop(name) for name in _AGENT_SETTINGS if name in values}
    file = None if path is None else settings_of(Settings, agent_values, str(path))
    values |= {name: value for name in _FLAGS if (value := getattr(options, name)) is not None}
    config = settings_of(ServeSettings, values, str(path or "midspan serve"), _AGENT_SETTINGS)
    options.mcp = options.mcp or config.mcp
    tokens = AccessTokens.of_environment(os.environ)
    listener = listen(config.host, config.port)
    config.check_exposed(tokens)
    if options.model is None and not os.environ.get("MIDSPAN_MODEL"):
        options.model = os.environ.get("DEFAULT_AI_PROVIDER") or None
    settings = with_fallback(load_settings(options, path, file), allow_all_tools=options.yes)
    telemetry = Telemetry() if options.telemetry else None
    agent = build_agent(settings, [*load_tools(settings.tools), *_mcp_servers(options)], telemetry)
    with listener:
        app = create_app(
            agent,
            journal=_open_journal(config.journal),
            tokens=tokens,
            provider=family_name(settings.model),
            close_agent=True,
            **{name: getattr(config, name) for name in ServerConfig.__struct_fields__},
        )
        serve(app, config, listener, lambda url: announce(url, f"the server is ready; {url}/docs describes its API"))
    print_line("the server has stopped")
    return 0


def _mcp_servers(options: Namespace) -> list[Any]:
    """Return the servers of the files that were named, and the one of MCP_SERVER_URL.

    A server cannot ask a user, so destructive tools need --yes.
    """
    servers = make_servers(config_paths(options), approve=options.yes or None) if options.mcp else []
    if url := os.environ.get("MCP_SERVER_URL"):
        from midspan.tools.mcp.server import MCPServer

        servers.append(MCPServer(url=url))
    return servers


def _open_journal(name: str | None) -> "SqliteJournal | None":
    """Open the journal. Only one server may use it, because it treats unfinished runs as those of a killed server."""
    if name == _MEMORY:
        return None
    from midspan._storage.sqlite import SqliteJournal

    if name is None:
        remedy = "; store runs elsewhere with --journal FILE, or nowhere with --journal memory"
        path = private_directory(user_directory("state"), remedy) / "server.db"
    else:
        path = user_path(name)
    _lock(path)
    journal = SqliteJournal(path)
    asyncio.run(journal.list(limit=1))  # a file that cannot be used is reported before the server starts
    return journal


def _lock(journal: Path) -> None:
    """Lock the journal until this process ends. Raises ConfigError if another process has locked it."""
    try:
        import fcntl
    except ImportError:  # Windows
        return
    try:
        lock = os.open(journal.with_name(f"{journal.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        remedy = "to run a second one, give it --journal FILE and --port N"
        raise ConfigError(f"another midspan serve uses the journal {str(journal)!r}; {remedy}") from error
    except OSError as error:
        raise ConfigError(f"cannot use the journal {str(journal)!r}: {error.strerror}") from error
