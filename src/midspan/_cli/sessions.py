"""Conversations that are kept between calls, each in a file of its own that is always whole."""

import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from midspan._cli.directories import private_directory, state_directory
from midspan._types.codec import from_json, to_json
from midspan._types.messages import Message
from midspan.errors import CodecError, ConfigError

_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}", re.ASCII)
_LOCK_SECONDS = 5.0


class Session:
    """One conversation by its name."""

    def __init__(self, name: str) -> None:
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"{name!r} cannot be the name of a conversation: take at most 64 letters, digits, dots, dashes"
            )
        self.name = name
        self.path = _folder() / f"{name}.json"

    def messages(self) -> tuple[Message, ...]:
        """The conversation so far; empty if there is none."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise ConfigError(f"the conversation {str(self.path)!r} cannot be read: {error.strerror}") from error
        try:
            messages: tuple[Message, ...] = from_json(data, "messages")
        except CodecError as error:
            raise ConfigError(
                f"the conversation {str(self.path)!r} is damaged: {error}; move the file away to begin anew"
            ) from error
        return messages

    def check(self) -> None:
        """Find out before anything is asked whether it can be kept."""
        with _locked(private_directory(self.path.parent)):
            try:
                os.close(os.open(self._beside, os.O_WRONLY | os.O_CREAT, 0o600))
                self._beside.unlink()
            except OSError as error:
                raise self._unkept(error) from error

    def add(self, messages: Sequence[Message]) -> None:
        """Go on with it. What another call has added meanwhile stays, before this."""
        with _locked(private_directory(self.path.parent)):
            self._write((*self.messages(), *messages))

    def clear(self) -> None:
        with _locked(private_directory(self.path.parent)):
            self._write(())

    def _write(self, messages: tuple[Message, ...]) -> None:
        """All or nothing, whenever the machine stops: beside the old file first, then in its place."""
        try:
            file = os.open(self._beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(file, "wb") as out:
                out.write(to_json(messages))
                out.flush()
                os.fsync(out.fileno())
            self._beside.replace(self.path)
        except OSError as error:
            raise self._unkept(error) from error

    @property
    def _beside(self) -> Path:
        return self.path.with_name(f".{self.path.name}.new")

    def _unkept(self, error: OSError) -> ConfigError:
        return ConfigError(f"the conversation {str(self.path)!r} cannot be kept: {error.strerror}")


def last_session() -> Session:
    """The one that was gone on with last."""
    found = [(path.stat().st_mtime_ns, path.stem) for path in _folder().glob("[!.]*.json")]
    if not found:
        raise ConfigError("there is no conversation to go on with; begin one with --session NAME")
    return Session(max(found)[1])


def _folder() -> Path:
    return state_directory() / "sessions"


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One writer at a time; the system lets go of the lock when a process dies."""
    try:
        import fcntl
    except ImportError:  # Windows: a file is still whole, but of two calls at once one may be forgotten
        yield
        return
    try:
        lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise ConfigError(f"nothing can be kept in {str(folder)!r}: {error.strerror}") from error
    try:
        until = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if time.monotonic() > until:
                    raise ConfigError(f"another process does not let go of {str(folder)!r}") from error
                time.sleep(0.02)
        yield
    finally:
        os.close(lock)
