"""`midspan serve`: the HTTP server."""

import asyncio
import logging
import os
import sys
from argparse import ArgumentParser, Namespace
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from midspan._cli.arguments import add_model_arguments, add_tool_arguments, comma_list, complete_paths, port_number
from midspan._cli.conversation import build_agent, with_fallback
from midspan._cli.settings import (
    SettingsFile,
    load_settings,
    locked,
    private_directory,
    read_toml,
    state_directory,
    to_settings,
)
from midspan._cli.text import print_line
from midspan._cli.tool_sources import load_tools
from midspan._loop.telemetry import Telemetry
from midspan._schema.settings import settings_of
from midspan.errors import ConfigError, MidspanError
from midspan.providers.registry import family_name

if TYPE_CHECKING:
    from midspan._storage.sqlite import SqliteJournal

_MEMORY = "memory"
_OTHERS = ("journal", "mcp")
_AGENT_SETTINGS = SettingsFile.__struct_fields__
_FLAGS = ("host", "port", "models", "allow_anonymous")


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--host",
        metavar="H",
        default=os.environ.get("SERVER_HOST") or None,
        help="the address to listen on (default: $SERVER_HOST, or 127.0.0.1)",
    )
    parser.add_argument(
        "--port",
        metavar="N",
        type=port_number,
        default=os.environ.get("SERVER_PORT") or None,
        help="the port to listen on (default: $SERVER_PORT, or 8081)",
    )
    add_model_arguments(parser)
    parser.add_argument(
        "--models", metavar="MODEL,…", type=comma_list, help="other models that requests may name, as provider:model"
    )
    add_tool_arguments(parser)
    complete_paths(parser.add_argument("--config", metavar="FILE", help="take settings from a TOML file"))
    complete_paths(
        parser.add_argument(
            "--journal", metavar="FILE", help='store runs and sessions in FILE; "memory" stores nothing'
        )
    )
    parser.add_argument(
        "--log-format", choices=["text", "json"], default="text", help="the form of log lines on stderr"
    )
    parser.add_argument(
        "--telemetry", action="store_true", help="record runs with OpenTelemetry, as its environment variables say"
    )
    parser.add_argument(
        "--allow-anonymous",
        action="store_true",
        default=None,
        help="listen on an address that other machines reach, without demanding tokens",
    )


def run(options: Namespace) -> int:
    try:
        from midspan._server.app import create_app
        from midspan._server.config import ServerConfig, Tokens
        from midspan._server.listen import log_json, resolve, serve
    except ModuleNotFoundError as error:
        raise ConfigError(f"the server needs {error.name}: pip install 'midspan[server]'") from error
    if options.log_format == "json":
        log_json(logging.DEBUG if options.verbose > 1 else logging.INFO)
    path, values = _read_config(options.config)
    journal, mcp = (values.pop(name, None) for name in _OTHERS)
    options.mcp = options.mcp or mcp
    file = _settings_file(values, path)
    values |= {name: value for name in _FLAGS if (value := getattr(options, name)) is not None}
    config = settings_of(ServerConfig, values, str(path or "midspan serve"), (*_AGENT_SETTINGS, *_OTHERS))
    tokens = Tokens.of_environment(os.environ)
    resolve(config.host, config.port)
    config.check_exposed(tokens)
    if options.model is None and not os.environ.get("MIDSPAN_MODEL"):
        options.model = os.environ.get("DEFAULT_AI_PROVIDER") or None
    settings = with_fallback(load_settings(options, path, file), allow_all_tools=options.yes)
    telemetry = Telemetry() if options.telemetry else None
    agent = build_agent(settings, [*load_tools(settings.tools), *_mcp_servers(options)], telemetry)
    with ExitStack() as stack:
        app = create_app(
            agent,
            journal=_journal(options.journal or journal, stack),
            tokens=tokens,
            provider=family_name(settings.model),
            close_agent=True,
            **msgspec.structs.asdict(config),
        )
        serve(app, config, _announce)
    print_line("the server has ended")
    return 0


def _announce(url: str) -> None:
    sys.stdout.write(f"{url}\n")
    sys.stdout.flush()
    print_line(f"the server is ready; {url}/docs describes its API; Ctrl-C ends it")


def _read_config(name: str | None) -> tuple[Path | None, dict[str, Any]]:
    if name is None:
        return None, {}
    path = Path(name).expanduser()
    try:
        return path.absolute(), read_toml(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ConfigError(f"no such file: {name!r}") from error


def _settings_file(values: dict[str, Any], path: Path | None) -> SettingsFile | None:
    """Take the settings of the agent out of the values of a file. None if there is no file."""
    if path is None:
        return None
    return to_settings({name: values.pop(name) for name in _AGENT_SETTINGS if name in values}, path)


def _mcp_servers(options: Namespace) -> list[Any]:
    """Return the servers of the files that were named, and the one of MCP_SERVER_URL.

    Nobody sits at the terminal of a server, so destructive tools need --yes.
    """
    from midspan._cli.tool_sources import config_paths, make_servers  # loaded for MCP servers

    servers = make_servers(config_paths(options), approve=options.yes or None) if options.mcp else []
    if url := os.environ.get("MCP_SERVER_URL"):
        from midspan.tools.mcp.server import MCPServer

        servers.append(MCPServer(url=url))
    return servers


def _journal(name: str | None, stack: ExitStack) -> Any:
    """Open the journal. Only one server may use it, because it takes unfinished runs for those of a killed server."""
    if name == _MEMORY:
        return None
    from midspan._storage.sqlite import SqliteJournal

    if name is None:
        remedy = "store runs elsewhere with --journal FILE, or nowhere with --journal memory"
        path = private_directory(state_directory(), remedy) / "server.db"
    else:
        path = Path(name).expanduser()
    remedy = "to run a second one, give it --journal FILE and --port N"
    message = f"another midspan serve uses the journal {str(path)!r}; {remedy}"
    try:
        stack.enter_context(locked(path.with_name(f"{path.name}.lock"), message))
    except OSError as error:
        raise ConfigError(f"cannot use the journal {str(path)!r}: {error.strerror}") from error
    journal = SqliteJournal(path)
    asyncio.run(_check(journal))
    return journal


async def _check(journal: "SqliteJournal") -> None:
    """Read the journal, so that a file that cannot be used is reported before the server starts."""
    try:
        await journal.list(limit=1)
    except MidspanError as error:
        await journal.aclose()
        raise ConfigError(str(error)) from error
