"""Several sources as one."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from midspan._types.context import NO_CONTEXT, RunContext
from midspan._types.parts import ToolCall, ToolResult
from midspan._types.specs import ToolSpec
from midspan.errors import ConfigError, DuplicateTool
from midspan.tools.error_results import describe_error
from midspan.tools.execute import LocalTools, unknown
from midspan.tools.function import Tool
from midspan.tools.source import ToolListing, ToolSource, UnavailableSource
from midspan.tools.tasks import ToolRaised, run_in_task

_log = logging.getLogger("midspan.tools")

ToolLike = ToolSource | Tool[..., Any] | Callable[..., Any]


def source_of(tools: ToolLike | Iterable[ToolLike]) -> ToolSource:
    """Return one source for a function, a tool, a source, or several of them."""
    if isinstance(tools, str | bytes | Mapping):
        raise ConfigError(f"tools must be a list of functions, tools and sources, got {tools!r}")
    if isinstance(tools, ToolSource):
        return check_source(tools)
    given = list(tools) if isinstance(tools, Iterable) else [tools]
    for tool in given:
        if isinstance(tool, ToolSource):
            check_source(tool)
        elif not callable(tool):
            # A toolbox has a source for each session, so only its user knows which one is meant.
            hint = "expected a function, a Tool or a ToolSource"
            if hasattr(tool, "source"):
                hint = "pass its source()"
            elif hasattr(tool, "list_tools"):
                hint = "a source needs list_tools, call and aclose; inherit from ToolSource"
            raise ConfigError(f"{tool!r} is not a tool; {hint}")
    sources = [tool for tool in given if isinstance(tool, ToolSource)]
    functions = [tool for tool in given if not isinstance(tool, ToolSource)]
    if functions or not sources:
        sources.insert(0, LocalTools(functions))
    return sources[0] if len(sources) == 1 else Merged(sources)


def check_source(source: ToolSource) -> ToolSource:
    """Return the source; raise ConfigError if it is none, or a class instead of an object of it."""
    if isinstance(source, type):
        raise ConfigError(f"{source.__name__} is a class; pass an instance of it")
    if not isinstance(source, ToolSource):
        raise ConfigError(f"{source!r} is not a tool source; for functions, use LocalTools([…])")
    return source


async def list_source(source: ToolSource) -> ToolListing:
    """List the tools of a source, which may be anybody's code.

    If the source fails, the listing has no tools and names the source as unavailable. A ConfigError is raised: it is a
    mistake of the caller and would not go away.
    """
    if type(source) is LocalTools:
        return source.listing
    try:
        listing = await run_in_task(source.list_tools)
    except ToolRaised as raised:
        error = raised.error
        if isinstance(error, ConfigError):
            raise error from None
        return _unavailable(source, error)
    if not isinstance(listing, ToolListing) or not all(isinstance(spec, ToolSpec) for spec in listing.tools):
        name = type(source).__name__
        raise ConfigError(f"{name}.list_tools() must return a ToolListing of ToolSpecs, got {listing!r:.80}")
    return listing


def _unavailable(source: ToolSource, error: BaseException) -> ToolListing:
    name = type(source).__name__
    message = describe_error(error)
    _log.warning("the tools of %s cannot be listed and are left out: %s", name, message, exc_info=error)
    return ToolListing(unavailable=(UnavailableSource(name, message),))


class Merged(ToolSource):
    """The tools of all sources. Listing raises DuplicateTool if two of them have the same name."""

    def __init__(self, sources: Iterable[ToolSource]) -> None:
        if not isinstance(sources, Iterable):
            raise ConfigError(f"sources must be a list of tool sources, got {sources!r}")
        self._sources = tuple(map(check_source, sources))
        self._parts: tuple[ToolListing, ...] = ()
        self._listing: ToolListing | None = None
        self._owners: dict[str, ToolSource] = {}

    async def list_tools(self) -> ToolListing:
        parts = tuple(await asyncio.gather(*map(list_source, self._sources)))
        if self._listing is None or not all(new.is_same_as(old) for new, old in zip(parts, self._parts, strict=True)):
            self._owners = self._owners_of(parts)
            self._parts = parts
            self._listing = ToolListing(
                tuple(spec for part in parts for spec in part.tools),
                unavailable=tuple(failure for part in parts for failure in part.unavailable),
            )
        return self._listing

    def _owners_of(self, parts: tuple[ToolListing, ...]) -> dict[str, ToolSource]:
        owners: dict[str, ToolSource] = {}
        for source, part in zip(self._sources, parts, strict=True):
            for spec in part.tools:
                if spec.name in owners:
                    raise DuplicateTool(f"two sources have a tool named {spec.name!r}; wrap one of them in Prefixed")
                owners[spec.name] = source
        return owners

    async def call(self, call: ToolCall, context: RunContext[Any] = NO_CONTEXT) -> ToolResult:
        if self._listing is None:
            await self.list_tools()
        owner = self._owners.get(call.name)
        return unknown(call, self._owners) if owner is None else await owner.call(call, context)

    async def aclose(self) -> None:
        """Close all sources, also if one of them fails."""
        errors = await asyncio.gather(*(source.aclose() for source in self._sources), return_exceptions=True)
        for error in errors:
            if error is not None:
                raise error
