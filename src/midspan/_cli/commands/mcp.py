"""`midspan mcp`: use, check and trust the MCP servers of the configuration, and serve tools over MCP."""

import asyncio
import signal
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from midspan._cli.arguments import add_mcp_argument, port_number
from midspan._cli.interrupts import InterruptibleRunner
from midspan._cli.questions import TERMINAL
from midspan._cli.text import count_noun, escape_line, escape_lines, json_document, print_line, short_path, wrap_line
from midspan._cli.tool_sources import (
    accept,
    config_paths,
    load_tools,
    make_servers,
    needs_trust,
)
from midspan._types.context import RunContext
from midspan._types.parts import ToolCall, ToolResult
from midspan.errors import ConfigError
from midspan.tools import MCPServer, ToolListing


def add_arguments(parser: ArgumentParser) -> None:
    parser.formatter_class = RawDescriptionHelpFormatter
    width = max(map(len, ACTIONS))
    parser.epilog = "actions:\n" + "\n".join(f"  {name:<{width}}  {what}" for name, (what, _) in ACTIONS.items())
    parser.add_argument("action", metavar="ACTION", nargs="?", choices=list(ACTIONS), help=", ".join(ACTIONS))
    parser.add_argument("arguments", nargs="*", metavar="ARGUMENT", help="SERVER TOOL JSON for call, SERVER for tools")
    add_mcp_argument(parser)
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    parser.add_argument("-y", "--yes", action="store_true", help="allow destructive tools; accept what trust shows")
    _add_serve_arguments(parser)


def run(options: Namespace) -> int:
    if options.action is None:
        raise ConfigError(f"name an action: {', '.join(ACTIONS)}; midspan mcp --help describes them")
    _, action = ACTIONS[options.action]
    return action(options)


def _list(options: Namespace) -> int:
    """List the servers without starting them."""
    from midspan.tools.mcp.config import read_config

    rows = [
        {"server": name, "target": entry.target.strip(), "file": str(path), "disabled": entry.disabled,
         "trusted": not needs_trust(options, path)}
        for path in config_paths(options)
        for name, entry in read_config(path, expand=False).items()
    ]  # fmt: skip
    if options.json:
        sys.stdout.write(json_document({"servers": rows}))
        return 0
    for row in rows:
        state = " (disabled)" if row["disabled"] else "" if row["trusted"] else " (not trusted yet)"
        target = row["target"] or "neither a command nor a URL"
        sys.stdout.write(wrap_line(f"{row['server']}: {target}{state}", sys.stdout))
    sys.stdout.write(f"{count_noun(len(rows), 'server')}\n")
    return 0


def _tools(options: Namespace) -> int:
    """List the tools of all servers, or of the named ones."""
    listings = _listings(_chosen(options, options.arguments))
    if options.json:
        tools = {server.name: msgspec.to_builtins(listing.tools) for server, listing, _ in listings}
        problems = [msgspec.to_builtins(source) for _, listing, _ in listings for source in listing.unavailable]
        sys.stdout.write(json_document({"tools": tools, "unavailable": problems}))
    for server, listing, _ in listings:
        for spec in () if options.json else listing:
            marks = "".join(f" [{mark}]" for mark in _marks(spec))
            sys.stdout.write(f"{escape_line(server.name)} {escape_line(spec.name)}{marks}\n")
            for line in escape_lines(spec.description).splitlines():  # all of it: the model reads it
                sys.stdout.write(f"    {line}\n")
        for source in listing.unavailable:
            _print_problem(source.name, source.message)
    return int(any(listing.unavailable for _, listing, _ in listings))


def _marks(spec: Any) -> list[str]:
    marks = {"read-only": spec.read_only, "destructive": spec.destructive}
    return [mark for mark, applies in marks.items() if applies]


def _call(options: Namespace) -> int:
    """Call one tool and print its result."""
    if len(options.arguments) not in (2, 3):
        raise ConfigError("name a server and a tool, and pass arguments as JSON: midspan mcp call SERVER TOOL [JSON]")
    name, tool, *json = options.arguments
    try:
        arguments = msgspec.json.decode(json[0] if json else "{}", type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise ConfigError(f"the arguments are not a JSON object: {json[0]}") from error
    (server,) = _chosen(options, [name])
    result: ToolResult = _with_servers([server], lambda: _call_tool(server, tool, arguments))
    if options.json:
        sys.stdout.write(json_document(msgspec.to_builtins(result)))
    else:
        value = result.model_value
        text = value if isinstance(value, str) else msgspec.json.format(msgspec.json.encode(value)).decode()
        sys.stdout.write(f"{escape_lines(text)}\n" if value is not None else "")
        for blob in result.media:
            sys.stdout.write(f"[{escape_line(blob.media_type)}, {len(blob.data):,} bytes]\n")
    return int(result.is_error)


async def _call_tool(server: MCPServer, name: str, arguments: dict[str, Any]) -> ToolResult:
    listing = await server.list_tools()
    names = [spec.name for spec in listing]
    if name not in names and not listing.unavailable:
        raise ConfigError(f"the server {server.name!r} has no tool {name!r}; its tools: {', '.join(names) or 'none'}")
    return await server.call(ToolCall("call", name, arguments), RunContext(None, call_id="call", host=_Host()))


class _Host:
    """Stands for the run of a call that is made without one."""

    def __init__(self) -> None:
        self.thread = 0

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    def report_progress(self, _context: RunContext[Any], fraction: float | None, message: str) -> None:
        done = "" if fraction is None else f"{fraction:.0%} "
        print_line(f"{done}{message}")

    def report_log(self, _context: RunContext[Any], level: int, message: str) -> None:
        """Say nothing: only the result is printed."""

    async def ask_user(self, question: str, schema: dict[str, Any] | None) -> Any:
        if TERMINAL.on_question is None:
            raise ConfigError("the server asks the user a question, but stdin is not a terminal")
        return await TERMINAL.on_question(question, schema)

    async def call_tool(self, _parent: RunContext[Any], name: str, _arguments: dict[str, Any]) -> Any:
        raise ConfigError(f"{name} cannot be called from here")


def _doctor(options: Namespace) -> int:
    """Start every server and say what works."""
    rows: list[dict[str, Any]] = [
        {"server": server.name, "ok": not listing.unavailable, "tools": len(listing.tools), "protocol": version,
         "problems": [msgspec.to_builtins(source) for source in listing.unavailable]}
        for server, listing, version in _listings(_chosen(options, options.arguments))
    ]  # fmt: skip
    if options.json:
        sys.stdout.write(json_document({"servers": rows}))
    for row in () if options.json else rows:
        if row["protocol"] is not None:
            tools = count_noun(row["tools"], "tool")
            line = f"{'ok' if row['ok'] else 'problem':<8}{row['server']}: {tools}, protocol {row['protocol']}"
            sys.stdout.write(wrap_line(line, sys.stdout, indent=" " * 8))
        for problem in row["problems"]:
            line = f"problem {problem['name']}: {problem['message']}"
            sys.stdout.write(wrap_line(line, sys.stdout, indent=" " * 8))
    return int(not all(row["ok"] for row in rows))


def _trust(options: Namespace) -> int:
    """Show and accept the project's servers and the tools that have changed."""
    from midspan.tools.mcp.config import read_config

    paths = config_paths(options)
    if not paths:
        raise ConfigError("there is no configuration of MCP servers; name one with --mcp FILE")
    for path in paths:
        if needs_trust(options, path) and not accept(path, ask=not options.yes):
            return 1
    servers = make_servers(paths)
    accepted: dict[str, list[str]] = {}
    for server, listing, _ in _listings(servers):
        for source in listing.unavailable if not server.held_back else ():
            _print_problem(source.name, source.message)
        for tool, change in server.held_back.items():
            print_line(f"{server.name}.{tool} has changed:")
            sys.stderr.write(f"{escape_lines(change)}\n")
        if server.held_back and (
            options.yes or TERMINAL.confirm(f"Accept the tools of {server.name} as they are now?")
        ):
            accepted[server.name] = list(server.held_back)
            server.accept_changes()
    if options.json:
        sys.stdout.write(json_document({"trusted": list(map(str, paths)), "accepted": accepted}))
    else:
        for path in paths:
            count = len(read_config(path, expand=False))
            sys.stdout.write(f"trusted {short_path(path)} ({count_noun(count, 'server')})\n")
        if accepted:
            sys.stdout.write(f"accepted {count_noun(sum(map(len, accepted.values())), 'changed tool')}\n")
    return int(any(server.held_back.keys() - set(accepted.get(server.name, ())) for server in servers))


def _chosen(options: Namespace, names: list[str]) -> list[MCPServer]:
    """Return the servers with these names, or all. Raises ConfigError for a project that is not trusted."""
    paths = config_paths(options)
    if not paths:
        raise ConfigError("there is no configuration of MCP servers; name one with --mcp FILE")
    for path in paths:
        if needs_trust(options, path):
            raise ConfigError(f"{str(path)!r} is not trusted yet; accept it with `midspan mcp trust`")
    servers = make_servers(paths, approve=True if options.yes else TERMINAL.approve)
    known = {server.name: server for server in servers}
    for name in names:
        if name not in known:
            raise ConfigError(f"there is no server {name!r}; the servers are: {', '.join(known) or 'none'}")
    return [known[name] for name in names] if names else servers


def _listings(servers: list[MCPServer]) -> list[tuple[MCPServer, ToolListing, str | None]]:
    """Start the servers, and return each with its tools and the version of the protocol that it speaks."""

    async def listing(server: MCPServer) -> tuple[MCPServer, ToolListing, str | None]:
        return server, await server.list_tools(), server.protocol_version

    listings: list[Any] = _with_servers(servers, lambda: asyncio.gather(*map(listing, servers)))
    return listings


def _with_servers(servers: list[MCPServer], use: Callable[[], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        try:
            return await use()
        finally:
            await asyncio.gather(*(server.aclose() for server in servers))

    with InterruptibleRunner() as runner:
        return runner.run(main())


def _print_problem(name: str, message: str) -> None:
    print_line(f"{name}: {message.splitlines()[0] if message else ''}")
    for line in message.splitlines()[1:]:
        sys.stderr.write(f"    {escape_line(line)}\n")


def _add_serve_arguments(parser: ArgumentParser) -> None:
    serve = parser.add_argument_group("options of serve")
    serve.add_argument(
        "-t",
        "--tools",
        metavar="FILE.py|MODULE",
        action="append",
        help='serve the tools of a file or module; "ready", the default, means the ready tools; repeatable',
    )
    serve.add_argument("--http", metavar="PORT", type=port_number, help="serve over HTTP, at /mcp, instead of stdio")
    serve.add_argument(
        "--host", metavar="H", default="127.0.0.1", help="the address to listen on (default: %(default)s)"
    )
    serve.add_argument(
        "--allowed-host",
        metavar="NAME",
        action="append",
        default=[],
        help='a name or address under which clients reach the server; "*" allows all; repeatable',
    )


def _serve(options: Namespace) -> int:
    """Serve tools until stdin ends, or with --http until Ctrl-C."""
    from midspan.tools import source_of
    from midspan.tools.mcp.serve.server import mcp_server

    source = source_of(load_tools(options.tools))
    server = mcp_server(source)
    if options.http is None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a thread that reads stdin would not notice a cancellation
        asyncio.run(_serve_source(server, options))
        return 0
    with InterruptibleRunner() as runner:
        try:
            runner.run(_serve_source(server, options))
        except KeyboardInterrupt:
            print_line("the server has ended")
    return 0


async def _serve_source(server: Any, options: Namespace) -> None:
    from midspan.tools import serve_mcp

    try:
        await serve_mcp(server, port=options.http, host=options.host, hosts=options.allowed_host, on_start=_show)
    finally:
        await server.source.aclose()


def _show(url: str) -> None:
    sys.stdout.write(f"{url}\n")
    sys.stdout.flush()
    print_line("the MCP server is ready; Ctrl-C ends it")


ACTIONS: dict[str, tuple[str, Callable[[Namespace], int]]] = {
    "list": ("list the servers of the configuration, without starting them", _list),
    "tools": ("list the tools of all servers, or of those that are named", _tools),
    "call": ("call a tool: midspan mcp call SERVER TOOL JSON", _call),
    "doctor": ("start the servers and say what works", _doctor),
    "trust": ("accept the .mcp.json of this folder, and tools that have changed", _trust),
    "serve": ("serve tools of yours over stdio, or over HTTP with --http PORT", _serve),
}
