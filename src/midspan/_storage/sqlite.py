"""A journal in one SQLite file, shared by threads, event loops and processes of one machine.

Two threads own a connection each, one for writing and one for reading, so event loops never wait for the disk. Requests
that arrive during a transaction share the next one: a thousand concurrent appends take a few commits.
"""

import asyncio
import os
import sqlite3
import sys
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from midspan._storage.journal import (
    ENDED_STATES,
    RunInfo,
    Runs,
    RunSummary,
    SessionInfo,
    Sessions,
    StateName,
    StoredEvents,
    check_query,
    conflict,
)
from midspan._storage.sqlite_file import file_id, open_file, translated
from midspan.errors import ConfigError, JournalError, UnknownRunError

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T | JournalError]
"""Is called in a transaction. It returns an error that concerns one caller, because raising it would roll back all."""

_SAVE_RUN = """
INSERT INTO runs (run, owner, session, length, state, summary, started_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (run) DO UPDATE SET length = excluded.length, state = excluded.state, summary = excluded.summary,
updated_at = max(updated_at, excluded.updated_at)
"""  # max: the clock may be set back
_EVENTS = "SELECT seq, body FROM events WHERE run_id = ? AND seq >= ? ORDER BY seq LIMIT ?"
_INFO = "SELECT run, length, summary, owner, session, started_at, updated_at, CAST(id AS TEXT) FROM runs"
_SESSIONS = """
SELECT grouped.session, grouped.owner, count, run, first, last, CAST(newest AS TEXT) FROM (
    SELECT session, owner, count(*) AS count, min(started_at) AS first, max(updated_at) AS last, max(id) AS newest
    FROM runs WHERE session IS NOT NULL AND (:owner IS NULL OR owner = :owner) GROUP BY session, owner
) AS grouped JOIN runs ON runs.id = newest
WHERE newest < :before ORDER BY newest DESC LIMIT :limit
"""
_UNSTORABLE = (sqlite3.ProgrammingError, UnicodeEncodeError, OverflowError)
"""What SQLite raises for a value that it cannot store. It concerns one caller only, whose work is then run alone."""
_INHERITED: list[object] = []
"""Connections of a parent process, which must not even be closed here (https://sqlite.org/howtocorrupt.html, 2.6)."""


class SqliteJournal:
    """Stores events in a file, which is opened on first use and created with mode 0600 if it does not exist.

    A killed process or a power failure loses no acknowledged append and leaves no append half done: each commit waits
    for the disk.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if not isinstance(path, str | os.PathLike):
            raise ConfigError(f"path must be a string or a Path, got {path!r:.80}")
        if path == ":memory:":
            raise ConfigError("SqliteJournal needs a file; for a journal in memory, use MemoryJournal()")
        file = Path(path).absolute()  # the program may change its directory before the file is opened
        self._writer = _ConnectionThread("midspan-journal-writer", file, "BEGIN IMMEDIATE")
        self._reader = _ConnectionThread("midspan-journal-reader", file, "BEGIN")

    async def append(
        self,
        run: str,
        expected_seq: int,
        events: Sequence[bytes],
        *,
        owner: str | None = None,
        session: str | None = None,
        summary: RunSummary,
    ) -> int:
        events = tuple(events)  # the caller may change the list before it is stored

        def work(connection: sqlite3.Connection) -> int | JournalError:
            row = connection.execute("SELECT id, length, state FROM runs WHERE run = ?", (run,)).fetchone()
            run_id, length, state = row or (None, None, "running")
            error = conflict(run, expected_seq, length, ended=state in ENDED_STATES)
            if error is not None:
                return error
            now, length = time.time(), expected_seq + len(events)
            fields = (run, owner, session, length, summary.state, msgspec.json.encode(summary), now, now)
            saved = connection.execute(_SAVE_RUN, fields)
            numbered = [(run_id or saved.lastrowid, seq, event) for seq, event in enumerate(events, expected_seq)]
            connection.executemany("INSERT INTO events (run_id, seq, body) VALUES (?, ?, ?)", numbered)
            return length

        return await self._writer.do(work)

    async def read(self, run: str, from_seq: int = 0, limit: int | None = None) -> StoredEvents:
        max_rows, _ = check_query(limit)

        def work(connection: sqlite3.Connection) -> StoredEvents | JournalError:
            row = connection.execute("SELECT id FROM runs WHERE run = ?", (run,)).fetchone()
            if row is None:
                return UnknownRunError(run)
            return connection.execute(_EVENTS, (*row, min(from_seq, sys.maxsize), max_rows)).fetchall()

        return await self._reader.do(work)

    async def get(self, run: str) -> RunInfo:
        infos = await self._list({"run = ?": run}, 1)
        if not infos:
            raise UnknownRunError(run)
        return infos[0]

    async def list(
        self,
        *,
        after: str | None = None,
        owner: str | None = None,
        session: str | None = None,
        state: StateName | None = None,
        limit: int | None = None,
    ) -> Runs:
        max_rows, before = check_query(limit, after, state)
        filters = {"id < ?": before, "owner = ?": owner, "session = ?": session, "state = ?": state}
        return await self._list(filters, max_rows)

    async def _list(self, filters: dict[str, Any], max_rows: int) -> Runs:
        """The runs for which all conditions hold, newest first. A condition whose value is None is ignored."""
        used = {condition: value for condition, value in filters.items() if value is not None}
        query = f"{_INFO} WHERE {' AND '.join(used)} ORDER BY id DESC LIMIT ?"
        values = (*used.values(), max_rows)

        def work(connection: sqlite3.Connection) -> Runs:
            return [
                RunInfo(run, length, msgspec.json.decode(summary, type=RunSummary), *others)
                for run, length, summary, *others in connection.execute(query, values)
            ]

        return await self._reader.do(work)

    async def sessions(
        self, *, after: str | None = None, owner: str | None = None, limit: int | None = None
    ) -> Sessions:
        max_rows, before = check_query(limit, after)
        values = {"owner": owner, "before": before, "limit": max_rows}
        rows = await self._reader.do(lambda connection: connection.execute(_SESSIONS, values).fetchall())
        return [SessionInfo(*row) for row in rows]

    async def delete(self, run: str) -> bool:
        """Delete a run. The file keeps its size, and later runs reuse the space."""

        def work(connection: sqlite3.Connection) -> bool:
            connection.execute("DELETE FROM events WHERE run_id = (SELECT id FROM runs WHERE run = ?)", (run,))
            return connection.execute("DELETE FROM runs WHERE run = ?", (run,)).rowcount > 0

        return await self._writer.do(work)

    async def aclose(self) -> None:
        """Finish the requests made so far and end the threads. Later requests raise ConfigError."""
        await asyncio.gather(self._writer.close(), self._reader.close())


class _ConnectionThread:
    """A connection, and the thread that uses it, which starts with the first request."""

    def __init__(self, name: str, path: Path, begin: str) -> None:
        """`begin` starts a transaction."""
        self._name, self._path, self._begin = name, path, begin
        self._start()

    def _start(self) -> None:
        self._process = os.getpid()
        self._executor = ThreadPoolExecutor(1, self._name)
        self._jobs: deque[tuple[Work[Any], asyncio.Future[Any]]] = deque()
        self._is_scheduled = False
        """The thread will look for jobs again."""
        self._connections: list[sqlite3.Connection] = []
        """The connection, if it is open."""
        self._file_id: tuple[int, int] | None = None
        """Identifies the file that the connection has opened."""
        # The finalizer refers to the connection, so Python closes it here before it can free it. A `__del__` method may
        # be called too late if this object and its connection are freed together.
        weakref.finalize(self, _close_all, self._connections, self._process)

    async def do(self, work: Work[T]) -> T:
        """The result of the work. If a transaction fails, all requests that share it raise its error.

        Work that is cancelled before its turn is not run; work that is cancelled later is run without its result being
        used.
        """
        if self._process != os.getpid():  # a forked child has no threads; the finalizer keeps the parent's connection
            self._start()
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.append((work, future))
        if not self._is_scheduled:
            self._is_scheduled = True
            try:
                self._executor.submit(self._run_waiting)
            except RuntimeError:  # it was shut down
                self._is_scheduled = False
                raise ConfigError("this journal is closed; create a new one") from None
        return await future

    async def close(self) -> None:
        if self._process != os.getpid():
            self._start()
        with suppress(RuntimeError):  # it was shut down before
            ended = self._executor.submit(_close_all, self._connections, self._process)
            self._executor.shutdown(wait=False)
            await asyncio.shield(asyncio.wrap_future(ended))

    def _run_waiting(self) -> None:
        """Run all waiting jobs. Those that wait at the same time share a transaction."""
        self._is_scheduled = False  # before the jobs are taken, so that none is overlooked
        while self._jobs:
            jobs = [self._jobs.popleft() for _ in range(len(self._jobs))]
            jobs = [job for job in jobs if not job[1].cancelled()]
            for (_, future), result in zip(jobs, self._results([work for work, _ in jobs]), strict=True):
                with suppress(RuntimeError):  # the loop is closed, and its callers no longer wait
                    future.get_loop().call_soon_threadsafe(_resolve, future, result)

    def _results(self, works: "list[Work[Any]]") -> "list[Any]":
        try:
            if not self._connections:
                self._connections.append(open_file(self._path))
                self._file_id = file_id(self._path)
            (connection,) = self._connections
            connection.execute(self._begin)
            results = [work(connection) for work in works]
            connection.execute("COMMIT")
            if file_id(self._path) != self._file_id:  # what was stored is lost
                raise JournalError(f"the journal {self._path} was deleted or replaced while it was in use")
        except Exception as error:  # noqa: BLE001 - it is raised in the waiting callers, and the thread continues
            _close_all(self._connections, self._process)  # which also rolls back
            if len(works) > 1 and isinstance(error, _UNSTORABLE):
                return [result for work in works for result in self._results([work])]
            return [translated(error, self._path)] * len(works)
        return results


def _resolve(future: asyncio.Future[Any], result: Any) -> None:
    if future.done():
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)


def _close_all(connections: list[sqlite3.Connection], process: int) -> None:
    """Close connections that this process has opened."""
    if process != os.getpid():
        _INHERITED.extend(connections)
        return
    while connections:
        with suppress(sqlite3.Error):
            connections.pop().close()
