"""Several sources as one."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from midspan.errors import ConfigError, DuplicateTool
from midspan.tools.function import Tool
from midspan.tools.local import LocalTools, unknown
from midspan.tools.source import ToolSource
from midspan.types.parts import ToolCall, ToolResult
from midspan.types.specs import ToolSpec

Toolish = ToolSource | Tool[..., Any] | Callable[..., Any]


def source_of(tools: Toolish | Iterable[Toolish]) -> ToolSource:
    """Whatever a user calls his tools: a function, a tool, a source, or several of them."""
    if isinstance(tools, str | bytes | Mapping):
        raise ConfigError(f"tools are a list of functions, tools and sources of tools, not {tools!r}")
    if isinstance(tools, ToolSource):
        return checked_source(tools)
    given = list(tools) if isinstance(tools, Iterable) else [tools]
    for one in given:
        if isinstance(one, ToolSource):
            checked_source(one)
        elif not callable(one):
            # A toolbox has as many sources as sessions, so only its user knows which one is meant.
            hint = "give its source()" if hasattr(one, "source") else "give a function, a tool or a source of tools"
            raise ConfigError(f"{one!r} is no tool: {hint}")
    sources = [one for one in given if isinstance(one, ToolSource)]
    functions = [one for one in given if not isinstance(one, ToolSource)]
    if functions or not sources:
        sources.insert(0, LocalTools(functions))
    return sources[0] if len(sources) == 1 else Merged(sources)


def checked_source(source: ToolSource) -> ToolSource:
    """The source, if it is one; also a class has all the methods, but nobody has made one of it."""
    if isinstance(source, type):
        raise ConfigError(f"{source.__name__} is a class; give a source of tools that is made of it")
    if not isinstance(source, ToolSource):
        raise ConfigError(f"{source!r} is no source of tools; make one of functions with LocalTools([…])")
    return source


class Merged:
    """The tools of all sources; two of one name are an error, told when they are listed."""

    def __init__(self, sources: Iterable[ToolSource]) -> None:
        if not isinstance(sources, Iterable):
            raise ConfigError(f"sources are a list of sources of tools, not {sources!r}")
        self._sources = tuple(map(checked_source, sources))
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
