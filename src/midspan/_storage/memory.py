"""A journal in memory: for tests, and for runs that need not outlive the process."""

import threading
import time
from collections.abc import Sequence
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
    conflict,
    cursor_number,
)
from midspan.errors import UnknownRunError

MAX_RUNS = 1_000
MAX_BYTES = 64_000_000
"""How many runs are kept, and the bytes of their events."""


class MemoryJournal:
    """Keeps events in lists.

    Beyond `max_runs` or `max_bytes`, ended runs are dropped, oldest end first. Running runs are never dropped, and
    `max_bytes` keeps the run that ended last.
    """

    def __init__(self, *, max_runs: int = MAX_RUNS, max_bytes: int = MAX_BYTES) -> None:
        self._max_runs, self._max_bytes = max_runs, max_bytes
        self._bytes = 0
        self._lock = threading.Lock()
        self._runs: dict[str, _Run] = {}
        self._ended: dict[str, None] = {}
        """The runs that have ended, oldest end first."""
        self._numbers = count(1)

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
            now = time.time()
            stored = self._runs.get(run)
            length = None if stored is None else len(stored.events)
            error = conflict(run, expected_seq, length, ended=run in self._ended)
            if error is not None:
                raise error
            if stored is None:
                info = RunInfo(run, 0, RunSummary(), owner, session, now, now, str(next(self._numbers)))
                stored = self._runs[run] = _Run(info)
            stored.events.extend(events)
            length, summary = len(stored.events), summary or stored.info.summary
            stored.info = replace(stored.info, length=length, summary=summary, updated_at=now)
            self._bytes += sum(map(len, events))
            if summary.ended:
                self._ended[run] = None
            self._drop_old()
        return length

    async def read(self, run: str, from_seq: int = 0, limit: int | None = None) -> NumberedEvents:
        return list(islice(enumerate(self._get(run).events[from_seq:], from_seq), limit))

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
            if int(info.cursor) < before
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
        matching = (_session_info(runs) for runs in sessions.values() if int(runs[0].cursor) < before)
        return list(islice(matching, limit))

    async def delete(self, run: str) -> bool:
        with self._lock:
            return self._drop(run)

    async def aclose(self) -> None:
        """Do nothing: the events are there until the journal is garbage-collected."""

    def _get(self, run: str) -> "_Run":
        stored = self._runs.get(run)
        if stored is None:
            raise UnknownRunError(run)
        return stored

    def _newest_first(self, owner: str | None) -> Runs:
        with self._lock:
            infos = [stored.info for stored in reversed(self._runs.values())]
        return [info for info in infos if owner is None or info.owner == owner]

    def _drop_old(self) -> None:
        while self._ended and (
            len(self._runs) > self._max_runs or (self._bytes > self._max_bytes and len(self._ended) > 1)
        ):
            self._drop(next(iter(self._ended)))

    def _drop(self, run: str) -> bool:
        stored = self._runs.pop(run, None)
        self._ended.pop(run, None)
        self._bytes -= 0 if stored is None else sum(map(len, stored.events))
        return stored is not None


class _Run(Struct, eq=False):
    """A stored run. Its list of events only grows, so readers need no lock."""

    info: RunInfo
    events: list[bytes] = []


def _session_info(runs: Runs) -> SessionInfo:
    """Return the session of these runs, newest first."""
    started_at = min(info.started_at for info in runs)
    updated_at = max(info.updated_at for info in runs)
    newest = runs[0]
    assert newest.session is not None, "only runs with a session are grouped"
    return SessionInfo(newest.session, newest.owner, len(runs), newest.run, started_at, updated_at, newest.cursor)
