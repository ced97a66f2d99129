"""Threads that own an SQLite connection and run work for event loops, many requests in one transaction.

Event loops never wait for the disk. Requests that arrive during a transaction share the next one, so a thousand
concurrent appends take a few commits. The threads are daemons and do not keep a program alive: what they acknowledged
is in the file, and anything else is there completely or not at all.
"""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future as ThreadFuture
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from midspan._storage.journal import closed
from midspan._storage.sqlite_file import Location, find, open_file, translated
from midspan._storage.waiters import Waiters
from midspan.errors import MidspanError

Work = Callable[[sqlite3.Connection], Any]

_MIN_POLL_SECONDS = 0.01
_MAX_POLL_SECONDS = 0.2
_POLL_SHARE = 20
"""Polling takes at most one part in so many of the time."""


class Mode(NamedTuple):
    """How transactions begin, and how many requests share one."""

    begin: str
    max_jobs: int


WRITING = Mode("BEGIN IMMEDIATE", max_jobs=512)
READING = Mode("BEGIN", max_jobs=16)
"""Few, because the result of one request waits for the others."""


class _Job(NamedTuple):
    work: Work
    future: asyncio.Future[Any]


class Worker:
    """Runs work in its thread, in order. The thread starts with the first request."""

    def __init__(self, name: str, location: Location, mode: Mode, poll: "Poll | None" = None) -> None:
        self._name = name
        self._thread = _Thread(location, mode, poll)
        self._lock = threading.Lock()
        self._started = False
        self._closed = False

    async def do(self, work: Work) -> Any:
        """The result of the work. An exception that it returns is raised for its caller alone.

        An exception that it raises rolls back the transaction and is raised for all requests that share it. Work that
        is cancelled before its turn is not run; work that is cancelled later is run without its result being used.
        """
        future = asyncio.get_running_loop().create_future()
        with self._lock:
            if self._closed:
                raise closed()
            if not self._started:
                threading.Thread(target=self._thread.run, name=self._name, daemon=True).start()
                self._started = True
            self._thread.queue.put(_Job(work, future))
        return await future

    def stop(self) -> None:
        """Let the thread end after the work it already has."""
        with self._lock:
            if not self._closed and self._started:
                self._thread.queue.put(None)
            self._closed = True

    async def stopped(self) -> None:
        """Wait for the end of a thread that was stopped."""
        if self._started:
            await asyncio.wrap_future(self._thread.ended)


class _Thread:
    """The body of the thread. It has no reference to the journal, which can be collected while the thread waits."""

    def __init__(self, location: Location, mode: Mode, poll: "Poll | None") -> None:
        self.queue: SimpleQueue[_Job | None] = SimpleQueue()
        """None is the last item."""
        self.ended: ThreadFuture[None] = ThreadFuture()
        self.ended.set_running_or_notify_cancel()  # a cancelled waiter must not cancel it
        self._location = location
        self._mode = mode
        self._poll = poll
        self._connection: sqlite3.Connection | None = None

    def run(self) -> None:
        running = True
        while running:
            jobs, running = self._take()
            if jobs:
                _deliver(jobs, self._results(jobs))
            if self._poll is not None and self._poll.seconds() == 0.0:
                self._look_for_changes(self._poll)
            del jobs  # do not keep results alive until the next request
        self._drop_connection()
        self.ended.set_result(None)

    def _take(self) -> tuple[list[_Job], bool]:
        """The waiting jobs, as many as one transaction takes, and whether more may come."""
        jobs: list[_Job] = []
        with suppress(Empty):
            job = self.queue.get(timeout=None if self._poll is None else self._poll.seconds())
            while job is not None:
                if not job.future.cancelled():
                    jobs.append(job)
                if len(jobs) == self._mode.max_jobs:
                    return jobs, True
                job = self.queue.get_nowait()
            return jobs, False
        return jobs, True

    def _results(self, jobs: list[_Job]) -> list[Any]:
        try:
            return self._in_transaction(jobs)
        except Exception as error:  # noqa: BLE001 - it is raised for those who wait, and the thread goes on
            self._drop_connection()  # which also rolls back
            return [self._for_caller(error) for _ in jobs]

    def _in_transaction(self, jobs: list[_Job]) -> list[Any]:
        connection = self._connected()
        connection.execute(self._mode.begin)
        results = [job.work(connection) for job in jobs]
        connection.execute("COMMIT")
        return results

    def _for_caller(self, error: Exception) -> Exception:
        return translated(error, self._location.path) if isinstance(error, sqlite3.Error | MidspanError) else error

    def _look_for_changes(self, poll: "Poll") -> None:
        try:
            poll.look(self._connected())
        except Exception:  # noqa: BLE001 - the watchers read for themselves and get the error
            self._drop_connection()
            poll.failed()

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = open_file(self._location)
        return self._connection

    def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()


def _deliver(jobs: list[_Job], results: list[Any]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any]]] = {}
    for job, result in zip(jobs, results, strict=True):
        by_loop.setdefault(job.future.get_loop(), []).append((job.future, result))
    for loop, delivered in by_loop.items():
        with suppress(RuntimeError):  # the loop is closed, and nobody waits there
            loop.call_soon_threadsafe(_resolve, delivered)


def _resolve(delivered: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, result in delivered:
        if future.done():
            continue
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)


class Poll:
    """Notices appends of other processes, which SQLite does not announce. Used by one thread.

    One pragma tells whether anybody has committed. Only then are the watched runs looked up. Polling is frequent while
    there are changes and rare otherwise.
    """

    def __init__(self, waiters: Waiters) -> None:
        self._waiters = waiters
        self._connection: sqlite3.Connection | None = None
        self._version: int | None = None
        self._rows: dict[str, object] = {}
        self._interval = _MIN_POLL_SECONDS
        self._due = 0.0

    def seconds(self) -> float | None:
        """The time until the next poll, or None while nobody waits."""
        return max(0.0, self._due - time.monotonic()) if self._waiters else None

    def look(self, connection: sqlite3.Connection) -> None:
        started = time.monotonic()
        changed = self._wake_changed(connection)
        now = time.monotonic()
        self._interval = _MIN_POLL_SECONDS if changed else min(2 * self._interval, _MAX_POLL_SECONDS)
        self._due = now + max(self._interval, _POLL_SHARE * (now - started))

    def failed(self) -> None:
        """Wake all watchers, so that each gets the error."""
        self._due = time.monotonic() + _MAX_POLL_SECONDS
        self._waiters.wake_all()

    def _wake_changed(self, connection: sqlite3.Connection) -> bool:
        (version,) = connection.execute("PRAGMA data_version").fetchone()
        if connection is self._connection and version == self._version:
            return False
        self._connection, self._version = connection, version
        before, self._rows = self._rows, {run: find(connection, run) for run in self._waiters.runs()}
        changed = [run for run, row in self._rows.items() if run not in before or before[run] != row]
        for run in changed:
            self._waiters.wake(run)
        return bool(changed)
