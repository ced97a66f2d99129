"""A journal in memory: for tests, and for runs that need not outlive the process."""

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Sequence
from itertools import count, islice

from msgspec import Struct

from midspan._storage.journal import (
    NumberedEvents,
    RunInfo,
    Runs,
    RunSummary,
    SessionInfo,
    Sessions,
    StateName,
    check_filter,
    check_range,
    check_run,
    closed,
    conflict,
)
from midspan._storage.waiters import Waiters
from midspan.errors import ConfigError, UnknownRunError

_PAGE = 256
"""Events that a watcher gets before it yields to other tasks."""


class MemoryJournal:
    """Keeps events in lists.

    By default it keeps everything. `max_runs` and `max_bytes` drop ended runs, oldest end first. Running runs are never
    dropped, and `max_bytes` keeps the run that ended last. A watcher of a dropped run still gets all of its events.
    """

    def __init__(self, *, max_runs: int | None = None, max_bytes: int | None = None) -> None:
        for name, value in (("max_runs", max_runs), ("max_bytes", max_bytes)):
            if value is not None and value < 0:
                raise ConfigError(f"{name} must not be negative, got {value}; omit it to keep all runs")
        self._max_runs = max_runs
        self._max_bytes = max_bytes
        self._bytes = 0
        self._lock = threading.Lock()
        self._runs: dict[str, _Run] = {}
        self._ended: dict[str, None] = {}
        """The runs that have ended, oldest end first."""
        self._numbers = count(1)
        self._waiters = Waiters()
        self._closed = False

    def __contains__(self, run: str) -> bool:
        """Whether there is a run with this id, for synchronous code."""
        return run in self._runs

    async def append(
        self,
        run: str,
        expected_seq: int,
        events: Sequence[bytes],
        *,
        owner: str | None = None,
        session: str | None = None,
        summary: RunSummary | None = None,
    ) -> int:
        with self._lock:
            if self._closed:
                raise closed()
            stored = self._runs.get(run)
            ended = stored is not None and stored.ended
            error = conflict(run, expected_seq, None if stored is None else len(stored.events), ended=ended)
            if error is not None:
                raise error
            if not events and summary is None:
                return expected_seq
            if stored is None:
                check_run(run)
                now = time.time()
                stored = self._runs[run] = _Run(next(self._numbers), owner, session, now, now)
            stored.add(events, summary)
            self._bytes += sum(map(len, events))
            length = len(stored.events)
            if stored.ended:
                self._ended[run] = None
            self._drop_old()
        if self._waiters:
            self._waiters.wake(run, stored)
        return length

    async def read(self, run: str, from_seq: int = 0, limit: int | None = None) -> NumberedEvents:
        check_range(from_seq, limit)
        stored = self._find(run)
        if stored is None:
            raise UnknownRunError(run)
        last = None if limit is None else from_seq + limit
        return list(enumerate(stored.events[from_seq:last], from_seq))

    async def watch(self, run: str, from_seq: int = 0) -> AsyncGenerator[tuple[int, bytes], None]:
        check_range(from_seq)
        seq = from_seq
        stored: _Run | None = None
        while True:
            with self._waiters.waiting(run) as woken:
                stored = self._find(run, stored)
                ended = stored is not None and stored.ended  # read before the events: an ended run gets no more
                page = stored.events[seq : seq + _PAGE] if stored is not None else []
                if not page and not ended:
                    appended: _Run | None = await woken  # the run itself: it may be dropped before we look it up
                    stored = stored or appended
            for event in page:
                yield seq, event
                seq += 1
            if page:
                await asyncio.sleep(0)
            elif ended:
                return

    async def get(self, run: str) -> RunInfo:
        stored = self._find(run)
        if stored is None:
            raise UnknownRunError(run)
        return stored.info(run)

    async def list(
        self,
        *,
        after: str | None = None,
        owner: str | None = None,
        session: str | None = None,
        state: StateName | None = None,
        limit: int | None = None,
    ) -> Runs:
        check_range(0, limit)
        before = check_filter(after, state)
        newest_first = self._newest_first()
        matching = (
            stored.info(run)
            for run, stored in newest_first
            if (before is None or stored.number < before)
            and (owner is None or stored.owner == owner)
            and (session is None or stored.session == session)
            and (state is None or stored.summary.state == state)
        )
        return list(islice(matching, None if limit is None else min(limit, len(newest_first))))

    async def sessions(
        self, *, after: str | None = None, owner: str | None = None, limit: int | None = None
    ) -> Sessions:
        check_range(0, limit)
        before = check_filter(after, None)
        runs: dict[tuple[str | None, str], list[tuple[str, _Run]]] = {}
        for run, stored in self._newest_first():
            if stored.session is not None and (owner is None or stored.owner == owner):
                runs.setdefault((stored.owner, stored.session), []).append((run, stored))
        matching = [
            _session_info(name, session_owner, stored)
            for (session_owner, name), stored in runs.items()
            if before is None or stored[0][1].number < before
        ]
        return matching[: None if limit is None else min(limit, len(matching))]

    def _newest_first(self) -> "tuple[tuple[str, _Run], ...]":
        with self._lock:
            if self._closed:
                raise closed()
            return tuple(reversed(self._runs.items()))

    async def delete(self, run: str) -> bool:
        with self._lock:
            if self._closed:
                raise closed()
            stored = self._runs.pop(run, None)
            self._ended.pop(run, None)
            if stored is None:
                return False
            self._bytes -= stored.size
            stored.ended = True
        self._waiters.wake(run, stored)
        return True

    async def aclose(self) -> None:
        with self._lock:
            self._closed = True
            self._runs.clear()
            self._ended.clear()
            self._bytes = 0
        self._waiters.wake_all()

    def _find(self, run: str, known: "_Run | None" = None) -> "_Run | None":
        if self._closed and not (known and known.ended):  # a watcher of an ended run already has all of it
            raise closed()
        return known or self._runs.get(run)

    def _drop_old(self) -> None:
        while self._ended and (
            (self._max_runs is not None and len(self._runs) > self._max_runs)
            or (self._max_bytes is not None and self._bytes > self._max_bytes and len(self._ended) > 1)
        ):
            oldest = next(iter(self._ended))
            self._bytes -= self._runs[oldest].size
            del self._ended[oldest], self._runs[oldest]


class _Run(Struct, eq=False):
    """A stored run. Its list of events only grows, so readers need no lock."""

    number: int
    owner: str | None
    session: str | None
    started_at: float
    updated_at: float
    events: list[bytes] = []
    summary: RunSummary = RunSummary()
    ended: bool = False

    @property
    def size(self) -> int:
        return sum(map(len, self.events))

    def add(self, events: Sequence[bytes], summary: RunSummary | None) -> None:
        self.events.extend(events)
        self.updated_at = max(self.updated_at, time.time())
        if summary is not None:
            self.summary = summary
            self.ended = summary.ended

    def info(self, run: str) -> RunInfo:
        return RunInfo(
            run, len(self.events), self.summary, self.owner, self.session, self.started_at, self.updated_at,
            str(self.number),
        )  # fmt: skip


def _session_info(name: str, owner: str | None, runs: list[tuple[str, _Run]]) -> SessionInfo:
    """`runs` are those of the session, newest first."""
    last, newest = runs[0]
    started_at = min(stored.started_at for _, stored in runs)
    updated_at = max(stored.updated_at for _, stored in runs)
    return SessionInfo(name, owner, len(runs), last, started_at, updated_at, str(newest.number))
