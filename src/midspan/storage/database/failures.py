"""What SQLite's errors mean, in one sentence for whoever gave us the file."""

import sqlite3
from pathlib import Path

from midspan.errors import ConfigError, JournalError, MidspanError

_TAKES_NO_FILE = {
    sqlite3.SQLITE_NOTADB: "{path} is not an SQLite database; give the path of a journal, or of a file yet to be made",
    sqlite3.SQLITE_CANTOPEN: "cannot open {path}; its directory has to exist and to be writable",
    sqlite3.SQLITE_READONLY: "cannot write to {path}; the file and its directory have to be writable",
    sqlite3.SQLITE_PERM: "cannot write to {path}; the file and its directory have to be writable",
    sqlite3.SQLITE_AUTH: "may not use {path}; its permissions forbid it",
}
_FAILED = {
    sqlite3.SQLITE_FULL: "no space is left for {path}; nothing of this was kept: free some, then try again",
    sqlite3.SQLITE_BUSY: "{path} was locked by another process for too long; try again, or find who holds it",
    sqlite3.SQLITE_CORRUPT: "{path} is damaged; restore it from a copy, or take what `sqlite3 FILE .recover` saves",
    sqlite3.SQLITE_IOERR: "{path} could not be read or written; look to its disk ({error})",
}


def translated(error: Exception, path: Path) -> MidspanError:
    """A new exception of our tree for what SQLite raised; one for each who waits, since each gets its own traceback."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the low byte is the kind; the others tell where it arose
    if isinstance(error, MidspanError):
        made: MidspanError = type(error)(*error.args)
    elif code == sqlite3.SQLITE_CANTOPEN and path.is_dir():
        made = ConfigError(f"cannot open {path}; it is a directory, and a journal is a file")
    elif code in _TAKES_NO_FILE:
        made = ConfigError(_TAKES_NO_FILE[code].format(path=path))
    else:
        made = JournalError(_FAILED.get(code, "{path} failed: {error}").format(path=path, error=error))
    made.__cause__ = error
    return made
