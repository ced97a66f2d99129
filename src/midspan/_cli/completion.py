"""`midspan completion`: a script that completes commands and options, made from the parsers themselves."""

import argparse
import sys

from midspan._cli.commands import COMMANDS, parser_of
from midspan._cli.shells import SHELLS, Option

_FILES = ("--tools", "--file", "--script")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=list(SHELLS), help="put its output where your shell looks for completions")


def run(options: argparse.Namespace) -> int:
    summaries = {name: command.summary for name, command in COMMANDS.items()}
    sys.stdout.write(SHELLS[options.shell](summaries, {name: _options(name) for name in COMMANDS}))
    return 0


def _options(name: str) -> list[Option]:
    """All that a command takes, as its parser knows it."""
    return [
        Option(
            flags=tuple(action.option_strings),
            help=(action.help or "").replace("%%", "%"),
            takes_value=action.nargs != 0,
            takes_file=any(flag in _FILES for flag in action.option_strings),
            choices=tuple(map(str, action.choices or ())),
        )
        for action in parser_of(name)._actions
    ]
