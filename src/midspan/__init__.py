"""Midspan, the runtime between a language model and its tools: the public names, each loaded when it is first used."""

import logging
from typing import TYPE_CHECKING, Any

from midspan.version import VERSION

if TYPE_CHECKING:
    from midspan.loop.agent import Agent as Agent
    from midspan.loop.background_runs import BackgroundRuns as BackgroundRuns
    from midspan.loop.chat import Chat as Chat
    from midspan.loop.result import RunResult as RunResult
    from midspan.providers.gemini.client import Gemini as Gemini
    from midspan.schema.signature import Context as Context
    from midspan.storage.sqlite import SqliteJournal as SqliteJournal
    from midspan.tools.function import Tool as Tool
    from midspan.tools.function import tool as tool
    from midspan.tools.toolbox import Toolbox as Toolbox
    from midspan.types.codec import from_json as from_json
    from midspan.types.codec import to_json as to_json
    from midspan.types.specs import Limits as Limits
    from midspan.types.specs import ModelSettings as ModelSettings

__version__ = VERSION

logging.getLogger("midspan").addHandler(logging.NullHandler())  # quiet, unless the program wants to hear

_HOMES = {
    "Agent": "midspan.loop.agent",
    "BackgroundRuns": "midspan.loop.background_runs",
    "Chat": "midspan.loop.chat",
    "Context": "midspan.schema.signature",
    "Gemini": "midspan.providers.gemini.client",
    "Limits": "midspan.types.specs",
    "ModelSettings": "midspan.types.specs",
    "RunResult": "midspan.loop.result",
    "SqliteJournal": "midspan.storage.sqlite",
    "Tool": "midspan.tools.function",
    "Toolbox": "midspan.tools.toolbox",
    "from_json": "midspan.types.codec",
    "to_json": "midspan.types.codec",
    "tool": "midspan.tools.function",
}

__all__ = [*_HOMES, "__version__"]  # noqa: PLE0604 - the table is the list


if not TYPE_CHECKING:  # or a checker would believe that every name is here

    def __getattr__(name: str) -> Any:
        from importlib import import_module

        if name not in _HOMES:
            raise AttributeError(f"module 'midspan' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
