"""A journal in memory: for tests, and for runs that need not outlive the process."""

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Sequence
from itertools import count, islice

from msgspec import Struct
from msgspec.structs import replace

from midspan._storage.journal import (
    NumberedEvents,
    RunInfo,
    Runs,
    RunSummary,
    SessionInfo,
    Sessions,
    StateName,
    closed,
    conflict,
    cursor_number,
)
from midspan._storage.waiters import Waiters
from midspan.errors import UnknownRunError

_PAGE = 256
"""Events that a watcher gets before it yields to other tasks."""


class MemoryJournal:
    """Keeps events in lists.

    By default it keeps everything. `max_runs` and `max_bytes` drop ended runs, oldest end first. Running runs are never
    dropped, and `max_bytes` keeps the run that ended last. A watcher of a dropped run still gets all of its events.
    """

    def __init__(self, *, max_runs: int | None = None, max_bytes: int | None = None) -> None:
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
            stored = self._find(run)
            length = None if stored is None else stored.info.length
            error = conflict(run, expected_seq, length, ended=stored is not None and stored.ended)
            if error is not None:
                raise error
            if not events and summary is None:
                return expected_seq
            if stored is None:
                now = time.time()
                info = RunInfo(run, 0, RunSummary(), owner, session, now, now, str(next(self._numbers)))
                stored = self._runs[run] = _Run(info)
            stored.add(events, summary)
            self._bytes += sum(map(len, events))
            if stored.ended:
                self._ended[run] = None
            self._drop_old()
        if self._waiters:
            self._waiters.wake(run, stored)
        return expected_seq + len(events)

    async def read(self, run: str, from_seq: int = 0, limit: int | None = None) -> NumberedEvents:
        return list(islice(enumerate(self._get(run).events[from_seq:], from_seq), limit))

    async def watch(self, run: str, from_seq: int = 0) -> AsyncGenerator[tuple[int, bytes], None]:
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
        return self._get(run).info

    async def list(
        self,
        *,
        after: str | None = None,
        owner: str | None = None,
        session: str | None = None,
        state: StateName | None = None,
        limit: int | None = None,
    ) -> Runs:
        before = cursor_number(after)
        matching = (
            info
            for info in self._newest_first(owner)
            if (before is None or int(info.cursor) < before)
            and (session is None or info.session == session)
            and (state is None or info.summary.state == state)
        )
        return list(islice(matching, limit))

    async def sessions(
        self, *, after: str | None = None, owner: str | None = None, limit: int | None = None
    ) -> Sessions:
        before = cursor_number(after)
        sessions: dict[tuple[str | None, str], Runs] = {}
        for info in self._newest_first(owner):
            if info.session is not None:
                sessions.setdefault((info.owner, info.session), []).append(info)
        matching = (
            SessionInfo(
                name,
                session_owner,
                len(runs),
                runs[0].run,
                min(info.started_at for info in runs),
                max(info.updated_at for info in runs),
                runs[0].cursor,
            )
            for (session_owner, name), runs in sessions.items()
            if before is None or int(runs[0].cursor) < before
        )
        return list(islice(matching, limit))

    async def delete(self, run: str) -> bool:
        with self._lock:
            stored = self._find(run)
            if stored is None:
                return False
            self._drop(run)
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

    def _get(self, run: str) -> "_Run":
        stored = self._find(run)
        if stored is None:
            raise UnknownRunError(run)
        return stored

    def _newest_first(self, owner: str | None) -> Runs:
        with self._lock:
            if self._closed:
                raise closed()
            infos = [stored.info for stored in reversed(self._runs.values())]
        return [info for info in infos if owner is None or info.owner == owner]

    def _drop_old(self) -> None:
        while self._ended and (
            (self._max_runs is not None and len(self._runs) > self._max_runs)
            or (self._max_bytes is not None and self._bytes > self._max_bytes and len(self._ended) > 1)
        ):
            self._drop(next(iter(self._ended)))

    def _drop(self, run: str) -> None:
        self._bytes -= sum(map(len, self._runs.pop(run).events))
        self._ended.pop(run, None)


class _Run(Struct, eq=False):
    """A stored run. Its list of events only grows, so readers need no lock."""

    info: RunInfo
    events: list[bytes] = []
    ended: bool = False
    """Nothing will be appended: the run has ended, or it was deleted."""

    def add(self, events: Sequence[bytes], summary: RunSummary | None) -> None:
        self.events.extend(events)
        self.info = replace(
            self.info,
            length=len(self.events),
            summary=summary or self.info.summary,
            updated_at=max(self.info.updated_at, time.time()),
        )
        self.ended = self.info.summary.ended
