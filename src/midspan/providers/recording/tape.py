"""Where a run is recorded: a directory, and in it one file for each run, which only grows."""

import os
import threading
from pathlib import Path

from midspan.errors import ConfigError, MidspanError
from midspan.providers.recording.lines import Began, Line
from midspan.providers.recording.masking import Masking
from midspan.providers.recording.written import written


def file_name(number: int) -> str:
    return f"run-{number:05}.jsonl"


def recordings_in(folder: Path) -> list[Path]:
    """The recordings of a directory, in the order in which they were begun."""
    return sorted(folder.glob("run-*.jsonl"), key=lambda path: (len(path.name), path.name))


def _number(path: Path) -> int:
    digits = path.stem.removeprefix("run-")
    return int(digits) if digits.isdecimal() else 0


class Folder:
    """A directory that any number of runs, threads and processes record into at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
            if not os.access(path, os.W_OK | os.X_OK):
                raise PermissionError(0, "it is not writable")
            self._next = 1 + max((_number(file) for file in recordings_in(path)), default=0)
        except (OSError, ValueError) as error:  # the second is for a name that no directory can have
            why = getattr(error, "strerror", None) or error
            raise ConfigError(f"cannot record into {str(path)!r}: {why}") from error
        self._lock = threading.Lock()

    def begin(self, first: bytes) -> Path:
        """A new file that begins with these bytes; no other run gets it."""
        while True:
            with self._lock:
                path = self.path / file_name(self._next)
                self._next += 1
            try:
                _append(path, first, os.O_CREAT | os.O_EXCL)
            except FileExistsError:
                continue  # of another process
            return path


class Tape:
    """The recording of one run. The file is there from the first line on, and closed between any two.

    A thousand runs at once are a thousand files, and no process may have so many open.
    """

    def __init__(self, folder: Folder, began: Began, masking: Masking) -> None:
        self._folder = folder
        self._began = began
        self._masking = masking
        self._path: Path | None = None
        self._fault: MidspanError | None = None

    @property
    def has_begun(self) -> bool:
        return self._path is not None

    def check(self) -> None:
        """Raise what went wrong where nobody could be told: what a tool raises, the model hears and not the caller."""
        if self._fault is not None:
            raise self._fault

    def write(self, line: Line) -> None:
        """Put one line at the end; it is in the file when this returns."""
        self.check()
        try:
            if self._path is None:
                self._path = self._folder.begin(self._bytes_of(self._began))
            _append(self._path, self._bytes_of(line))
        except OSError as error:
            where = str(self._path or self._folder.path)
            self._fault = ConfigError(f"the recording {where!r} cannot be written: {error.strerror or error}")
            raise self._fault from error
        except MidspanError as error:
            self._fault = error
            raise

    def _bytes_of(self, line: Line) -> bytes:
        return self._masking.masked(written(line)) + b"\n"


def _append(path: Path, data: bytes, flags: int = 0) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | flags, 0o600)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(handle, rest) :]
    finally:
        os.close(handle)
