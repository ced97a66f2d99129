"""Text for terminals: control characters escaped, lines wrapped between words; messages on stderr, and exit codes."""

import json
import logging
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, TextIO

from midspan import errors

_log = logging.getLogger("midspan")

# Text from models, tools and the web must not control the terminal, so control characters are shown escaped.
_CONTROL = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}
_DIRECTION = {code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}
_ONE_LINE = _CONTROL | _DIRECTION | {ord("\n"): " ", ord("\t"): " ", ord("\r"): ""}
_MANY_LINES = _CONTROL | _DIRECTION | {ord("\n"): "\n", ord("\t"): "\t", ord("\r"): ""}


def escape_line(text: str) -> str:
    """Return the text on one line, without control characters."""
    return text.translate(_ONE_LINE)


def escape_lines(text: str) -> str:
    """Return the text without control characters other than line breaks and tabs."""
    return text.translate(_MANY_LINES)


def wrap_line(text: str, out: TextIO, indent: str = "  ") -> str:
    """Return the text as one line, or wrapped to the width of the terminal if `out` is one."""
    line = escape_line(text)
    if out.isatty():
        from textwrap import fill  # loaded for terminals only

        # Long words are paths and URLs, which users copy.
        columns = terminal_columns(out)
        line = fill(line, columns, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return f"{line}\n"


def terminal_columns(out: TextIO) -> int:
    """Return the width of the terminal that `out` writes to, or COLUMNS if it is set."""
    # Not by shutil.get_terminal_size, which asks stdout.
    columns = os.environ.get("COLUMNS", "")
    width = int(columns) if columns.isdecimal() else 0
    return max(20, width or os.get_terminal_size(out.fileno()).columns or 80)


def format_call(name: str, arguments: dict[str, Any], max_chars: int) -> str:
    """Format a call as in Python: `get_weather(city="Oslo", days=2)`."""
    shown = ", ".join(f"{key}={compact_json(value)}" for key, value in arguments.items())
    return f"{escape_line(name)}({shorten(shown, max_chars)})"


def shorten(text: str, max_chars: int) -> str:
    """Return the text on one line, cut to a length."""
    return escape_line(text if len(text) <= max_chars else f"{text[: max_chars - 1]}…")


def compact_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=repr)


def write_json(value: Any, out: TextIO | None = None) -> None:
    """Print JSON on stdout or `out`: UTF-8, or escaped ASCII in other encodings."""
    out = out or sys.stdout
    is_utf8 = str(out.encoding).lower() in ("utf-8", "utf8")
    write(out, f"{json.dumps(value, ensure_ascii=not is_utf8, indent=2, default=repr)}\n")


def write_result(document: Any, lines: Iterable[str], *, as_json: bool) -> None:
    """Print the result of a command on stdout: a JSON document, or lines."""
    if as_json:
        write_json(document)
    else:
        sys.stdout.write("".join(wrap_line(line, sys.stdout, indent="    ") for line in lines))


def exit_code(error: BaseException) -> int:
    match error:
        case errors.CredentialsError() | errors.AuthenticationError():
            return 3
        case errors.LimitReachedError():
            return 124  # as of the command `timeout`
        case errors.ConfigError() | errors.CodecError() | FileNotFoundError():
            return 2  # as of argparse
    return 1


def error_sentence(error: BaseException) -> str:
    """Return a sentence about an error, on one line."""
    match error:
        case KeyboardInterrupt():
            return "cancelled"
        case SystemExit(code=code):
            return f"a tool ended the program with SystemExit({code!r})"
        case errors.CredentialsError(shell_message=str(message)):
            return " ".join(message.split())
        case errors.MidspanError():
            return " ".join(str(error).split()) or type(error).__name__
        case OSError(strerror=str(reason), filename=filename):
            return f"{filename}: {reason}" if filename else reason
    return f"unexpected error: {type(error).__name__}: {' '.join(str(error).split())}; use -v to see the traceback"


def error_fields(error: BaseException) -> dict[str, str]:
    name = "Interrupted" if isinstance(error, KeyboardInterrupt) else type(error).__name__
    return {"type": name, "message": error_sentence(error)}


def print_error(error: BaseException, sentence: str = "", *, verbose: bool) -> None:
    """Print a sentence about an error, after its traceback if `verbose`."""
    if verbose:
        import traceback  # loaded for -v only

        sys.stderr.write(escape_lines("".join(traceback.format_exception(error))))
    print_line(sentence or error_sentence(error))


def print_line(text: str, prefix: str = "midspan: ") -> None:
    """Print a notice on stderr."""
    write(sys.stderr, wrap_line(f"{prefix}{text}", sys.stderr))


def write(out: TextIO, text: str) -> None:
    out.write(text)
    out.flush()


def announce(url: str, notice: str) -> None:
    """Print the address of a server on stdout, for programs, and a notice on stderr."""
    write(sys.stdout, f"{url}\n")
    print_line(f"{notice}; Ctrl-C stops it")


class _StderrHandler(logging.Handler):
    """Looks up sys.stderr for each record, because the spinner replaces it while it is shown."""

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError, ValueError):  # stderr is closed
            if record.exc_info and record.exc_info[1] is not None:
                is_verbose = _log.isEnabledFor(logging.INFO)
                hint = "" if is_verbose else "; use -v to see the traceback"
                print_error(record.exc_info[1], f"{record.getMessage()}{hint}", verbose=is_verbose)
            elif record.levelno <= logging.DEBUG:  # requests and responses, on many lines
                sys.stderr.write(escape_lines(f"{record.getMessage()}\n"))
            else:
                print_line(record.getMessage())


def configure_logging(verbose: int, command: str) -> None:
    """Show the log of the library on stderr: warnings, with -v also infos and tracebacks, with -vv everything."""
    _log.setLevel((logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)])
    handler = _StderrHandler()
    if command != "serve":  # the other commands show in their own form that a source is unavailable
        handler.addFilter(lambda record: not hasattr(record, "unavailable"))
    _log.addHandler(handler)
