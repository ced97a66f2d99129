"""Wrapper sources: merged, renamed, filtered, time-limited, bound to an event loop, adapted to a model family."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from midspan._types.closing import close_all
from midspan._types.context import NO_CONTEXT, RunContext
from midspan._types.parts import ToolCall, ToolResult
from midspan._types.specs import ToolSpec
from midspan.errors import ConfigError, DuplicateToolError
from midspan.tools.execution import LocalTools, timeout_message
from midspan.tools.function import Tool
from midspan.tools.source import ToolListing, ToolSource, UnavailableSource, describe_error, unknown_tool_result
from midspan.tools.tasks import Expired, ToolRaised, run_in_task

if TYPE_CHECKING:
    from midspan._schema.dialect import AdaptedSchema, SchemaDialect

_log = logging.getLogger("midspan.tools")

_MAX_BLOCKED_SECONDS = 10.0
"""How long the event loop of a source may be busy before it counts as blocked."""

T = TypeVar("T")
ToolLike = ToolSource | Tool[..., Any] | Callable[..., Any] | ToolSpec | Mapping[str, Any]
"""A dict is a declaration as OpenAI, Anthropic or MCP write it."""
ToolsLike = ToolLike | Iterable[ToolLike]


def source_of(tools: ToolsLike) -> ToolSource:
    """Return one source for a function, a tool, a source, or several of them."""
    if isinstance(tools, ToolSource):
        return tools
    items: list[Any] = list(tools) if isinstance(tools, Iterable) and not isinstance(tools, Mapping) else [tools]
    items = [_declared(tool) if isinstance(tool, ToolSpec | Mapping) else tool for tool in items]
    sources = [tool for tool in items if isinstance(tool, ToolSource)]
    functions = [tool for tool in items if not isinstance(tool, ToolSource)]
    if functions or not sources:
        sources.insert(0, LocalTools(functions))
    return sources[0] if len(sources) == 1 else Merged(sources)


def _declared(declaration: ToolSpec | Mapping[str, Any]) -> Tool[..., Any]:
    """Return the tool of a declaration, which may have its function under the key `function`.

    Without a function, a call ends the run, and its arguments are the output.
    """
    from midspan.tools.declared import tool_from_spec  # few programs need it

    if isinstance(declaration, Mapping) and callable(function := declaration.get("function")):
        return tool_from_spec({key: value for key, value in declaration.items() if key != "function"}, function)
    return tool_from_spec(declaration, _return_arguments, final=True)


async def _return_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    return arguments


async def list_source(source: ToolSource) -> ToolListing:
    """List the tools of a source, which may be user code.

    If the source fails, the listing has no tools and names the source as unavailable. A ConfigError is raised:
    it is a mistake of the caller.
    """
    if is_local(source):
        return await source.list_tools()
    name = type(source).__name__
    try:
        listing = await run_in_task(source.list_tools, name=f"{name}.list_tools")
    except ToolRaised as raised:
        error = raised.error
        if isinstance(error, ConfigError):
            raise error from None
        message = describe_error(error)
        _log.warning("the tools of %s cannot be listed and are left out: %s", name, message, exc_info=error)
        return ToolListing(unavailable=(UnavailableSource(name, message),))
    if not isinstance(listing, ToolListing) or not all(isinstance(spec, ToolSpec) for spec in listing.tools):
        raise ConfigError(f"{name}.list_tools() must return a ToolListing of ToolSpecs, got {listing!r:.80}")
    return listing


def is_local(source: ToolSource) -> bool:
    """Return whether the tools are functions of this process: a task around their calls would only cost time."""
    return source.is_local if isinstance(source, WrapperSource) else type(source) is LocalTools


class _Route(Struct, frozen=True):
    """Where a call goes."""

    source: ToolSource
    name: str
    """The name of the tool in that source."""
    schema: "AdaptedSchema | None" = None
    """The parameters as the model sees them, if they are adapted."""


class _RoutedTools(ToolSource):
    """Tools that may have other names in the sources that run them."""

    _routes: Mapping[str, _Route] | None = None
    """The routes of the last listing, by the name of a tool here."""

    async def call(self, call: ToolCall, context: RunContext[Any] = NO_CONTEXT) -> ToolResult:
        routes = (context.routes or {}).get(id(self), self._routes)
        if routes is None:
            await self.list_tools()
            routes = self._routes or {}
        if call.name not in routes:
            return unknown_tool_result(call, routes)
        route: _Route = routes[call.name]
        arguments = call.arguments if route.schema is None else route.schema.restore_names(call.arguments)
        result = await route.source.call(replace(call, name=route.name, arguments=arguments), context)
        return replace(result, name=call.name) if result.name == route.name else result  # else it is of another call


class Merged(_RoutedTools):
    """The tools of all sources.

    Where two of them have the same name, the tools of sources that have a name, as MCP servers do, get it as a prefix.
    Otherwise listing raises DuplicateToolError.
    """

    def __init__(self, sources: Iterable[ToolSource]) -> None:
        self._sources = tuple(sources)

    async def list_tools(self) -> ToolListing:
        listings = await asyncio.gather(*map(list_source, self._sources))
        counts = Counter(spec.name for listing in listings for spec in listing)
        routes: dict[str, _Route] = {}
        specs: list[ToolSpec] = []
        for source, listing in zip(self._sources, listings, strict=True):
            for spec in listing:
                name = f"{listing.name}_{spec.name}" if counts[spec.name] > 1 and listing.name else spec.name
                if name in routes:
                    raise DuplicateToolError(f"two sources have a tool named {name!r}; wrap one of them in Prefixed")
                routes[name] = _Route(source, spec.name)
                specs.append(replace(spec, name=name))
        self._routes = routes
        return ToolListing(
            tuple(specs),
            unavailable=tuple(source for listing in listings for source in listing.unavailable),
            routes={id(self): routes} | {key: value for listing in listings for key, value in listing.routes.items()},
        )

    async def aclose(self) -> None:
        """Close all sources, even if one of them fails."""
        await close_all(source.aclose() for source in self._sources)


class WrapperSource(ToolSource):
    """The tools of another source, or functions. Subclasses override `adapt`, `call`, or both.

    The adapted tools are kept until the wrapped source lists others, so a call needs no listing.
    """

    is_local = False
    """Whether the tools are functions of this process, which run in tasks of their own and never change."""

    _routes: Mapping[str, _Route] | None = None
    """Set by `adapt` if tools have other names here."""

    def __init__(self, source: ToolsLike) -> None:
        self.source = source_of(source)
        self._inner: ToolListing | None = None
        self._listing: ToolListing | None = None

    def adapt(self, tools: tuple[ToolSpec, ...]) -> tuple[ToolSpec, ...]:
        """Return the tools as this source shows them. It is called when the wrapped source lists other tools."""
        return tools

    async def list_tools(self) -> ToolListing:
        return self.update(await self.source.list_tools())

    def update(self, inner: ToolListing) -> ToolListing:
        """Return the adapted form of a listing of the wrapped source."""
        if self._listing is None or not inner.is_same_as(self._inner):
            tools = self.adapt(inner.tools)
            routes = inner.routes if self._routes is None else {**inner.routes, id(self): self._routes}
            self._listing, self._inner = replace(inner, tools=tools, routes=routes), inner
        return self._listing

    async def call(self, call: ToolCall, context: RunContext[Any] = NO_CONTEXT) -> ToolResult:
        return await self.source.call(call, context)

    async def aclose(self) -> None:
        await self.source.aclose()


class _NamedTools(_RoutedTools, WrapperSource):
    """Tools under other names, or only some of them. `name_of` returns the name of a tool here; None hides it."""

    def __init__(self, source: ToolsLike, name_of: Callable[[ToolSpec], str | None]) -> None:
        super().__init__(source)
        self._name_of = name_of

    def adapt(self, tools: tuple[ToolSpec, ...]) -> tuple[ToolSpec, ...]:
        named = [(name, spec) for spec in tools if (name := self._name_of(spec)) is not None]
        routes = {name: _Route(self.source, spec.name) for name, spec in named}
        if len(routes) < len(named):
            raise DuplicateToolError(f"renaming gives two tools the same name: {', '.join(routes)}")
        self._routes = routes
        return tuple(replace(spec, name=name) for name, spec in named)


class Renamed(_NamedTools):
    """Tools under other names: `Renamed(source, {"read": "read_file"})`; the others keep theirs."""

    def __init__(self, source: ToolsLike, names: Mapping[str, str]) -> None:
        super().__init__(source, lambda spec: names.get(spec.name, spec.name))


class Prefixed(_NamedTools):
    """The tools with a prefix before each name."""

    def __init__(self, source: ToolsLike, prefix: str) -> None:
        super().__init__(source, lambda spec: prefix + spec.name)


class Filtered(_NamedTools):
    """Only the tools with these names, or those for which a function returns true. No other tool can be called."""

    def __init__(self, source: ToolsLike, keep: Collection[str] | Callable[[ToolSpec], bool]) -> None:
        if isinstance(keep, str):
            raise ConfigError(f"Filtered takes a collection of names or a function of a ToolSpec, got {keep!r:.80}")
        names = () if callable(keep) else frozenset(keep)
        is_kept = keep if callable(keep) else lambda spec: spec.name in names
        super().__init__(source, lambda spec: spec.name if is_kept(spec) else None)


class ToolSubset(Filtered):
    """The tools with these names, in this order. A name that the source does not have is an error."""

    def __init__(self, source: ToolsLike, names: Sequence[str]) -> None:
        super().__init__(source, names)
        self._order = names

    def adapt(self, tools: tuple[ToolSpec, ...]) -> tuple[ToolSpec, ...]:
        specs = {spec.name: spec for spec in tools}
        for name in self._order:
            if name not in specs:
                raise ConfigError(f"the agent has no tool named {name!r}; it has: {', '.join(specs) or 'none'}")
        return super().adapt(tuple(specs[name] for name in dict.fromkeys(self._order)))


class TimeLimited(WrapperSource):
    """A timeout for each call, in addition to that of the tool itself."""

    def __init__(self, source: ToolsLike, timeout: float) -> None:
        super().__init__(source)
        if not 0 < timeout < inf:
            raise ConfigError(f"timeout must be a positive number of seconds, got {timeout!r}")
        self._timeout = timeout

    async def call(self, call: ToolCall, context: RunContext[Any] = NO_CONTEXT) -> ToolResult:
        source_call, timeout = self.source.call, self._timeout
        try:
            result: ToolResult = await run_in_task(source_call, call, context, timeout=timeout, name=call.name)
        except Expired as expired:
            context.cancel()
            return call.error_result(timeout_message(call.name, timeout, expired))
        except ToolRaised as raised:
            raise raised.error from None
        return result


class Required(WrapperSource):
    """A source without which no run starts. Other sources that cannot list their tools are left out of the run."""

    async def list_tools(self) -> ToolListing:
        listing = self.update(await list_source(self.source))
        if listing.unavailable:
            source = listing.unavailable[0]
            raise ConfigError(f"the tools of {source.name} cannot be listed: {source.message}")
        return listing


class OwnerLoop:
    """Runs coroutines in the event loop that first called `run`, even if they are awaited in another one."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        running = asyncio.get_running_loop()
        if self._loop is None or self._loop.is_closed():
            self._loop = running
        if self._loop is running:
            return await coroutine
        if not await _is_responsive(self._loop):
            coroutine.close()
            raise ConfigError(
                "the event loop of this source is not running, or blocked by sync code such as run_sync; use the "
                "source there, with await, or close that loop"
            )
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self._loop))


async def _is_responsive(loop: asyncio.AbstractEventLoop) -> bool:
    answer = asyncio.Event()
    if loop.is_running():
        loop.call_soon_threadsafe(asyncio.get_running_loop().call_soon_threadsafe, answer.set)
        with suppress(TimeoutError):
            await asyncio.wait_for(answer.wait(), _MAX_BLOCKED_SECONDS)
    return answer.is_set()


class LoopBound(WrapperSource):
    """A source that belongs to the event loop in which it is first used, for runs in any event loop."""

    def __init__(self, source: ToolsLike) -> None:
        super().__init__(source)
        self._bound_loop = OwnerLoop()

    async def list_tools(self) -> ToolListing:
        return await self._bound_loop.run(super().list_tools())

    async def call(self, call: ToolCall, context: RunContext[Any] = NO_CONTEXT) -> ToolResult:
        return await self._bound_loop.run(super().call(call, context))

    async def aclose(self) -> None:
        await self._bound_loop.run(super().aclose())


class AdaptedTools(_RoutedTools, WrapperSource):
    """A source in the dialect of a model family: valid names, adapted schemas. Calls are mapped back.

    Each tool still validates its arguments against its own schema.
    """

    def __init__(self, source: ToolSource, dialect: "SchemaDialect") -> None:
        super().__init__(source)
        self._dialect = dialect

    def adapt(self, tools: tuple[ToolSpec, ...]) -> tuple[ToolSpec, ...]:
        from midspan._schema.adapt import adapt_spec  # both are loaded with the first run
        from midspan._schema.dialect import valid_names

        names = valid_names((spec.name for spec in tools), self._dialect.functions)
        adapted = [adapt_spec(spec, self._dialect) for spec in tools]
        self._routes = {names[spec.name]: _Route(self.source, spec.name, schema) for spec, schema in adapted}
        return tuple(replace(spec, name=names[spec.name]) for spec, _ in adapted)

    @property
    def keeps_names(self) -> bool:
        """Whether all tools and properties keep their names, so that the wrapped source can get calls unchanged."""
        routes = (self._routes or {}).items()
        return all(name == route.name and not (route.schema and route.schema.renamed) for name, route in routes)
