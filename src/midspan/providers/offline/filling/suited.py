"""All that a prompt offers for one parameter."""

import re
from collections.abc import Iterator
from datetime import date
from itertools import takewhile
from typing import Any

from msgspec.structs import replace

from midspan.providers.offline.declared.catalogue import Tool
from midspan.providers.offline.declared.parameters import Parameter
from midspan.providers.offline.declared.roles import EXCLUSIVE
from midspan.providers.offline.filling.choices import chosen, coded
from midspan.providers.offline.filling.cues import cue
from midspan.providers.offline.filling.days import day_text
from midspan.providers.offline.filling.fit import fit, lists
from midspan.providers.offline.filling.flags import truth
from midspan.providers.offline.filling.phrases import dictated
from midspan.providers.offline.reading.meanings import concepts
from midspan.providers.offline.reading.mention import Mention
from midspan.providers.offline.reading.prompt import Prompt
from midspan.providers.offline.reading.surroundings import BAR
from midspan.providers.offline.reading.words import STOP, concepts_of

Suited = tuple[float, Any, tuple[Mention, ...]]
"""A score, a value, and what it was made of."""


def suited(tool: Tool, parameter: Parameter, prompt: Prompt, today: date) -> Iterator[Suited]:
    """Each value that the parameter could have, and how well it would suit."""
    if parameter.type == "boolean" or _is_flag(parameter):
        yield from _flag(tool, parameter, prompt)
    elif parameter.choices:
        yield from _listed_values(parameter, prompt)
    elif parameter.type == "array":
        yield from lists(tool, parameter, prompt, today)
    else:
        yield from _named(tool, parameter, prompt, today)
        yield from _told(parameter, prompt)


def _flag(tool: Tool, parameter: Parameter, prompt: Prompt) -> Iterator[Suited]:
    others = [one.name_concepts for one in tool.parameters if one is not parameter and one.type == "boolean"]
    score, value = truth(parameter, prompt, tool.name_concepts.union(*others))
    if score:
        written = [one for one in parameter.choices if str(one).lower() == str(value).lower()]
        yield score, written[0] if written else value, ()


def _named(tool: Tool, parameter: Parameter, prompt: Prompt, today: date) -> Iterator[Suited]:
    """What the prompt names, as it is."""
    clock = next((str(one.value) for one in prompt.mentions if one.kind == "time"), "")
    for mention in prompt.mentions:
        score, value = fit(tool, parameter, mention, today)
        cut_off = mention.kind == "expression" and any(mention.overlaps(one) for one in prompt.arithmetic)
        if cut_off or _is_excepted(parameter, mention):
            continue  # signs may be a part of more arithmetic, which goes on in words
        if mention.kind == "number" and score > 0:
            score += 2.0 * _counts(tool, parameter, mention)
        elif mention.kind == "name" and score > 0:
            value = _part_of_place(tool, parameter, mention) or value
        elif mention.kind == "date" and clock and isinstance(value, str):
            value = day_text(parameter, mention.value, today, clock)
        if score > 0:
            yield score, value, (mention,)


def _counts(tool: Tool, parameter: Parameter, mention: Mention) -> bool:
    """Whether it is the number of those things that the tool is about: two large pizzas, to order pizza."""
    following = takewhile(lambda word: word != BAR and word not in STOP, mention.after[:4])
    about = any(tool.name_concepts & set(concepts(word)[:1]) for word in following)
    return about and bool(parameter.name_concepts & _COUNTS or "how many" in parameter.description.lower())


_COUNTS = concepts_of("count quantity number qty copies")


def _is_excepted(parameter: Parameter, mention: Mention) -> bool:
    """Whether it is named as what is not meant: everyone except user 2."""
    near = list(takewhile(lambda word: word != BAR, mention.before[:3]))
    excepted = "except" in near or near[:2] == ["not", "but"] or near[1:3] == ["not", "but"]
    return excepted and not re.search("exclu|except|avoid|without", f"{parameter.name} {parameter.description}")


def _told(parameter: Parameter, prompt: Prompt) -> Iterator[Suited]:
    """What the prompt says in more words than a name."""
    if parameter.type == "string":
        if "text" in parameter.roles:
            yield from dictated(prompt)
        yield from _soft(parameter, prompt)
    if "expression" in parameter.roles:
        yield from ((3.0, one.value, (one,)) for one in prompt.arithmetic if one.value)
    if parameter.type == "integer" and (code := coded(parameter, prompt)) is not None:
        yield 2.6, code, ()


def _part_of_place(tool: Tool, parameter: Parameter, mention: Mention) -> str:
    """Of «Lyon, France» the town or the country, where a tool asks for both."""
    city, comma, rest = mention.value.rpartition(", ")
    wholes = [one for one in tool.parameters if one.name_concepts & _WHOLES]
    if not comma or not wholes or not any(one.name_concepts & _TOWNS for one in tool.parameters):
        return ""
    return rest if parameter in wholes else city if parameter.name_concepts & _TOWNS else ""


_WHOLES = concepts_of("country state")
_TOWNS = concepts_of("city town")


def _is_flag(parameter: Parameter) -> bool:
    return {"true", "false"} <= {str(one).lower() for one in parameter.choices}


def _listed_values(parameter: Parameter, prompt: Prompt) -> Iterator[Suited]:
    found = chosen(parameter, prompt)
    if parameter.type == "array":
        if found:
            yield found[0][0], [value for _, value, _ in sorted(found, key=lambda one: one[2])], ()
        return
    for score, value, place in found:
        near = [one for one in prompt.mentions if one.holds(place)]
        yield score + (0.5 * cue(parameter, near[0]) if near else 0), value, ()


_ASKED = "question|query|statement|message|prompt|request|input|utterance"
_USERS_WORDS = re.compile(
    rf"(?i)\b(?:{_ASKED})\b.{{0,40}}\b(?:user|customer)\b|\buser'?s? (?:original )?(?:{_ASKED})\b"
)


def _soft(parameter: Parameter, prompt: Prompt) -> Iterator[Suited]:
    """What the description offers, and the prompt itself where that is asked for."""
    if parameter.offered and not parameter.roles & EXCLUSIVE:
        for score, value, place in chosen(replace(parameter, choices=parameter.offered), prompt):
            near = tuple(one for one in prompt.mentions if one.holds(place))
            whole = near and (near[0].kind == "phrase" or str(near[0].value).lower() == value.lower())
            if whole and score >= 2.5:
                yield score - 0.3, value, near
    if _USERS_WORDS.search(parameter.description):
        yield 1.8, prompt.text.strip(), ()
