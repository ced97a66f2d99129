"""`midspan completion`: a completion script for a shell. Needs shtab, from the extra `cli`."""

import sys
from argparse import ArgumentParser, Namespace

from midspan._cli.arguments import root_parser
from midspan.errors import ConfigError


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("shell", choices=["bash", "zsh", "fish"], help="the shell that the script is for")


def run(options: Namespace) -> int:
    try:
        import shtab
    except ImportError as error:
        raise ConfigError("this command needs the package shtab; install it with pip install 'midspan[cli]'") from error
    sys.stdout.write(f"{shtab.complete(root_parser(with_arguments=True), options.shell)}\n")
    return 0
