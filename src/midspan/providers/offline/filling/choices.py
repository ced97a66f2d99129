"""Values that a schema lists: which of them a prompt speaks of."""

import re
from typing import Any

from midspan.providers.offline.declared.parameters import Parameter
from midspan.providers.offline.reading.prompt import Prompt
from midspan.providers.offline.reading.words import GENERIC, STOP, Word, name_words, word_set

_PARTICLE_VERBS = word_set("turn switch put set keep leave")
Choice = tuple[float, Any, int]
"""The score, the value, and where it stands in the prompt."""


def chosen(parameter: Parameter, prompt: Prompt) -> list[Choice]:
    """The listed values that the prompt names, the surest first."""
    found = []
    for value in parameter.choices:
        score, place = _named(str(value), parameter, prompt)
        if score > 0:
            found.append((score, value, place))
    if not found:
        found = _described(parameter, prompt)
    return sorted(found, key=lambda one: -one[0])


def _named(value: str, parameter: Parameter, prompt: Prompt) -> tuple[float, int]:
    wanted = name_words(value)
    if not wanted:
        place = prompt.text.find(value) if value.strip() else -1
        return (2.0, place) if place >= 0 else (0.0, -1)
    spoken = prompt.words
    best = (0.0, -1)
    for at in range(len(spoken) - len(wanted) + 1):
        score = _same(wanted, spoken[at : at + len(wanted)])
        if score and len(wanted) == 1 and wanted[0].lower in STOP:
            score = score if _is_particle(spoken, at) else 0.0
        if score and len(wanted) == 1 and wanted[0].text.isdigit():
            near = {one for word in spoken[max(0, at - 3) : at + 3] for one in word.concepts}
            score = score if near & parameter.name_concepts or len(wanted[0].text) == 4 else 0.0
        if score > best[0]:
            best = (score + 0.2 * len(wanted), spoken[at].start)
    return best


def _same(wanted: list[Word], spoken: list[Word]) -> float:
    score = 3.0
    for one, other in zip(wanted, spoken, strict=True):
        if one.lower == other.lower:
            continue
        if len(one.lower) <= 2:
            return 0.0
        if plural_less(one.lower) == plural_less(other.lower):
            score = min(score, 2.7)
        elif one.concepts[0] == other.concepts[0]:
            score = min(score, 2.0)
        elif len(wanted) == 1 and set(one.concepts[1:]) & set(other.concepts[1:]):
            score = min(score, 1.2)
        else:
            return 0.0
    return score


def _is_particle(spoken: list[Word], at: int) -> bool:
    """`turn it on` and `off it goes`, but not `on Monday`."""
    return spoken[at].lower == "off" or any(word.lower in _PARTICLE_VERBS for word in spoken[max(0, at - 5) : at])


def _described(parameter: Parameter, prompt: Prompt) -> list[Choice]:
    """Values that the description explains in words of the prompt: «'D' for diesel»."""
    places = []
    for value in parameter.choices:
        match = re.search(r"(?<!\w)" + re.escape(str(value)) + r"(?!\w)", parameter.description)
        if match:
            places.append((match.end(), match.start(), value))
    places.sort(key=lambda one: one[0])
    found = []
    for at, (end, _, value) in enumerate(places):
        following = places[at + 1][1] if at + 1 < len(places) else None
        said = [word for word in name_words(parameter.description[end:following][:80]) if word.lower not in STOP]
        telling = {word.concepts[0] for word in said if word.concepts[0] not in GENERIC} - parameter.name_concepts
        if telling & {word.concepts[0] for word in prompt.words if word.lower not in STOP}:
            found.append((1.9, value, -1))
    return found if len(found) == 1 else []


def plural_less(lower: str) -> str:
    return lower.removesuffix("s") if len(lower) > 3 else lower


_CODED = re.compile(r"(-?\d+)\s*(?:for|is|=|:|means|stands for|-)\s*['\"]?([^\W\d][^\d,.;)('\"]{1,40})")


def coded(parameter: Parameter, prompt: Prompt) -> int | None:
    """A number that the description gives to a word of the prompt: «1 for low, 2 for high»."""
    for match in _CODED.finditer(parameter.description):
        meant = [word for word in name_words(match[2]) if word.lower not in STOP]
        if meant and all(word.concepts[0] in prompt.concepts for word in meant):
            return int(match[1][:18])
    return None
