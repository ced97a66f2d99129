"""The SQLite file of a journal: opening it, its tables, and the meaning of its errors."""

import os
import sqlite3
import threading
import time
from contextlib import suppress
from pathlib import Path

from midspan.errors import ConfigError, JournalError, MidspanError

VERSION = 3
_TABLES = f"""
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS journal_version (version INTEGER NOT NULL);
INSERT INTO journal_version SELECT {VERSION} WHERE NOT EXISTS (SELECT * FROM journal_version);
CREATE TABLE IF NOT EXISTS runs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    run TEXT NOT NULL UNIQUE,
    owner TEXT,
    session TEXT,
    length INTEGER NOT NULL,
    state TEXT NOT NULL,
    summary BLOB NOT NULL,
    started_at REAL NOT NULL,
    updated_at REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS runs_by_owner ON runs (owner, id);
CREATE INDEX IF NOT EXISTS runs_by_session ON runs (session, owner, id) WHERE session IS NOT NULL;
CREATE INDEX IF NOT EXISTS runs_by_state ON runs (state, id);
CREATE TABLE IF NOT EXISTS events (
    run_id INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    body BLOB NOT NULL,
    UNIQUE (run_id, seq)
);
COMMIT;
"""  # noqa: S608 - VERSION is a constant
# IF NOT EXISTS: another process may create the tables at the same time.
# AUTOINCREMENT: the id of a deleted run is never reused, so cursors keep the order of the starts.
# Not WITHOUT ROWID, which takes twice the space and time for events of 2 KB.
_MAX_LOG_BYTES = 64 * 2**20
_BUSY_SECONDS = 10.0
"""How long to wait for another process that is writing."""
_CREATING = threading.Lock()


def open_file(path: Path) -> sqlite3.Connection:
    """Open a connection for one thread at a time, which begins and commits transactions itself."""
    path = Path(os.path.realpath(path))
    _create_private(path)
    connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        has_tables = _has_tables(connection, path)
        _make_private(path)
        _use_write_ahead_log(connection)
        if not has_tables:
            connection.executescript(_TABLES)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA journal_size_limit = {_MAX_LOG_BYTES}")
    except BaseException:
        connection.close()
        raise
    return connection


def file_id(path: Path) -> tuple[int, int] | None:
    """Return what identifies a file, whatever its name; None if it does not exist."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


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


def _has_tables(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether it is a journal; false if it is empty. Other files are refused and not changed."""
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables:
        return False
    if "journal_version" not in tables:
        raise ConfigError(f"{path} is another program's database; use a separate file for the journal")
    (version,) = connection.execute("SELECT max(version) FROM journal_version").fetchone()
    if version != VERSION:
        raise ConfigError(f"{path} has journal format {version}, but this release of Midspan uses format {VERSION}")
    return True


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """With a WAL, readers and the writer do not block each other, and an append is one write at the end."""
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            # SQLite does not apply the busy timeout here if several connections open a new file at once.
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
        time.sleep(0.005)


def translated(error: Exception, path: Path) -> Exception:
    """Our exception for what SQLite raised; other exceptions stay as they are."""
    if isinstance(error, UnicodeEncodeError):
        return ConfigError(f"{error.object!r:.80} is not valid Unicode")
    if not isinstance(error, sqlite3.Error):
        return error
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the low byte is the primary result code
    if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
        translation: MidspanError = ConfigError(f"cannot use {path} as a journal: {error}")
    else:
        translation = JournalError(f"the journal {path} failed: {error}")
    translation.__cause__ = error
    return translation
