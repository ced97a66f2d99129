import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from midspan._storage.sqlite_file import translated
from midspan.errors import JournalError

PATH = Path("/somewhere/journal.db")


def test_full_disk_is_reported_in_one_sentence() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("PRAGMA max_page_count = 10")
        connection.execute("CREATE TABLE events (body BLOB)")
        with pytest.raises(sqlite3.OperationalError) as full:
            connection.execute("INSERT INTO events VALUES (zeroblob(1000000))")
    error = translated(full.value, PATH)
    assert str(error) == "the journal /somewhere/journal.db failed: database or disk is full"
    assert type(error) is JournalError
    assert error.__cause__ is full.value


def test_damaged_file_is_reported_in_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE events (body BLOB)")
        connection.execute("INSERT INTO events VALUES (zeroblob(100000))")
        connection.commit()
    damaged = bytearray(path.read_bytes())
    damaged[4096:] = b"\xff" * (len(damaged) - 4096)
    path.write_bytes(damaged)
    with closing(sqlite3.connect(path)) as connection, pytest.raises(sqlite3.DatabaseError) as corrupt:
        connection.execute("SELECT body FROM events").fetchall()
    assert str(translated(corrupt.value, path)).endswith("malformed")


def test_unknown_errors_keep_their_message() -> None:
    assert (
        str(translated(sqlite3.Error("never heard of"), PATH))
        == "the journal /somewhere/journal.db failed: never heard of"
    )
