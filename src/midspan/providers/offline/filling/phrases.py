"""Plain words as values: what is left of a phrase when the words of the tool itself are taken off."""

import re
from collections.abc import Iterator

from midspan.providers.offline.declared.catalogue import Tool
from midspan.providers.offline.declared.parameters import Parameter, is_id
from midspan.providers.offline.declared.roles import EXCLUSIVE
from midspan.providers.offline.filling.cues import cue
from midspan.providers.offline.reading.mention import Mention
from midspan.providers.offline.reading.prompt import Prompt
from midspan.providers.offline.reading.words import TELLING, Word, name_words, word_set, words

_AROUND = word_set(
    "tell give create make add set send book buy order turn switch write update change delete remove cancel close "
    "open start stop play need want let provide schedule reserve rent purchase know looking searching going "
    "interested available currently latest current recent today details information good nice great best named "
    "called titled able think wondering curious planning trying total entire now later soon"
)
_ASKING = TELLING | _AROUND
_LEADING = {
    "about": 1.0, "called": 1.0, "named": 1.0, "as": 0.8, "for": 0.6, "on": 0.5, "with": 0.5, "of": 0.4, "in": 0.3,
}  # fmt: skip


def phrase_fit(tool: Tool, parameter: Parameter, mention: Mention) -> tuple[float, str]:
    """How well a phrase suits a parameter that takes words, and what of it is the value."""
    if parameter.roles & EXCLUSIVE or is_id(parameter.name):
        return -1.0, ""
    said = words(mention.value)
    first, last = 0, len(said)
    while first < last and (_is_asking(said[first], tool) or _is_listed(said[first], tool, parameter)):
        first += 1
    while last > first and _is_asking(said[last - 1], tool):
        last -= 1
    if first == last:
        return -1.0, ""
    value = mention.value[said[first].start : said[last - 1].end]
    nearest = next((word for word in mention.before if word not in ("the", "a", "an", "my", "some")), "")
    if "place" in parameter.roles and nearest == "for":
        return -0.2 + 0.7 * cue(parameter, mention) + 0.1 * (last - first == 1), value
    score = 0.3 + _LEADING.get(nearest, 0.0) - 0.1 * max(0, last - first - 3)
    if "text" in parameter.roles:
        score += 0.6 * (nearest in _ASKING) - 0.3 * (nearest in ("in", "at"))
    if "place" in parameter.roles and nearest not in ("in", "at", "for", "near", "from", "to"):
        return -1.0, ""
    if parameter.roles & {"id", "person"}:
        score -= 0.9
    head, final = _head(parameter), said[last - 1].lower
    if len(head) > 3 and final.endswith(head) and final != head:
        score += 2.0  # a bedroom is a room by its name
    if last < len(said) and head == said[last].concepts[0]:
        value, score = mention.value[said[first].start : said[last].end], score + 2.0
    following = said[last].concepts[0] if last < len(said) else ""
    if following in parameter.name_concepts or following in parameter.concepts:
        score += 0.8  # «wooden» in «a wooden table», for the material of the table
    return score + 0.7 * cue(parameter, mention), value


def _head(parameter: Parameter) -> str:
    """The thing that a parameter is named after: room, in `living_room`."""
    spoken = name_words(parameter.name)
    return spoken[-1].concepts[0] if spoken else ""


def _is_asking(word: Word, tool: Tool) -> bool:
    return word.lower in _ASKING or tool.weights.get(word.concepts[0], 0.0) >= 1.0


def _is_listed(word: Word, tool: Tool, parameter: Parameter) -> bool:
    """Whether another parameter has it in its list: the size in «large margherita»."""
    others = (one for one in tool.parameters if one is not parameter)
    return any(word.lower == str(choice).lower() for one in others for choice in one.choices)


_DICTATED = re.compile(
    r"(?i)\b(?:saying|(?:that|which) says?|says|with the (?:text|message|content|note)|message:|text:|note:|"
    r"remind(?:er)?(?: me| us| him| her| them)?(?: (?:for|on|at) \S+(?: \d{4})?| tomorrow| today)? (?:to|that|about)|"
    r"(?:to-?do|task) (?:to|for)|tell (?:him|her|them|[A-Z]\w+) (?:that|to))\s+(?P<text>[^.!?\n]{2,500})"
)
_TRAILING = re.compile(r"(?i)[\s,]*\b(?:on|at|by|for|in|this|next|the)?\s*$")


def dictated(prompt: Prompt) -> Iterator[tuple[float, str, tuple[Mention, ...]]]:
    """What the user says that shall be written: «remind me to water the plants»."""
    for match in _DICTATED.finditer(prompt.text):
        start, end = match.span("text")
        for mention in reversed(prompt.mentions):
            if mention.kind in ("date", "time") and mention.start > start and mention.end >= end - 1:
                end = start + len(_TRAILING.sub("", prompt.text[start : mention.start]))
        if prompt.text[start] in "\"'“«\u2018":
            continue  # a quotation tells by itself where it ends
        value = prompt.text[start:end].strip(" \"'“”")
        if value:
            yield 3.0, value, (Mention("phrase", value, start, end),)
