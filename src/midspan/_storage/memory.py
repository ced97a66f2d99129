"""A journal in memory: for tests, and for runs that need not outlive the process."""

import threading
import time
from collections.abc import Sequence
from itertools import count, islice

from msgspec.structs import replace

from midspan._storage.journal import (
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
from midspan.errors import UnknownRunError


class MemoryJournal:
    """Keeps events in lists, until their run is deleted."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: dict[str, RunInfo] = {}
        self._events: dict[str, list[bytes]] = {}
        """By run. These lists only grow, so readers need no lock."""
        self._numbers = count()

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
        with self._lock:
            now, info = time.time(), self._runs.get(run)
            length, ended = (None, False) if info is None else (info.length, info.summary.ended)
            error = conflict(run, expected_seq, length, ended=ended)
            if error is not None:
                raise error
            if info is None:
                info = RunInfo(run, 0, summary, owner, session, now, now, str(next(self._numbers)))
            stored = self._events.setdefault(run, [])
            stored.extend(events)
            updated_at = max(info.updated_at, now)  # the clock may be set back
            self._runs[run] = replace(info, length=len(stored), summary=summary, updated_at=updated_at)
            return len(stored)

    async def read(self, run: str, from_seq: int = 0, limit: int | None = None) -> StoredEvents:
        events, (max_rows, _) = self._events.get(run), check_query(limit)
        if events is None:
            raise UnknownRunError(run)
        return list(islice(enumerate(events[from_seq:], from_seq), max_rows))

    async def get(self, run: str) -> RunInfo:
        info = self._runs.get(run)
        if info is None:
            raise UnknownRunError(run)
        return info

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
        matching = (
            info
            for info in self._newest_first(owner)
            if int(info.cursor) < before
            and (session is None or info.session == session)
            and (state is None or info.summary.state == state)
        )
        return list(islice(matching, max_rows))

    async def sessions(
        self, *, after: str | None = None, owner: str | None = None, limit: int | None = None
    ) -> Sessions:
        max_rows, before = check_query(limit, after)
        sessions: dict[tuple[str | None, str], Runs] = {}
        for info in self._newest_first(owner):
            if info.session is not None:
                sessions.setdefault((info.owner, info.session), []).append(info)
        matching = (_session_info(runs) for runs in sessions.values() if int(runs[0].cursor) < before)
        return list(islice(matching, max_rows))

    async def delete(self, run: str) -> bool:
        return self.drop(run)

    def drop(self, run: str) -> bool:
        """Like `delete`, for sync code."""
        with self._lock:
            self._events.pop(run, None)
            return self._runs.pop(run, None) is not None

    async def aclose(self) -> None:
        """Do nothing: the events are there until the journal is garbage-collected."""

    def _newest_first(self, owner: str | None) -> Runs:
        infos = [*self._runs.values()]  # at once, because other threads may add runs
        return [info for info in reversed(infos) if owner is None or info.owner == owner]


def _session_info(runs: Runs) -> SessionInfo:
    """Return the session of these runs, newest first."""
    started_at = min(info.started_at for info in runs)
    updated_at = max(info.updated_at for info in runs)
    newest = runs[0]
    assert newest.session is not None, "only runs with a session are grouped"
    return SessionInfo(newest.session, newest.owner, len(runs), newest.run, started_at, updated_at, newest.cursor)
