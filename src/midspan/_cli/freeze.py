"""`midspan freeze`: recordings as a test, on stdout or in a file."""

import importlib
import sys
from argparse import ArgumentParser, Namespace
from contextlib import redirect_stdout
from pathlib import Path

from midspan._cli.exits import say
from midspan.errors import ConfigError


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("directory", metavar="DIR", help="where the runs were recorded, or the file of one")
    parser.add_argument("-a", "--agent", metavar="MODULE:NAME", help="where the agent is; a pytest fixture if left out")
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write the test there, and not to stdout; it then runs from anywhere"
    )


def run(options: Namespace) -> int:
    from midspan.testing.freezing import freeze

    _check_recordings(Path(options.directory))
    source = freeze(options.directory, agent=options.agent, output=options.output)
    if options.agent is not None:
        _check_agent(options.agent)
    if options.output is None:
        sys.stdout.write(source)
        return 0
    try:
        Path(options.output).write_text(source, "utf-8")
    except OSError as error:
        raise ConfigError(f"{options.output!r} cannot be written: {error.strerror}") from error
    say(f"the test is in {options.output}")
    return 0


def _check_recordings(place: Path) -> None:
    if not place.exists():
        raise ConfigError(f"there is no recording {str(place)!r}; make one with midspan ask --record {str(place)!r}")
    if place.is_dir() and not any(place.glob("run-*.jsonl")):
        raise ConfigError(f"no run is recorded in {str(place)!r}; record some with midspan ask --record {str(place)!r}")


def _check_agent(place: str) -> None:
    """Whether the test will find its agent, as it would be imported from here."""
    module, _, name = place.partition(":")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)
    try:
        with redirect_stdout(sys.stderr):  # what a module prints is no part of the test
            found = importlib.import_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a user's module is foreign code, which may even call sys.exit
        what = f"{type(error).__name__}: {error}".rstrip(": ")
        raise ConfigError(f"the agent {place!r} cannot be imported from here: {what}") from error
    if not hasattr(found, name):
        raise ConfigError(f"the module {module!r} has no {name!r}; --agent names an agent that a test can import")
