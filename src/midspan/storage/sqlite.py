"""A journal in one SQLite file, shared by threads, event loops and processes of one machine."""

import os
import weakref
from collections.abc import AsyncGenerator, Iterable, Sequence
from pathlib import Path
from typing import cast

from midspan.errors import ConfigError
from midspan.storage.database import statements
from midspan.storage.database.opening import Place, Synchronous
from midspan.storage.database.poll import Poll
from midspan.storage.database.worker import READING, WRITING, Work, Worker
from midspan.storage.journal import NumberedEvents, Runs, check_range, check_run
from midspan.storage.waiters import Waiters

_LARGEST_EVENT_BYTES = 999_000_000
"""SQLite takes rows of up to 10^9 bytes."""
_LONGEST_BUSY_SECONDS = 2_147_483
"""SQLite counts milliseconds in 32 bits."""


class SqliteJournal:
    """Events in a file, which is opened with the first use and made if it is not there.

    A process that is killed loses nothing of what it was told is appended, and leaves no append half done. The same
    holds for a machine that loses power with `synchronous="full"`, the default, if its disk keeps its word: each commit
    waits for the disk. With "normal" it does not, which is several times as fast; a power cut may then take back all
    appends since the log was last copied into the file, some thousand on a busy machine, and what is left is a prefix.

    `busy_timeout` is how many seconds to wait for another process that is writing.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, synchronous: Synchronous = "full", busy_timeout: float = 10.0
    ) -> None:
        if synchronous not in ("full", "normal"):
            raise ConfigError(f"unknown synchronous={synchronous!r}; known: full, normal")
        self._place = Place(_checked(path), synchronous, _checked_seconds(busy_timeout))
        self._begin()

    async def append(self, run: str, expected_seq: int, events: Sequence[bytes], *, end: bool = False) -> int:
        check_run(run)
        events = _checked_events(events)
        try:
            length = await self._write(lambda file: statements.append(file, run, expected_seq, events, end=end))
        finally:
            self._waiters.wake(run)
        return cast("int", length)

    async def read(self, run: str, from_seq: int = 0, limit: int | None = None) -> NumberedEvents:
        check_run(run)
        check_range(from_seq, limit)
        found = await self._read(lambda file: statements.read(file, run, from_seq, limit))
        return cast("NumberedEvents", found)

    async def watch(self, run: str, from_seq: int = 0) -> AsyncGenerator[tuple[int, bytes], None]:
        check_run(run)
        check_range(from_seq)
        seq = from_seq
        page = statements.Page(None, [], over=False)
        while not page.over:
            with self._waiters.waiting(run) as woken:
                page = await self._next_page(run, page.run_id, seq)
                if not page.events and not page.over:
                    await woken
            for numbered in page.events:
                yield numbered
            seq += len(page.events)

    async def list(self, *, limit: int | None = None, ended: bool | None = None) -> Runs:
        check_range(0, limit)
        return cast("Runs", await self._read(lambda file: statements.list_runs(file, limit, ended)))

    async def delete(self, run: str) -> bool:
        """Forget a run; the file keeps its size, and what comes next takes the space."""
        check_run(run)
        try:
            return cast("bool", await self._write(lambda file: statements.delete(file, run)))
        finally:
            self._waiters.wake(run)

    async def close(self) -> None:
        """End the threads when they have done what they were asked; closing twice does no harm."""
        workers = self._workers_here()
        _stop(workers)
        self._waiters.wake_all()
        for worker in workers:
            await worker.stopped()

    async def _next_page(self, run: str, run_id: int | None, seq: int) -> statements.Page:
        page = await self._read(lambda file: statements.read_page(file, run, run_id, seq))
        return cast("statements.Page", page)

    async def _write(self, work: Work) -> object:
        return await self._workers_here()[0].do(work)

    async def _read(self, work: Work) -> object:
        return await self._workers_here()[1].do(work)

    def _workers_here(self) -> tuple[Worker, Worker]:
        """The one that writes and the one that reads."""
        if self._process != os.getpid():  # a forked child has none of our threads, and must not touch our connections
            self._begin()
        return self._workers

    def _begin(self) -> None:
        self._process = os.getpid()
        self._waiters = Waiters()
        self._workers = (
            Worker("midspan-journal-writer", self._place, WRITING),
            Worker("midspan-journal-reader", self._place, READING, Poll(self._waiters)),
        )
        # A program that ends leaves its threads to the system; nothing is lost, as if it were killed.
        weakref.finalize(self, _stop, self._workers).atexit = False


def _checked(path: str | os.PathLike[str]) -> Path:
    name = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(name, str) or not name or name == ":memory:" or "\0" in name:
        raise ConfigError(f"a journal needs the path of a file, not {name!r}; MemoryJournal needs none")
    try:
        os.fsencode(name)
    except UnicodeEncodeError as error:
        raise ConfigError(f"a journal needs the path of a file, and no file is called {name!r}") from error
    if os.path.isdir(name):  # noqa: PTH112 - unlike Path's it takes a place that may not be looked at for none
        raise ConfigError(f"{name} is a directory; give the journal the path of a file, as {Path(name) / 'runs.db'}")
    return Path(name).absolute()  # the program may change its directory before the file is opened


def _checked_seconds(seconds: float) -> float:
    if type(seconds) not in (int, float) or not 0 <= seconds <= _LONGEST_BUSY_SECONDS:  # nor is NaN between them
        raise ConfigError(
            f"busy_timeout is how many seconds to wait for another process, from 0 to {_LONGEST_BUSY_SECONDS}, "
            f"not {seconds!r:.80}"
        )
    return seconds


def _checked_events(events: Iterable[bytes]) -> tuple[bytes, ...]:
    """The events as they are now; one that SQLite refuses would take those of others with it."""
    checked = tuple(events)
    for event in checked:
        assert isinstance(event, bytes), "an event is a document, encoded"
        if len(event) > _LARGEST_EVENT_BYTES:
            raise ConfigError(f"an event of {len(event):,} bytes is too long; keep it elsewhere and refer to it")
    return checked


def _stop(workers: Iterable[Worker]) -> None:
    for worker in workers:
        worker.stop()
