"""A journal that lives as long as its process: for runs that need not outlive it, and for tests."""

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Sequence

from midspan.errors import ConfigError, JournalConflict
from midspan.storage.journal import NumberedEvents, RunInfo, Runs, check_range, check_run, closed
from midspan.storage.waiters import Waiters

_PAGE = 256
"""So many events a watcher gets before others have their turn."""


class MemoryJournal:
    """Events in lists.

    Without bounds it keeps everything. With them it drops ended runs, those that ended first before others: while there
    are more than `max_runs`, and those that ended longer ago than `max_age_seconds`. Runs that go on are never dropped,
    and whoever watches a run that is dropped still sees all of it, as does who watches an ended one when it is closed.
    """

    def __init__(self, *, max_runs: int | None = None, max_age_seconds: float | None = None) -> None:
        if max_runs is not None and max_runs < 0:
            raise ConfigError(f"max_runs={max_runs} is less than nothing; leave it out to keep all runs")
        self._max_runs = max_runs
        self._max_age_seconds = max_age_seconds
        self._lock = threading.Lock()
        self._runs: dict[str, _Run] = {}
        self._ended: dict[str, float] = {}
        """When each ended run did, in that order; not by the clock of the wall, which may jump."""
        self._waiters = Waiters()
        self._closed = False

    async def append(self, run: str, expected_seq: int, events: Sequence[bytes], *, end: bool = False) -> int:
        return self.append_now(run, expected_seq, events, end=end)

    def append_now(self, run: str, expected_seq: int, events: Sequence[bytes], *, end: bool = False) -> int:
        """`append` for code that need not wait."""
        with self._lock:
            if self._closed:
                raise closed()
            kept = self._runs.get(run)
            length = 0 if kept is None else len(kept.events)
            if expected_seq != length or (kept is not None and kept.ended):
                raise JournalConflict(run, expected=expected_seq, found=length, ended=kept is not None and kept.ended)
            if not events and not end:
                return length
            if kept is None:
                kept = self._begin(run)
            kept.events.extend(events)
            kept.updated_at = time.time()
            length = len(kept.events)
            if end:
                kept.ended = True
                self._ended[run] = time.monotonic()
                self._drop_old()
        if self._waiters:
            self._waiters.wake(run, kept)
        return length

    async def read(self, run: str, from_seq: int = 0, limit: int | None = None) -> NumberedEvents:
        check_range(from_seq, limit)
        kept = self._find(run)
        if kept is None:
            return []
        last = None if limit is None else from_seq + limit
        return list(enumerate(kept.events[from_seq:last], from_seq))

    async def watch(self, run: str, from_seq: int = 0) -> AsyncGenerator[tuple[int, bytes], None]:
        check_range(from_seq)
        seq = from_seq
        kept: _Run | None = None
        while True:
            with self._waiters.waiting(run) as woken:
                kept = self._find(run, kept)
                ended = kept is not None and kept.ended  # asked before the events are: those of an ended run are all
                page = kept.events[seq : seq + _PAGE] if kept is not None else []
                if not page and not ended:
                    told: _Run | None = await woken  # for the run may be dropped before we look
                    kept = kept or told
            for event in page:
                yield seq, event
                seq += 1
            if page:
                await asyncio.sleep(0)
            elif ended:
                return

    async def list(self, *, limit: int | None = None, ended: bool | None = None) -> Runs:
        check_range(0, limit)
        with self._lock:
            if self._closed:
                raise closed()
            self._drop_old()
            newest_first = list(reversed(self._runs.items()))
        found = (kept.info(run) for run, kept in newest_first if ended is None or kept.ended == ended)
        return [info for info, _ in zip(found, range(len(newest_first) if limit is None else limit), strict=False)]

    async def delete(self, run: str) -> bool:
        with self._lock:
            if self._closed:
                raise closed()
            kept = self._runs.pop(run, None)
            self._ended.pop(run, None)
            if kept is None:
                return False
            kept.ended = True
        self._waiters.wake(run, kept)
        return True

    async def close(self) -> None:
        with self._lock:
            self._closed = True
            self._runs.clear()
            self._ended.clear()
        self._waiters.wake_all()

    def _find(self, run: str, known: "_Run | None" = None) -> "_Run | None":
        if self._closed and not (known and known.ended):  # one that has ended is whole, and its watcher holds it
            raise closed()
        return known or self._runs.get(run)

    def _begin(self, run: str) -> "_Run":
        check_run(run)
        kept = self._runs[run] = _Run()
        self._drop_old()
        return kept

    def _drop_old(self) -> None:
        while self._ended and self._too_much():
            oldest = next(iter(self._ended))
            del self._ended[oldest], self._runs[oldest]

    def _too_much(self) -> bool:
        if self._max_runs is not None and len(self._runs) > self._max_runs:
            return True
        if self._max_age_seconds is None:
            return False
        return time.monotonic() - next(iter(self._ended.values())) > self._max_age_seconds


class _Run:
    """A run that grows; only ever longer, so that readers need no lock."""

    __slots__ = ("created_at", "ended", "events", "updated_at")

    def __init__(self) -> None:
        self.events: list[bytes] = []
        self.ended = False
        self.created_at = self.updated_at = time.time()

    def info(self, run: str) -> RunInfo:
        return RunInfo(run, len(self.events), self.ended, self.created_at, self.updated_at)
