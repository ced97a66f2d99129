"""What is asked: the words of the command line, what is piped in, and files."""

import os
import select
import stat
import sys
from pathlib import Path
from typing import Any

from midspan._cli.exits import say
from midspan.errors import ConfigError

LARGEST = 50_000_000
"""In bytes, of stdin or of a file: far more than any model takes, far less than a machine has."""
_SECONDS_OF_SILENCE = 2.0


def question_of(words: list[str], files: list[str]) -> str | list[Any]:
    """The question in the form that an agent takes."""
    asked = " ".join(words).strip()
    if asked == "-":
        asked = ""
    asked = typed(asked)
    piped = _piped()
    text = "\n\n".join(filter(None, (piped.strip(), asked)))
    if not text:
        hint = "beside a file" if files else "or pipe one in"
        raise ConfigError(f'there is no question; write one, as in midspan ask "What is 2 + 2?", {hint}')
    return [text, *map(_file, files)] if files else text


def typed(text: str, what: str = "the question") -> str:
    """An argument, also where the locale is not that of whoever typed it and Python could not read all of it."""
    try:
        return os.fsencode(text).decode() if not text.isprintable() else text
    except UnicodeError as error:
        raise ConfigError(f"{what} is no valid UTF-8 text") from error


def whole(line: str) -> str:
    """A line of a conversation; what Python could not read of it are halves of characters, which no model takes."""
    try:
        line.encode()
    except UnicodeEncodeError:
        return typed(line)
    return line


def _piped() -> str:
    """What another program, or a file, gives on stdin; a terminal and /dev/null give nothing."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError):
        return ""
    if not (stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)):
        return ""
    _tell_if_silent()
    data = sys.stdin.buffer.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise ConfigError(f"on stdin there are more than {LARGEST:,} bytes, which is too much for any model")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError("what is piped in is no UTF-8 text; give other files with --file") from error


def _tell_if_silent() -> None:
    """Whoever left stdin open without meaning to would wonder why nothing happens."""
    try:
        if not select.select([sys.stdin], [], [], _SECONDS_OF_SILENCE)[0]:
            say("waiting for text on stdin; end it with Ctrl-D, or start with </dev/null")
    except (OSError, ValueError):
        return  # a system that cannot wait for this kind of file


def _file(name: str) -> Path:
    path = Path(name).expanduser()
    if not path.exists():
        raise ConfigError(f"there is no file {name!r}")
    if not path.is_file():
        raise ConfigError(f"{name!r} is no file that can be read as a whole")
    if path.stat().st_size > LARGEST:
        raise ConfigError(f"the file {name!r} has more than {LARGEST:,} bytes, which is too much for any model")
    return path
