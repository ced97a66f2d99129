"""Tools of this process as one source, found by name."""

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from midspan.errors import ConfigError, DuplicateTool
from midspan.tools.error_results import refused
from midspan.tools.execute import execute
from midspan.tools.function import Tool, tool_of
from midspan.types.parts import ToolCall, ToolResult
from midspan.types.specs import ToolSpec

_LONGEST_NAME = 200


class LocalTools:
    """Functions and tools, each under its own name."""

    def __init__(self, tools: Iterable[Tool[..., Any] | Callable[..., Any]] = ()) -> None:
        if isinstance(tools, str | bytes | Mapping) or not isinstance(tools, Iterable):
            raise ConfigError(f"tools are a list of functions and tools, not {tools!r:.80}")
        self._tools: dict[str, Tool[..., Any]] = {}
        for one in tools:
            made = tool_of(one)
            if made.name in self._tools:
                raise DuplicateTool(f"two tools are called {made.name!r}; give one of them another name")
            self._tools[made.name] = made
        self.specs = tuple(made.spec for made in self._tools.values())

    async def list_tools(self) -> tuple[ToolSpec, ...]:
        return self.specs

    async def call(self, call: ToolCall, context: Any = None) -> ToolResult:
        found = self._tools.get(call.name)
        return unknown(call, self._tools) if found is None else await execute(found, call, context)


def unknown(call: ToolCall, names: Iterable[str] | Mapping[str, Any]) -> ToolResult:
    """The result for a call of a tool that is not there, with the names that the model may have meant."""
    known = list(names)
    wanted = call.name.removeprefix("default_api").lstrip(".:")
    near = [wanted] if wanted in known else get_close_matches(wanted[:_LONGEST_NAME], known, 3, 0.5)
    words = f"unknown tool: {call.name[:_LONGEST_NAME]}"
    words += f"; did you mean {' or '.join(near)}?" if near else ""
    words += f"; the tools are: {', '.join(known[:50])}" if known else "; there are no tools"
    return refused(call, words)
