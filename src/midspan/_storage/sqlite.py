"""A journal in one SQLite file, shared by threads, event loops and processes of one machine.

Two threads own a connection each, one for writing and one for reading, so event loops never wait for the disk. Requests
that arrive during a transaction share the next one: a thousand concurrent appends take a few commits. The threads are
daemons and do not keep a program alive. What they acknowledged is in the file; anything else is there completely or not
at all.
"""

import asyncio
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from concurrent.futures import Future as ThreadFuture
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

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
    closed,
)
from midspan._storage.sqlite_file import Location, Page, Synchronous, find, open_file, translated
from midspan._storage.waiters import Waiters, resolve_in_loop
from midspan.errors import ConfigError, JournalError, MidspanError

T = TypeVar("T")
P = ParamSpec("P")
Work = Callable[Concatenate[sqlite3.Connection, P], T | JournalError]

_MAX_BUSY_SECONDS = 2_147_483
"""SQLite counts milliseconds in 32 bits."""
_MAX_WRITES = 512
"""The number of requests that share a transaction."""
_MAX_READS = 16
"""Few, because the result of one request waits for the others."""
_POLL_SECONDS = 0.05
"""How often a journal with waiting watchers looks for commits of other processes."""


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
        if not 0 <= busy_timeout <= _MAX_BUSY_SECONDS:
            raise ConfigError(f"busy_timeout must be from 0 to {_MAX_BUSY_SECONDS} seconds, got {busy_timeout}")
        if os.fspath(path) == ":memory:":
            raise ConfigError("SqliteJournal needs the path of a file; use MemoryJournal for memory")
        if Path(path).is_dir():
            raise ConfigError(f"{path} is a directory; pass the path of a file, for example {Path(path, 'runs.db')}")
        # Absolute, because the program may change its directory before the file is opened.
        self._location = Location(Path(path).absolute(), synchronous, busy_timeout)
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
        copied = tuple(events)  # the caller may change the list before it is stored
        try:
            return await self._write(sqlite_file.append, run, expected_seq, copied, owner=owner, summary=summary)
        finally:
            self._waiters.wake(run)

    async def read(self, run: str, from_seq: int = 0, limit: int | None = None) -> NumberedEvents:
        check_run(run)
        check_range(from_seq, limit)
        return await self._read(sqlite_file.read, run, from_seq, limit)

    async def watch(self, run: str, from_seq: int = 0) -> AsyncGenerator[tuple[int, bytes], None]:
        check_run(run)
        check_range(from_seq)
        seq = from_seq
        page = Page(None, [], is_last=False)
        while not page.is_last:
            with self._waiters.waiting(run) as woken:
                page = await self._read(sqlite_file.read_page, run, page.run_id, seq)
                if not page.events and not page.is_last:
                    await woken
            for numbered in page.events:
                yield numbered
            seq += len(page.events)

    async def get(self, run: str) -> RunInfo:
        check_run(run)
        return await self._read(sqlite_file.get, run)

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
        return await self._read(sqlite_file.list_runs, before, owner, state, limit)

    async def delete(self, run: str) -> bool:
        """Delete a run. The file keeps its size, and later runs reuse the space."""
        check_run(run)
        try:
            return await self._write(sqlite_file.delete, run)
        finally:
            self._waiters.wake(run)

    async def close(self) -> None:
        """Finish the requests made so far and end the threads. A second call does nothing."""
        workers = self._workers_here()
        _stop(workers)
        self._waiters.wake_all()
        for worker in workers:
            await worker.wait_ended()

    async def _write(self, work: Work[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        return await self._workers_here()[0].do(lambda connection: work(connection, *arguments, **options))

    async def _read(self, work: Work[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        return await self._workers_here()[1].do(lambda connection: work(connection, *arguments, **options))

    def _workers_here(self) -> tuple["_Worker", "_Worker"]:
        """The worker that writes, and the one that reads."""
        if self._process != os.getpid():  # a forked child has no threads and must not use the parent's connections
            self._start_workers()
        return self._workers

    def _start_workers(self) -> None:
        self._process = os.getpid()
        self._waiters = Waiters()
        self._workers = (
            _Worker("midspan-journal-writer", self._location, "BEGIN IMMEDIATE", _MAX_WRITES),
            _Worker("midspan-journal-reader", self._location, "BEGIN", _MAX_READS, self._waiters),
        )
        # At exit the threads are left to the system: nothing acknowledged is lost.
        weakref.finalize(self, _stop, self._workers).atexit = False


def _stop(workers: Iterable["_Worker"]) -> None:
    for worker in workers:
        worker.stop()


class _Job(NamedTuple):
    work: Work[[], Any]
    future: asyncio.Future[Any]


class _Worker:
    """Runs work in its thread, in order. The thread starts with the first request.

    It has no reference to the journal, so the journal can be collected while the thread waits.
    """

    def __init__(
        self, name: str, location: Location, begin: str, max_jobs: int, watchers: Waiters | None = None
    ) -> None:
        """`begin` starts a transaction. `watchers` are woken if another process appends to their runs."""
        self._name = name
        self._location = location
        self._begin = begin
        self._max_jobs = max_jobs
        self._watchers = Waiters() if watchers is None else watchers
        self._lock = threading.Lock()
        self._is_started = self._is_closed = False
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        """None is the last item."""
        self._ended: ThreadFuture[None] = ThreadFuture()
        self._ended.set_running_or_notify_cancel()  # a cancelled waiter must not cancel it
        self._connection: sqlite3.Connection | None = None
        self._next_poll = 0.0
        self._data_version: object = None
        self._rows: dict[str, object] = {}
        """The watched runs, as they were at that version."""

    async def do(self, work: Work[[], T]) -> T:
        """The result of the work. An error that it returns is raised for its caller alone.

        An exception that it raises rolls back the transaction and is raised for all requests that share it. Work that
        is cancelled before its turn is not run; work that is cancelled later is run without its result being used.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        with self._lock:
            if self._is_closed:
                raise closed()
            if not self._is_started:
                threading.Thread(target=self._run, name=self._name, daemon=True).start()
                self._is_started = True
            self._queue.put(_Job(work, future))
        return await future

    def stop(self) -> None:
        """Let the thread end after the work it already has."""
        with self._lock:
            if not self._is_closed and self._is_started:
                self._queue.put(None)
            self._is_closed = True

    async def wait_ended(self) -> None:
        """Wait for the end of the thread, after `stop`."""
        if self._is_started:
            await asyncio.wrap_future(self._ended)

    def _run(self) -> None:
        while self._run_next():
            pass
        self._drop_connection()
        self._ended.set_result(None)

    def _run_next(self) -> bool:
        """Run a transaction with the jobs that wait; false after the last one."""
        jobs, may_continue = self._take()
        for job, result in zip(jobs, self._results(jobs) if jobs else (), strict=True):
            resolve_in_loop(job.future, result)
        if self._watchers and time.monotonic() >= self._next_poll:
            self._look_for_changes()
            self._next_poll = time.monotonic() + _POLL_SECONDS
        return may_continue

    def _take(self) -> tuple[list[_Job], bool]:
        """The waiting jobs, as many as one transaction takes, and whether more may come."""
        jobs: list[_Job] = []
        with suppress(Empty):
            job = self._queue.get(timeout=_POLL_SECONDS if self._watchers else None)
            while job is not None:
                if not job.future.cancelled():
                    jobs.append(job)
                if len(jobs) == self._max_jobs:
                    return jobs, True
                job = self._queue.get_nowait()
            return jobs, False
        return jobs, True

    def _results(self, jobs: list[_Job]) -> list[Any]:
        try:
            connection = self._connected()
            connection.execute(self._begin)
            results = [job.work(connection) for job in jobs]
            connection.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 - it is raised for those who wait, and the thread continues
            self._drop_connection()  # which also rolls back
            is_translated = isinstance(error, sqlite3.Error | MidspanError)
            return [translated(error, self._location.path) if is_translated else error for _ in jobs]
        return results

    def _look_for_changes(self) -> None:
        """Wake the watchers of runs that have changed. SQLite does not announce commits of other processes."""
        try:
            (version,) = self._connected().execute("PRAGMA data_version").fetchone()
            if version == self._data_version:
                return
            before, self._rows = self._rows, {run: find(self._connected(), run) for run in self._watchers.runs()}
        except Exception:  # noqa: BLE001 - the watchers read for themselves and get the error
            self._drop_connection()
            self._watchers.wake_all()
            return
        self._data_version = version
        for run, row in self._rows.items():
            if run not in before or before[run] != row:
                self._watchers.wake(run)

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = open_file(self._location)
        return self._connection

    def _drop_connection(self) -> None:
        connection, self._connection, self._data_version = self._connection, None, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()
