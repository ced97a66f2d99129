"""The tools of a source as one family of models can say them: legal names, lowered schemas. Calls are led back."""

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from wasat.schema.dialects import Dialect, Loss, Lowered, legal_names, lower
from wasat.tools.local import unknown
from wasat.tools.source import ToolSource
from wasat.types.parts import ToolCall, ToolResult
from wasat.types.specs import ToolSpec


class _Said(Struct):
    original: ToolSpec
    said: ToolSpec
    lowered: Lowered


class Spoken:
    """A source in a dialect. The tool still checks its arguments against its own schema, whatever the dialect lost."""

    def __init__(self, source: ToolSource, dialect: Dialect) -> None:
        self._source = source
        self._dialect = dialect
        self._said: dict[str, _Said] = {}
        """By the name that the model uses."""

    async def list_tools(self) -> list[ToolSpec]:
        specs = await self._source.list_tools()
        names = legal_names((spec.name for spec in specs), self._dialect)
        self._said = {names[spec.name]: self._say(spec, names[spec.name]) for spec in specs}
        return [said.said for said in self._said.values()]

    def _say(self, spec: ToolSpec, name: str) -> _Said:
        known = self._said.get(name)
        if known is not None and known.original is spec:
            return known
        lowered = lower(spec.parameters or {}, self._dialect)
        return _Said(spec, replace(spec, name=name, parameters=None if lowered.is_empty else lowered.schema), lowered)

    async def call(self, call: ToolCall, context: Any = None) -> ToolResult:
        said = self._said.get(call.name)
        if said is None:
            await self.list_tools()
            said = self._said.get(call.name)
        if said is None:
            return unknown(call, self._said)
        original = replace(call, name=said.original.name, arguments=said.lowered.original(call.arguments))
        return replace(await self._source.call(original, context), name=call.name)

    async def losses(self) -> dict[str, tuple[Loss, ...]]:
        """By tool, what its schema says and the dialect cannot."""
        await self.list_tools()
        return {said.original.name: said.lowered.losses for said in self._said.values() if said.lowered.losses}
