"""`midspan freeze`: a pytest test from recorded runs."""

import sys
from argparse import ArgumentParser, Namespace

from midspan._cli.arguments import add_path


def add_arguments(parser: ArgumentParser) -> None:
    add_path(parser, "directory", metavar="DIR", help="the directory of the recordings, or one recording")
    agent_help = "the agent to test (default: the pytest fixture `agent`)"
    parser.add_argument("-a", "--agent", metavar="MODULE:NAME", help=agent_help)


def run(options: Namespace) -> int:
    from midspan.testing import freeze

    sys.stdout.write(freeze(options.directory, agent=options.agent))
    return 0
