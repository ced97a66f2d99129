"""CloudGenie: a fictional cloud service whose resources can be listed, created, changed and deleted.

`python -m midspan.toolsets.cloudgenie` serves its eight tools over MCP.
"""

import asyncio
import sqlite3
import sys
import threading
import weakref
from argparse import ArgumentParser
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from midspan.errors import ConfigError, ToolError
from midspan.tools.function import Tool, tool

Name = Annotated[str, Meta(min_length=1, max_length=63, pattern="^[a-z0-9][a-z0-9-]*$")]
Id = Annotated[str, Meta(min_length=1, max_length=100)]
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


_BLUEPRINTS = (
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
_INSERT = """
INSERT INTO resources (name, type, blueprint_id, status, created_at) VALUES (?, ?, ?, 'running', ?) RETURNING *
"""
_SELECT = "SELECT * FROM resources WHERE ? IN ('resource-' || number, name)"
_UPDATE = "UPDATE resources SET status = ? WHERE ? IN ('resource-' || number, name) RETURNING *"
_DELETE = "DELETE FROM resources WHERE ? IN ('resource-' || number, name) RETURNING *"
_BUSY_SECONDS = 10.0
_INSTRUCTIONS = "Look up the blueprints before you create a resource, and name resources as the user does."


class _Store:
    """Resources in a SQLite database. Any thread may use it."""

    def __init__(self, database: str | Path) -> None:
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

    def execute(self, statement: str, *values: str) -> list[ResourceRecord]:
        with self._lock:
            rows = self._connection.execute(statement, values).fetchall()
        return [ResourceRecord(f"resource-{number}", *columns) for number, *columns in rows]

    def resources(self) -> list[ResourceRecord]:
        return self.execute("SELECT * FROM resources ORDER BY number")

    def execute_on(self, id: str, statement: str, *values: str) -> ResourceRecord:
        """Return the resource with this id or name that a statement selects or changes."""
        records = self.execute(statement, *values, id)
        if not records:
            known = ", ".join(f"{resource.id} ({resource.name})" for resource in self.resources()[:20]) or "none yet"
            raise ToolError(f"there is no resource {id!r}; the resources are: {known}")
        return records[0]


def _blueprint(id: str) -> Blueprint:
    blueprints = {blueprint.id: blueprint for blueprint in _BLUEPRINTS}
    if id not in blueprints:
        raise ToolError(f"there is no blueprint {id!r}; the blueprints are: {', '.join(blueprints)}")
    return blueprints[id]


def cloudgenie_tools(database: str | Path = ":memory:") -> list[Tool[..., Any]]:
    """Return the tools. `database` is a file, which several processes can use; by default it is in memory."""
    store = _Store(database)

    @tool(reads=("blueprint:*", "resource:*"), open_world=False)
    def cloudgenie_health_check() -> dict[str, str | int]:
        """Check whether CloudGenie works, and count its blueprints and resources."""
        return {"status": "healthy", "blueprints": len(_BLUEPRINTS), "resources": len(store.resources())}

    @tool(reads="blueprint:*", open_world=False)
    def cloudgenie_get_blueprints() -> list[Blueprint]:
        """Retrieve all available blueprints: the kinds of resources that can be created."""
        return list(_BLUEPRINTS)

    @tool(reads="blueprint:{id}", open_world=False)
    def cloudgenie_get_blueprint(id: Id) -> Blueprint:
        """Retrieve one blueprint.

        Args:
            id: The id of the blueprint, such as postgresql-blueprint.
        """
        return _blueprint(id)

    @tool(reads="resource:*", open_world=False)
    def cloudgenie_get_resources() -> list[ResourceRecord]:
        """List all resources of the user, with their status."""
        return store.resources()

    @tool(reads="resource:*", open_world=False)
    def cloudgenie_get_resource(id: Id) -> ResourceRecord:
        """Retrieve one resource, with its status.

        Args:
            id: The id of the resource, or its name.
        """
        return store.execute_on(id, _SELECT)

    @tool(writes="resource:*", destructive=False, open_world=False)
    def cloudgenie_create_resource(name: Name, type: str, blueprint_id: Id) -> ResourceRecord:  # noqa: A002 - for models
        """Create a resource from a blueprint. Look the blueprint up first.

        Args:
            name: The name of the new resource: lower-case letters, digits and hyphens.
            type: The type of the resource, which is that of the blueprint.
            blueprint_id: The id of the blueprint to use.
        """
        blueprint = _blueprint(blueprint_id)
        if type != blueprint.type:
            raise ToolError(f"{blueprint_id} creates resources of type {blueprint.type!r}, not {type!r}")
        if name.startswith("resource-"):
            raise ToolError(f"{name!r} has the form of an id; choose another name")
        created_at = datetime.now(UTC).isoformat(timespec="seconds")
        try:
            return store.execute(_INSERT, name, type, blueprint_id, created_at)[0]
        except sqlite3.IntegrityError:
            raise ToolError(f"there is a resource named {name!r} already") from None

    @tool(writes="resource:*", destructive=True, idempotent=True, open_world=False)
    def cloudgenie_delete_resource(id: Id) -> dict[str, ResourceRecord]:
        """Delete a resource for ever.

        Args:
            id: The id of the resource, or its name.
        """
        return {"deleted": store.execute_on(id, _DELETE)}

    @tool(writes="resource:*", destructive=False, idempotent=True, open_world=False)
    def cloudgenie_update_resource_status(id: Id, status: Status) -> ResourceRecord:
        """Change the status of a resource: start it, stop it, or mark it as failed.

        Args:
            id: The id of the resource, or its name.
            status: The new status.
        """
        return store.execute_on(id, _UPDATE, status)

    return [
        cloudgenie_health_check,
        cloudgenie_get_blueprints,
        cloudgenie_get_blueprint,
        cloudgenie_get_resources,
        cloudgenie_get_resource,
        cloudgenie_create_resource,
        cloudgenie_delete_resource,
        cloudgenie_update_resource_status,
    ]


def main() -> None:
    """Serve the tools over MCP."""
    parser = ArgumentParser("python -m midspan.toolsets.cloudgenie", description="Serve CloudGenie over MCP.")
    parser.add_argument("--database", metavar="FILE", default=":memory:", help="where resources are stored")
    parser.add_argument("--http", metavar="PORT", type=int, help="serve over HTTP, at /mcp, instead of stdio")
    options = parser.parse_args()
    try:
        from midspan.tools.mcp.serve.app import serve_mcp  # of the extra `mcp`, which the tools do not need

        tools = cloudgenie_tools(options.database)
        serving = serve_mcp(tools, name="cloudgenie", instructions=_INSTRUCTIONS, port=options.http, on_start=_show)
        with suppress(KeyboardInterrupt):
            asyncio.run(serving)
    except ConfigError as error:
        parser.error(str(error))


def _show(url: str) -> None:
    print(f"CloudGenie is at {url}", file=sys.stderr, flush=True)  # noqa: T201 - stdout may carry the protocol


if __name__ == "__main__":
    main()
