"""CloudGenie: a pretended cloud whose resources can be listed, created, changed and deleted.

`python -m midspan.toolsets.cloudgenie` serves its eight tools over MCP.
"""

from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct

from midspan.tools.function import Tool, tool
from midspan.toolsets.cloudgenie.store import BLUEPRINTS, Blueprint, ResourceRecord, Status, Store

__all__ = ["cloudgenie_tools"]

Name = Annotated[str, Meta(min_length=1, max_length=63, pattern="^[a-z0-9][a-z0-9-]*$")]
Id = Annotated[str, Meta(min_length=1, max_length=100)]


class Health(Struct, frozen=True):
    """Whether the service works."""

    status: str
    blueprints: int
    resources: int


class Deletion(Struct, frozen=True):
    """A resource that does not exist any more."""

    deleted: ResourceRecord


def cloudgenie_tools(database: str | Path = ":memory:") -> list[Tool[..., Any]]:
    """Return the tools. `database` is a file, which several processes can use; by default nothing is kept."""
    store = Store(database)

    @tool(reads=("blueprint:*", "resource:*"), open_world=False)
    def cloudgenie_health_check() -> Health:
        """Check whether CloudGenie works, and count its blueprints and resources."""
        return Health("healthy", len(BLUEPRINTS), len(store.resources()))

    @tool(reads="blueprint:*", open_world=False)
    def cloudgenie_get_blueprints() -> list[Blueprint]:
        """Retrieve all available blueprints: the kinds of resources that can be created."""
        return list(BLUEPRINTS)

    @tool(reads="blueprint:{id}", open_world=False)
    def cloudgenie_get_blueprint(id: Id) -> Blueprint:
        """Retrieve one blueprint.

        Args:
            id: The id of the blueprint, such as postgresql-blueprint.
        """
        return store.blueprint(id)

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
        return store.resource(id)

    @tool(writes="resource:*", destructive=False, open_world=False)
    def cloudgenie_create_resource(name: Name, type: str, blueprint_id: Id) -> ResourceRecord:  # noqa: A002 - for models
        """Create a resource from a blueprint. Look the blueprint up first.

        Args:
            name: The name of the new resource: lower-case letters, digits and hyphens.
            type: The type of the resource, which is that of the blueprint.
            blueprint_id: The id of the blueprint to use.
        """
        return store.create(name, type, blueprint_id)

    @tool(writes="resource:*", destructive=True, idempotent=True, open_world=False)
    def cloudgenie_delete_resource(id: Id) -> Deletion:
        """Delete a resource for ever.

        Args:
            id: The id of the resource, or its name.
        """
        return Deletion(store.delete(id))

    @tool(writes="resource:*", destructive=False, idempotent=True, open_world=False)
    def cloudgenie_update_resource_status(id: Id, status: Status) -> ResourceRecord:
        """Change the status of a resource: start it, stop it, or mark it as failed.

        Args:
            id: The id of the resource, or its name.
            status: The new status.
        """
        return store.set_status(id, status)

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
