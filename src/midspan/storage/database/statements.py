"""What a journal asks of its tables, each within a transaction that the caller began."""

import sqlite3
import time
from collections.abc import Sequence
from typing import NamedTuple

from midspan.errors import JournalConflict
from midspan.storage.journal import NumberedEvents, RunInfo, Runs

_PAGE_BYTES = 2**16
_PAGE_EVENTS = 256
_LARGEST_INTEGER = 2**63 - 1


class Page(NamedTuple):
    """Some of the events that a watcher has not seen yet."""

    run_id: int | None
    """Which run of that name it is; None while there is none."""
    events: NumberedEvents
    over: bool
    """Nothing comes after these."""


class _Row(NamedTuple):
    id: int
    length: int
    ended: int


def append(
    connection: sqlite3.Connection, run: str, expected_seq: int, events: Sequence[bytes], *, end: bool
) -> int | JournalConflict:
    """The number of the next event, or why nothing was written."""
    row = find(connection, run)
    length, ended = (0, False) if row is None else (row.length, bool(row.ended))
    if expected_seq != length or ended:
        return JournalConflict(run, expected=expected_seq, found=length, ended=ended)
    if not events and not end:
        return length
    now = time.time()
    run_id = _begin(connection, run, now) if row is None else row.id
    numbered = [(run_id, seq, event) for seq, event in enumerate(events, length)]
    connection.executemany("INSERT INTO events (run_id, seq, body) VALUES (?, ?, ?)", numbered)
    length += len(numbered)
    connection.execute("UPDATE runs SET length = ?, ended = ?, updated_at = ? WHERE id = ?", (length, end, now, run_id))
    return length


def find(connection: sqlite3.Connection, run: str) -> _Row | None:
    row = connection.execute("SELECT id, length, ended FROM runs WHERE run = ?", (run,)).fetchone()
    return None if row is None else _Row(*row)


def _begin(connection: sqlite3.Connection, run: str, now: float) -> int:
    statement = "INSERT INTO runs (run, length, ended, created_at, updated_at) VALUES (?, 0, 0, ?, ?)"
    run_id = connection.execute(statement, (run, now, now)).lastrowid
    assert run_id is not None, "an INSERT gives its row an id"
    return run_id


def read(connection: sqlite3.Connection, run: str, from_seq: int, limit: int | None) -> NumberedEvents:
    row = find(connection, run)
    if row is None or from_seq >= row.length:
        return []
    statement = "SELECT seq, body FROM events WHERE run_id = ? AND seq >= ? ORDER BY seq LIMIT ?"
    most = row.length if limit is None else min(limit, row.length)
    return connection.execute(statement, (row.id, from_seq, most)).fetchall()


def read_page(connection: sqlite3.Connection, run: str, known_id: int | None, from_seq: int) -> Page:
    """The next events for a watcher who knows which run it watches, as few as take little memory."""
    row = find(connection, run)
    if row is None:
        return Page(known_id, [], known_id is not None)
    if known_id is not None and row.id != known_id:  # deleted, and begun anew: another run
        return Page(known_id, [], True)
    if from_seq >= row.length:
        return Page(row.id, [], bool(row.ended))
    statement = "SELECT seq, body FROM events WHERE run_id = ? AND seq >= ? ORDER BY seq LIMIT ?"
    cursor = connection.execute(statement, (row.id, from_seq, _PAGE_EVENTS))
    events: NumberedEvents = []
    size = 0
    for seq, body in cursor:
        events.append((seq, body))
        size += len(body)
        if size >= _PAGE_BYTES:
            break
    cursor.close()
    return Page(row.id, events, bool(row.ended) and from_seq + len(events) == row.length)


def list_runs(connection: sqlite3.Connection, limit: int | None, ended: bool | None) -> Runs:
    statement = (
        "SELECT run, length, ended, created_at, updated_at FROM runs "
        "WHERE ? IS NULL OR ended = ? ORDER BY id DESC LIMIT ?"
    )
    most = -1 if limit is None else min(limit, _LARGEST_INTEGER)
    rows = connection.execute(statement, (ended, ended, most))
    return [RunInfo(run, length, bool(is_ended), created, updated) for run, length, is_ended, created, updated in rows]


def delete(connection: sqlite3.Connection, run: str) -> bool:
    row = find(connection, run)
    if row is None:
        return False
    connection.execute("DELETE FROM events WHERE run_id = ?", (row.id,))
    connection.execute("DELETE FROM runs WHERE id = ?", (row.id,))
    return True
