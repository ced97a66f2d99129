"""Midspan, the runtime between a language model and its tools: the names that most programs need.

Each name is imported when it is first used.
"""

from typing import TYPE_CHECKING

from midspan._lazy import lazy_attributes
from midspan._version import VERSION

if TYPE_CHECKING:
    from midspan._loop.agent import Agent as Agent
    from midspan._loop.agent import Chat as Chat
    from midspan._loop.background_runs import BackgroundRuns as BackgroundRuns
    from midspan._loop.result import RunResult as RunResult
    from midspan._loop.run_stream import RunStream as RunStream
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

_NAMES = {
    "midspan._loop.agent": "Agent Chat",
    "midspan._loop.background_runs": "BackgroundRuns",
    "midspan._loop.result": "RunResult",
    "midspan._loop.run_stream": "RunStream",
    "midspan._loop.telemetry": "Telemetry",
    "midspan._schema.signature": "Context",
    "midspan._storage.memory": "MemoryJournal",
    "midspan._storage.sqlite": "SqliteJournal",
    "midspan._types.codec": "from_json to_json",
    "midspan._types.context": "RunContext",
    "midspan._types.specs": "Limits ModelSettings",
    "midspan.errors": "MidspanError ToolError",
    "midspan.providers.gemini.client": "Gemini",
    "midspan.tools.function": "Tool tool",
    "midspan.tools.mcp.server": "MCPServer",
    "midspan.tools.toolbox": "Toolbox",
}

if not TYPE_CHECKING:  # a type checker would accept any name otherwise
    __all__, __getattr__, __dir__ = lazy_attributes(__name__, _NAMES)
    __all__ += ["__version__"]
