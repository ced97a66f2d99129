"""The commands, each in a module that is imported when the command is used, and the arguments that they share."""

import argparse
import sys
from importlib import import_module
from typing import NoReturn, Protocol, cast

from midspan.errors import ConfigError

COMMANDS = {
    "ask": "ask one question and print the answer",
    "chat": "have a conversation, which is saved",
    "tools": "list the tools, and check them with --lint",
    "models": "list the models",
    "doctor": "check installation, settings, credentials and connections",
    "emulate": "run a local Gemini server for tests",
    "freeze": "write a pytest test from recorded runs",
    "completion": "print a completion script for your shell",
}
"""The commands, each in the module of its name, with what they do."""


class CommandModule(Protocol):
    """What the module of a command defines."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, options: argparse.Namespace) -> int:
        """Run the command and return its exit code."""


class _Parser(argparse.ArgumentParser):
    """Raises ConfigError where argparse would exit."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        raise ConfigError(message)


def load_command(name: str) -> CommandModule:
    return cast("CommandModule", import_module(f"midspan._cli.{name}"))


def root_parser(*, with_arguments: bool = False) -> argparse.ArgumentParser:
    """Return the parser of `midspan` itself. It imports the commands only if it shall know their arguments."""
    root = argparse.ArgumentParser(
        "midspan",
        description="The runtime between a language model and its tools.",
        epilog="midspan COMMAND --help describes a command.",
    )
    root.add_argument("-V", "--version", action="version", help="show the version")
    subparsers = root.add_subparsers(title="commands", metavar="COMMAND")
    for name, summary in COMMANDS.items():
        parser = subparsers.add_parser(name, help=summary)
        if with_arguments:
            _add_arguments(name, parser)
    return root


def command_parser(name: str) -> argparse.ArgumentParser:
    summary = COMMANDS[name]
    parser = _Parser(prog=f"midspan {name}", description=f"{summary[0].upper()}{summary[1:]}.", allow_abbrev=False)
    _add_arguments(name, parser)
    return parser


def _add_arguments(name: str, parser: argparse.ArgumentParser) -> None:
    load_command(name).add_arguments(parser)
    parser.add_argument(
        "-v", "--verbose", action="count", default=0, help="show tracebacks and more of the run; -vv the full log"
    )


def complete_paths(action: argparse.Action) -> None:
    """Let the shell complete paths for an argument. Only `midspan completion` imports shtab."""
    if shtab := sys.modules.get("shtab"):
        action.complete = shtab.FILE  # type: ignore[attr-defined]  # where shtab looks for it


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-m", "--model", metavar="MODEL", help="the model as provider:model; see midspan models")
    parser.add_argument("-s", "--system", metavar="TEXT", help="the system prompt")
    parser.add_argument("--max-turns", metavar="N", type=_positive_integer, help="the maximum number of turns of a run")


def add_tool_arguments(parser: argparse.ArgumentParser) -> None:
    tools = parser.add_mutually_exclusive_group()
    complete_paths(
        tools.add_argument(
            "-t",
            "--tools",
            metavar="FILE.py|MODULE",
            action="append",
            help="take the tools from a file or module; «ready» means the ready tools; repeatable",
        )
    )
    tools.add_argument("--no-tools", action="store_true", help="use no tools")
    parser.add_argument(
        "-y",
        "--yes",
        action="store_true",
        help="allow all tools where no model is configured (default: read-only ones)",
    )


def _positive_integer(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)
