"""The commands, imported when they are used, and the arguments that they share."""

import argparse
import sys
from importlib import import_module
from types import ModuleType
from typing import Any, NoReturn

COMMANDS = {
    "ask": "ask one question and print the answer; the word ask can be left out",
    "chat": "have a conversation",
    "runs": "list, show and delete past runs",
    "keys": "store API keys",
    "tools": "list the tools, and check them with --lint",
    "models": "list the models",
    "mcp": "list, call, check and trust the tools of MCP servers, and serve your own",
    "doctor": "check installation, settings, credentials and connections",
    "serve": "serve the model and its tools over HTTP",
    "emulate": "run a local Gemini server for tests",
    "worker": "run the tools of a file for a host that listens for workers",
    "freeze": "write a pytest test from recorded runs",
    "completion": "print a completion script for your shell",
}
"""The commands, each a module of `_cli/commands`, with what they do."""


def load_command(name: str) -> ModuleType:
    """Import a command: a module with `add_arguments(parser)`, and `run(options)`, which returns the exit code."""
    return import_module(f"midspan._cli.commands.{name}")


def root_parser(*, with_arguments: bool = False) -> argparse.ArgumentParser:
    """Return the parser of `midspan` itself. It imports the commands only for `with_arguments`."""
    root = argparse.ArgumentParser(
        "midspan",
        description="The runtime between a language model and its tools.",
        epilog='midspan "What is 2 + 2?" asks a question. midspan COMMAND --help describes a command.',
    )
    root.add_argument("-V", "--version", action="version", help="show the version")
    subparsers = root.add_subparsers(title="commands", metavar="COMMAND")
    for name, summary in COMMANDS.items():
        parser = subparsers.add_parser(name, help=summary)
        if with_arguments:
            _add_arguments(name, parser)
    return root


def command_parser(name: str) -> argparse.ArgumentParser:
    description = f"{COMMANDS[name][0].upper()}{COMMANDS[name][1:]}."
    parser = _CommandParser(f"midspan {name}", description=description, allow_abbrev=False)
    _add_arguments(name, parser)
    return parser


class _CommandParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        from midspan._cli.text import print_line  # loaded for errors only

        self.print_usage(sys.stderr)
        print_line(message, prefix=f"{self.prog}: error: ")
        sys.exit(2)


def _add_arguments(name: str, parser: argparse.ArgumentParser) -> None:
    load_command(name).add_arguments(parser)
    details = "show retries, whole results, more of the log, and tracebacks; -vv also requests and responses"
    parser.add_argument("-v", "--verbose", action="count", default=0, help=details)


def add_path(parser: Any, *names: str, **options: Any) -> None:
    """Add an argument for which the shell completes paths. Only `midspan completion` imports shtab."""
    action = parser.add_argument(*names, **options)
    if shtab := sys.modules.get("shtab"):
        action.complete = shtab.FILE


def add_json_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-m", "--model", metavar="PROVIDER:MODEL", help="the model; midspan models lists them")
    parser.add_argument("-s", "--system", metavar="PROMPT", help="the system prompt")
    option_help = "a setting of the model, such as temperature=0.2, max_tokens=500 or thinking=high; repeatable"
    parser.add_argument("-o", "--option", metavar="KEY=VALUE", action="append", default=[], help=option_help)
    parser.add_argument(
        "--max-turns", metavar="N", type=positive_number, help="ask the model at most N times (default: 10)"
    )


def add_log_arguments(parser: argparse.ArgumentParser) -> None:
    session = parser.add_mutually_exclusive_group()
    session.add_argument(
        "-c", "--continue", dest="continue_last", action="store_true", help="continue the last conversation"
    )
    session.add_argument("--session", metavar="NAME", help="continue the conversation NAME, or start it")
    parser.add_argument("--no-log", action="store_true", help="do not log this conversation")


def add_tool_arguments(parser: argparse.ArgumentParser) -> None:
    tools = parser.add_mutually_exclusive_group()
    add_tools_argument(tools)
    tools.add_argument("--no-tools", action="store_true", help="use no tools")
    add_mcp_argument(parser)
    yes_help = "allow destructive tools; with the offline model chosen by default, also tools that are not read-only"
    parser.add_argument("-y", "--yes", action="store_true", help=yes_help)


def add_tools_argument(parser: Any) -> None:
    tools_help = 'take the tools from a file or module; "ready" means the ready tools; repeatable'
    add_path(parser, "-t", "--tools", metavar="FILE.py|MODULE", action="append", help=tools_help)


def add_mcp_argument(parser: argparse.ArgumentParser) -> None:
    mcp_help = "use the MCP servers of FILE (default: .mcp.json and the user's mcp.json; for serve, none); repeatable"
    add_path(parser, "--mcp", metavar="FILE", action="append", default=[], help=mcp_help)


def add_host_argument(parser: Any) -> None:
    host_help = "the address to listen on (default: %(default)s)"
    parser.add_argument("--host", metavar="H", default="127.0.0.1", help=host_help)


def port_number(text: str) -> int:
    return _number(text, 0, 65_535, "a port number")


def positive_number(text: str) -> int:
    return _number(text, 1, 10**9, "a number")


def _number(text: str, minimum: int, maximum: int, noun: str) -> int:
    if not (text.isdecimal() and minimum <= int(text) <= maximum):
        raise argparse.ArgumentTypeError(f"{text!r} is not {noun} from {minimum} to {maximum}")
    return int(text)


def comma_list(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise argparse.ArgumentTypeError("pass names separated by commas")
    return names
