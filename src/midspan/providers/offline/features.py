"""What speaks for a tool and what against it, in numbers."""

from math import log2

from midspan.providers.offline.declared.catalogue import Catalogue, Tool
from midspan.providers.offline.filling.fill import Filled
from midspan.providers.offline.reading.meanings import stem
from midspan.providers.offline.reading.prompt import Prompt
from midspan.providers.offline.reading.words import GENERIC, STOP, words


def features(tool: Tool, prompt: Prompt, known: Catalogue, filled: Filled, missing: int) -> dict[str, float]:
    """Of the tool as such, and of the call that it would be, in which so many arguments are `missing`."""
    telling = prompt.telling
    used = filled.used
    shares = [max((tool.weights.get(one, 0.0) for one in word.concepts), default=0.0) for word in telling]
    unexplained = sum(
        share < 0.3 and not any(source.holds(word.start) for source in used)
        for word, share in zip(telling, shares, strict=True)
    )
    required = sum(one.required for one in tool.parameters)
    count = len(telling) or 1
    return {
        "always": 1.0,
        "overlap": overlap(tool, prompt, known) / log2(4 + count),
        "named": _named(tool, prompt),
        "strong": sum(share >= 1.0 for share in shares) / count,
        "unexplained": unexplained / count,
        "missing": missing / (required or 1),
        "incomplete": float(missing > 0),
        "evidence": min(filled.evidence / (len(filled.sources) or 1), 5.0),
        "filled": min(len(filled.sources), 4) / 4,
        "bare": float(not tool.parameters),
        "conflict": float(_conflict(tool, prompt)),
        "described": _described(tool, prompt),
    }


def overlap(tool: Tool, prompt: Prompt, known: Catalogue) -> float:
    """The words that prompt and tool share, weighed."""
    total = 0.0
    for word in prompt.telling:
        total += max((tool.weights.get(one, 0.0) * known.rarity.get(one, 0.0) for one in word.concepts), default=0.0)
    return total + _named(tool, prompt)


def _named(tool: Tool, prompt: Prompt) -> float:
    """How much of the tool's name is in the prompt."""
    own = [one for one in tool.name_concepts if not one.startswith("≈")]
    weights = {one: 0.4 if one in GENERIC else 1.0 for one in own}
    hit = sum(weight for one, weight in weights.items() if one in prompt.concepts)
    return hit / (sum(weights.values()) or 1.0)


_ACTIONS = {
    stem(word): action
    for action, said in enumerate(
        (
            "find search get show list look retrieve fetch view check lookup read see tell",
            "create add make generate new insert write",
            "delete remove erase cancel",
            "update change modify edit set adjust move reschedule",
            "buy purchase order",
            "book reserve reservation",
            "play listen",
            "send pay transfer",
            "open login log",
            "close logout",
            "convert translate",
            "calculate compute determine evaluate",
        )
    )
    for word in said.split()
}
_FINDING, _CALCULATING = _ACTIONS["find"], _ACTIONS[stem("calculate")]


def _conflict(tool: Tool, prompt: Prompt) -> bool:
    """Whether the prompt asks for something else to be done than what the tool is named after."""
    own = {_ACTIONS[one] for one in tool.name_concepts if one in _ACTIONS}
    asked = {_ACTIONS[one] for word in prompt.telling for one in word.concepts if one in _ACTIONS}
    found = asked == {_FINDING} and own & {_CALCULATING}  # one may «find» an area
    return bool(own and asked) and not own & asked and not found


def _described(tool: Tool, prompt: Prompt) -> float:
    """How much of what the tool says of itself is in the prompt."""
    said = {word.concepts[0] for word in words(tool.spec.description[:200]) if word.lower not in STOP} - GENERIC
    return len(said & prompt.concepts) / (len(said) or 1)
