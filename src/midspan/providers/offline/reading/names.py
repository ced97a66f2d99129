"""Proper names: of people, places and works, told by how they are written."""

import re
from collections.abc import Iterator

from midspan.providers.offline.reading.mention import Mention
from midspan.providers.offline.reading.money import LANGUAGE
from midspan.providers.offline.reading.words import ACTING, STOP, TELLING, Word, word_set

_INSIDE = word_set("of the de la las los del da do dos di du des van von der den el al le and & for in on a")
_FIRST_WORDS = word_set(
    "divide multiply assume suppose examine explain describe locate dear sort initiate implement extract perform "
    "while during after before since because although though unless until once whenever whether however right now "
    "today tomorrow yesterday currently recently imagine considering regarding upon without through throughout "
    "despite according maybe perhaps actually basically specifically additionally furthermore moreover finally first "
    "second next lastly okay two three good great new draw assess track monitor investigate discover explore weather "
    "time"
)
_NO_NAMES = STOP | ACTING | TELLING | _FIRST_WORDS
"""What a sentence may begin with, and no name."""
_STATE_AFTER = re.compile(
    r",\s*([A-Z]{2}\b|(?>[A-Z][a-zé]+\b(?:\s[A-Z][a-z]+\b)?)(?!\s*(?:,\s*[A-Z]|,?\s+and\b|\s+and\b)))"
)


def names(text: str, spoken: list[Word]) -> Iterator[Mention]:
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


def _name(text: str, start: int, last: Word) -> Mention:
    end = last.end - 2 if last.lower.endswith("'s") else last.end
    state = _STATE_AFTER.match(text, end)
    if state and (state[1] in ("ME", "US") or state[1].lower() not in _NO_NAMES):
        end = state.end()
    return Mention("language" if LANGUAGE.fullmatch(text, start, end) else "name", text[start:end], start, end)


def _begins(text: str, spoken: list[Word], at: int) -> bool:
    word, lower = spoken[at], spoken[at].lower.removesuffix("'s")
    if not _capital(word):
        return False
    starts_sentence = at == 0 or re.search(r"[.!?:\n]\W*$", text[spoken[at - 1].end : word.start]) is not None
    if word.lower == "the" and not starts_sentence:
        return at + 1 < len(spoken) and _capital(spoken[at + 1]) and text[word.end : spoken[at + 1].start] == " "
    if starts_sentence or word.lower in STOP:
        return lower not in _NO_NAMES and not lower.endswith(("ing", "ly"))
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
