"""The command line: runs a command and returns its exit code."""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress

from midspan._version import VERSION


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Errors are one sentence on stderr, after the usage if the arguments are wrong."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # it was closed, as by `>&-`
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115, PTH123 - stays open
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # characters that the locale cannot encode
    try:
        return _dispatch(argv)
    except BrokenPipeError:
        return 0  # the reader of the output has closed the pipe, as `head` does
    except KeyboardInterrupt:
        from midspan._cli.interrupts import EXIT_CODE, exit_now
        from midspan._cli.text import print_line

        print_line("cancelled")
        exit_now(EXIT_CODE)
    finally:
        _discard_unwritable_output()


def _dispatch(argv: list[str]) -> int:
    name = argv[0] if argv else ""
    if name in ("--version", "-V"):
        sys.stdout.write(f"midspan {VERSION}\n")
        return 0
    from midspan._cli.arguments import COMMANDS, root_parser

    if name in COMMANDS:
        return _run(name, argv[1:])
    if not argv or name in ("--help", "-h", "help"):
        root_parser().print_help(sys.stdout if argv else sys.stderr)
        return 0 if argv else 2
    if argv == [name] and name.isalpha():
        from difflib import get_close_matches  # loaded for questions of one word

        from midspan._cli.text import print_line

        if close := get_close_matches(name, COMMANDS, 1, 0.8):
            print_line(f"unknown command {name}; use midspan {close[0]}, or midspan ask {name}")
            return 2
    return _run("ask", argv)


def _run(name: str, argv: list[str]) -> int:
    from midspan._cli.arguments import command_parser, load_command
    from midspan._cli.commands.keys import load_keys
    from midspan._cli.text import configure_logging, error_fields, exit_code, print_error, write_json

    try:
        parser = command_parser(name)
        # Intermixed arguments lose their `--`, and what follows it may look like an option.
        options = parser.parse_args(argv) if "--" in argv else parser.parse_intermixed_args(argv)
    except SystemExit as end:  # argparse has printed the help, or what is wrong
        return end.code if isinstance(end.code, int) else 2
    configure_logging(options.verbose, name)
    try:
        if name != "doctor":  # it reports a file of keys that cannot be read, and continues
            load_keys()
        code: int = load_command(name).run(options)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - users get a sentence, whatever the error is
        print_error(error, verbose=bool(options.verbose))
        if getattr(options, "json", False) and name != "ask":  # which prints more than the error
            with suppress(OSError):  # stdout cannot be written
                write_json({"error": error_fields(error)})
        return exit_code(error)


def _discard_unwritable_output() -> None:
    """Redirect streams that cannot be flushed to /dev/null, because Python flushes them again at exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
