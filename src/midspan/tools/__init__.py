"""Tools and tool sources."""

from typing import TYPE_CHECKING

from midspan._lazy import lazy_attributes

if TYPE_CHECKING:
    from midspan._schema.signature import Context as Context
    from midspan._types.context import RunContext as RunContext
    from midspan._types.context import trace_headers as trace_headers
    from midspan._types.specs import Effects as Effects
    from midspan._types.specs import ToolChoice as ToolChoice
    from midspan._types.specs import ToolSpec as ToolSpec
    from midspan.errors import ToolError as ToolError
    from midspan.tools.declared import spec_from_parameters as spec_from_parameters
    from midspan.tools.declared import tool_from_schema as tool_from_schema
    from midspan.tools.declared import tool_from_spec as tool_from_spec
    from midspan.tools.execution import LocalTools as LocalTools
    from midspan.tools.execution import execute as execute
    from midspan.tools.function import Tool as Tool
    from midspan.tools.function import tool as tool
    from midspan.tools.mcp.config import load_mcp_servers as load_mcp_servers
    from midspan.tools.mcp.oauth import OAuth as OAuth
    from midspan.tools.mcp.serve.app import MCPApp as MCPApp
    from midspan.tools.mcp.serve.app import mcp_app as mcp_app
    from midspan.tools.mcp.serve.app import serve_mcp as serve_mcp
    from midspan.tools.mcp.serve.server import mcp_server as mcp_server
    from midspan.tools.mcp.server import MCPServer as MCPServer
    from midspan.tools.schedule import run_calls as run_calls
    from midspan.tools.source import ToolListing as ToolListing
    from midspan.tools.source import ToolSource as ToolSource
    from midspan.tools.toolbox import Toolbox as Toolbox
    from midspan.tools.workers.setup import WorkerLimits as WorkerLimits
    from midspan.tools.workers.source import Workers as Workers
    from midspan.tools.wrap import Filtered as Filtered
    from midspan.tools.wrap import LoopBound as LoopBound
    from midspan.tools.wrap import Merged as Merged
    from midspan.tools.wrap import Prefixed as Prefixed
    from midspan.tools.wrap import Renamed as Renamed
    from midspan.tools.wrap import Required as Required
    from midspan.tools.wrap import TimeLimited as TimeLimited
    from midspan.tools.wrap import ToolLike as ToolLike
    from midspan.tools.wrap import WrapperSource as WrapperSource
    from midspan.tools.wrap import source_of as source_of

_NAMES = {
    "midspan._schema.signature": "Context",
    "midspan._types.context": "RunContext trace_headers",
    "midspan._types.specs": "Effects ToolChoice ToolSpec",
    "midspan.errors": "ToolError",
    "midspan.tools.declared": "spec_from_parameters tool_from_schema tool_from_spec",
    "midspan.tools.execution": "LocalTools execute",
    "midspan.tools.function": "Tool tool",
    "midspan.tools.mcp.serve.app": "MCPApp mcp_app serve_mcp",
    "midspan.tools.mcp.serve.server": "mcp_server",
    "midspan.tools.mcp.config": "load_mcp_servers",
    "midspan.tools.mcp.oauth": "OAuth",
    "midspan.tools.mcp.server": "MCPServer",
    "midspan.tools.schedule": "run_calls",
    "midspan.tools.source": "ToolListing ToolSource",
    "midspan.tools.toolbox": "Toolbox",
    "midspan.tools.workers.setup": "WorkerLimits",
    "midspan.tools.workers.source": "Workers",
    "midspan.tools.wrap": (
        "Filtered LoopBound Merged Prefixed Renamed Required TimeLimited ToolLike WrapperSource source_of"
    ),
}

if not TYPE_CHECKING:  # a type checker would accept any name otherwise
    __all__, __getattr__, __dir__ = lazy_attributes(__name__, _NAMES)
