"""Wasat, the runtime between a language model and its tools: the public names, each loaded when it is first used."""

import logging
from typing import TYPE_CHECKING, Any

from wasat.version import VERSION

if TYPE_CHECKING:
    from wasat.loop.agent import Agent as Agent
    from wasat.loop.chat import Chat as Chat
    from wasat.loop.result import RunResult as RunResult
    from wasat.loop.streams import Streams as Streams
    from wasat.providers.gemini.client import Gemini as Gemini
    from wasat.schema.signature import Context as Context
    from wasat.storage.sqlite import SqliteJournal as SqliteJournal
    from wasat.tools.function import Tool as Tool
    from wasat.tools.function import tool as tool
    from wasat.tools.toolbox import Toolbox as Toolbox
    from wasat.types.codec import from_json as from_json
    from wasat.types.codec import to_json as to_json
    from wasat.types.specs import Limits as Limits
    from wasat.types.specs import ModelSettings as ModelSettings

__version__ = VERSION

logging.getLogger("wasat").addHandler(logging.NullHandler())  # quiet, unless the program wants to hear

_HOMES = {
    "Agent": "wasat.loop.agent",
    "Chat": "wasat.loop.chat",
    "Context": "wasat.schema.signature",
    "Gemini": "wasat.providers.gemini.client",
    "Limits": "wasat.types.specs",
    "ModelSettings": "wasat.types.specs",
    "RunResult": "wasat.loop.result",
    "SqliteJournal": "wasat.storage.sqlite",
    "Streams": "wasat.loop.streams",
    "Tool": "wasat.tools.function",
    "Toolbox": "wasat.tools.toolbox",
    "from_json": "wasat.types.codec",
    "to_json": "wasat.types.codec",
    "tool": "wasat.tools.function",
}

__all__ = [*_HOMES, "__version__"]  # noqa: PLE0604 - the table is the list


if not TYPE_CHECKING:  # or a checker would believe that every name is here

    def __getattr__(name: str) -> Any:
        from importlib import import_module

        if name not in _HOMES:
            raise AttributeError(f"module 'wasat' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
