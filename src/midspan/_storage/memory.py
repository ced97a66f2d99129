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
    StateName,
    check_filter,
    check_range,
    check_run,
    closed,
    conflict,
)
from midspan._storage.waiters import Waiters
from midspan.errors import ConfigError, UnknownRun

_PAGE = 256
"""Events that a watcher gets before it yields to other tasks."""


class MemoryJournal:
    """Keeps events in lists.

    By default it keeps everything. `max_runs` and `max_age_seconds` drop ended runs, oldest end first. Running runs are
    never dropped. A watcher of a dropped run still gets all of its events.
    """

    def __init__(self, *, max_runs: int | None = None, max_age_seconds: float | None = None) -> None:
        if max_runs is not None and max_runs < 0:
            raise ConfigError(f"max_runs must not be negative, got {max_runs}; omit it to keep all runs")
        self._max_runs = max_runs
        self._max_age_seconds = max_age_seconds
        self._lock = threading.Lock()
        self._runs: dict[str, _Run] = {}
        self._ended_at: dict[str, float] = {}
        """The monotonic time at which each ended run ended, oldest first."""
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
                stored = self._runs[run] = _Run(next(self._numbers), owner, now, now)
            stored.add(events, summary)
            length = len(stored.events)
            if stored.ended:
                self._ended_at[run] = time.monotonic()
            self._drop_old()
        if self._waiters:
            self._waiters.wake(run, stored)
        return length

    async def read(self, run: str, from_seq: int = 0, limit: int | None = None) -> NumberedEvents:
        check_range(from_seq, limit)
        stored = self._find(run)
        if stored is None:
            raise UnknownRun(run)
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
            raise UnknownRun(run)
        return stored.info(run)

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
        with self._lock:
            if self._closed:
                raise closed()
            self._drop_old()
            newest_first = list(reversed(self._runs.items()))
        matching = (
            stored.info(run)
            for run, stored in newest_first
            if (before is None or stored.number < before)
            and (owner is None or stored.owner == owner)
            and (state is None or stored.summary.state == state)
        )
        return list(islice(matching, None if limit is None else min(limit, len(newest_first))))

    async def delete(self, run: str) -> bool:
        with self._lock:
            if self._closed:
                raise closed()
            stored = self._runs.pop(run, None)
            self._ended_at.pop(run, None)
            if stored is None:
                return False
            stored.ended = True
        self._waiters.wake(run, stored)
        return True

    async def close(self) -> None:
        with self._lock:
            self._closed = True
            self._runs.clear()
            self._ended_at.clear()
        self._waiters.wake_all()

    def _find(self, run: str, known: "_Run | None" = None) -> "_Run | None":
        if self._closed and not (known and known.ended):  # a watcher of an ended run already has all of it
            raise closed()
        return known or self._runs.get(run)

    def _drop_old(self) -> None:
        while self._ended_at and self._has_too_much():
            oldest = next(iter(self._ended_at))
            del self._ended_at[oldest], self._runs[oldest]

    def _has_too_much(self) -> bool:
        if self._max_runs is not None and len(self._runs) > self._max_runs:
            return True
        age = time.monotonic() - next(iter(self._ended_at.values()))
        return self._max_age_seconds is not None and age > self._max_age_seconds


class _Run(Struct, eq=False):
    """A stored run. Its list of events only grows, so readers need no lock."""

    number: int
    owner: str | None
    started_at: float
    updated_at: float
    events: list[bytes] = []
    summary: RunSummary = RunSummary()
    ended: bool = False

    def add(self, events: Sequence[bytes], summary: RunSummary | None) -> None:
        self.events.extend(events)
        self.updated_at = max(self.updated_at, time.time())
        if summary is not None:
            self.summary = summary
            self.ended = summary.ended

    def info(self, run: str) -> RunInfo:
        return RunInfo(
            run, len(self.events), self.summary, self.owner, self.started_at, self.updated_at, str(self.number)
        )
