"""Messages on stderr, and the exit code of each error."""

import logging
import sys
import traceback
from contextlib import suppress

from midspan._cli.text import escape_lines, wrap_line
from midspan.errors import AuthenticationError, CodecError, ConfigError, CredentialsError, LimitReached, MidspanError


def exit_code(error: BaseException) -> int:
    match error:
        case CredentialsError() | AuthenticationError():
            return 3
        case LimitReached():
            return 124  # as of the command `timeout`
        case ConfigError() | CodecError():
            return 2  # as of argparse
    return 1


def describe_error(error: BaseException) -> str:
    """Return a sentence about an error, on one line."""
    match error:
        case KeyboardInterrupt():
            return "cancelled"
        case CredentialsError(shell_message=str(message)):
            return " ".join(message.split())
        case MidspanError():
            return " ".join(str(error).split()) or type(error).__name__
        case OSError(strerror=str(reason), filename=filename):
            return f"{filename}: {reason}" if filename else reason
    return f"unexpected error: {type(error).__name__}: {' '.join(str(error).split())}; use -v to see the traceback"


def print_error(error: BaseException, *, verbose: bool) -> None:
    """Print a sentence about an error, after its traceback if `verbose`."""
    if verbose:
        traceback.print_exception(error, file=sys.stderr)
    print_line(describe_error(error))


def print_line(text: str, prefix: str = "midspan: ") -> None:
    """Print a notice on stderr."""
    sys.stderr.write(wrap_line(f"{prefix}{text}", sys.stderr))
    sys.stderr.flush()


class _StderrHandler(logging.Handler):
    """Looks up sys.stderr for each record, because the spinner replaces it while it is shown."""

    with_tracebacks = False

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        text = record.getMessage()
        if error is not None and not self.with_tracebacks:
            text = f"{text}; use -v to see the traceback"
        with suppress(OSError, ValueError):  # stderr is closed
            if error is not None and self.with_tracebacks:
                sys.stderr.write(escape_lines("".join(traceback.format_exception(error))))
            print_line(text)


_handler = _StderrHandler()


def configure_logging(verbose: int) -> None:
    """Show the log of the library on stderr: warnings, with -v also infos and tracebacks, with -vv everything."""
    log = logging.getLogger("midspan")
    log.setLevel((logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)])
    log.addHandler(_handler)
    _handler.with_tracebacks = bool(verbose)
