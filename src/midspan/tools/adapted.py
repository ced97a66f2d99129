"""The tools of a source as one model family accepts them: valid names, adapted schemas. Calls are mapped back."""

import json
import re
from collections.abc import Iterator
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from midspan._schema.dialects.adapt import adapt_schema
from midspan._schema.dialects.dialect import AdaptedSchema, DroppedConstraint, SchemaDialect
from midspan._schema.dialects.names import Renaming, valid_names
from midspan._types.context import NO_CONTEXT, RunContext
from midspan._types.parts import ToolCall, ToolResult
from midspan._types.specs import ToolSpec
from midspan.tools.execute import unknown
from midspan.tools.source import ToolSource
from midspan.tools.wrap import WrapperSource


class _Adapted(Struct):
    original: ToolSpec
    spec: ToolSpec
    """As the model sees it."""
    schema: AdaptedSchema


class AdaptedTools(WrapperSource):
    """A source in the dialect of a model. Each tool still validates its arguments against its own schema."""

    def __init__(self, source: ToolSource, dialect: SchemaDialect) -> None:
        super().__init__(source)
        self._dialect = dialect
        self._tools: dict[str, _Adapted] = {}
        """By the name that the model uses."""

    def adapt(self, tools: tuple[ToolSpec, ...]) -> tuple[ToolSpec, ...]:
        names = valid_names((spec.name for spec in tools), self._dialect.functions)
        self._tools = {names[spec.name]: self._adapt(spec, names[spec.name]) for spec in tools}
        return tuple(tool.spec for tool in self._tools.values())

    def _adapt(self, spec: ToolSpec, name: str) -> _Adapted:
        known = self._tools.get(name)
        if known is not None and known.original == spec:
            return known
        schema = adapt_schema(spec.parameters or {}, self._dialect)
        return _Adapted(spec, replace(spec, name=name, parameters=None if schema.is_empty else schema.schema), schema)

    @property
    def keeps_names(self) -> bool:
        """Whether all tools and properties keep their names, so that calls can go to the source within as they are."""
        return all(tool.schema.renaming is None and tool.original.name == name for name, tool in self._tools.items())

    async def call(self, call: ToolCall, context: RunContext[Any] = NO_CONTEXT) -> ToolResult:
        await self.known_tools()
        tool = self._tools.get(call.name)
        if tool is None:
            return unknown(call, self._tools)
        if tool.schema.renaming is None and tool.original.name == call.name:
            return await self.source.call(call, context)  # nearly always: all names are valid as they are
        original = replace(call, name=tool.original.name, arguments=tool.schema.restore_names(call.arguments))
        result = replace(await self.source.call(original, context), name=call.name)
        return _rename_in_error(result, tool) if result.is_error and isinstance(result.value, str) else result

    async def dropped_constraints(self) -> dict[str, tuple[DroppedConstraint, ...]]:
        """By tool, what its schema says and the dialect cannot express."""
        await self.list_tools()
        return {tool.original.name: tool.schema.dropped for tool in self._tools.values() if tool.schema.dropped}


def _rename_in_error(result: ToolResult, tool: _Adapted) -> ToolResult:
    """Return an error under the names that the model knows instead of those of the tool."""
    message = result.value
    if message.startswith(_ABOUT_ARGUMENTS):
        aliases = dict(_aliases(tool.schema.renaming))
        message = _with_aliases(message, aliases) if aliases else message
    elif message.startswith(f"{tool.original.name} "):
        message = tool.spec.name + message.removeprefix(tool.original.name)
    return replace(result, value=message)


_ABOUT_ARGUMENTS = "invalid parameters:"


def _aliases(renaming: Renaming | None) -> Iterator[tuple[str, str]]:
    """Yield the original and the valid name of every property that has two, at any depth."""
    if renaming is not None:
        yield from ((original, legal) for legal, original in renaming.names.items())
        for inner in (*renaming.inside.values(), renaming.others, renaming.items):
            yield from _aliases(inner)


def _with_aliases(message: str, aliases: dict[str, str]) -> str:
    """Replace names: in brackets as a step of a path, in quotes as a key, otherwise bare. Other quotes are values."""
    names = sorted(aliases, key=len, reverse=True)
    written = {json.dumps(name, ensure_ascii=False): name for name in names}
    step = "|".join(map(re.escape, written))
    bare = "|".join(re.escape(name) for name in names if re.search(r"[^\W\d_]", name)) or r"(?!)"
    pattern = rf"(?P<inner>(?<=[\w\]]))?\[(?P<step>{step})\]|(?P<key>{step})(?=:)|"
    pattern += rf'"(?:[^"\\]|\\.)*"|(?<![\w-])(?P<bare>{bare})(?![\w-])'

    def alias(found: re.Match[str]) -> str:
        if found["step"]:
            return ("." if found["inner"] is not None else "") + aliases[written[found["step"]]]
        if found["key"]:
            return json.dumps(aliases[written[found["key"]]])
        return aliases[found["bare"]] if found["bare"] else found[0]

    return re.sub(pattern, alias, message)
