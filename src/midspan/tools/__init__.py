"""Tools and tool sources."""

from typing import TYPE_CHECKING

from midspan._lazy import lazy_attributes

if TYPE_CHECKING:
    from midspan._schema.signature import Context as Context
    from midspan._types.context import RunContext as RunContext
    from midspan._types.specs import Effects as Effects
    from midspan._types.specs import ToolChoice as ToolChoice
    from midspan._types.specs import ToolSpec as ToolSpec
    from midspan.errors import ToolError as ToolError
    from midspan.tools.declared import tool_from_schema as tool_from_schema
    from midspan.tools.declared import tool_from_spec as tool_from_spec
    from midspan.tools.execute import LocalTools as LocalTools
    from midspan.tools.execute import execute as execute
    from midspan.tools.function import Tool as Tool
    from midspan.tools.function import tool as tool
    from midspan.tools.schedule import run_calls as run_calls
    from midspan.tools.source import ToolListing as ToolListing
    from midspan.tools.source import ToolSource as ToolSource
    from midspan.tools.toolbox import Toolbox as Toolbox
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

_HOMES = {
    "Context": "midspan._schema.signature",
    "Effects": "midspan._types.specs",
    "Filtered": "midspan.tools.wrap",
    "LocalTools": "midspan.tools.execute",
    "LoopBound": "midspan.tools.wrap",
    "Merged": "midspan.tools.wrap",
    "Prefixed": "midspan.tools.wrap",
    "Renamed": "midspan.tools.wrap",
    "Required": "midspan.tools.wrap",
    "RunContext": "midspan._types.context",
    "TimeLimited": "midspan.tools.wrap",
    "Tool": "midspan.tools.function",
    "ToolChoice": "midspan._types.specs",
    "ToolError": "midspan.errors",
    "ToolLike": "midspan.tools.wrap",
    "ToolListing": "midspan.tools.source",
    "ToolSource": "midspan.tools.source",
    "ToolSpec": "midspan._types.specs",
    "Toolbox": "midspan.tools.toolbox",
    "WrapperSource": "midspan.tools.wrap",
    "execute": "midspan.tools.execute",
    "run_calls": "midspan.tools.schedule",
    "source_of": "midspan.tools.wrap",
    "tool": "midspan.tools.function",
    "tool_from_schema": "midspan.tools.declared",
    "tool_from_spec": "midspan.tools.declared",
}

__all__ = [*_HOMES]  # noqa: PLE0604 - the table is the list

if not TYPE_CHECKING:  # a type checker would accept any name otherwise
    __getattr__, __dir__ = lazy_attributes(__name__, _HOMES)
