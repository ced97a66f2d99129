"""`midspan mcp`: use, check and trust the MCP servers of the configuration, and serve tools over MCP."""

import asyncio
import signal
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec

from midspan._cli import arguments
from midspan._cli.interrupts import InterruptibleRunner, serve_until_interrupted
from midspan._cli.questions import TERMINAL
from midspan._cli.text import announce, escape_line, escape_lines, print_line, write_result
from midspan._cli.tool_sources import accept, config_paths, load_tools, make_servers, needs_trust
from midspan._types.parts import ToolCall, ToolResult
from midspan._types.texts import count_noun
from midspan.errors import ConfigError
from midspan.tools import MCPServer, ToolListing


def add_arguments(parser: ArgumentParser) -> None:
    forms = {name: f"{name} {arguments}".rstrip() for name, (arguments, _, _) in ACTIONS.items()}
    parser.usage = "\n       ".join(f"midspan mcp {form} [OPTION …]" for form in forms.values())
    parser.formatter_class = RawDescriptionHelpFormatter
    parser.epilog = "actions:\n" + "\n".join(f"  {forms[name]:<25}{ACTIONS[name][1]}" for name in ACTIONS)
    action_help = "what to do, see below; list by default"
    parser.add_argument("action", metavar="ACTION", choices=list(ACTIONS), nargs="?", default="list", help=action_help)
    parser.add_argument("arguments", nargs="*", metavar="ARGUMENT", help="what the action takes")
    arguments.add_mcp_argument(parser)
    arguments.add_json_argument(parser)
    parser.add_argument("-y", "--yes", action="store_true", help="allow destructive tools; accept what trust shows")
    serve = parser.add_argument_group("options of serve")
    arguments.add_tools_argument(serve)
    serve.add_argument(
        "--http", metavar="PORT", type=arguments.port_number, help="serve over HTTP, at /mcp, instead of stdio"
    )
    arguments.add_host_argument(serve)
    allowed_help = 'a name or address under which clients reach the server; "*" allows all; repeatable'
    serve.add_argument("--allowed-host", metavar="NAME", action="append", default=[], help=allowed_help)


def run(options: Namespace) -> int:
    accepted, _, action = ACTIONS[options.action]
    if options.arguments and not accepted:
        name, argument = options.action, options.arguments[0]
        raise ConfigError(f"midspan mcp {name} takes no arguments, got {argument!r}; see midspan mcp --help")
    if options.action != "serve" and (options.tools or options.http is not None or options.allowed_host):
        raise ConfigError("--tools, --http and --allowed-host are options of midspan mcp serve")
    return action(options)


def _list(options: Namespace) -> int:
    from midspan.tools.mcp.config import read_config

    rows, lines = [], []
    for path in config_paths(options):
        is_trusted = not needs_trust(options, path)
        for name, entry in read_config(path, expand=False).items():
            target = entry.target.strip()
            row = {"server": name, "target": target, "file": str(path), "disabled": entry.disabled}
            rows.append({**row, "trusted": is_trusted})
            state = " (disabled)" if entry.disabled else "" if is_trusted else " (not trusted yet)"
            lines.append(f"{name}: {target or 'neither a command nor a URL'}{state}")
    write_result({"servers": rows}, [*lines, count_noun(len(rows), "server")], as_json=options.json)
    if not rows:
        print_line("configure servers in .mcp.json of this folder or in the user's mcp.json, or name a file with --mcp")
    return 0


def _tools(options: Namespace) -> int:
    tools, unavailable, lines = {}, [], []
    for server, listing, _ in _listings(_chosen(options, options.arguments)):
        tools[server.name] = msgspec.to_builtins(listing.tools)
        unavailable += msgspec.to_builtins(listing.unavailable)
        for spec in listing:
            marks = " [read-only]" * bool(spec.read_only) + " [destructive]" * bool(spec.destructive)
            description = [f"    {line}" for line in spec.description.splitlines()]  # all of it: the model reads it
            lines += [f"{server.name} {spec.name}{marks}", *description]
        _print_problems(listing)
    write_result({"tools": tools, "unavailable": unavailable}, lines, as_json=options.json)
    return int(bool(unavailable))


def _call(options: Namespace) -> int:
    if len(options.arguments) not in (2, 3):
        raise ConfigError("name a server and a tool, and pass arguments as JSON: midspan mcp call SERVER TOOL [JSON]")
    server_name, tool_name, arguments_json = (*options.arguments, "{}")[:3]
    try:
        arguments = msgspec.json.decode(arguments_json, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise ConfigError(f"the arguments are not a JSON object: {arguments_json}") from error
    (server,) = _chosen(options, [server_name])
    with InterruptibleRunner() as runner:
        result = runner.run(_call_tool(server, tool_name, arguments))
    value = result.model_value
    text = value if isinstance(value, str) else msgspec.json.format(msgspec.json.encode(value)).decode()
    lines = [] if value is None else text.splitlines()
    lines += [f"[{blob.media_type}, {len(blob.data):,} bytes]" for blob in result.media]
    write_result(msgspec.to_builtins(result), lines, as_json=options.json)
    return int(result.is_error)


async def _call_tool(server: MCPServer, name: str, arguments: dict[str, Any]) -> ToolResult:
    """Call the tool in a run, in which the server can report progress and ask questions."""
    from midspan._loop.agent import Agent
    from midspan.providers.scripted import ScriptedProvider

    async with aclosing(server):
        listing = await server.list_tools()
        names = [spec.name for spec in listing]
        if name not in names and not listing.unavailable:
            known = ", ".join(names) or "none"
            raise ConfigError(f"the server {server.name!r} has no tool {name!r}; its tools: {known}")
        agent = Agent(ScriptedProvider([ToolCall("call", name, arguments), "done"]), [server])
        result = await agent.run(name, on_question=TERMINAL.on_question)
        return result.tool_calls[0].result


def _doctor(options: Namespace) -> int:
    rows, lines = [], []
    for server, listing, version in _listings(_chosen(options, options.arguments)):
        is_ok, count = not listing.unavailable, len(listing.tools)
        problems = msgspec.to_builtins(listing.unavailable)
        rows.append({"server": server.name, "ok": is_ok, "tools": count, "protocol": version, "problems": problems})
        if version is not None:
            state = "ok" if is_ok else "problem"
            lines.append(f"{state:<8}{server.name}: {count_noun(count, 'tool')}, protocol {version}")
        lines += [f"problem {source.name}: {source.message}" for source in listing.unavailable]
    write_result({"servers": rows}, lines, as_json=options.json)
    return int(not all(row["ok"] for row in rows))


def _trust(options: Namespace) -> int:
    paths = _existing_paths(options)
    for path in paths:
        if needs_trust(options, path) and not accept(path, ask=not options.yes):
            return 1
    servers = make_servers(paths)
    accepted: dict[str, list[str]] = {}
    for server, listing, _ in _listings(servers):
        if not server.held_back:
            _print_problems(listing)
            continue
        for tool, change in server.held_back.items():
            print_line(f"{server.name}.{tool} has changed:")
            sys.stderr.write(f"{escape_lines(change)}\n")
        if options.yes or TERMINAL.confirm(f"Accept the tools of {server.name} as they are now?"):
            accepted[server.name] = list(server.held_back)
            server.accept_changes()
    lines = [f"trusted {path}" for path in paths]
    lines += [f"accepted {name}.{tool}" for name in accepted for tool in accepted[name]]
    write_result({"trusted": list(map(str, paths)), "accepted": accepted}, lines, as_json=options.json)
    return int(any(server.held_back.keys() - set(accepted.get(server.name, ())) for server in servers))


def _chosen(options: Namespace, names: list[str]) -> list[MCPServer]:
    """Return the servers with these names, or all. Raises ConfigError for a project that is not trusted."""
    paths = _existing_paths(options)
    for path in paths:
        if needs_trust(options, path):
            raise ConfigError(f"{str(path)!r} is not trusted yet; accept it with `midspan mcp trust`")
    servers = make_servers(paths, approve=True if options.yes else TERMINAL.approve)
    known = {server.name: server for server in servers}
    for name in names:
        if name not in known:
            raise ConfigError(f"there is no server {name!r}; the servers are: {', '.join(known) or 'none'}")
    return [known[name] for name in names or known]


def _existing_paths(options: Namespace) -> list[Path]:
    paths = config_paths(options)
    if not paths:
        raise ConfigError("there is no configuration of MCP servers; name one with --mcp FILE")
    return paths


def _listings(servers: list[MCPServer]) -> list[tuple[MCPServer, ToolListing, str | None]]:
    """Start the servers, and return each with its tools and the version of the protocol that it speaks."""

    async def listings() -> list[tuple[MCPServer, ToolListing, str | None]]:
        try:
            tools = await asyncio.gather(*(server.list_tools() for server in servers))
            return [(server, listing, server.protocol_version) for server, listing in zip(servers, tools, strict=True)]
        finally:
            await asyncio.gather(*(server.aclose() for server in servers))

    with InterruptibleRunner() as runner:
        return runner.run(listings())


def _print_problems(listing: ToolListing) -> None:
    for source in listing.unavailable:
        summary, *details = source.message.splitlines() or [""]
        print_line(f"{source.name}: {summary}")
        sys.stderr.write("".join(f"    {escape_line(line)}\n" for line in details))


def _serve(options: Namespace) -> int:
    from midspan.tools import serve_mcp, source_of
    from midspan.tools.mcp.serve.server import mcp_server

    server = mcp_server(source_of(load_tools(options.tools)))

    def on_start(url: str) -> None:
        announce(url, "the MCP server is ready")

    async def serve() -> None:
        async with aclosing(server.source):
            await serve_mcp(server, port=options.http, host=options.host, hosts=options.allowed_host, on_start=on_start)

    if options.http is None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a thread that reads stdin would not notice a cancellation
        asyncio.run(serve())
    else:
        serve_until_interrupted(serve())
    return 0


ACTIONS: dict[str, tuple[str, str, Callable[[Namespace], int]]] = {
    "list": ("", "list the servers, without starting them", _list),
    "tools": ("[SERVER …]", "list the tools of these servers, or of all", _tools),
    "call": ("SERVER TOOL [JSON]", "call a tool and print its result", _call),
    "doctor": ("[SERVER …]", "start the servers and say what works", _doctor),
    "trust": ("", "accept .mcp.json of this folder, and changed tools", _trust),
    "serve": ("", "serve your own tools on stdio, or with --http", _serve),
}
"""The arguments of each action, and what it does."""
