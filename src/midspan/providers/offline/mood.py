"""Whether a prompt wants a tool's action done, or forbids it, or only speaks of it."""

import re
from collections.abc import Collection

from midspan.providers.offline.declared.catalogue import Tool
from midspan.providers.offline.reading.prompt import Prompt
from midspan.providers.offline.reading.words import ACTING, STOP, Word, name_words, word_set, words

_NEGATIONS = word_set(
    "not never no nobody don't dont doesn't didn't can't cannot won't wouldn't shouldn't mustn't needn't"
)
_ENDING = word_set("stop without avoid quit cease hold instead refrain rather against")
"""With these a verb in -ing is negated too: stop playing."""
_BETWEEN = STOP | word_set(
    "ever dare go asking circumstances circumstance need reason want wish try trying actually yet"
)
"""A negation reaches over these to the verb; over others it does not: «don't forget to cancel it»."""
_FARTHEST = 8
_SENTENCE = re.compile(r"[^.!?\n]+(?:[.!?](?=\S)[^.!?\n]*)*[.!?]*")
_OPENING = r"^\W*(?:(?:please|hey|hi|hello|so|and|but|ok|okay|well|now|then)\b\W*)*"
_TALKING = re.compile(
    rf"(?i){_OPENING}(?:should (?:i|we)|shall (?:i|we)|would it|would there|"
    r"how (?:do|does|did|can|could|would|should|might) (?:i|we|one|people|someone|somebody)|how to|"
    r"did|have (?:you|i|we)|has|had|was|were|(?:is|are|am)\s(?!it possible|there)|if (?:i|we)\b.*\bwhat\b|pretend\b|"
    r"(?:what|who|which|why|where|when)(?:'s|\u2019s)?\s(?!about\b|don|not\b)|"
    r"(?:(?:can|could|would|will) you )?(?:please )?(?:explain|describe|define|discuss|summari[sz]e|imagine|suppose)\b)"
    r"|\b(?:would|will|could|might|does|do) happen\b|\bhappens? (?:if|when)\b|\bdifference between\b|\bhow to\b"
    r"|\btell me about\b"
    r"|\b(?:if|whether) (?:i|we) should\b|\b(?:recommend|advise|suggest)\s+\w+ing\b|^it would be\b"
)
_TEXTS = word_set("poem story song joke essay haiku limerick tale article sentence paragraph rhyme riddle lyric novel")
_MAKING = re.compile(
    rf"(?i){_OPENING}(?:(?:can|could|would|will) you )?(?:please )?"
    r"(?:write|compose|tell|make|create|give|sing|draft|invent)\b"
)


def wants(tool: Tool, prompt: Prompt) -> bool:
    """Whether the prompt may have this tool called: its action is not forbidden, nor merely talked about."""
    return not _forbids(tool, prompt.text) and not (acts(tool) and _talks(tool, prompt.text))


def _forbids(tool: Tool, text: str) -> bool:
    """Whether the verb that leads to the tool stands behind a negation."""
    spoken, verbs = words(text), verb_of(tool) | _unknown_verbs(tool)
    if any(_names(word, verbs) and _is_negated(text, spoken, at) for at, word in enumerate(spoken)):
        return True
    halted = re.match(rf"(?i){_OPENING}stop\b", text)
    return halted is not None and acts(tool) and not tool.weights.keys() & {"stop", "≈stop"}


def _unknown_verbs(tool: Tool) -> frozenset[str]:
    """Of a tool that declares a change and names no verb we know, whatever may be its verb: `cache_refresh`."""
    if not tool.spec.changes or any(word.lower in ACTING for word in name_words(tool.name)):
        return frozenset()
    return tool.name_concepts.difference(*(one.name_concepts for one in tool.parameters))


def _is_negated(text: str, spoken: list[Word], at: int) -> bool:
    negations = _NEGATIONS | _ENDING if spoken[at].lower.endswith("ing") else _NEGATIONS
    for place in range(at - 1, max(-1, at - _FARTHEST), -1):
        word = spoken[place].lower
        if _CLAUSE_END.search(text[spoken[place].end : spoken[place + 1].start]):
            return False
        if word in negations:
            return place == 0 or spoken[place - 1].lower != "why"  # «why don't you» asks for it
        if word not in _BETWEEN:
            return False
    return False


_CLAUSE_END = re.compile(r"[^\s'\"*_-]")


def verb_of(tool: Tool) -> frozenset[str]:
    """What it does, by its name: the first word that is a verb of doing, or else the first; and by its description."""
    named, said = name_words(tool.name), words(tool.spec.description[:80])[:1]
    doing = [word for word in named if word.lower in ACTING][:1] or named[:1]
    return frozenset(concept for word in [*doing, *said] if word.lower not in STOP for concept in word.concepts)


def acts(tool: Tool) -> bool:
    """Whether it does something, and does not only tell something: as it declares, or else by its words."""
    if tool.spec.changes is not None:
        return tool.spec.changes
    first = [spoken[0] for spoken in (name_words(tool.name), words(tool.spec.description[:80])) if spoken]
    return any(word.lower.removesuffix("s") in ACTING or word.lower in ACTING for word in first)


def _talks(tool: Tool, text: str) -> bool:
    """Whether every sentence that has to do with the tool asks or tells about its action."""
    about = [match[0] for match in _SENTENCE.finditer(text) if _concerns(tool, match[0])]
    return bool(about) and all(_is_talk(tool, sentence) for sentence in about)


def _concerns(tool: Tool, sentence: str) -> bool:
    return any(word.lower not in STOP and _names(word, tool.name_concepts) for word in words(sentence))


def _is_talk(tool: Tool, sentence: str) -> bool:
    if _TALKING.search(sentence) or _tells(tool, sentence):
        return True
    texts = [word for word in words(sentence) if word.lower.removesuffix("s") in _TEXTS]
    return bool(texts and _MAKING.match(sentence)) and not any(_names(word, tool.weights.keys()) for word in texts)


def _tells(tool: Tool, sentence: str) -> bool:
    """Whether it tells that the thing was done: «I deleted user 5», «order 5 was cancelled»."""
    spoken, verbs = words(sentence), verb_of(tool)
    said = [at for at, word in enumerate(spoken) if _names(word, verbs)]
    past = [at for at in said if at and spoken[at].lower.endswith("ed") and spoken[at - 1].lower in _TELLING]
    return bool(said) and past == said


_TELLING = word_set("i we he she they who someone somebody was were been got is are has have had already just be being")


def _names(word: Word, known: Collection[str]) -> bool:
    """Whether a word means one of these; a doubled letter makes no other word: cancelling, cancel."""
    return any(one in known or (one.endswith("ll") and one[:-1] in known) for one in word.concepts)
