"""Everything in a prompt that can become an argument."""

from collections.abc import Iterator

from midspan.providers.offline.reading.dates import days, times
from midspan.providers.offline.reading.mention import Mention
from midspan.providers.offline.reading.money import CURRENCY, CURRENCY_CODES, LANGUAGE
from midspan.providers.offline.reading.names import names
from midspan.providers.offline.reading.numbers import numbers
from midspan.providers.offline.reading.surroundings import grouped, placed
from midspan.providers.offline.reading.units import unit_word
from midspan.providers.offline.reading.words import STOP, Word
from midspan.providers.offline.reading.written import formulas, written

MOST = 300
"""So many are read; a prompt that names more is data, not a request."""


def mentions(text: str, spoken: list[Word]) -> list[Mention]:
    """What is named, in order; the more specific reading of a stretch of text wins over the others."""
    taken = bytearray(len(text))
    found: list[Mention] = []
    for one in _readings(text, spoken, taken):
        if len(found) >= MOST:
            break
        if any(taken[one.start : one.end]):
            continue
        taken[one.start : one.end] = b"\1" * (one.end - one.start)
        found.append(one)
    found.sort(key=lambda one: one.start)
    return grouped(text, placed(text, found, spoken))


def _readings(text: str, spoken: list[Word], taken: bytearray) -> Iterator[Mention]:
    yield from written(text)
    yield from days(text)
    yield from times(text)
    yield from formulas(text)
    yield from numbers(text)
    for match in CURRENCY.finditer(text):
        yield Mention("currency", CURRENCY_CODES[match[0].lower()], match.start(), match.end(), unit=match[0])
    yield from names(text, spoken)
    for match in LANGUAGE.finditer(text):
        yield Mention("language", match[0], match.start(), match.end())
    for word in spoken:
        if len(word.text) > 1 and word.lower not in STOP and unit_word(word.lower):
            yield Mention("unit", word.text, word.start, word.end)
    yield from _phrases(text, spoken, taken)


def _phrases(text: str, spoken: list[Word], taken: bytearray) -> Iterator[Mention]:
    """Runs of plain words that say something."""
    run: list[Word] = []
    for word in spoken:
        plain = word.lower not in STOP and not taken[word.start]
        if run and not (plain and text[run[-1].end : word.start] in (" ", "-")):
            yield _phrase(text, run)
            run = []
        if plain:
            run.append(word)
    if run:
        yield _phrase(text, run)


def _phrase(text: str, run: list[Word]) -> Mention:
    return Mention("phrase", text[run[0].start : run[-1].end], run[0].start, run[-1].end)
