"""Sources around a source: each changes one thing about the tools within, whatever they are."""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from midspan._types.context import NO_CONTEXT, RunContext
from midspan._types.parts import ToolCall, ToolResult
from midspan._types.specs import ToolSpec
from midspan.errors import ConfigError, DuplicateTool
from midspan.tools.error_results import failed
from midspan.tools.execute import timeout_ending, unknown
from midspan.tools.merge import check_source
from midspan.tools.options import is_seconds
from midspan.tools.source import ToolListing, ToolSource
from midspan.tools.tasks import Expired, ToolRaised, run_in_task

T = TypeVar("T")


class WrapperSource(ToolSource):
    """The tools of another source. Subclasses override `adapt`, `call`, or both.

    The adapted tools are kept until the source within lists others, so a call needs no listing.
    """

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

    async def known_tools(self) -> tuple[ToolSpec, ...]:
        """The adapted tools of the last listing."""
        listing = self._listing or await self.list_tools()
        return listing.tools

    async def call(self, call: ToolCall, context: RunContext[Any] = NO_CONTEXT) -> ToolResult:
        return await self.source.call(call, context)

    async def aclose(self) -> None:
        await self.source.aclose()


class Renamed(WrapperSource):
    """Tools under other names: `Renamed(source, {"read": "read_file"})`; the others keep theirs."""

    def __init__(self, source: ToolSource, names: Mapping[str, str]) -> None:
        super().__init__(source)
        if not isinstance(names, Mapping) or not all(_is_name(name) for pair in names.items() for name in pair):
            raise ConfigError(f"names must be a dict from old to new names, {{'old': 'new'}}, got {names!r}")
        self._names = dict(names)
        self._originals: dict[str, str] = {}
        if len(set(names.values())) < len(names):
            raise ConfigError(f"two tools would get the same name: {', '.join(names.values())}")

    def _new_name(self, name: str) -> str:
        return self._names.get(name, name)

    def adapt(self, tools: tuple[ToolSpec, ...]) -> tuple[ToolSpec, ...]:
        originals = {self._new_name(spec.name): spec.name for spec in tools}
        if len(originals) < len(tools):
            raise DuplicateTool(f"renaming gives two tools the same name: {', '.join(originals)}")
        self._originals = originals
        return tuple(replace(spec, name=self._new_name(spec.name)) for spec in tools)

    async def call(self, call: ToolCall, context: RunContext[Any] = NO_CONTEXT) -> ToolResult:
        await self.known_tools()
        original = self._originals.get(call.name)
        if original is None:
            return unknown(call, self._originals)
        return replace(await self.source.call(replace(call, name=original), context), name=call.name)


class Prefixed(Renamed):
    """Every name with a prefix before it."""

    def __init__(self, source: ToolSource, prefix: str) -> None:
        super().__init__(source, {})
        if not isinstance(prefix, str):
            raise ConfigError(f"prefix must be a string, got {prefix!r}")
        self._prefix = prefix

    def _new_name(self, name: str) -> str:
        return self._prefix + name


class Filtered(WrapperSource):
    """Only the tools with these names, or those for which a function returns true. No other tool can be called."""

    def __init__(self, source: ToolSource, keep: Collection[str] | Callable[[ToolSpec], bool]) -> None:
        super().__init__(source)
        if isinstance(keep, str):
            raise ConfigError(f"keep must be a set of names: {{{keep!r}}}")
        if not callable(keep) and not isinstance(keep, Collection):
            raise ConfigError(f"keep must be a set of names or a function of a ToolSpec, got {keep!r}")
        self._keep = keep if callable(keep) else lambda spec: spec.name in keep
        self._names: frozenset[str] = frozenset()

    def adapt(self, tools: tuple[ToolSpec, ...]) -> tuple[ToolSpec, ...]:
        kept = tuple(spec for spec in tools if self._keep(spec))
        self._names = frozenset(spec.name for spec in kept)
        return kept

    async def call(self, call: ToolCall, context: RunContext[Any] = NO_CONTEXT) -> ToolResult:
        tools = await self.known_tools()
        if call.name not in self._names:
            return unknown(call, [spec.name for spec in tools])
        return await self.source.call(call, context)


class ToolSubset(WrapperSource):
    """Some tools of a source, by their names."""

    def __init__(self, source: ToolSource, names: Sequence[str]) -> None:
        super().__init__(source)
        self._names = names

    def adapt(self, tools: tuple[ToolSpec, ...]) -> tuple[ToolSpec, ...]:
        specs = {spec.name: spec for spec in tools}
        missing = [name for name in self._names if name not in specs]
        if missing:
            raise ConfigError(f"the agent has no tool named {missing[0]!r}; it has: {', '.join(specs) or 'none'}")
        return tuple(specs[name] for name in self._names)

    async def call(self, call: ToolCall, context: RunContext[Any] = NO_CONTEXT) -> ToolResult:
        return await super().call(call, context) if call.name in self._names else unknown(call, self._names)


class TimeLimited(WrapperSource):
    """No call takes longer than this, whatever the tool itself allows."""

    def __init__(self, source: ToolSource, seconds: float) -> None:
        super().__init__(source)
        if not is_seconds(seconds):
            raise ConfigError(f"seconds must be a positive number, got {seconds!r}")
        self._seconds = seconds

    async def call(self, call: ToolCall, context: RunContext[Any] = NO_CONTEXT) -> ToolResult:
        try:
            result: ToolResult = await run_in_task(
                self.source.call, call, context, timeout=self._seconds, name=call.name
            )
        except Expired as expired:
            context.cancel()
            return failed(call, f"{call.name} timed out after {self._seconds:g} seconds{timeout_ending(expired)}")
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
        if listing.unavailable:
            failure = listing.unavailable[0]
            raise ConfigError(f"the tools of {failure.name} cannot be listed: {failure.message}")
        return listing


class LoopBound(WrapperSource):
    """A source that belongs to the event loop in which it is first used, for runs in any event loop."""

    def __init__(self, source: ToolSource) -> None:
        super().__init__(source)
        self._loop: asyncio.AbstractEventLoop | None = None

    async def list_tools(self) -> ToolListing:
        return await self._in_own_loop(super().list_tools())

    async def call(self, call: ToolCall, context: RunContext[Any] = NO_CONTEXT) -> ToolResult:
        return await self._in_own_loop(super().call(call, context))

    async def aclose(self) -> None:
        await self._in_own_loop(super().aclose())

    async def _in_own_loop(self, coroutine: Coroutine[Any, Any, T]) -> T:
        running = asyncio.get_running_loop()
        if self._loop is None or self._loop.is_closed():
            self._loop = running
        if self._loop is running:
            return await coroutine
        if not self._loop.is_running():
            coroutine.close()
            raise ConfigError("the event loop of this source is not running; use the source there, or close that loop")
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self._loop))


def _is_name(name: object) -> bool:
    return isinstance(name, str) and bool(name)
