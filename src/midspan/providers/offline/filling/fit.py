"""How well things that a prompt names suit a parameter, one by one or as a list."""

from collections.abc import Iterator
from datetime import date
from itertools import groupby
from typing import Any

from msgspec.structs import replace

from midspan.providers.offline.declared.catalogue import Tool
from midspan.providers.offline.declared.parameters import Parameter
from midspan.providers.offline.filling.amounts import NONE, Fit, number_fit
from midspan.providers.offline.filling.cues import cue, direction
from midspan.providers.offline.filling.phrases import phrase_fit
from midspan.providers.offline.filling.texts import text_fit
from midspan.providers.offline.reading.mention import Mention
from midspan.providers.offline.reading.prompt import Prompt


def fit(tool: Tool, parameter: Parameter, mention: Mention, today: date) -> Fit:
    """The score and the value, by the kinds of both and by the words around."""
    if mention.kind == "phrase":
        return phrase_fit(tool, parameter, mention) if parameter.type in ("string", "any") else NONE
    score, value = _typed(parameter, mention, today)
    if score < 0:
        return NONE
    return score + cue(parameter, mention) + direction(parameter, mention), value


def _typed(parameter: Parameter, mention: Mention, today: date) -> Fit:
    match parameter.type:
        case "integer" | "number":
            return number_fit(parameter, mention)
        case "string":
            return text_fit(parameter, mention, today)
        case "any":
            return (1.0, mention.value) if mention.kind == "number" else text_fit(parameter, mention, today)
        case "array" if mention.kind == "list":
            return 2.0, mention.value
        case "object" if mention.kind == "object":
            return 2.0, mention.value
    return NONE


def lists(
    tool: Tool, parameter: Parameter, prompt: Prompt, today: date
) -> Iterator[tuple[float, Any, tuple[Mention, ...]]]:
    item = replace(parameter, type=parameter.items)
    for mention in prompt.mentions:
        if mention.kind == "list":
            yield 2.0 + cue(parameter, mention), mention.value, (mention,)
    for group, members in groupby(prompt.mentions, key=lambda one: one.group if one.group >= 0 else -one.start - 2):
        together = tuple(members)
        if together[0].kind == "list" and (item.type != "array" or len(together) == 1):
            continue
        fits = [fit(tool, item, one, today) for one in together]
        if all(score > 0 for score, _ in fits):
            bonus = 1.0 if group >= 0 else -0.5
            first = cue(parameter, replace(together[0], after=together[-1].after))
            yield fits[0][0] + bonus + 0.3 * first, [value for _, value in fits], together
