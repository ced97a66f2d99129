"""The command `midspan`: finds the command that is meant, and ends with its exit code."""

import os
import sys
from collections.abc import Sequence

from midspan._version import VERSION


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Whatever goes wrong is one sentence on stderr, after the usage where the arguments are wrong.

    Nobody who went away is complained about.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    _open_what_is_closed()
    try:
        code = _dispatched(given)
        sys.stdout.flush()
    except BrokenPipeError:
        code = 0  # whoever read the output has enough of it
    except OSError as error:
        from midspan._cli.exits import say

        say(f"the output cannot be written: {error.strerror or error}")
        code = 1
    except KeyboardInterrupt as stop:
        from midspan._cli.interrupts import leave

        leave(128 + (stop.args[0] if stop.args else 2))  # by the number of the signal, as a shell does
    _forget_what_cannot_be_written()
    return code


def _dispatched(given: list[str]) -> int:
    name = given[0] if given else ""
    if name in ("--version", "-V"):
        sys.stdout.write(f"midspan {VERSION}\n")
        return 0
    if name in ("--help", "-h", "help"):
        sys.stdout.write(_help())
        return 0
    from midspan._cli.commands import COMMANDS

    if name not in COMMANDS:
        return _unknown(name)
    return _run(name, given[1:])


def _run(name: str, given: list[str]) -> int:
    from midspan._cli.commands import WrongArguments, module_of, parser_of
    from midspan._cli.exits import code_of, tell
    from midspan._cli.logs import listen

    try:
        options = parser_of(name).parse_intermixed_args(given)
    except WrongArguments as wrong:
        return _wrong(name, given, str(wrong))
    except SystemExit as end:  # as argparse ends after help
        return end.code if isinstance(end.code, int) else 2
    listen(options.verbose)
    try:
        return module_of(name).run(options)
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001 - a user gets a sentence, whatever we did wrong
        tell(error, verbose=options.verbose)
        if getattr(options, "json", False):
            _print_object(name, error)
        return code_of(error)


def _wrong(name: str, given: list[str], message: str) -> int:
    sys.stderr.write(f"midspan {name}: error: {message}\n")
    if "--json" in given:
        from midspan.errors import ConfigError

        _print_object(name, ConfigError(message))
    return 2


def _print_object(name: str, error: Exception) -> None:
    """Whoever asked for JSON gets it, also where nothing came of the command."""
    from midspan._cli.report import Report, as_json, fault_of

    whole = Report().document(error, session=None) if name == "ask" else as_json({"error": fault_of(error)})
    sys.stdout.write(whole)


def _unknown(name: str) -> int:
    from difflib import get_close_matches

    from midspan._cli.commands import COMMANDS

    if not name:
        sys.stderr.write(_help())
        return 2
    near = get_close_matches(name, COMMANDS, 1)
    hint = f"did you mean {near[0]}?" if near else f"the commands are: {', '.join(COMMANDS)}"
    sys.stderr.write(f"midspan: there is no command {name!r}; {hint}\n")
    return 2


def _help() -> str:
    from midspan._cli.commands import COMMANDS

    lines = [f"  {name:<11}{command.summary}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "usage: midspan COMMAND …",
            "",
            "The runtime between a language model and its tools.",
            "",
            *lines,
            "",
            "midspan COMMAND --help tells what a command takes; midspan --version the version.",
            "",
        ]
    )


def _open_what_is_closed() -> None:
    """A program may be started without any of the three; in this order each gets its usual number."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115, PTH123 - open until the end
    if sys.stdout is None:
        # Only for reading, so that whoever writes an answer to it hears that it is lost.
        sys.stdout = open(os.open(os.devnull, os.O_RDONLY), "w")  # noqa: SIM115, PTH123 - open until the end
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123 - open until the end
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a terminal that lacks a letter still gets the others
    for own in (sys.__stdout__, sys.__stderr__):
        if own is not None:
            vars(own)["close"] = own.flush  # a tool may close what is not its own


def _forget_what_cannot_be_written() -> None:
    """So that Python does not try again when it ends, and complain."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
