"""Conversations saved between commands, one JSON file each."""

import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from midspan._cli.settings import private_directory, state_directory
from midspan._types.codec import from_json, to_json
from midspan._types.messages import Message
from midspan.errors import CodecError, ConfigError

_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}", re.ASCII)
_LOCK_SECONDS = 5.0


class Session:
    """One conversation, by its name."""

    def __init__(self, name: str) -> None:
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"{name!r} is not a valid name; use at most 64 letters, digits, dots, dashes or underscores"
            )
        self.name = name
        self.path = _sessions_directory() / f"{name}.json"
        self._new_path = self.path.with_name(f".{self.path.name}.new")

    def messages(self) -> tuple[Message, ...]:
        """Return the messages so far; none if the conversation does not exist yet."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise ConfigError(f"cannot read the conversation {str(self.path)!r}: {error.strerror}") from error
        try:
            messages: tuple[Message, ...] = from_json(data, "messages")
        except CodecError as error:
            raise ConfigError(
                f"the conversation {str(self.path)!r} is damaged: {error}; move the file away to start anew"
            ) from error
        return messages

    def check_writable(self) -> None:
        """Raise ConfigError if the conversation cannot be saved, before a model is asked."""
        with self._writing():
            os.close(os.open(self._new_path, os.O_WRONLY | os.O_CREAT, 0o600))
            self._new_path.unlink()

    def append(self, messages: Sequence[Message]) -> None:
        """Add messages after those that other processes have added meanwhile."""
        with self._writing():
            self._write((*self.messages(), *messages))

    def clear(self) -> None:
        with self._writing():
            self._write(())

    def _write(self, messages: tuple[Message, ...]) -> None:
        """Write a new file and rename it, so that the conversation is complete even after a crash."""
        with os.fdopen(os.open(self._new_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(to_json(messages))
            file.flush()
            os.fsync(file.fileno())
        self._new_path.replace(self.path)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            with _locked(private_directory(self.path.parent) / ".lock"):
                yield
        except OSError as error:
            raise ConfigError(f"cannot save the conversation {str(self.path)!r}: {error.strerror}") from error


def last_session() -> Session:
    """Return the conversation that was changed last."""
    sessions = [(path.stat().st_mtime_ns, path.stem) for path in _sessions_directory().glob("[!.]*.json")]
    if not sessions:
        raise ConfigError("there is no conversation to continue; start one with --session NAME")
    return Session(max(sessions)[1])


def _sessions_directory() -> Path:
    return state_directory() / "sessions"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Allow one writer at a time. The system releases the lock of a process that dies."""
    try:
        import fcntl
    except ImportError:  # Windows: of two commands that end at the same time, one may not be saved
        yield
        return
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        deadline = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    raise ConfigError(f"another process holds the lock {str(path)!r}") from error
                time.sleep(0.02)
        yield
    finally:
        os.close(lock)
