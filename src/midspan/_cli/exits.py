"""What a failure is for whoever called the command: a sentence on stderr, and an exit code."""

import sys
from enum import IntEnum

from midspan.errors import AuthenticationError, CodecError, ConfigError, CredentialsError, LimitReached, MidspanError


class Exit(IntEnum):
    OK = 0
    FAILED = 1
    USAGE = 2
    NO_CREDENTIALS = 3
    LIMIT = 124
    """As the command `timeout` says it."""
    INTERRUPTED = 130


def code_of(error: BaseException) -> Exit:
    match error:
        case KeyboardInterrupt():
            return Exit.INTERRUPTED
        case CredentialsError() | AuthenticationError():
            return Exit.NO_CREDENTIALS
        case LimitReached():
            return Exit.LIMIT
        case ConfigError() | CodecError():
            return Exit.USAGE
    return Exit.FAILED


def sentence_of(error: BaseException) -> str:
    """The failure on one line."""
    if isinstance(error, KeyboardInterrupt):
        return "stopped"
    if isinstance(error, MidspanError):
        # Some errors have another wording for a shell, where nobody can pass arguments to a function.
        message = (isinstance(error, CredentialsError) and error.shell_message) or str(error)
        return " ".join(message.split()) or type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return f"something went wrong inside: {type(error).__name__}: {' '.join(str(error).split())}; -v shows where"


def tell(error: BaseException, *, verbose: bool) -> None:
    """Say what went wrong; the traceback only to those who asked for it."""
    if verbose and not isinstance(error, KeyboardInterrupt):
        import traceback

        traceback.print_exception(error, file=sys.stderr)
    say(sentence_of(error))


def say(words: str) -> None:
    """A line on stderr."""
    from midspan._cli.visible import fitted

    sys.stderr.write(fitted(f"midspan: {words}", sys.stderr))
    sys.stderr.flush()
