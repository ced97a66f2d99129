"""A thread that owns a connection and does what the event loops ask of it, many requests in one transaction.

The loops never wait for a disk, and requests that came while one transaction was under way share the next one, so that
a thousand appends at once cost a few commits. The thread is a daemon: it keeps no program from ending. What it had
acknowledged by then is in the file; what it had not is in it as a whole or not at all.
"""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future as ThreadFuture
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from midspan.errors import MidspanError
from midspan.storage.database.failures import translated
from midspan.storage.database.opening import Place, open_file
from midspan.storage.database.poll import Poll
from midspan.storage.journal import closed

Work = Callable[[sqlite3.Connection], Any]


class Kind(NamedTuple):
    """How a transaction begins, and how much is done in one."""

    begin: str
    most: int


WRITING = Kind("BEGIN IMMEDIATE", most=512)
READING = Kind("BEGIN", most=16)
"""Few, since what one has read waits for the others."""


class _Job(NamedTuple):
    work: Work
    future: asyncio.Future[Any]


_Queue = SimpleQueue[_Job | None]
"""None is the last: the thread closes its connection and ends."""


class Worker:
    """Does work in its thread, in the order in which it is asked; the thread starts with the first."""

    def __init__(self, name: str, place: Place, kind: Kind, poll: Poll | None = None) -> None:
        self._name = name
        self._task = _Task(place, kind, poll)
        self._lock = threading.Lock()
        self._started = False
        self._closed = False

    async def do(self, work: Work) -> Any:
        """What the work returns; an exception that it returns, instead of raising it, is raised for its caller alone.

        What it raises takes back the transaction, and all who share it are told. Work that is cancelled before its turn
        is not done; cancelled later, it is done unheard.
        """
        future = asyncio.get_running_loop().create_future()
        with self._lock:
            if self._closed:
                raise closed()
            if not self._started:
                threading.Thread(target=self._task.run, name=self._name, daemon=True).start()
                self._started = True
            self._task.queue.put(_Job(work, future))
        return await future

    def stop(self) -> None:
        """Have the thread end when it has done what it was asked."""
        with self._lock:
            if not self._closed and self._started:
                self._task.queue.put(None)
            self._closed = True

    async def stopped(self) -> None:
        """Wait for the end of a thread that was told to stop."""
        if self._started:
            await asyncio.wrap_future(self._task.ended)


class _Task:
    """What the thread does; it knows nothing of the journal, which may be thrown away while the thread waits."""

    def __init__(self, place: Place, kind: Kind, poll: Poll | None) -> None:
        self.queue: _Queue = SimpleQueue()
        self.ended: ThreadFuture[None] = ThreadFuture()
        self.ended.set_running_or_notify_cancel()  # from here on a waiter who is cancelled does not cancel it
        self._place = place
        self._kind = kind
        self._poll = poll
        self._connection: sqlite3.Connection | None = None

    def run(self) -> None:
        going_on = True
        while going_on:
            jobs, going_on = self._take()
            if jobs:
                _tell(jobs, self._outcomes(jobs))
            if self._poll is not None and self._poll.seconds() == 0.0:
                self._look_for_changes(self._poll)
            del jobs  # what was asked for is not kept until the next one comes
        self._drop_connection()
        self.ended.set_result(None)

    def _take(self) -> tuple[list[_Job], bool]:
        """What waits, as much of it as one transaction takes, and whether there is more to come."""
        jobs: list[_Job] = []
        with suppress(Empty):
            job = self.queue.get(timeout=None if self._poll is None else self._poll.seconds())
            while job is not None:
                if not job.future.cancelled():
                    jobs.append(job)
                if len(jobs) == self._kind.most:
                    return jobs, True
                job = self.queue.get_nowait()
            return jobs, False
        return jobs, True

    def _outcomes(self, jobs: list[_Job]) -> list[Any]:
        try:
            return self._in_transaction(jobs)
        except Exception as error:  # noqa: BLE001 - whatever it is belongs to those who wait, and the thread goes on
            # The next one starts with a new connection, which also takes back what this one has begun.
            self._drop_connection()
            return [_for_waiting(error, self._place) for _ in jobs]

    def _in_transaction(self, jobs: list[_Job]) -> list[Any]:
        connection = self._connected()
        connection.execute(self._kind.begin)
        outcomes = [job.work(connection) for job in jobs]
        connection.execute("COMMIT")
        return outcomes

    def _look_for_changes(self, poll: Poll) -> None:
        try:
            poll.look(self._connected())
        except Exception:  # noqa: BLE001 - those who wait look for themselves and are told
            self._drop_connection()
            poll.failed()

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = open_file(self._place)
        return self._connection

    def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()


def _for_waiting(error: Exception, place: Place) -> Exception:
    return translated(error, place.path) if isinstance(error, sqlite3.Error | MidspanError) else error


def _tell(jobs: list[_Job], outcomes: list[Any]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any]]] = {}
    for job, outcome in zip(jobs, outcomes, strict=True):
        by_loop.setdefault(job.future.get_loop(), []).append((job.future, outcome))
    for loop, told in by_loop.items():
        with suppress(RuntimeError):  # the loop was closed, and nobody waits there any more
            loop.call_soon_threadsafe(_resolve, told)


def _resolve(told: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, outcome in told:
        if future.done():
            continue
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
