"""A journal in one SQLite file, shared by threads, event loops and processes of one machine."""

import os
import weakref
from collections.abc import AsyncGenerator, Iterable, Sequence
from pathlib import Path
from typing import cast

from midspan._storage import sqlite_file
from midspan._storage.journal import (
    NumberedEvents,
    RunInfo,
    Runs,
    RunSummary,
    StateName,
    check_filter,
    check_range,
    check_run,
)
from midspan._storage.sqlite_file import Append, Location, Page, Synchronous
from midspan._storage.sqlite_worker import READING, WRITING, Poll, Work, Worker
from midspan._storage.waiters import Waiters
from midspan.errors import ConfigError

_MAX_EVENT_BYTES = 999_000_000
"""SQLite takes rows of up to 10^9 bytes."""
_MAX_BUSY_SECONDS = 2_147_483
"""SQLite counts milliseconds in 32 bits."""


class SqliteJournal:
    """Stores events in a file, which is opened on first use and created with mode 0600 if it does not exist.

    A killed process loses no acknowledged append and leaves no append half done. With `synchronous="full"` (the
    default) the same holds for a power failure, because each commit waits for the disk. `"normal"` does not wait, which
    is several times as fast; after a power failure the appends since the last checkpoint, some thousands on a busy
    machine, may be missing.

    `busy_timeout` is the number of seconds to wait for another process that is writing.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, synchronous: Synchronous = "full", busy_timeout: float = 10.0
    ) -> None:
        if synchronous not in ("full", "normal"):
            raise ConfigError(f"unknown synchronous={synchronous!r}; known values: full, normal")
        self._location = Location(_checked(path), synchronous, _checked_seconds(busy_timeout))
        self._start_workers()

    async def append(
        self,
        run: str,
        expected_seq: int,
        events: Sequence[bytes],
        *,
        owner: str | None = None,
        summary: RunSummary | None = None,
    ) -> int:
        check_run(run)
        new = Append(run, expected_seq, _checked_events(events), owner, summary)
        try:
            return cast("int", await self._write(lambda file: sqlite_file.append(file, new)))
        finally:
            self._waiters.wake(run)

    async def read(self, run: str, from_seq: int = 0, limit: int | None = None) -> NumberedEvents:
        check_run(run)
        check_range(from_seq, limit)
        events = await self._read(lambda file: sqlite_file.read(file, run, from_seq, limit))
        return cast("NumberedEvents", events)

    async def watch(self, run: str, from_seq: int = 0) -> AsyncGenerator[tuple[int, bytes], None]:
        check_run(run)
        check_range(from_seq)
        seq = from_seq
        page = Page(None, [], is_last=False)
        while not page.is_last:
            with self._waiters.waiting(run) as woken:
                page = await self._next_page(run, page.run_id, seq)
                if not page.events and not page.is_last:
                    await woken
            for numbered in page.events:
                yield numbered
            seq += len(page.events)

    async def get(self, run: str) -> RunInfo:
        check_run(run)
        return cast("RunInfo", await self._read(lambda file: sqlite_file.get(file, run)))

    async def list(
        self,
        *,
        after: str | None = None,
        owner: str | None = None,
        state: StateName | None = None,
        limit: int | None = None,
    ) -> Runs:
        check_range(0, limit)
        before = check_filter(after, state)
        return cast("Runs", await self._read(lambda file: sqlite_file.list_runs(file, before, owner, state, limit)))

    async def delete(self, run: str) -> bool:
        """Delete a run. The file keeps its size, and later runs reuse the space."""
        check_run(run)
        try:
            return cast("bool", await self._write(lambda file: sqlite_file.delete(file, run)))
        finally:
            self._waiters.wake(run)

    async def close(self) -> None:
        """Finish the requests made so far and end the threads. A second call does nothing."""
        workers = self._workers_here()
        _stop(workers)
        self._waiters.wake_all()
        for worker in workers:
            await worker.stopped()

    async def _next_page(self, run: str, run_id: int | None, seq: int) -> Page:
        return cast("Page", await self._read(lambda file: sqlite_file.read_page(file, run, run_id, seq)))

    async def _write(self, work: Work) -> object:
        return await self._workers_here()[0].do(work)

    async def _read(self, work: Work) -> object:
        return await self._workers_here()[1].do(work)

    def _workers_here(self) -> tuple[Worker, Worker]:
        """The worker that writes and the one that reads."""
        if self._process != os.getpid():  # a forked child has no threads and must not use the parent's connections
            self._start_workers()
        return self._workers

    def _start_workers(self) -> None:
        self._process = os.getpid()
        self._waiters = Waiters()
        self._workers = (
            Worker("midspan-journal-writer", self._location, WRITING),
            Worker("midspan-journal-reader", self._location, READING, Poll(self._waiters)),
        )
        # At exit the threads are left to the system: nothing acknowledged is lost.
        weakref.finalize(self, _stop, self._workers).atexit = False


def _checked(path: str | os.PathLike[str]) -> Path:
    name = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(name, str) or not name or name == ":memory:" or "\0" in name:
        raise ConfigError(f"SqliteJournal needs the path of a file, got {name!r}; use MemoryJournal for memory")
    try:
        os.fsencode(name)
    except UnicodeEncodeError as error:
        raise ConfigError(f"SqliteJournal needs the path of a file, and {name!r} is not a valid file name") from error
    if os.path.isdir(name):  # noqa: PTH112 - unlike Path.is_dir it is false for a path that may not be read
        raise ConfigError(f"{name} is a directory; pass the path of a file, for example {Path(name) / 'runs.db'}")
    return Path(name).absolute()  # the program may change its directory before the file is opened


def _checked_seconds(seconds: float) -> float:
    if type(seconds) not in (int, float) or not 0 <= seconds <= _MAX_BUSY_SECONDS:  # NaN is not in the range either
        raise ConfigError(
            f"busy_timeout must be a number of seconds from 0 to {_MAX_BUSY_SECONDS}, got {seconds!r:.80}"
        )
    return seconds


def _checked_events(events: Iterable[bytes]) -> tuple[bytes, ...]:
    """A copy. Events that SQLite would refuse are refused here, where they do not affect other appends."""
    checked = tuple(events)
    for event in checked:
        assert isinstance(event, bytes), "an event is an encoded document"
        if len(event) > _MAX_EVENT_BYTES:
            raise ConfigError(f"an event of {len(event):,} bytes is too large; store the data elsewhere")
    return checked


def _stop(workers: Iterable[Worker]) -> None:
    for worker in workers:
        worker.stop()
