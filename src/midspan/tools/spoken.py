"""The tools of a source as one family of models can say them: legal names, lowered schemas. Calls are led back."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from midspan.schema.dialects import Dialect, Loss, Lowered, legal_names, lower
from midspan.schema.lowering.names import Renaming
from midspan.tools.local import unknown
from midspan.tools.source import ToolSource
from midspan.types.parts import ToolCall, ToolResult
from midspan.types.specs import ToolSpec


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
        return self.say(await self._source.list_tools())

    def say(self, specs: Sequence[ToolSpec]) -> list[ToolSpec]:
        """The tools of the source, which has just been asked for them."""
        names = legal_names((spec.name for spec in specs), self._dialect)
        self._said = {names[spec.name]: self._said_of(spec, names[spec.name]) for spec in specs}
        return [said.said for said in self._said.values()]

    def _said_of(self, spec: ToolSpec, name: str) -> _Said:
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
        if said.lowered.renaming is None and said.original.name == call.name:
            return await self._source.call(call, context)  # nearly always: all names are legal as they are
        original = replace(call, name=said.original.name, arguments=said.lowered.original(call.arguments))
        result = replace(await self._source.call(original, context), name=call.name)
        return _retold(result, said) if result.is_error and isinstance(result.value, str) else result

    async def losses(self) -> dict[str, tuple[Loss, ...]]:
        """By tool, what its schema says and the dialect cannot."""
        await self.list_tools()
        return {said.original.name: said.lowered.losses for said in self._said.values() if said.lowered.losses}


def _retold(result: ToolResult, said: _Said) -> ToolResult:
    """What went wrong, under the names that the model knows and not those of the tool."""
    words = result.value
    if words.startswith(_ABOUT_ARGUMENTS):
        aliases = dict(_aliases(said.lowered.renaming))
        words = _with_aliases(words, aliases) if aliases else words
    elif words.startswith(f"{said.original.name} "):
        words = said.said.name + words.removeprefix(said.original.name)
    return replace(result, value=words)


_ABOUT_ARGUMENTS = "invalid parameters:"


def _aliases(renaming: Renaming | None) -> Iterator[tuple[str, str]]:
    """Original and legal name of every property that has two; the same wherever it is."""
    if renaming is not None:
        yield from ((original, legal) for legal, original in renaming.names.items())
        for inner in (*renaming.inside.values(), renaming.others, renaming.items):
            yield from _aliases(inner)


def _with_aliases(words: str, aliases: dict[str, str]) -> str:
    """A name stands in brackets as a step of a path, in quotes as a key, else bare; other quotes are the model's."""
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

    return re.sub(pattern, alias, words)
