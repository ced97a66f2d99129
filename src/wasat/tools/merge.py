"""Several sources as one."""

from collections.abc import Callable, Iterable
from typing import Any

from wasat.errors import ConfigError, DuplicateTool
from wasat.tools.function import Tool
from wasat.tools.local import LocalTools, unknown
from wasat.tools.source import ToolSource
from wasat.types.parts import ToolCall, ToolResult
from wasat.types.specs import ToolSpec

Toolish = ToolSource | Tool[..., Any] | Callable[..., Any]


def source_of(tools: Toolish | Iterable[Toolish]) -> ToolSource:
    """Whatever a user calls his tools: a function, a tool, a source, or several of them."""
    if isinstance(tools, ToolSource):
        return tools
    given = list(tools) if isinstance(tools, Iterable) else [tools]
    for one in given:
        if not isinstance(one, ToolSource) and not callable(one):
            raise ConfigError(f"{one!r} is no tool: give a function, a tool or a source of tools")
    sources = [one for one in given if isinstance(one, ToolSource)]
    functions = [one for one in given if not isinstance(one, ToolSource)]
    if functions or not sources:
        sources.insert(0, LocalTools(functions))
    return sources[0] if len(sources) == 1 else Merged(sources)


class Merged:
    """The tools of all sources; two of one name are an error, told when they are listed."""

    def __init__(self, sources: Iterable[ToolSource]) -> None:
        self._sources = tuple(sources)
        self._owners: dict[str, ToolSource] = {}

    async def list_tools(self) -> list[ToolSpec]:
        owners: dict[str, ToolSource] = {}
        specs = []
        for source in self._sources:
            for spec in await source.list_tools():
                if spec.name in owners:
                    raise DuplicateTool(
                        f"two sources have a tool called {spec.name!r}; put a prefix before one of them"
                    )
                owners[spec.name] = source
                specs.append(spec)
        self._owners = owners
        return specs

    async def call(self, call: ToolCall, context: Any = None) -> ToolResult:
        if call.name not in self._owners:
            await self.list_tools()
        owner = self._owners.get(call.name)
        return unknown(call, self._owners) if owner is None else await owner.call(call, context)
