"""What makes it hard for a model to choose among tools, or to call them right."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import Any

import msgspec
from msgspec import Struct

from midspan._types.specs import ToolSpec

MOST_TOOLS = 20
"""Providers advise to offer no more at once: a model chooses worse among many."""
MOST_TOKENS = 1_000
"""Of one tool; it is paid for with every request."""
_LEAST_WORDS = 3
_ALIKE = 0.6
_CHARACTERS_PER_TOKEN = 4
_VAGUE_NAMES = (
    "call", "data", "do", "execute", "fetch", "func", "function", "get", "handle", "helper", "main", "process",
    "query", "run", "send", "test", "thing", "tool", "util",
)  # fmt: skip
_SMALL_WORDS = {
    "a", "an", "and", "are", "as", "at", "by", "for", "from", "in", "into", "is", "it", "its", "of", "on", "or",
    "that", "the", "this", "to", "with",
}  # fmt: skip


class Finding(Struct, frozen=True):
    """One thing that is wrong."""

    kind: str
    tool: str
    message: str

    def __str__(self) -> str:
        return f"{self.tool}: {self.message} [{self.kind}]" if self.tool else f"{self.message} [{self.kind}]"


def findings(specs: Sequence[ToolSpec]) -> list[Finding]:
    """All that is wrong, tool by tool, then what is wrong with them together."""
    found = [finding for spec in specs for finding in _of_one(spec)]
    return [*found, *_overlaps(specs), *_too_many(specs)]


def tokens_of(spec: ToolSpec) -> int:
    """What the declaration costs in every request, estimated."""
    declared = {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
    return -(-len(msgspec.json.encode(declared)) // _CHARACTERS_PER_TOKEN)


def _of_one(spec: ToolSpec) -> Iterator[Finding]:
    words = _words(spec.description)
    if spec.description.strip() in ("", _made_of(spec.name)):
        yield Finding("no-description", spec.name, "has no description, so a model can only guess what it is for")
    elif words <= _words(spec.name) or len(words) < _LEAST_WORDS:
        yield Finding("vague", spec.name, f"{spec.description.strip()!r} says no more, or little more, than the name")
    if spec.name.lower().strip("_0123456789") in _VAGUE_NAMES:
        yield Finding("vague", spec.name, "the name could be that of any tool; name what it does, to what")
    for path in _undescribed(spec.parameters or {}):
        yield Finding("no-parameter-description", spec.name, f"the parameter {path} has no description")
    if (tokens := tokens_of(spec)) > MOST_TOKENS:
        yield Finding("expensive", spec.name, f"costs about {tokens:,} tokens in every request; say it in fewer words")


def _made_of(name: str) -> str:
    """What a function without a docstring is described with."""
    return name.replace("_", " ").strip().capitalize()


def _undescribed(schema: dict[str, Any], path: str = "", depth: int = 0) -> Iterator[str]:
    """The parameters without a description, also those within others."""
    properties = schema.get("properties")
    if not isinstance(properties, dict) or depth > 8:
        return
    for name, one in properties.items():
        if not isinstance(one, dict):
            continue
        where = f"{path}{name}"
        if not one.get("description"):
            yield where
        yield from _undescribed(one, f"{where}.", depth + 1)
        items = one.get("items")
        if isinstance(items, dict):
            yield from _undescribed(items, f"{where}[].", depth + 1)


def _overlaps(specs: Sequence[ToolSpec]) -> Iterator[Finding]:
    described = [(spec, _words(spec.description)) for spec in specs if spec.description.strip()]
    for (one, of_one), (other, of_other) in combinations(described, 2):
        named = _shared(of_one | _words(one.name), of_other | _words(other.name))
        if max(named, _shared(of_one, of_other)) >= _ALIKE:
            message = f"is described almost as {other.name} is; say in both when to call which"
            yield Finding("overlap", one.name, message)


def _too_many(specs: Sequence[ToolSpec]) -> Iterator[Finding]:
    if len(specs) > MOST_TOOLS:
        message = f"there are {len(specs)} tools; above {MOST_TOOLS} a model chooses worse, so offer fewer at once"
        yield Finding("too-many", "", message)


def _shared(one: Iterable[str], other: Iterable[str]) -> float:
    first, second = set(one), set(other)
    return len(first & second) / len(first | second) if first | second else 0.0


def _words(text: str) -> frozenset[str]:
    """The words that carry meaning, also of a name such as getUserName or get_user_name."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text).replace("_", " ").lower()
    return frozenset(re.findall(r"\w+", spaced)) - _SMALL_WORDS
