"""`wasat freeze`: recordings as a test, on stdout."""

import sys
from argparse import ArgumentParser, Namespace


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("directory", metavar="DIR", help="where the runs were recorded, or the file of one")
    parser.add_argument("-a", "--agent", metavar="MODULE:NAME", help="where the agent is; a pytest fixture if left out")


def run(options: Namespace) -> int:
    from wasat.testing.freezing import freeze

    sys.stdout.write(freeze(options.directory, agent=options.agent))
    return 0
