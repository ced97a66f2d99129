"""The commands there are; each is a module of its own, which is loaded when it is called."""

import argparse
import sys
from importlib import import_module
from typing import NamedTuple, NoReturn, Protocol, cast


class Command(NamedTuple):
    """Where a command is, and what it does in one line."""

    module: str
    summary: str


COMMANDS = {
    "ask": Command("midspan._cli.ask", "ask one question and print the answer"),
    "chat": Command("midspan._cli.chat.command", "talk, with the conversation kept"),
    "tools": Command("midspan._cli.tools", "show the tools, and what is wrong with them"),
    "models": Command("midspan._cli.models", "show the models"),
    "doctor": Command("midspan._cli.doctor", "look whether everything is in place"),
    "emulate": Command("midspan._cli.emulate", "serve a local Gemini to test against"),
    "freeze": Command("midspan._cli.freeze", "make a test of recorded runs"),
    "completion": Command("midspan._cli.completion", "print a completion script for a shell"),
}


class CommandModule(Protocol):
    """What the module of a command has."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Say what it takes."""

    def run(self, options: argparse.Namespace) -> int:
        """Do it, and return the exit code."""


class WrongArguments(Exception):
    """What argparse says of them."""


class _Parser(argparse.ArgumentParser):
    """One that leaves it to the command to end."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        raise WrongArguments(message)


def module_of(name: str) -> CommandModule:
    return cast("CommandModule", import_module(COMMANDS[name].module))


def parser_of(name: str) -> argparse.ArgumentParser:
    """The parser of one command."""
    module = module_of(name)
    parser = _Parser(
        prog=f"midspan {name}",
        description=f"{COMMANDS[name].summary[0].upper()}{COMMANDS[name].summary[1:]}.",
        allow_abbrev=False,
    )
    module.add_arguments(parser)
    parser.add_argument("-v", "--verbose", action="count", default=0, help="say more; twice for all that is sent")
    return parser
