"""Tools as the model knows them: their words, weighed, and their parameters. Read once for a setup, then kept."""

from collections import Counter
from math import log
from typing import Any

from msgspec import Struct

from midspan.providers.offline.declared.parameters import Parameter, parameters_of
from midspan.providers.offline.reading.words import GENERIC, STOP, Word, name_words, words
from midspan.types.exchange import RequestConfig
from midspan.types.specs import ToolSpec

_LONGEST = 3000
"""So much of a description is read."""


class Tool(Struct, frozen=True):
    """One tool."""

    spec: ToolSpec
    parameters: tuple[Parameter, ...]
    name_concepts: frozenset[str]
    weights: dict[str, float]
    """For each concept that it speaks of, how much it tells."""

    @property
    def name(self) -> str:
        return self.spec.name


class Catalogue(Struct, frozen=True):
    tools: tuple[Tool, ...]
    rarity: dict[str, float]
    """How much a concept tells the tools apart: 1 for one that few of them speak of, less for the others."""


def catalogue(config: RequestConfig) -> Catalogue:
    return config.derived("offline", lambda: _read([tool for tool in config.tools if isinstance(tool, ToolSpec)]))


def _read(specs: list[ToolSpec]) -> Catalogue:
    tools = tuple(_tool(spec) for spec in specs)
    spread = Counter(concept for tool in tools for concept in tool.weights)
    most = log(1 + len(tools)) or 1.0
    return Catalogue(tools, {concept: log(1 + len(tools) / count) / most for concept, count in spread.items()})


def _tool(spec: ToolSpec) -> Tool:
    parameters = parameters_of(spec.parameters)
    weights: dict[str, float] = {}
    _weigh(weights, words(" ".join(map(str, _leaves(spec.examples)))[:_LONGEST]), 0.7)
    for one in parameters:
        for concept in one.concepts:
            weights[concept] = max(weights.get(concept, 0.0), 0.18 if concept in GENERIC else 0.5)
        _weigh(weights, name_words(one.name), 1.0)
        for choice in one.choices[:100]:
            _weigh(weights, name_words(str(choice)[:100]), 0.9)
    _weigh(weights, words(spec.description[:_LONGEST]), 1.2)
    _weigh(weights, name_words(spec.name), 2.0)
    named = frozenset(concept for word in name_words(spec.name) if word.lower not in STOP for concept in word.concepts)
    return Tool(spec, parameters, named, weights)


def _weigh(weights: dict[str, float], spoken: list[Word], weight: float) -> None:
    for word in spoken:
        if word.lower in STOP or word.text.isdigit():
            continue
        for place, concept in enumerate(word.concepts):
            share = weight * (0.35 if concept in GENERIC else 1.0) * (0.7 if place else 1.0)
            if share > weights.get(concept, 0):
                weights[concept] = share


def _leaves(value: Any, depth: int = 0) -> list[Any]:
    if depth > 4:
        return []
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [leaf for one in value[:50] for leaf in _leaves(one, depth + 1)]
    return [value]
