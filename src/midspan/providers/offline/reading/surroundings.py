"""What stands around the things that a prompt names: words before and after, and others of their kind."""

import re
from bisect import bisect_left, bisect_right

from msgspec.structs import replace

from midspan.providers.offline.reading.mention import Mention, covered
from midspan.providers.offline.reading.words import Word

_SENTENCE_END = re.compile(r"[.!?;\n](?:\s|$)")
AROUND = 6
BAR = "|"


def placed(text: str, found: list[Mention], spoken: list[Word]) -> list[Mention]:
    """The same with the words around each, up to the ends of the sentence."""
    ends = [-1, *(match.start() for match in _SENTENCE_END.finditer(text)), len(text)]
    inside = covered(text, (one for one in found if one.kind not in ("phrase", "unit", "currency")))
    surrounded: list[Mention] = []
    for one in found:
        first = bisect_right(spoken, one.start, key=lambda word: word.end)
        last = bisect_left(spoken, one.end, key=lambda word: word.start)
        left, right = ends[bisect_left(ends, one.start) - 1], ends[bisect_left(ends, one.end - 1)]
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
    r"(?i)\s*(?:,|and|or|&|,\s*and|,\s*or|as well as|plus)\s*(?:in\s|the\s|a\s|an\s|some\s|for\s)*\s*"
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
