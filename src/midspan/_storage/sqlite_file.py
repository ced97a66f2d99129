"""The SQLite file of a journal: opening it, its schema and statements, and the meaning of its errors."""

import os
import sqlite3
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
from msgspec import Struct

from midspan._storage.journal import (
    ENDED_STATES,
    NumberedEvents,
    RunInfo,
    Runs,
    RunSummary,
    StateName,
    conflict,
)
from midspan.errors import ConfigError, JournalError, MidspanError, UnknownRun

Synchronous = Literal["full", "normal"]

VERSION = 2
_TABLES = """
CREATE TABLE journal_version (version INTEGER NOT NULL);
CREATE TABLE runs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    run TEXT NOT NULL UNIQUE,
    owner TEXT,
    length INTEGER NOT NULL,
    state TEXT NOT NULL,
    summary BLOB NOT NULL,
    started_at REAL NOT NULL,
    updated_at REAL NOT NULL
);
CREATE INDEX runs_by_owner ON runs (owner, id);
CREATE INDEX runs_by_state ON runs (state, id);
CREATE TABLE events (
    run_id INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    body BLOB NOT NULL,
    UNIQUE (run_id, seq)
);
"""
# AUTOINCREMENT: the id of a deleted run is never reused, so a watcher can recognize a new run of the same name.
# Not WITHOUT ROWID, which takes twice the space and time for events of 2 KB.
_MAX_LOG_BYTES = 64 * 2**20
_PAGE_BYTES = 2**16
_PAGE_EVENTS = 256
_MAX_INTEGER = 2**63 - 1
_CREATING = threading.Lock()


class Location(Struct, frozen=True):
    """Which file to open, and how."""

    path: Path
    synchronous: Synchronous
    busy_timeout: float


def open_file(location: Location) -> sqlite3.Connection:
    """Open a connection for one thread at a time, which begins and commits transactions itself."""
    path = Path(os.path.realpath(location.path))
    _create_private(path)
    connection = sqlite3.connect(path, timeout=location.busy_timeout, isolation_level=None, check_same_thread=False)
    try:
        has_tables = _check_version(connection, location.path)
        _make_private(path)
        _use_write_ahead_log(connection, location)
        if not has_tables:
            _create_tables(connection, location.path)
        connection.execute(f"PRAGMA synchronous = {location.synchronous}")
        connection.execute(f"PRAGMA journal_size_limit = {_MAX_LOG_BYTES}")
    except BaseException:
        connection.close()
        raise
    return connection


def _create_private(path: Path) -> None:
    """Create the file with mode 0600 if it does not exist. SQLite gives its WAL and SHM files the same mode.

    The lock is there because closing a descriptor of a database releases the locks of other connections in this
    process (https://sqlite.org/howtocorrupt.html, 2.2). If this fails, SQLite reports what is wrong.
    """
    with _CREATING, suppress(OSError):
        path.touch(0o600, exist_ok=False)


def _make_private(path: Path) -> None:
    """Change the mode of files that everybody may read or write to 0600. A mode such as 0640 is the user's choice."""
    for file in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        with suppress(OSError):  # it does not exist, or belongs to another user
            if file.stat().st_mode & 0o007:
                file.chmod(0o600)


def _check_version(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether the file has the tables of a journal; false if it is empty. Other files are refused and not changed."""
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables:
        return False
    if "journal_version" not in tables:
        raise ConfigError(f"{path} is another program's database; use a separate file for the journal")
    (version,) = connection.execute("SELECT max(version) FROM journal_version").fetchone()
    if version != VERSION:
        remedy = "use a newer Midspan" if version > VERSION else "it was written by a pre-release; use a new file"
        raise ConfigError(f"{path} has journal format {version}, but this release uses format {VERSION}; {remedy}")
    return True


def _use_write_ahead_log(connection: sqlite3.Connection, location: Location) -> None:
    """With a WAL, readers and the writer do not block each other, and an append is one write at the end of a file."""
    deadline = time.monotonic() + location.busy_timeout
    while True:
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.OperationalError as error:
            # SQLite does not apply the busy timeout here if several connections open a new file at once.
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.005)
        else:
            break
    if mode != "wal":
        raise ConfigError(f"{location.path} is on a file system without shared memory; use a local disk")


def _create_tables(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("BEGIN IMMEDIATE")
    if not _check_version(connection, path):  # another process may have been faster
        for statement in _TABLES.split(";\n"):
            connection.execute(statement)
        connection.execute("INSERT INTO journal_version VALUES (?)", (VERSION,))
    connection.execute("COMMIT")


class _Row(NamedTuple):
    id: int
    length: int
    state: str

    @property
    def ended(self) -> bool:
        return self.state in ENDED_STATES


_CREATE = (
    "INSERT INTO runs (run, owner, length, state, summary, started_at, updated_at) "
    "VALUES (?, ?, 0, 'running', x'7b7d', ?, ?)"
)

# Each of the following functions runs in a transaction that the caller began. An error that concerns one caller is
# returned, because an exception would roll back the transaction, which many callers share.


def append(
    connection: sqlite3.Connection,
    run: str,
    expected_seq: int,
    events: Sequence[bytes],
    *,
    owner: str | None,
    summary: RunSummary | None,
) -> int | JournalError:
    """The number of the next event, or why nothing was stored."""
    row = find(connection, run)
    error = conflict(run, expected_seq, row and row.length, ended=row is not None and row.ended)
    if error is not None:
        return error
    if not events and summary is None:
        return expected_seq
    now = time.time()
    run_id = connection.execute(_CREATE, (run, owner, now, now)).lastrowid if row is None else row.id
    numbered = [(run_id, seq, event) for seq, event in enumerate(events, expected_seq)]
    connection.executemany("INSERT INTO events (run_id, seq, body) VALUES (?, ?, ?)", numbered)
    length = expected_seq + len(numbered)
    connection.execute("UPDATE runs SET length = ?, updated_at = ? WHERE id = ?", (length, now, run_id))
    if summary is not None:
        stored = summary.state, msgspec.json.encode(summary), run_id
        connection.execute("UPDATE runs SET state = ?, summary = ? WHERE id = ?", stored)
    return length


def find(connection: sqlite3.Connection, run: str) -> _Row | None:
    row = connection.execute("SELECT id, length, state FROM runs WHERE run = ?", (run,)).fetchone()
    return None if row is None else _Row(*row)


_EVENTS = "SELECT seq, body FROM events WHERE run_id = ? AND seq >= ? ORDER BY seq LIMIT ?"


def read(connection: sqlite3.Connection, run: str, from_seq: int, limit: int | None) -> NumberedEvents | JournalError:
    row = find(connection, run)
    if row is None:
        return UnknownRun(run)
    if from_seq >= row.length:
        return []
    most = row.length if limit is None else min(limit, row.length)
    return connection.execute(_EVENTS, (row.id, from_seq, most)).fetchall()


class Page(NamedTuple):
    """Events that a watcher has not seen yet."""

    run_id: int | None
    """Which run of that name it is; None if there is none yet."""
    events: NumberedEvents
    is_last: bool


def read_page(connection: sqlite3.Connection, run: str, known_id: int | None, from_seq: int) -> Page:
    """The next events for a watcher, limited in memory."""
    row = find(connection, run)
    if row is None:
        return Page(known_id, [], known_id is not None)
    if known_id is not None and row.id != known_id:  # deleted, and another run of this name was created
        return Page(known_id, [], True)
    if from_seq >= row.length:
        return Page(row.id, [], row.ended)
    events: NumberedEvents = []
    size = 0
    for seq, body in connection.execute(_EVENTS, (row.id, from_seq, _PAGE_EVENTS)):
        events.append((seq, body))
        size += len(body)
        if size >= _PAGE_BYTES:
            break
    return Page(row.id, events, row.ended and from_seq + len(events) == row.length)


_INFO = "SELECT run, length, summary, owner, started_at, updated_at, id FROM runs"


def get(connection: sqlite3.Connection, run: str) -> RunInfo | JournalError:
    row = connection.execute(f"{_INFO} WHERE run = ?", (run,)).fetchone()
    return UnknownRun(run) if row is None else _info(row)


def list_runs(
    connection: sqlite3.Connection, before: int | None, owner: str | None, state: StateName | None, limit: int | None
) -> Runs:
    filters = {"id < ?": before, "owner = ?": owner, "state = ?": state}
    used = {condition: value for condition, value in filters.items() if value is not None}
    where = f" WHERE {' AND '.join(used)}" if used else ""
    most = -1 if limit is None else min(limit, _MAX_INTEGER)
    return [
        _info(row) for row in connection.execute(f"{_INFO}{where} ORDER BY id DESC LIMIT ?", (*used.values(), most))
    ]


def _info(row: tuple[str, int, bytes, str | None, float, float, int]) -> RunInfo:
    run, length, summary, owner, started_at, updated_at, id = row
    decoded = msgspec.json.decode(summary, type=RunSummary)
    return RunInfo(run, length, decoded, owner, started_at, max(started_at, updated_at), str(id))


def delete(connection: sqlite3.Connection, run: str) -> bool:
    row = find(connection, run)
    if row is None:
        return False
    connection.execute("DELETE FROM events WHERE run_id = ?", (row.id,))
    connection.execute("DELETE FROM runs WHERE id = ?", (row.id,))
    return True


_CANNOT_USE_FILE = {
    sqlite3.SQLITE_NOTADB: "{path} is not an SQLite database; give the path of a journal or of a new file",
    sqlite3.SQLITE_CANTOPEN: "cannot open {path}; its directory must exist and be writable",
    sqlite3.SQLITE_READONLY: "cannot write to {path}; the file and its directory must be writable",
}
_FAILED = {
    sqlite3.SQLITE_FULL: "no space left for {path}; nothing was stored",
    sqlite3.SQLITE_BUSY: "{path} was locked by another process for too long; try again",
    sqlite3.SQLITE_CORRUPT: "{path} is damaged; restore a copy, or try `sqlite3 FILE .recover`",
    sqlite3.SQLITE_IOERR: "{path} could not be read or written; check its disk ({error})",
}


def translated(error: Exception, path: Path) -> MidspanError:
    """Our exception for what SQLite raised. Each waiting caller needs its own, because each adds a traceback."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the low byte is the primary result code
    if isinstance(error, MidspanError):
        translation: MidspanError = type(error)(*error.args)
    elif code == sqlite3.SQLITE_CANTOPEN and path.is_dir():
        translation = ConfigError(f"cannot open {path}; it is a directory")
    elif code in _CANNOT_USE_FILE:
        translation = ConfigError(_CANNOT_USE_FILE[code].format(path=path))
    else:
        translation = JournalError(_FAILED.get(code, "{path} failed: {error}").format(path=path, error=error))
    translation.__cause__ = error
    return translation
