"""Appends of other processes, noticed by looking: SQLite tells nobody.

A look asks for one number, which changes with every commit of anybody. Only if it has changed are the runs looked at
that somebody waits for. Looks come often while there is something to see, seldom otherwise, and never take more than a
twentieth of the time.
"""

import sqlite3
import time

from midspan.storage.database.statements import find
from midspan.storage.waiters import Waiters

_SHORTEST_SECONDS = 0.01
_LONGEST_SECONDS = 0.2
_SHARE = 20


class Poll:
    """Wakes those whose run has changed since the last look; used by one thread only."""

    def __init__(self, waiters: Waiters) -> None:
        self._waiters = waiters
        self._connection: sqlite3.Connection | None = None
        self._version: int | None = None
        self._seen: dict[str, object] = {}
        self._pause = _SHORTEST_SECONDS
        self._due = 0.0

    def seconds(self) -> float | None:
        """How long until the next look; None while nobody waits."""
        return max(0.0, self._due - time.monotonic()) if self._waiters else None

    def look(self, connection: sqlite3.Connection) -> None:
        """Look now."""
        started = time.monotonic()
        changed = self._wake_changed(connection)
        now = time.monotonic()
        self._pause = _SHORTEST_SECONDS if changed else min(2 * self._pause, _LONGEST_SECONDS)
        self._due = now + max(self._pause, _SHARE * (now - started))

    def failed(self) -> None:
        """Have all look for themselves, and be told what is wrong."""
        self._due = time.monotonic() + _LONGEST_SECONDS
        self._waiters.wake_all()

    def _wake_changed(self, connection: sqlite3.Connection) -> bool:
        (version,) = connection.execute("PRAGMA data_version").fetchone()
        if connection is self._connection and version == self._version:
            return False
        self._connection, self._version = connection, version
        before, self._seen = self._seen, {run: find(connection, run) for run in self._waiters.runs()}
        changed = [run for run, row in self._seen.items() if run not in before or before[run] != row]
        for run in changed:
            self._waiters.wake(run)
        return bool(changed)
