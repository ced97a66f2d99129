"""`midspan freeze`: a pytest test from recorded runs."""

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from midspan._cli.arguments import add_path
from midspan._cli.text import print_line


def add_arguments(parser: ArgumentParser) -> None:
    add_path(parser, "directory", metavar="DIR", help="the directory of the recordings, or one recording")
    agent_help = "the agent to test (default: the pytest fixture `agent`)"
    parser.add_argument("-a", "--agent", metavar="MODULE:NAME", help=agent_help)
    add_path(parser, "-o", "--output", metavar="FILE", help="write the test to FILE instead of stdout")


def run(options: Namespace) -> int:
    from midspan.testing import freeze

    source = freeze(options.directory, agent=options.agent, output=options.output)
    if options.output is None:
        sys.stdout.write(source)
        return 0
    Path(options.output).write_text(source, "utf-8")
    print_line(f"wrote the test to {options.output}")
    return 0
