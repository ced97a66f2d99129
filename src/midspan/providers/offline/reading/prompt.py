"""A prompt as the model reads it: its words, what they stand for, and what they name."""

from functools import cached_property

from msgspec.structs import replace

from midspan.providers.offline.reading.arithmetic import chains
from midspan.providers.offline.reading.meanings import concepts
from midspan.providers.offline.reading.mention import Mention, covered
from midspan.providers.offline.reading.mentions import mentions
from midspan.providers.offline.reading.numbers import WORDED
from midspan.providers.offline.reading.words import STOP, Word, word_set, words

LONGEST = 12_000
"""Of a longer prompt the beginning and the end are read, half and half: the request stands at one of them."""


_KINDS = {name: tuple(one for word in said.split() for one in concepts(word)) for name, said in {
    "unit": "unit measurement", "currency": "currency", "language": "language", "expression": "expression arithmetic",
}.items()}  # fmt: skip


def unquoted(text: str) -> str:
    """A prompt that stands in quotation marks as a whole, without them."""
    inner = text.strip()
    whole = len(inner) > 30 and inner[0] == inner[-1] and inner[0] in "\"'" and inner.count(inner[0]) % 2 == 0
    return inner[1:-1] if whole and (inner[0] == '"' or inner.count("'") == 2) else text


_MULTIPLIED = concepts("multiply")
_MANY = word_set("many several few hundred thousand million billion")


def _counts(found: list[Word], at: int) -> bool:
    """Whether «times» has to do with numbers, and not with clocks: 3 times 4, how many times."""
    before = found[at - 1].lower if at else ""
    return before.isdigit() or before in _MANY or WORDED.fullmatch(before) is not None


class Prompt:
    """Read piece by piece, when a piece is needed."""

    def __init__(self, text: str) -> None:
        text = unquoted(text)
        self.text = text if len(text) <= LONGEST else f"{text[: LONGEST // 2]}\n{text[-LONGEST // 2 :]}"

    @cached_property
    def words(self) -> list[Word]:
        found = words(self.text)
        for at, one in enumerate(found):
            if one.lower == "times" and _counts(found, at):
                found[at] = replace(one, concepts=_MULTIPLIED)
        return found

    @cached_property
    def mentions(self) -> list[Mention]:
        return mentions(self.text, self.words)

    @cached_property
    def arithmetic(self) -> list[Mention]:
        return list(chains(self.text))

    @cached_property
    def telling(self) -> list[Word]:
        """The words that say what is wanted: neither stop words nor part of a name, a quotation or a number."""
        plain_kinds = ("phrase", "language", "currency", "unit")
        inside = covered(self.text, (one for one in self.mentions if one.kind not in plain_kinds))
        plain = [word for word in self.words if word.lower not in STOP and not inside[word.start]]
        return plain + self._kinds()

    def _kinds(self) -> list[Word]:
        """A kilometer is a unit, and 2 + 2 an expression, though nobody says so."""
        kinds = {one.kind for one in self.mentions} | {"currency" for one in self.mentions if one.currency}
        if any(one.value for one in self.arithmetic):
            kinds.add("expression")
        return [Word(name, name, 0, 0, stems) for name, stems in _KINDS.items() if name in kinds]

    @cached_property
    def concepts(self) -> frozenset[str]:
        return frozenset(concept for word in [*self.words, *self._kinds()] for concept in word.concepts)
