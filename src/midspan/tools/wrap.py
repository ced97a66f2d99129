"""Sources around sources: several as one, other names, some of the tools, timeouts, the schemas of one model family."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from midspan._types.closing import close_all
from midspan._types.context import NO_CONTEXT, RunContext
from midspan._types.parts import ToolCall, ToolResult
from midspan._types.specs import ToolSpec
from midspan.errors import ConfigError, DuplicateToolError
from midspan.tools.execution import LocalTools, timeout_message
from midspan.tools.function import Tool, check_seconds
from midspan.tools.source import ToolListing, ToolSource, UnavailableSource, describe_error, unknown
from midspan.tools.tasks import Expired, ToolRaised, run_in_task

if TYPE_CHECKING:
    from midspan._schema.dialect import AdaptedSchema, SchemaDialect

_log = logging.getLogger("midspan.tools")

_MAX_BLOCKED_SECONDS = 10.0
"""How long the event loop of a source may be busy before it counts as blocked."""

T = TypeVar("T")
ToolLike = ToolSource | Tool[..., Any] | Callable[..., Any] | ToolSpec | Mapping[str, Any]
"""A dict is a declaration as OpenAI, Anthropic or MCP write it."""


def source_of(tools: ToolLike | Iterable[ToolLike]) -> ToolSource:
    """Return one source for a function, a tool, a source, or several of them."""
    if isinstance(tools, str | bytes):
        raise ConfigError(f"tools must be a list of functions, tools and sources, got {tools!r:.200}")
    if isinstance(tools, ToolSource):
        return check_source(tools)
    items: list[Any] = list(tools) if isinstance(tools, Iterable) and not isinstance(tools, Mapping) else [tools]
    items = [_declared(tool) if isinstance(tool, ToolSpec | Mapping) else tool for tool in items]
    for tool in items:
        if isinstance(tool, ToolSource):
            check_source(tool)
        elif not callable(tool):
            raise ConfigError(f"{tool!r:.200} is not a tool; {_hint(tool)}")
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


def _hint(tool: Any) -> str:
    if hasattr(tool, "source"):  # a toolbox has a source for each session
        return "pass its source()"
    if hasattr(tool, "list_tools"):
        return "a source needs list_tools, call and aclose; inherit from ToolSource"
    return "expected a function, a Tool or a ToolSource"


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
    if is_local(source):
        return await source.list_tools()
    name = type(source).__name__
    try:
        listing = await run_in_task(source.list_tools)
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


class Merged(ToolSource):
    """The tools of all sources.

    Where two of them have the same name, the tools of sources that have a name, as MCP servers do, get it as a prefix.
    Otherwise listing raises DuplicateToolError.
    """

    def __init__(self, sources: Iterable[ToolSource]) -> None:
        self._sources = tuple(map(check_source, sources))
        self._owners: dict[str, tuple[ToolSource, str]] | None = None
        """By the name of a tool here: its source, and its name there."""

    async def list_tools(self) -> ToolListing:
        listings = await asyncio.gather(*map(list_source, self._sources))
        counts = Counter(spec.name for listing in listings for spec in listing)
        owners: dict[str, tuple[ToolSource, str]] = {}
        specs: list[ToolSpec] = []
        for source, listing in zip(self._sources, listings, strict=True):
            for spec in listing:
                name = f"{listing.name}_{spec.name}" if counts[spec.name] > 1 and listing.name else spec.name
                if name in owners:
                    raise DuplicateToolError(f"two sources have a tool named {name!r}; wrap one of them in Prefixed")
                owners[name] = source, spec.name
                specs.append(spec if name == spec.name else replace(spec, name=name))
        self._owners = owners
        return ToolListing(
            tuple(specs), unavailable=tuple(source for listing in listings for source in listing.unavailable)
        )

    async def call(self, call: ToolCall, context: RunContext[Any] = NO_CONTEXT) -> ToolResult:
        if self._owners is None:
            await self.list_tools()
        owners = self._owners or {}
        owner, name = owners.get(call.name, (None, ""))
        if owner is None:
            return unknown(call, owners)
        if name == call.name:
            return await owner.call(call, context)
        return replace(await owner.call(replace(call, name=name), context), name=call.name)

    async def aclose(self) -> None:
        """Close all sources, also if one of them fails."""
        await close_all(source.aclose() for source in self._sources)


class WrapperSource(ToolSource):
    """The tools of another source. Subclasses override `adapt`, `call`, or both.

    The adapted tools are kept until the source within lists others, so a call needs no listing.
    """

    is_local = False
    """Whether the tools are functions of this process, which run in tasks of their own and never change."""

    def __init__(self, source: ToolSource) -> None:
        self.source = check_source(source)
        self._inner: ToolListing | None = None
        self._listing: ToolListing | None = None

    def adapt(self, tools: tuple[ToolSpec, ...]) -> tuple[ToolSpec, ...]:
        """Return the tools as this source shows them. It is called when the tools within have changed."""
        return tools

    async def list_tools(self) -> ToolListing:
        return self.update(await self.source.list_tools())

    def update(self, inner: ToolListing) -> ToolListing:
        """Return the adapted form of a listing of the source within."""
        if self._listing is None or not inner.is_same_as(self._inner):
            self._listing = replace(inner, tools=self.adapt(inner.tools))
            self._inner = inner
        return self._listing

    async def call(self, call: ToolCall, context: RunContext[Any] = NO_CONTEXT) -> ToolResult:
        return await self.source.call(call, context)

    async def aclose(self) -> None:
        await self.source.aclose()


class _NamedTools(WrapperSource):
    """Tools under other names, or only some of them. `name_of` returns the name of a tool here; None hides it.

    A warning is logged for each of the `expected` names that the source within does not have.
    """

    def __init__(
        self, source: ToolSource, name_of: Callable[[ToolSpec], str | None], expected: Iterable[str] = ()
    ) -> None:
        super().__init__(source)
        self._name_of = name_of
        self._expected = expected
        self._originals: dict[str, str] = {}

    def adapt(self, tools: tuple[ToolSpec, ...]) -> tuple[ToolSpec, ...]:
        named = [(name, spec) for spec in tools if (name := self._name_of(spec)) is not None]
        originals = {name: spec.name for name, spec in named}
        if len(originals) < len(named):
            raise DuplicateToolError(f"renaming gives two tools the same name: {', '.join(originals)}")
        self._originals = originals
        names = [spec.name for spec in tools]
        for name in self._expected:
            if name not in names:
                _log.warning(
                    "%s names %r, but the tools are: %s", type(self).__name__, name, ", ".join(names) or "none"
                )
        return tuple(replace(spec, name=name) for name, spec in named)

    async def call(self, call: ToolCall, context: RunContext[Any] = NO_CONTEXT) -> ToolResult:
        if self._listing is None:
            await self.list_tools()
        original = self._originals.get(call.name)
        if original is None:
            return unknown(call, self._originals)
        return replace(await self.source.call(replace(call, name=original), context), name=call.name)


class Renamed(_NamedTools):
    """Tools under other names: `Renamed(source, {"read": "read_file"})`; the others keep theirs."""

    def __init__(self, source: ToolSource, names: Mapping[str, str]) -> None:
        super().__init__(source, lambda spec: names.get(spec.name, spec.name), names)


class Prefixed(_NamedTools):
    """Every name with a prefix before it."""

    def __init__(self, source: ToolSource, prefix: str) -> None:
        super().__init__(source, lambda spec: prefix + spec.name)


class Filtered(_NamedTools):
    """Only the tools with these names, or those for which a function returns true. No other tool can be called."""

    def __init__(self, source: ToolSource, keep: Collection[str] | Callable[[ToolSpec], bool]) -> None:
        if isinstance(keep, str):
            raise ConfigError(f"keep must be a set of names or a function of a ToolSpec, got {keep!r}")
        keeps = keep if callable(keep) else lambda spec: spec.name in keep
        super().__init__(source, lambda spec: spec.name if keeps(spec) else None, () if callable(keep) else keep)


class ToolSubset(Filtered):
    """The tools with these names, in this order. A name that the source does not have is an error."""

    def __init__(self, source: ToolSource, names: Sequence[str]) -> None:
        super().__init__(source, names)
        self._order = names

    def adapt(self, tools: tuple[ToolSpec, ...]) -> tuple[ToolSpec, ...]:
        known = [spec.name for spec in tools]
        missing = [name for name in self._order if name not in known]
        if missing:
            raise ConfigError(f"the agent has no tool named {missing[0]!r}; it has: {', '.join(known) or 'none'}")
        specs = {spec.name: spec for spec in super().adapt(tools)}
        return tuple(specs[name] for name in self._order)


class TimeLimited(WrapperSource):
    """No call takes longer than this, whatever the tool itself allows."""

    def __init__(self, source: ToolSource, timeout: float) -> None:
        super().__init__(source)
        check_seconds(timeout, "timeout")
        self._timeout = timeout

    async def call(self, call: ToolCall, context: RunContext[Any] = NO_CONTEXT) -> ToolResult:
        try:
            result: ToolResult = await run_in_task(
                self.source.call, call, context, timeout=self._timeout, name=call.name
            )
        except Expired as expired:
            context.cancel()
            return call.error_result(timeout_message(call.name, self._timeout, expired))
        except ToolRaised as raised:
            raise raised.error from None
        return result


class Required(WrapperSource):
    """A source without which no run starts. Other sources that cannot list their tools are left out of the run."""

    async def list_tools(self) -> ToolListing:
        try:
            listing = await super().list_tools()
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(f"the tools of {type(self.source).__name__} cannot be listed: {error}") from error
        for source in listing.unavailable:
            raise ConfigError(f"the tools of {source.name} cannot be listed: {source.message}")
        return listing


class OwnLoop:
    """Runs coroutines in the event loop that used it first, also if they are awaited in another one."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        running = asyncio.get_running_loop()
        if self._loop is None or self._loop.is_closed():
            self._loop = running
        if self._loop is running:
            return await coroutine
        if not self._loop.is_running():
            coroutine.close()
            raise ConfigError("the event loop of this source is not running; use the source there, or close that loop")
        try:
            async with asyncio.timeout(_MAX_BLOCKED_SECONDS):
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asyncio.sleep(0), self._loop))
        except TimeoutError:
            coroutine.close()
            raise ConfigError(
                "the event loop of this source is blocked, as by run_sync or close in async code; use await there"
            ) from None
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self._loop))


class LoopBound(WrapperSource):
    """A source that belongs to the event loop in which it is first used, for runs in any event loop."""

    def __init__(self, source: ToolSource) -> None:
        super().__init__(source)
        self._own_loop = OwnLoop()

    async def list_tools(self) -> ToolListing:
        return await self._own_loop.run(super().list_tools())

    async def call(self, call: ToolCall, context: RunContext[Any] = NO_CONTEXT) -> ToolResult:
        return await self._own_loop.run(super().call(call, context))

    async def aclose(self) -> None:
        await self._own_loop.run(super().aclose())


class _AdaptedTool(Struct):
    original: ToolSpec
    spec: ToolSpec
    """As the model sees it."""
    schema: "AdaptedSchema"

    @property
    def keeps_names(self) -> bool:
        return not self.schema.renamed and self.original.name == self.spec.name


class AdaptedTools(WrapperSource):
    """A source in the dialect of a model family: valid names, adapted schemas. Calls are mapped back.

    Each tool still validates its arguments against its own schema.
    """

    def __init__(self, source: ToolSource, dialect: "SchemaDialect") -> None:
        super().__init__(source)
        self._dialect = dialect
        self._tools: dict[str, _AdaptedTool] = {}
        """By the name that the model uses."""

    def adapt(self, tools: tuple[ToolSpec, ...]) -> tuple[ToolSpec, ...]:
        from midspan._schema.dialect import valid_names  # loaded with the first run

        names = valid_names((spec.name for spec in tools), self._dialect.functions)
        self._tools = {names[spec.name]: self._adapt(spec, names[spec.name]) for spec in tools}
        return tuple(tool.spec for tool in self._tools.values())

    def _adapt(self, spec: ToolSpec, name: str) -> _AdaptedTool:
        from midspan._schema.adapt import adapt_schema  # as above

        known = self._tools.get(name)
        if known is not None and known.original == spec:
            return known
        schema = adapt_schema(spec.parameters or {}, self._dialect)
        strict = spec.strict if spec.strict is not None else schema.strict or None
        adapted = replace(spec, name=name, parameters=None if schema.is_empty else schema.schema, strict=strict)
        return _AdaptedTool(spec, adapted, schema)

    @property
    def keeps_names(self) -> bool:
        """Whether all tools and properties keep their names, so that calls can go to the source within as they are."""
        return all(tool.keeps_names for tool in self._tools.values())

    async def call(self, call: ToolCall, context: RunContext[Any] = NO_CONTEXT) -> ToolResult:
        if self._listing is None:
            await self.list_tools()
        tool = self._tools.get(call.name)
        if tool is None:
            return unknown(call, self._tools)
        if tool.keeps_names:
            return await self.source.call(call, context)  # nearly always
        original = replace(call, name=tool.original.name, arguments=tool.schema.restore_names(call.arguments))
        result = replace(await self.source.call(original, context), name=call.name)
        return _with_aliases(result, tool) if result.is_error and isinstance(result.value, str) else result


def _with_aliases(result: ToolResult, tool: _AdaptedTool) -> ToolResult:
    """Return an error with a note on the names in it that the model knows by other names."""
    names = {original: name for name, original in tool.schema.renamed.items()}
    names[tool.original.name] = tool.spec.name
    notes = [
        f"{original} is your {name}"
        for original, name in names.items()
        if name != original and original in result.value
    ]
    return replace(result, hint=f"In this message, {', '.join(notes)}.") if notes else result
