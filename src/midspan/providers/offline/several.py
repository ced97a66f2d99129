"""One tool called for each of several things: the weather in Paris and London."""

import re
from datetime import date
from itertools import pairwise

from msgspec.structs import replace

from midspan.providers.offline.choose import Candidate
from midspan.providers.offline.declared.parameters import Parameter
from midspan.providers.offline.filling.choices import chosen
from midspan.providers.offline.filling.fit import fit
from midspan.providers.offline.reading.prompt import Prompt
from midspan.providers.offline.reading.surroundings import TOGETHER

_MOST = 20
_AND = re.compile(r"(?i)\b(?:and|or|plus|as well as)\b|&")


def several(one: Candidate, prompt: Prompt, today: date) -> list[Candidate]:
    """The call, and the same one for everything that the prompt names in one breath with an argument of it."""
    for parameter in one.tool.parameters:
        sources = one.filled.sources.get(parameter.path, ())
        if parameter.type in ("array", "object", "boolean") or len(parameter.path) > 1:
            continue
        values = _choices(parameter, prompt) if parameter.choices else []
        if len(sources) == 1 and sources[0].group >= 0 and sources[0].kind != "phrase":
            others = [mention for mention in prompt.mentions if mention.group == sources[0].group]
            if not _AND.search(prompt.text[others[-2].end : others[-1].start]):
                continue  # a street, a town: one address and not two
            if any(mention in one.filled.used for mention in others if mention is not sources[0]):
                continue
            values = [
                value for mention in others for score, value in [fit(one.tool, parameter, mention, today)] if score > 0
            ]
        if len(values) > 1 and parameter.path in one.filled.sources:
            return [_with(one, parameter, value) for value in values[:_MOST]]
    return [one]


def _with(one: Candidate, parameter: Parameter, value: object) -> Candidate:
    return replace(one, filled=replace(one.filled, arguments={**one.filled.arguments, parameter.name: value}))


def _choices(parameter: Parameter, prompt: Prompt) -> list[object]:
    """The listed values that the prompt names, if it names them one after the other: the kitchen and the bathroom."""
    found = sorted((place, value) for score, value, place in chosen(parameter, prompt) if score >= 2.5 and place >= 0)
    values: list[object] = [value for _, value in found[:1]]
    for (start, value), (following, other) in pairwise(found):
        between = re.sub(r"^\w+", "", prompt.text[start + len(str(value)) : following])
        if not TOGETHER.fullmatch(between):
            return values[:1]
        values.append(other)
    return values
