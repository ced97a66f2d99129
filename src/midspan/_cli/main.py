"""The command line: runs a command and returns its exit code."""

import codecs
import os
import sys
from collections.abc import Sequence

from midspan._version import VERSION

_ASCII = str.maketrans({"→": "->", "←": "<-", "✗": "x", "✓": "+", "…": "..."})


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Errors are one sentence on stderr, after the usage if the arguments are wrong."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    if not _open_standard_streams():
        return 1
    try:
        code = _dispatch(argv)
        sys.stdout.flush()
    except BrokenPipeError:
        code = 0  # the reader of the output has closed the pipe, as `head` does
    except OSError as error:
        from midspan._cli.text import print_line

        print_line(f"cannot write the output: {error.strerror or error}")
        code = 1
    except KeyboardInterrupt as interrupt:
        from midspan._cli.interrupts import leave
        from midspan._cli.text import print_line

        print_line("cancelled")
        leave(128 + (interrupt.args[0] if interrupt.args else 2))  # 128 + the number of the signal, as in a shell
    _discard_unwritable_output()
    return code


def _dispatch(argv: list[str]) -> int:
    name = argv[0] if argv else ""
    if name in ("--version", "-V"):
        sys.stdout.write(f"midspan {VERSION}\n")
        return 0
    from midspan._cli.arguments import COMMANDS, root_parser

    if name in COMMANDS:
        return _run(name, argv[1:])
    if name in ("--help", "-h", "help", ""):
        root_parser().print_help(sys.stdout if name else sys.stderr)
        return 0 if name else 2
    import re
    import shlex
    from difflib import get_close_matches

    from midspan._cli.prompt import has_piped_input
    from midspan._cli.text import print_line

    close = get_close_matches(name, COMMANDS, 1)
    may_be_command = re.fullmatch(r"[a-z][a-z-]*", name) is not None and (len(argv) == 1 or bool(close))
    if not may_be_command or has_piped_input() or any(argument.startswith(("-f", "--file")) for argument in argv):
        return _run("ask", argv)
    hint = f"did you mean {close[0]}?" if close else f"known commands: {', '.join(COMMANDS)}."
    print_line(f"unknown command {name!r}; {hint} To ask it as a question: {shlex.join(['midspan', 'ask', *argv])}")
    return 2


def _run(name: str, argv: list[str]) -> int:
    from midspan._cli.arguments import command_parser, load_command
    from midspan._cli.commands.keys import load_keys
    from midspan._cli.text import configure_logging, exit_code, print_error, print_line

    verbose = None
    try:
        options = command_parser(name).parse_intermixed_args(argv)
        verbose = options.verbose
        configure_logging(verbose, name)
        if name != "doctor":  # it reports a file of keys that cannot be read, and goes on
            load_keys()
        return load_command(name).run(options)
    except SystemExit as end:
        if verbose is None:  # argparse has printed the help
            return end.code if isinstance(end.code, int) else 2
        print_line(f"a tool ended the program with SystemExit({end.code!r})")
        return end.code if isinstance(end.code, int) and end.code else 1
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001 - users get a sentence, whatever the error is
        print_error(error, verbose=bool(verbose))
        if "--json" in argv:
            _print_json_error(name, error)
        return exit_code(error)


def _print_json_error(name: str, error: Exception) -> None:
    from midspan._cli.commands.ask import Report, error_fields
    from midspan._cli.text import json_document

    document = Report().document(error) if name == "ask" else json_document({"error": error_fields(error)})
    sys.stdout.write(document)


def _open_standard_streams() -> bool:
    """Replace closed standard streams, and return whether there is a stdout to write to."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115, PTH123 - stays open
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123 - stays open
    if sys.stdout is None:
        sys.stderr.write("midspan: stdout is closed, so there is nowhere to write the output\n")
        return False
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=_replace_unencodable.__name__)
    return True


def _replace_unencodable(error: UnicodeError) -> tuple[str, int]:
    """Replace characters that the locale cannot encode: ours by similar ones, others by escape sequences."""
    assert isinstance(error, UnicodeEncodeError), "the standard streams that are reconfigured only encode"
    text = error.object[error.start : error.end]
    return text.translate(_ASCII).encode("ascii", "backslashreplace").decode(), error.end


codecs.register_error(_replace_unencodable.__name__, _replace_unencodable)


def _discard_unwritable_output() -> None:
    """Keep Python from trying to flush it again at exit, and complaining."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
