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
    check_state,
    conflict,
    cursor_number,
)
from midspan.errors import UnknownRunError


class MemoryJournal:
    """Keeps events in lists, until their run is deleted."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: dict[str, _Run] = {}
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
            error = conflict(run, expected_seq, length, ended=stored is not None and stored.info.summary.ended)
            if error is not None:
                raise error
            if stored is None:
                info = RunInfo(run, 0, RunSummary(), owner, session, now, now, str(next(self._numbers)))
                stored = self._runs[run] = _Run(info)
            stored.events.extend(events)
            length, summary = len(stored.events), summary or stored.info.summary
            updated_at = max(stored.info.updated_at, now)  # the clock may be set back
            stored.info = replace(stored.info, length=length, summary=summary, updated_at=updated_at)
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
        check_state(state)
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
        return self.drop(run)

    def drop(self, run: str) -> bool:
        """Like `delete`, for plain code."""
        return self._runs.pop(run, None) is not None

    async def aclose(self) -> None:
        """Do nothing: the events are there until the journal is garbage-collected."""

    def _get(self, run: str) -> "_Run":
        stored = self._runs.get(run)
        if stored is None:
            raise UnknownRunError(run)
        return stored

    def _newest_first(self, owner: str | None) -> Runs:
        runs = [*self._runs.values()]  # at once, because other threads may add runs
        return [run.info for run in reversed(runs) if owner is None or run.info.owner == owner]


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
