"""What makes it hard for a model to choose among tools, or to call them correctly."""

import re
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import combinations
from typing import Any

import msgspec
from msgspec import Struct

from midspan.tools import ToolSpec

_MAX_TOOLS = 20
"""Providers advise not to offer more at once: a model chooses worse among many."""
_MAX_TOKENS = 1_000
"""Of one declaration, which is part of every request."""
_MIN_WORDS = 3
_MAX_SIMILARITY = 0.6
_CHARACTERS_PER_TOKEN = 4
_MAX_DEPTH = 8
_VAGUE_NAMES = (
    "call", "data", "do", "execute", "fetch", "func", "function", "get", "handle", "helper", "main", "process",
    "query", "run", "send", "test", "thing", "tool", "util",
)  # fmt: skip
_STOP_WORDS = {
    "a", "an", "and", "are", "as", "at", "by", "for", "from", "in", "into", "is", "it", "its", "of", "on", "or",
    "that", "the", "this", "to", "with",
}  # fmt: skip


class Finding(Struct, frozen=True):
    """One problem of a tool, or of all tools together if `tool` is empty."""

    kind: str
    tool: str
    message: str

    def __str__(self) -> str:
        return f"{self.tool}: {self.message} [{self.kind}]" if self.tool else f"{self.message} [{self.kind}]"


def find_problems(specs: Sequence[ToolSpec]) -> list[Finding]:
    findings = [finding for spec in specs for finding in _problems_of(spec)]
    findings += _similar_descriptions(specs)
    if len(specs) > _MAX_TOOLS:
        message = f"there are {len(specs)} tools; a model chooses worse among more than {_MAX_TOOLS}, so offer fewer"
        findings.append(Finding("too-many", "", message))
    return findings


def token_estimate(spec: ToolSpec) -> int:
    """Estimate how many tokens the declaration of a tool takes in every request."""
    declaration = {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
    return -(-len(msgspec.json.encode(declaration)) // _CHARACTERS_PER_TOKEN)


def _problems_of(spec: ToolSpec) -> Iterator[Finding]:
    description = spec.description.strip()
    words = _words(description)
    default_description = spec.name.replace("_", " ").strip().capitalize()  # of a function without a docstring
    if description in ("", default_description):
        yield Finding("no-description", spec.name, "has no description, so a model can only guess what it does")
    elif words <= _words(spec.name) or len(words) < _MIN_WORDS:
        yield Finding("vague", spec.name, f"the description {description!r} says little more than the name")
    if spec.name.lower().strip("_0123456789") in _VAGUE_NAMES:
        yield Finding("vague", spec.name, "the name fits any tool; say what the tool does, and to what")
    for path in _undescribed_parameters(spec.parameters or {}):
        yield Finding("no-parameter-description", spec.name, f"the parameter {path} has no description")
    if (tokens := token_estimate(spec)) > _MAX_TOKENS:
        yield Finding(
            "expensive", spec.name, f"takes about {tokens:,} tokens in every request; shorten its declaration"
        )


def _undescribed_parameters(schema: dict[str, Any], prefix: str = "", depth: int = 0) -> Iterator[str]:
    """Yield the paths of parameters without a description, also of nested ones."""
    properties = schema.get("properties")
    if not isinstance(properties, dict) or depth > _MAX_DEPTH:
        return
    for name, prop in properties.items():
        if not isinstance(prop, dict):
            continue
        path = f"{prefix}{name}"
        if not prop.get("description"):
            yield path
        yield from _undescribed_parameters(prop, f"{path}.", depth + 1)
        if isinstance(items := prop.get("items"), dict):
            yield from _undescribed_parameters(items, f"{path}[].", depth + 1)


def _similar_descriptions(specs: Sequence[ToolSpec]) -> Iterator[Finding]:
    described = [(spec.name, _words(spec.description)) for spec in specs if spec.description.strip()]
    for (name, words), (other_name, other_words) in combinations(described, 2):
        with_names = _similarity(words | _words(name), other_words | _words(other_name))
        if max(with_names, _similarity(words, other_words)) >= _MAX_SIMILARITY:
            message = f"has almost the same description as {other_name}; say in both when to use which"
            yield Finding("overlap", name, message)


def _similarity(words: AbstractSet[str], others: AbstractSet[str]) -> float:
    return len(words & others) / len(words | others) if words | others else 0.0


def _words(text: str) -> frozenset[str]:
    """Return the words that carry meaning, also of names like getUserName and get_user_name."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text).replace("_", " ").lower()
    return frozenset(re.findall(r"\w+", spaced)) - _STOP_WORDS
