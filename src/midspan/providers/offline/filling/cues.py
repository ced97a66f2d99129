"""What the words around a thing say about where it belongs."""

import re

from midspan.providers.offline.declared.parameters import Parameter
from midspan.providers.offline.reading.meanings import concepts
from midspan.providers.offline.reading.mention import Mention
from midspan.providers.offline.reading.surroundings import BAR
from midspan.providers.offline.reading.words import GENERIC


def cue(parameter: Parameter, mention: Mention) -> float:
    """What the words around it say for this parameter: the nearer they stand the more."""
    best = described = 0.0
    matched = set()
    for side, nearness, fading in ((mention.before, 3.0, 0.4), (mention.after[:4], 2.2, 0.6)):
        share = 1.0
        for distance, word in enumerate(side):
            if word == BAR:
                share *= 0.4
                continue
            stems = concepts(word)
            weight = share * max(nearness - fading * distance, 0.2)
            if stems[0] in parameter.name_concepts:
                best = max(best, weight)
                if stems[0] not in matched and share == 1.0:
                    matched.add(stems[0])
            elif not parameter.name_concepts.isdisjoint(stems):
                best = max(best, 0.4 * weight)
            elif stems[0] in parameter.concepts and stems[0] not in GENERIC and len(word) > 2:
                described = max(described, 0.4 * weight)
    return best + 0.6 * described + 0.7 * max(len(matched) - 1, 0)


_CLOCK = re.compile(r"\d{1,2}(?:[ap]m)?|[ap]m|noon|midnight|o'clock")


def _clock(mention: Mention) -> float:
    """Whose time is known, and whose is asked for: «3pm in London, what time is it in Sydney»."""
    near = [word for word in mention.before if word not in ("in", "at", "the", BAR)][:1]
    if (near and _CLOCK.fullmatch(near[0])) or (BAR in mention.before[:1] and mention.after[:1] == ("time",)):
        return 2.0
    before = mention.before[:6]
    asks = before[:1] == ("in",) and "time" in before and "what" in before
    return -2.0 if asks else 0.0


def direction(parameter: Parameter, mention: Mention) -> float:
    """What «from» and «to» say for it."""
    nearest = next((word for word in mention.before if word not in ("the", "a", "an", "my", BAR)), "")
    roles = parameter.roles & {"from", "to"}
    if len(roles) != 1:
        return 0.0
    if mention.kind == "name" and (clock := _clock(mention)):
        return clock if "from" in roles else -clock
    if nearest in ("from", "between"):
        return 2.5 if "from" in roles else -2.0
    if nearest in ("to", "into", "and", "in", "towards", "until", "till") and (
        nearest != "in" or not parameter.roles & {"place", "date"}
    ):
        return 2.0 if "to" in roles else -1.5
    if mention.kind in ("currency", "unit") and any(word.isdigit() for word in mention.before[:2]):
        return 2.0 if "from" in roles else -1.5
    return 0.0
