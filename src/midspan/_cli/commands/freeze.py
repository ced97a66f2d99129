"""`midspan freeze`: a pytest test from recorded runs."""

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from midspan._cli.arguments import complete_paths
from midspan._cli.text import print_line
from midspan.errors import ConfigError
from midspan.tools.files import import_user_module, user_code


def add_arguments(parser: ArgumentParser) -> None:
    complete_paths(
        parser.add_argument("directory", metavar="DIR", help="the directory of the recordings, or one recording")
    )
    parser.add_argument(
        "-a", "--agent", metavar="MODULE:NAME", help="the agent to test (default: the pytest fixture `agent`)"
    )
    complete_paths(
        parser.add_argument("-o", "--output", metavar="FILE", help="write the test to FILE instead of stdout")
    )


def run(options: Namespace) -> int:
    from midspan.testing import freeze

    source = freeze(options.directory, agent=options.agent, output=options.output)
    if options.agent is not None:
        _check_agent(options.agent)
    if options.output is None:
        sys.stdout.write(source)
        return 0
    try:
        Path(options.output).write_text(source, "utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write {options.output!r}: {error.strerror}") from error
    print_line(f"wrote the test to {options.output}")
    return 0


def _check_agent(place: str) -> None:
    """Make sure that the test can import the agent."""
    module_name, _, name = place.partition(":")
    with user_code(f"cannot import the agent {place!r}"):
        module = import_user_module(module_name)
    if not hasattr(module, name):
        raise ConfigError(f"the module {module_name!r} has no {name!r}; --agent is the MODULE:NAME of an agent")
