"""Midspan, the runtime between a language model and its tools: the names that most programs need.

Each name is imported when it is first used.
"""

from typing import TYPE_CHECKING

from midspan._lazy import lazy_attributes
from midspan._version import VERSION

if TYPE_CHECKING:
    from midspan._loop.agent import Agent as Agent
    from midspan._loop.background_runs import BackgroundRuns as BackgroundRuns
    from midspan._loop.chat import Chat as Chat
    from midspan._loop.result import RunResult as RunResult
    from midspan._loop.result import RunStream as RunStream
    from midspan._loop.telemetry import Telemetry as Telemetry
    from midspan._schema.signature import Context as Context
    from midspan._storage.memory import MemoryJournal as MemoryJournal
    from midspan._storage.sqlite import SqliteJournal as SqliteJournal
    from midspan._types.codec import from_json as from_json
    from midspan._types.codec import to_json as to_json
    from midspan._types.context import RunContext as RunContext
    from midspan._types.specs import Limits as Limits
    from midspan._types.specs import ModelSettings as ModelSettings
    from midspan.errors import MidspanError as MidspanError
    from midspan.errors import ToolError as ToolError
    from midspan.providers.gemini.client import Gemini as Gemini
    from midspan.tools.function import Tool as Tool
    from midspan.tools.function import tool as tool
    from midspan.tools.mcp.server import MCPServer as MCPServer
    from midspan.tools.toolbox import Toolbox as Toolbox

__version__ = VERSION

_HOMES = {
    "Agent": "midspan._loop.agent",
    "BackgroundRuns": "midspan._loop.background_runs",
    "Chat": "midspan._loop.chat",
    "Context": "midspan._schema.signature",
    "Gemini": "midspan.providers.gemini.client",
    "Limits": "midspan._types.specs",
    "MCPServer": "midspan.tools.mcp.server",
    "MemoryJournal": "midspan._storage.memory",
    "MidspanError": "midspan.errors",
    "ModelSettings": "midspan._types.specs",
    "RunContext": "midspan._types.context",
    "RunResult": "midspan._loop.result",
    "RunStream": "midspan._loop.result",
    "SqliteJournal": "midspan._storage.sqlite",
    "Telemetry": "midspan._loop.telemetry",
    "Tool": "midspan.tools.function",
    "ToolError": "midspan.errors",
    "Toolbox": "midspan.tools.toolbox",
    "from_json": "midspan._types.codec",
    "to_json": "midspan._types.codec",
    "tool": "midspan.tools.function",
}

__all__ = [*_HOMES, "__version__"]  # noqa: PLE0604 - the table is the list

if not TYPE_CHECKING:  # a type checker would accept any name otherwise
    __getattr__, __dir__ = lazy_attributes(__name__, _HOMES)
