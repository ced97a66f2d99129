"""Text for terminals: control characters escaped, lines wrapped between words; messages on stderr, and exit codes."""

import json
import logging
import re
import shutil
import sys
import traceback
import unicodedata
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from midspan.errors import (
    AuthenticationError,
    CodecError,
    ConfigError,
    CredentialsError,
    LimitReachedError,
    MidspanError,
)

# Text from models, tools and the web must not control the terminal, so control characters are shown escaped.
_CONTROL = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}
_DIRECTION = {code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}
_ONE_LINE = _CONTROL | _DIRECTION | {ord("\n"): " ", ord("\t"): " ", ord("\r"): ""}
_MANY_LINES = _CONTROL | _DIRECTION | {ord("\n"): "\n", ord("\t"): "\t", ord("\r"): ""}

_MIN_COLUMNS = 20


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
        wrapper = WordWrapper(terminal_columns(), indent)
        line = wrapper.feed(line) + wrapper.flush()
    return f"{line}\n"


def short_path(path: Path) -> str:
    """Return a path as users write it, with `~` for the home directory."""
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def terminal_columns() -> int:
    return max(_MIN_COLUMNS, shutil.get_terminal_size().columns)


def format_arguments(arguments: dict[str, Any], max_chars: int) -> str:
    """Format the arguments of a call as in Python: `city="Oslo", days=2`."""
    return shorten(", ".join(f"{name}={_compact_json(value)}" for name, value in arguments.items()), max_chars)


def format_value(value: Any, max_chars: int) -> str:
    """Format a result on one line: strings as they are, other values as JSON."""
    return shorten(value if isinstance(value, str) else _compact_json(value), max_chars)


def format_seconds(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds < 0.0995 else f"{seconds:.1f} s"


def shorten(text: str, max_chars: int) -> str:
    """Return the text on one line, cut to a length."""
    return escape_line(text if len(text) <= max_chars else f"{text[: max_chars - 1]}…")


def fit_line(text: str, columns: int) -> str:
    """Return the text on one line, cut to so many columns of a terminal."""
    line = escape_line(text[:columns])
    if len(text) <= columns and _width(line) <= columns:
        return line
    while line and _width(line) > columns - 1:
        line = line[:-1]
    return f"{line}…"


def count_noun(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _compact_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=repr)


def json_document(value: Any) -> str:
    """Return JSON text for stdout, which escapes unpaired surrogates itself: in other encodings than UTF-8, ASCII."""
    encoding = str(getattr(sys.stdout, "encoding", "")).lower().replace("-", "").replace("_", "")
    return f"{json.dumps(value, ensure_ascii=encoding != 'utf8', indent=2, default=repr)}\n"


def exit_code(error: BaseException) -> int:
    match error:
        case CredentialsError() | AuthenticationError():
            return 3
        case LimitReachedError():
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
    with_unavailable = False
    """Whether to show the warnings of unavailable sources, which most commands show in their own form."""

    def emit(self, record: logging.LogRecord) -> None:
        if hasattr(record, "unavailable") and not self.with_unavailable:
            return
        error = record.exc_info[1] if record.exc_info else None
        text = record.getMessage()
        if error is not None and not self.with_tracebacks:
            text = f"{text}; use -v to see the traceback"
        with suppress(OSError, ValueError):  # stderr is closed
            if error is not None and self.with_tracebacks:
                sys.stderr.write(escape_lines("".join(traceback.format_exception(error))))
            if record.levelno <= logging.DEBUG:  # requests and responses, on many lines
                sys.stderr.write(escape_lines(f"{text}\n"))
            else:
                print_line(text)


_handler = _StderrHandler()


def configure_logging(verbose: int, command: str) -> None:
    """Show the log of the library on stderr: warnings, with -v also infos and tracebacks, with -vv everything."""
    log = logging.getLogger("midspan")
    log.setLevel((logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)])
    log.addHandler(_handler)
    _handler.with_tracebacks = bool(verbose)
    _handler.with_unavailable = command == "serve"


class WordWrapper:
    """Wraps text that arrives in pieces. The last word is held back until its end is known.

    Long words are paths and URLs, which users copy: one that has no room after `indent` starts at the first column.
    """

    _PIECE = re.compile(r"\n|[^\S\n]+|\S+")

    def __init__(self, columns: int, indent: str = "") -> None:
        self._columns = columns
        self._indent = indent
        self._column = 0
        self._space = ""
        self._word = ""

    def feed(self, text: str) -> str:
        """Add text, and return what can be shown now."""
        return "".join(map(self._add, self._PIECE.findall(text)))

    def _add(self, piece: str) -> str:
        if not piece.isspace():
            self._word += piece
            # The terminal breaks a word that is wider than a line, so there is nothing to wait for.
            return self.flush() if _width(self._word) > self._columns else ""
        output = self.flush()
        if piece == "\n":
            self._column, self._space = 0, ""
            return f"{output}\n"
        self._space += piece
        return output

    def flush(self) -> str:
        """Return the word that was held back, on a new line if the current one has no room for it."""
        if not self._word:
            return ""
        word, space = self._word, self._space.expandtabs(8)
        self._word = self._space = start = ""
        if self._column and self._column + _width(space) + _width(word) > self._columns:
            has_room = len(self._indent) + _width(word) <= self._columns
            self._column, space, start = 0, self._indent if has_room else "", "\n"
        # A word that the terminal breaks ends on a later line; a full line is still the current one.
        self._column = (self._column + _width(space) + _width(word) - 1) % self._columns + 1
        return f"{start}{space}{word}"


def _width(text: str) -> int:
    """Return how many columns a terminal needs for a text."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(char) else 1 + (unicodedata.east_asian_width(char) in "WF") for char in text)
