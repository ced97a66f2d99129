"""A file becomes a connection: made or recognised, checked for its version, set up for several processes."""

import sqlite3
import time
from pathlib import Path
from typing import Literal

from msgspec import Struct

from midspan.errors import ConfigError

Synchronous = Literal["full", "normal"]

VERSION = 1
_TABLES = """
CREATE TABLE journal_version (version INTEGER NOT NULL);
CREATE TABLE runs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    run TEXT NOT NULL UNIQUE,
    length INTEGER NOT NULL,
    ended INTEGER NOT NULL,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL
);
CREATE TABLE events (
    run_id INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    body BLOB NOT NULL,
    UNIQUE (run_id, seq)
);
"""
# AUTOINCREMENT: the id of a deleted run is not given again, so a watcher can tell a new run of the same name.
# Not WITHOUT ROWID, which takes twice the space and time for events of 2 KB.
_LARGEST_LOG_BYTES = 64 * 2**20


class Place(Struct, frozen=True):
    """Where a journal is, and how it is to be kept."""

    path: Path
    synchronous: Synchronous
    busy_seconds: float


def open_file(place: Place) -> sqlite3.Connection:
    """A connection for the thread that calls; transactions are up to it."""
    connection = sqlite3.connect(place.path, timeout=place.busy_seconds, isolation_level=None)
    try:
        made = _is_ours(connection, place.path)
        _use_write_ahead_log(connection, place)
        if not made:
            _make_tables(connection, place.path)
        connection.execute(f"PRAGMA synchronous = {place.synchronous}")
        connection.execute(f"PRAGMA journal_size_limit = {_LARGEST_LOG_BYTES}")
    except BaseException:
        connection.close()
        raise
    return connection


def _is_ours(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether the file is a journal that we can use; false if it is empty. Any other is refused untouched."""
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables:
        return False
    if "journal_version" not in tables:
        raise ConfigError(f"{path} is a database of something else; give the journal a file of its own")
    (version,) = connection.execute("SELECT max(version) FROM journal_version").fetchone()
    if version != VERSION:
        raise ConfigError(f"{path} is a journal of version {version}, and this is for {VERSION}; use a newer Midspan")
    return True


def _use_write_ahead_log(connection: sqlite3.Connection, place: Place) -> None:
    """Readers and the writer do not wait for each other, and an append is one write at the end of a file."""
    deadline = time.monotonic() + place.busy_seconds
    while True:
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.OperationalError as error:
            # Of several who open a new file at once some are refused without the usual waiting.
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.005)
        else:
            break
    if mode != "wal":
        raise ConfigError(f"{place.path} is on a file system without shared memory; keep the journal on a local disk")


def _make_tables(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("BEGIN IMMEDIATE")
    if not _is_ours(connection, path):  # another process may have been first
        for statement in _TABLES.split(";\n"):
            connection.execute(statement)
        connection.execute("INSERT INTO journal_version VALUES (?)", (VERSION,))
    connection.execute("COMMIT")
