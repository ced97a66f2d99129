"""What stands around the things that a prompt names: words before and after, and others of their kind."""

import re

from msgspec.structs import replace

from wasat.providers.offline.reading.mention import Mention
from wasat.providers.offline.reading.words import Word

_SENTENCE_END = re.compile(r"[.!?;\n](?:\s|$)")
AROUND = 6
BAR = "|"


def placed(text: str, found: list[Mention], spoken: list[Word]) -> list[Mention]:
    """The same with the words around each, up to the ends of the sentence."""
    ends = [match.start() for match in _SENTENCE_END.finditer(text)]
    surrounded: list[Mention] = []
    first = 0
    inside = bytearray(len(text) + 1)
    for one in found:
        if one.kind not in ("phrase", "unit", "currency"):
            inside[one.start : one.end] = b"\1" * (one.end - one.start)
    for one in found:
        while first < len(spoken) and spoken[first].end <= one.start:
            first += 1
        last = first
        while last < len(spoken) and spoken[last].start < one.end:
            last += 1
        left = max((end for end in ends if end < one.start), default=-1) if len(ends) < 500 else -1
        right = min((end for end in ends if end >= one.end - 1), default=len(text)) if len(ends) < 500 else len(text)
        before = [word for word in reversed(spoken[max(0, first - AROUND) : first]) if word.start > left]
        after = [word for word in spoken[last : last + AROUND] if word.start < right]
        surrounded.append(replace(one, before=_around(before, inside), after=_around(after, inside)))
    return surrounded


def _around(spoken: list[Word], inside: bytearray) -> tuple[str, ...]:
    """The words, and a bar where something else that is named lies between."""
    said: list[str] = []
    for word in spoken:
        if inside[word.start] and BAR not in said[-1:]:
            said.append(BAR)
        said.append(word.lower)
    return tuple(said)


TOGETHER = re.compile(
    r"\s*(?:,|and|or|&|,\s*and|,\s*or|as well as|plus)\s*(?:in\s|the\s|a\s|an\s|some\s|for\s)*\s*", re.IGNORECASE
)


def grouped(text: str, found: list[Mention]) -> list[Mention]:
    marked, number = list(found), 0
    for at in range(1, len(marked)):
        last, one = marked[at - 1], marked[at]
        between = text[last.end : one.start]
        together = TOGETHER.fullmatch(between) or (one.kind == "number" and between.strip() in ("to", "-", "by"))
        if one.kind == last.kind and together:
            if last.group < 0:
                number += 1
                marked[at - 1] = replace(last, group=number)
            marked[at] = replace(one, group=number)
    return marked
