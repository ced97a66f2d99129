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
        words = " ".join(str(error).split()) or type(error).__name__
        return _for_a_shell(words) if isinstance(error, CredentialsError) else words
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return f"something went wrong inside: {type(error).__name__}: {' '.join(str(error).split())}; -v shows where"


def _for_a_shell(words: str) -> str:
    """The same with advice that helps here, where nobody can give arguments to a function."""
    for fault, advice in _ADVICE.items():
        if words.startswith(fault):
            return f"{fault}: {advice}"
    return words


_ADVICE = {
    "no Gemini API key": "set GEMINI_API_KEY or GOOGLE_API_KEY to one, or take the offline model with --model offline; "
    "keys are made at https://aistudio.google.com/apikey",
    "no credentials for Vertex": "install google-auth and log in with gcloud auth application-default login, "
    "or unset GOOGLE_GENAI_USE_VERTEXAI to ask the Developer API with a key",
}
"""What a provider says that is made in Python, and what there is to do in a shell."""


def tell(error: BaseException, *, verbose: bool) -> None:
    """Say what went wrong; the traceback only to those who asked for it."""
    if verbose and not isinstance(error, KeyboardInterrupt):
        import traceback

        traceback.print_exception(error, file=sys.stderr)
    say(sentence_of(error))


def say(words: str) -> None:
    """A line on stderr."""
    from midspan.surfaces.cli.visible import fitted

    sys.stderr.write(fitted(f"midspan: {words}", sys.stderr))
    sys.stderr.flush()
