"""Lists: those written out, those told as a, b and c, and those of one."""

from collections.abc import Iterator
from datetime import date
from itertools import groupby
from typing import Any

from msgspec.structs import replace

from wasat.providers.offline.declared.catalogue import Tool
from wasat.providers.offline.declared.parameters import Parameter
from wasat.providers.offline.filling.cues import cue
from wasat.providers.offline.filling.fit import fit
from wasat.providers.offline.filling.phrases import phrase_fit
from wasat.providers.offline.reading.mention import Mention
from wasat.providers.offline.reading.prompt import Prompt


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
        fits = [_item(tool, item, one, today) for one in together]
        if all(score > 0 for score, _ in fits):
            bonus = 1.0 if group >= 0 else -0.5
            first = cue(parameter, replace(together[0], after=together[-1].after))
            yield fits[0][0] + bonus + 0.3 * first, [value for _, value in fits], together


def _item(tool: Tool, item: Parameter, mention: Mention, today: date) -> tuple[float, Any]:
    if mention.kind == "phrase" and item.type == "string":
        return phrase_fit(tool, item, mention)
    return fit(item, mention, today)
