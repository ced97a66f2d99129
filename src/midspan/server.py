"""The HTTP server: an agent as an ASGI application, which `midspan serve` runs."""

from typing import TYPE_CHECKING

from midspan._lazy import lazy_attributes

if TYPE_CHECKING:
    from midspan._server.app import ServerApp as ServerApp
    from midspan._server.app import create_app as create_app

_HOMES = {"ServerApp": "midspan._server.app", "create_app": "midspan._server.app"}

__all__ = [*_HOMES]  # noqa: PLE0604 - the table is the list

if not TYPE_CHECKING:  # a type checker would accept any name otherwise
    __getattr__, __dir__ = lazy_attributes(__name__, _HOMES)
