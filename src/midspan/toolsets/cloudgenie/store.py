"""The store of CloudGenie: blueprints that never change, and resources in SQLite."""

import sqlite3
import threading
import weakref
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from msgspec import Struct

from midspan.errors import ConfigError, ToolError

Status = Literal["provisioning", "running", "stopped", "failed"]


class Blueprint(Struct, frozen=True):
    """A kind of resource that can be created."""

    id: str
    name: str
    type: str
    """The type of the resources that are created from it."""
    description: str


class ResourceRecord(Struct, frozen=True):
    """A resource of the user."""

    id: str
    name: str
    type: str
    blueprint_id: str
    status: str
    created_at: str
    """ISO 8601."""


BLUEPRINTS = (
    Blueprint("postgresql-blueprint", "PostgreSQL", "database", "A PostgreSQL database with daily backups."),
    Blueprint("mysql-blueprint", "MySQL", "database", "A MySQL database with daily backups."),
    Blueprint("redis-blueprint", "Redis", "cache", "A Redis cache with one replica."),
    Blueprint("bucket-blueprint", "Object storage", "storage", "A bucket for files, with versions."),
    Blueprint("web-server-blueprint", "Web server", "compute", "A virtual machine with a web server."),
)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS resources (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    type TEXT NOT NULL,
    blueprint_id TEXT NOT NULL,
    status TEXT NOT NULL,
    created_at TEXT NOT NULL
)
"""
_INSERT = "INSERT INTO resources (name, type, blueprint_id, status, created_at) VALUES (?, ?, ?, ?, ?) RETURNING *"
_BUSY_SECONDS = 10.0
_ID_PREFIX = "resource-"


def _utc_now() -> datetime:
    return datetime.now(UTC)


class Store:
    """Resources in a file, or in memory. Any thread may use it."""

    def __init__(self, database: str | Path = ":memory:", *, now: Callable[[], datetime] = _utc_now) -> None:
        self._now = now
        self._lock = threading.Lock()
        try:
            self._connection = sqlite3.connect(
                database, timeout=_BUSY_SECONDS, check_same_thread=False, isolation_level=None
            )
            # The tools refer to the store for as long as they live, and nobody else is there to close it.
            weakref.finalize(self, self._connection.close)
            self._connection.execute(_SCHEMA)
        except sqlite3.Error as error:
            raise ConfigError(f"cannot open the database {str(database)!r}: {error}") from error

    def close(self) -> None:
        self._connection.close()

    def blueprint(self, id: str) -> Blueprint:
        found = next((blueprint for blueprint in BLUEPRINTS if blueprint.id == id), None)
        if found is None:
            known = ", ".join(blueprint.id for blueprint in BLUEPRINTS)
            raise ToolError(f"there is no blueprint {id!r}; the blueprints are: {known}")
        return found

    def resources(self) -> list[ResourceRecord]:
        return self._execute("SELECT * FROM resources ORDER BY number")

    def resource(self, id: str) -> ResourceRecord:
        """Return a resource by its id, or by its name, which people use."""
        column, value = ("number", id.removeprefix(_ID_PREFIX)) if _is_id(id) else ("name", id)
        resources = self._execute(f"SELECT * FROM resources WHERE {column} = ?", value)  # noqa: S608 - a fixed name
        if not resources:
            known = ", ".join(f"{resource.id} ({resource.name})" for resource in self.resources()[:20]) or "none yet"
            raise ToolError(f"there is no resource {id!r}; the resources are: {known}")
        return resources[0]

    def create(self, name: str, kind: str, blueprint_id: str) -> ResourceRecord:
        blueprint = self.blueprint(blueprint_id)
        if kind != blueprint.type:
            raise ToolError(f"{blueprint_id} creates resources of type {blueprint.type!r}, not {kind!r}")
        if _is_id(name):
            raise ToolError(f"{name!r} has the form of an id; choose another name")
        created_at = self._now().isoformat(timespec="seconds")
        try:
            return self._execute(_INSERT, name, kind, blueprint_id, "running", created_at)[0]
        except sqlite3.IntegrityError:
            raise ToolError(f"there is a resource named {name!r} already: {self.resource(name).id}") from None

    def set_status(self, id: str, status: Status) -> ResourceRecord:
        name = self.resource(id).name
        return self._execute("UPDATE resources SET status = ? WHERE name = ? RETURNING *", status, name)[0]

    def delete(self, id: str) -> ResourceRecord:
        return self._execute("DELETE FROM resources WHERE name = ? RETURNING *", self.resource(id).name)[0]

    def _execute(self, statement: str, *values: str) -> list[ResourceRecord]:
        with self._lock:
            rows = self._connection.execute(statement, values).fetchall()
        return [ResourceRecord(f"{_ID_PREFIX}{number}", *columns) for number, *columns in rows]


def _is_id(text: str) -> bool:
    return text.startswith(_ID_PREFIX) and text.removeprefix(_ID_PREFIX).isdecimal()
