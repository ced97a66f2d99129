"""Tools of this process as one source, found by name."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from midspan.errors import ConfigError, DuplicateTool
from midspan.tools.error_results import refused
from midspan.tools.execute import execute
from midspan.tools.function import Tool, tool_of
from midspan.tools.source import ToolListing, ToolSource
from midspan.types.context import NO_CONTEXT, RunContext
from midspan.types.parts import ToolCall, ToolResult

_MAX_NAME_CHARS = 200


class LocalTools(ToolSource):
    """Functions and tools, each under its own name."""

    def __init__(self, tools: Iterable[Tool[..., Any] | Callable[..., Any]] = ()) -> None:
        if isinstance(tools, str | bytes | Mapping) or not isinstance(tools, Iterable):
            raise ConfigError(f"tools must be a list of functions and tools, got {tools!r:.80}")
        self._tools: dict[str, Tool[..., Any]] = {}
        for function in tools:
            tool = tool_of(function)
            if tool.name in self._tools:
                raise DuplicateTool(f"two tools are named {tool.name!r}; rename one of them")
            self._tools[tool.name] = tool
        self.listing = ToolListing(tuple(tool.spec for tool in self._tools.values()))
        """What `list_tools` returns. It never changes."""

    async def list_tools(self) -> ToolListing:
        return self.listing

    async def call(self, call: ToolCall, context: RunContext[Any] = NO_CONTEXT) -> ToolResult:
        tool = self._tools.get(call.name)
        return unknown(call, self._tools) if tool is None else await execute(tool, call, context)


def unknown(call: ToolCall, names: Iterable[str] | Mapping[str, Any]) -> ToolResult:
    """Return the result of a call to a tool that does not exist, with the names that the model may have meant."""
    from difflib import get_close_matches  # loaded with the first unknown tool

    known = list(names)
    wanted = call.name.removeprefix("default_api").lstrip(".:")
    near = [wanted] if wanted in known else get_close_matches(wanted[:_MAX_NAME_CHARS], known, 3, 0.5)
    message = f"unknown tool: {call.name[:_MAX_NAME_CHARS]}"
    message += f"; did you mean {' or '.join(near)}?" if near else ""
    message += f"; the tools are: {', '.join(known[:50])}" if known else "; there are no tools"
    return refused(call, message)
