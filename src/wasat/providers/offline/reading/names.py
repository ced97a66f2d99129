"""Proper names: of people, places and works, told by how they are written."""

import re
from collections.abc import Iterator

from msgspec import Struct

from wasat.providers.offline.reading.verbs import ACTING
from wasat.providers.offline.reading.words import STOP, Word, word_set

_INSIDE = word_set("of the de la las los del da do dos di du des van von der den el al le and & for in on a")
_FIRST_WORDS = word_set(
    "what who where when why how which find get show tell give can could would will please help calculate compute "
    "search list create make add set send book buy order convert translate turn switch check is are do does did i "
    "i'm write update change delete remove cancel close open start stop play look need want let fetch retrieve "
    "determine estimate solve identify predict provide generate divide multiply recommend suggest remind schedule "
    "plan compare also then and or if my the for in on at with from to evaluate analyze analyse assume given "
    "suppose thanks hi hello display reserve rent purchase obtain examine explain describe use using view see "
    "locate what's how's where's who's it's that's i'd i'll i've don't hey dear there this that sort run execute "
    "initiate implement extract perform while during after before since because although though unless until once "
    "whenever whether however right now today tomorrow yesterday currently recently imagine considering regarding "
    "upon within without through throughout despite according based maybe perhaps actually basically specifically "
    "additionally furthermore moreover finally first second next lastly as by not no yes ok okay he she we they you "
    "it its his her our your their some any all each every most more many both another other one two three good "
    "great new draw assess track monitor investigate discover explore weather time"
)
_STATE_AFTER = re.compile(
    r",\s*([A-Z]{2}\b|(?>[A-Z][a-zé]+\b(?:\s[A-Z][a-z]+\b)?)(?!\s*(?:,\s*[A-Z]|,?\s+and\b|\s+and\b)))"
)


class Name(Struct, frozen=True, gc=False):
    value: str
    start: int
    end: int


def names(text: str, spoken: list[Word]) -> Iterator[Name]:
    at = 0
    while at < len(spoken):
        if not _begins(text, spoken, at):
            at += 1
            continue
        last = at
        while (following := _next(text, spoken, last)) > last:
            last = following
        yield _name(text, spoken[at].start, spoken[last])
        at = last + 1


def _name(text: str, start: int, last: Word) -> Name:
    end = last.end - 2 if last.lower.endswith("'s") else last.end
    state = _STATE_AFTER.match(text, end)
    end = state.end() if state and state[1].lower() not in _FIRST_WORDS else end
    return Name(text[start:end], start, end)


def _begins(text: str, spoken: list[Word], at: int) -> bool:
    word, lower = spoken[at], spoken[at].lower.removesuffix("'s")
    if not _capital(word):
        return False
    starts_sentence = at == 0 or re.search(r"[.!?:\n]\W*$", text[spoken[at - 1].end : word.start]) is not None
    if word.lower == "the" and not starts_sentence:
        return at + 1 < len(spoken) and _capital(spoken[at + 1]) and text[word.end : spoken[at + 1].start] == " "
    if starts_sentence or word.lower in STOP:
        plain = lower not in _FIRST_WORDS and lower not in STOP and lower not in ACTING
        return plain and not lower.endswith(("ing", "ly"))
    return True


def _next(text: str, spoken: list[Word], at: int) -> int:
    """The index of the last word of the next piece of the name, or `at`."""
    if spoken[at].lower.endswith("'s"):
        return at
    for ahead in (1, 2, 3):
        if at + ahead >= len(spoken):
            return at
        gap = text[spoken[at + ahead - 1].end : spoken[at + ahead].start]
        word = spoken[at + ahead]
        if gap not in (" ", "-", ". ", " & ", "'", ".") or (gap == ". " and len(spoken[at + ahead - 1].text) > 2):
            return at
        if _capital(word):
            return at + ahead
        allowed = _INSIDE - {"in", "on", "for", "a", "and"} if ahead == 1 else _INSIDE
        if word.lower not in allowed or word.text != word.lower:
            return at
    return at


def _capital(word: Word) -> bool:
    first = word.text[0]
    if first.isupper():
        return word.text not in ("I", "I'm", "I'd", "I'll", "I've", "AM", "PM")
    return not first.isascii() and first.isalpha() and first.lower() == first.upper()
