"""Which tool a prompt asks for, and whether it asks for any."""

from datetime import date
from heapq import nlargest

from msgspec import Struct

from midspan.providers.offline.declared.catalogue import Catalogue, Tool
from midspan.providers.offline.declared.parameters import is_id
from midspan.providers.offline.features import features, overlap
from midspan.providers.offline.filling.fill import Filled, fill
from midspan.providers.offline.lookup import readers
from midspan.providers.offline.mood import wants
from midspan.providers.offline.reading.prompt import Prompt

_READ_CLOSELY = 6
"""So many of the tools, those whose words fit best, are tried with arguments."""

# Fitted by logistic regression to prompts with tools that were meant and tools that were not; docs/offline.md tells
# how well they do.
_WEIGHTS = {
    "always": -1.76, "overlap": 1.13, "named": 0.9, "strong": 0.18, "unexplained": -0.88, "missing": -1.32,
    "incomplete": -1.45, "evidence": 0.45, "filled": 0.67, "bare": 0.17, "conflict": -0.41, "described": 0.99,
}  # fmt: skip
_WEIGHTS_OF_WORDS = {
    "always": -1.4, "overlap": 1.5, "named": 0.9, "strong": 0.4, "unexplained": -0.7, "conflict": -0.35,
    "described": 1.2,
}  # fmt: skip
SURE = -0.2
"""A tool that scores less is not meant."""


class Candidate(Struct, frozen=True):
    """A tool, how its call would be, and how sure we are that it is meant."""

    tool: Tool
    filled: Filled
    score: float
    """How sure we are, arguments and all."""
    relevance: float
    """How sure the words alone make us, whatever the call may lack."""

    shares_words: bool
    """Without a word in common arguments that would fit prove nothing."""
    wanted: bool = True
    """Whether the prompt has it done, and does not forbid it or only speak of it."""

    @property
    def is_meant(self) -> bool:
        if not self.shares_words or not self.wanted:
            return False
        return self.score > SURE or (bool(self.filled.missing) and self.relevance > SURE)


def candidates(known: Catalogue, prompt: Prompt, today: date) -> list[Candidate]:
    """The tools that come into question, the best first; there is one if there is any tool."""
    near = nlargest(_READ_CLOSELY, known.tools, key=lambda tool: overlap(tool, prompt, known))
    found = [candidate(tool, prompt, known, today) for tool in near]
    return sorted(found, key=lambda one: -one.score)


def candidate(tool: Tool, prompt: Prompt, known: Catalogue, today: date) -> Candidate:
    """The call of this tool that the prompt would ask for."""
    filled = fill(tool, prompt, today)
    unknown = [one for one in filled.missing if not (is_id(one.name) and next(readers(known, tool, one), None))]
    found = features(tool, prompt, known, filled, len(unknown))
    score, relevance = _sum(_WEIGHTS, found), _sum(_WEIGHTS_OF_WORDS, found)
    return Candidate(tool, filled, score, relevance, found["overlap"] > 0, wants(tool, prompt))


def _sum(weights: dict[str, float], found: dict[str, float]) -> float:
    return sum(weight * found[name] for name, weight in weights.items())
