"""The SQLite file of a journal: opening it, its schema and statements, and the meaning of its errors."""

import os
import sqlite3
import tempfile
import time
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
_NOW = "SELECT (julianday('now') - 2440587.5) * 86400.0"  # unixepoch('subsec') needs SQLite 3.42
_MAX_LOG_BYTES = 64 * 2**20
_PAGE_BYTES = 2**16
_PAGE_EVENTS = 256
_MAX_INTEGER = 2**63 - 1


class Location(Struct, frozen=True):
    """Which file to open, and how."""

    path: Path
    synchronous: Synchronous
    busy_timeout: float


def open_file(location: Location) -> sqlite3.Connection:
    """Open a connection for the calling thread, which begins and commits transactions itself."""
    _create_private(location.path)
    connection = sqlite3.connect(location.path, timeout=location.busy_timeout, isolation_level=None)
    try:
        has_tables = _check_version(connection, location.path)
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

    The file is created under another name and then linked: closing a descriptor of the database itself would release
    the locks of other connections in this process (https://sqlite.org/howtocorrupt.html, 2.2). If this fails, SQLite
    creates the file or reports what is wrong.
    """
    with suppress(OSError):
        target = path.resolve()
        if target.exists():
            return
        descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name[:32]}-", dir=target.parent)
        os.close(descriptor)
        try:
            os.link(temporary, target)
        finally:
            Path(temporary).unlink()


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


class Page(NamedTuple):
    """Events that a watcher has not seen yet."""

    run_id: int | None
    """Which run of that name it is; None if there is none yet."""
    events: NumberedEvents
    is_last: bool


class _Row(NamedTuple):
    id: int
    length: int
    state: str

    @property
    def ended(self) -> bool:
        return self.state in ENDED_STATES


class Append(Struct, frozen=True):
    """The arguments of `Journal.append`."""

    run: str
    expected_seq: int
    events: tuple[bytes, ...]
    owner: str | None
    summary: RunSummary | None


# Each of the following runs in a transaction that the caller began.


def append(connection: sqlite3.Connection, new: Append) -> int | JournalError:
    """The number of the next event, or why nothing was stored."""
    row = find(connection, new.run)
    error = conflict(new.run, new.expected_seq, row and row.length, ended=row is not None and row.ended)
    if error is not None:
        return error
    length = new.expected_seq
    if not new.events and new.summary is None:
        return length
    (now,) = connection.execute(_NOW).fetchone()
    run_id = _create(connection, new.run, new.owner, now) if row is None else row.id
    numbered = [(run_id, seq, event) for seq, event in enumerate(new.events, length)]
    connection.executemany("INSERT INTO events (run_id, seq, body) VALUES (?, ?, ?)", numbered)
    length += len(numbered)
    connection.execute("UPDATE runs SET length = ?, updated_at = ? WHERE id = ?", (length, now, run_id))
    if new.summary is not None:
        stored = new.summary.state, msgspec.json.encode(new.summary), run_id
        connection.execute("UPDATE runs SET state = ?, summary = ? WHERE id = ?", stored)
    return length


def find(connection: sqlite3.Connection, run: str) -> _Row | None:
    row = connection.execute("SELECT id, length, state FROM runs WHERE run = ?", (run,)).fetchone()
    return None if row is None else _Row(*row)


def _create(connection: sqlite3.Connection, run: str, owner: str | None, now: float) -> int:
    statement = (
        "INSERT INTO runs (run, owner, length, state, summary, started_at, updated_at) "
        "VALUES (?, ?, 0, 'running', x'7b7d', ?, ?)"
    )
    run_id = connection.execute(statement, (run, owner, now, now)).lastrowid
    assert run_id is not None, "an INSERT gives its row an id"
    return run_id


def read(connection: sqlite3.Connection, run: str, from_seq: int, limit: int | None) -> NumberedEvents | JournalError:
    row = find(connection, run)
    if row is None:
        return UnknownRun(run)
    if from_seq >= row.length:
        return []
    statement = "SELECT seq, body FROM events WHERE run_id = ? AND seq >= ? ORDER BY seq LIMIT ?"
    most = row.length if limit is None else min(limit, row.length)
    return connection.execute(statement, (row.id, from_seq, most)).fetchall()


def read_page(connection: sqlite3.Connection, run: str, known_id: int | None, from_seq: int) -> Page:
    """The next events for a watcher, limited in memory."""
    row = find(connection, run)
    if row is None:
        return Page(known_id, [], known_id is not None)
    if known_id is not None and row.id != known_id:  # deleted, and another run of this name was created
        return Page(known_id, [], True)
    if from_seq >= row.length:
        return Page(row.id, [], row.ended)
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
    return Page(row.id, events, row.ended and from_seq + len(events) == row.length)


_COLUMNS = "SELECT run, length, summary, owner, started_at, updated_at, id FROM runs"
_decode_summary = msgspec.json.Decoder(RunSummary).decode


def get(connection: sqlite3.Connection, run: str) -> RunInfo | JournalError:
    row = connection.execute(f"{_COLUMNS} WHERE run = ?", (run,)).fetchone()
    return UnknownRun(run) if row is None else _info(*row)


def list_runs(
    connection: sqlite3.Connection, before: int | None, owner: str | None, state: StateName | None, limit: int | None
) -> Runs:
    filters = {"id < ?": before, "owner = ?": owner, "state = ?": state}
    used = {condition: value for condition, value in filters.items() if value is not None}
    where = f" WHERE {' AND '.join(used)}" if used else ""
    most = -1 if limit is None else min(limit, _MAX_INTEGER)
    rows = connection.execute(f"{_COLUMNS}{where} ORDER BY id DESC LIMIT ?", (*used.values(), most))
    return [_info(*row) for row in rows]


def _info(
    run: str, length: int, summary: bytes, owner: str | None, started_at: float, updated_at: float, id: int
) -> RunInfo:
    return RunInfo(run, length, _decode_summary(summary), owner, started_at, max(started_at, updated_at), str(id))


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
    sqlite3.SQLITE_PERM: "cannot write to {path}; the file and its directory must be writable",
    sqlite3.SQLITE_AUTH: "cannot use {path}; its permissions forbid it",
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
        made: MidspanError = type(error)(*error.args)
    elif code == sqlite3.SQLITE_CANTOPEN and path.is_dir():
        made = ConfigError(f"cannot open {path}; it is a directory")
    elif code in _CANNOT_USE_FILE:
        made = ConfigError(_CANNOT_USE_FILE[code].format(path=path))
    else:
        made = JournalError(_FAILED.get(code, "{path} failed: {error}").format(path=path, error=error))
    made.__cause__ = error
    return made
