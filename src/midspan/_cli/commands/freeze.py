"""`midspan freeze`: a pytest test from recorded runs."""

import sys
from argparse import ArgumentParser, Namespace
from contextlib import redirect_stdout
from pkgutil import resolve_name

from midspan._cli.arguments import add_path
from midspan.errors import ConfigError


def add_arguments(parser: ArgumentParser) -> None:
    add_path(parser, "directory", metavar="DIR", help="the directory of the recordings, or one recording")
    agent_help = "the agent to test (default: the pytest fixture `agent`)"
    parser.add_argument("-a", "--agent", metavar="MODULE:NAME", help=agent_help)


def run(options: Namespace) -> int:
    from midspan._loop.agent import Agent
    from midspan.testing import freeze

    source = freeze(options.directory, agent=options.agent)
    if options.agent is not None:
        sys.path.insert(0, "")
        try:
            with redirect_stdout(sys.stderr):  # the module may print
                agent = resolve_name(options.agent)
        except (ImportError, AttributeError, ValueError) as error:
            raise ConfigError(f"there is no agent {options.agent!r}: {error}") from error
        if not isinstance(agent, Agent):
            raise ConfigError(f"{options.agent!r} is not an Agent")
    sys.stdout.write(source)
    return 0
