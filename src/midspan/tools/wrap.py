"""Sources around a source: each changes one thing about the tools within, whatever they are."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from msgspec.structs import replace

from midspan.errors import ConfigError, DuplicateTool
from midspan.tools.error_results import failed
from midspan.tools.local import unknown
from midspan.tools.merge import checked_source
from midspan.tools.options import is_seconds
from midspan.tools.source import ToolSource
from midspan.tools.tasks import Expired, ToolRaised, run_in_task
from midspan.types.parts import ToolCall, ToolResult
from midspan.types.specs import ToolSpec


class Renamed:
    """Tools under other names: `Renamed(source, {"read": "read_file"})`; the others keep theirs."""

    def __init__(self, source: ToolSource, names: Mapping[str, str]) -> None:
        self._source = checked_source(source)
        if not isinstance(names, Mapping) or not all(_is_name(name) for pair in names.items() for name in pair):
            raise ConfigError(f"give the names as a dict of old ones and new ones: {{'old': 'new'}}, not {names!r}")
        self._names = dict(names)
        if len(set(names.values())) < len(names):
            raise ConfigError(f"two tools would get the same name: {', '.join(names.values())}")

    def _new_name(self, name: str) -> str:
        return self._names.get(name, name)

    async def list_tools(self) -> list[ToolSpec]:
        specs = [replace(spec, name=self._new_name(spec.name)) for spec in await self._source.list_tools()]
        names = [spec.name for spec in specs]
        if len(set(names)) < len(names):
            raise DuplicateTool(f"renaming makes two tools of one name: {', '.join(names)}")
        return specs

    async def call(self, call: ToolCall, context: Any = None) -> ToolResult:
        originals = {self._new_name(spec.name): spec.name for spec in await self._source.list_tools()}
        if call.name not in originals:
            return unknown(call, originals)
        return replace(await self._source.call(replace(call, name=originals[call.name]), context), name=call.name)


class Prefixed(Renamed):
    """Every name with a prefix before it."""

    def __init__(self, source: ToolSource, prefix: str) -> None:
        super().__init__(source, {})
        if not isinstance(prefix, str):
            raise ConfigError(f"a prefix is a text that is put before every name, not {prefix!r}")
        self._prefix = prefix

    def _new_name(self, name: str) -> str:
        return self._prefix + name


class Filtered:
    """Only the tools of these names, or those of which a function says yes; the others can not be called either."""

    def __init__(self, source: ToolSource, keep: Collection[str] | Callable[[ToolSpec], bool]) -> None:
        self._source = checked_source(source)
        if isinstance(keep, str):
            raise ConfigError(f"give the names to keep as a set: {{{keep!r}}}")
        if not callable(keep) and not isinstance(keep, Collection):
            raise ConfigError(f"keep is a set of names, or a function that says whether a tool stays; not {keep!r}")
        self._keep = keep if callable(keep) else lambda spec: spec.name in keep

    async def list_tools(self) -> list[ToolSpec]:
        return [spec for spec in await self._source.list_tools() if self._keep(spec)]

    async def call(self, call: ToolCall, context: Any = None) -> ToolResult:
        names = [spec.name for spec in await self.list_tools()]
        return await self._source.call(call, context) if call.name in names else unknown(call, names)


class TimeLimited:
    """No call takes longer than this, whatever the tool itself allows."""

    def __init__(self, source: ToolSource, seconds: float) -> None:
        self._source = checked_source(source)
        if not is_seconds(seconds):
            raise ConfigError(f"a time limit is a number of seconds above 0, not {seconds!r}")
        self._seconds = seconds

    async def list_tools(self) -> list[ToolSpec]:
        return list(await self._source.list_tools())

    async def call(self, call: ToolCall, context: Any = None) -> ToolResult:
        try:
            result: ToolResult = await run_in_task(
                self._source.call, call, context, timeout=self._seconds, name=call.name
            )
        except Expired:
            return failed(call, f"{call.name} timed out after {self._seconds:g} seconds and was cancelled")
        except ToolRaised as raised:
            raise raised.error from None
        return result


def _is_name(name: object) -> bool:
    return isinstance(name, str) and bool(name)
