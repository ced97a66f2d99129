"""Chooses the calls that a question asks for; where anything is unclear, it chooses none."""

import re
from collections.abc import Sequence
from typing import Any

from midspan._types.specs import ToolSpec
from midspan.providers.offline import language as english
from midspan.providers.offline.declaration import Parameter, Tool
from midspan.providers.offline.language import Mention, Question
from midspan.providers.offline.match import LISTED, Match, Matcher

_ASKING, _BRANCHING = english.stems(english.ASKING), english.words("branching")
_ARTICLES, _PARTICLES, _PREPOSITIONS = map(english.words, ("articles", "particles", "prepositions"))
_NO_VALUE = english.words("no_value") | english.STOP | english.ASKING | english.DAYS | _BRANCHING
_DESTROYING, _NOUNS_TOO, _SETTING = map(english.words, ("destroying", "nouns_too", "setting"))
_PLAIN_NUMBER = re.compile(r"#?-?\d+(?:\.\d+)?|\d{1,3}(?:,\d{3})+|[a-z]+", re.IGNORECASE)
_CLAUSE = re.compile(
    r"(?i)[,;.?!]?\s+and\s+(?:also\s+)?(?=(?:what|how|who|where|when|which|tell|show|get|give|find|calculate)\b)|[.;?!]\s+"
)


def choose_calls(text: str, specs: Sequence[ToolSpec]) -> list[tuple[str, dict[str, Any]]]:
    """The calls to make: one, or one for each clause if every clause asks for exactly one call that only reads."""
    tools = [Tool(spec) for spec in specs]
    if match := _choose(Question(text), tools):
        return [(match.tool.name, match.arguments)]
    clauses = [clause for clause in _CLAUSE.split(text.strip()) if clause.strip(" .?!")]
    matches = [_choose(Question(clause), tools) for clause in clauses] if len(clauses) > 1 else []
    calls = [(one.tool.name, one.arguments) for one in matches if one and one.tool.is_read_only and not one.unexplained]
    return calls if len(calls) == len(clauses) else []


def _choose(question: Question, tools: list[Tool]) -> Match | None:
    if question.is_negated or not tools:
        return None
    commanded = [tool for tool in tools if question.commands(tool.verbs)]
    if any(not tool.is_read_only for tool in commanded):
        return _command(question, commanded[0], tools) if len(commanded) == 1 else None
    match = _most_relevant(question, tools)
    if match is None or not match.tool.is_read_only:
        return None
    return match if _is_clear(match, question, tools) else None


def _command(question: Question, tool: Tool, tools: list[Tool]) -> Match | None:
    """The call of a tool that may change something: the question must be a command and its arguments, and no more."""
    if not question.is_one_request or not _BRANCHING.isdisjoint(question.lowers):
        return None
    match = Matcher(tool, question).match()
    return match if match is not None and _Command(match, question, tools).is_whole() else None


def _most_relevant(question: Question, tools: list[Tool]) -> Match | None:
    """The reading of the most relevant tool; of several equally relevant tools, only one may have a reading."""
    best = max(_relevance(question, tool) for tool in tools)
    nearest = [tool for tool in tools if _relevance(question, tool) == best]
    matches = [match for tool in nearest if (match := Matcher(tool, question).match()) is not None]
    return matches[0] if len(matches) == 1 else None


def _relevance(question: Question, tool: Tool) -> float:
    """How many words of the question are words of the tool; those of its name count twice."""
    known, score = tool.known_stems(), 0.0
    for word in english.stems(question.content):
        share = 2 if word in tool.name_stems else 1 if word in tool.vocabulary else 0.25 if word in known else 0
        score += share * (0.3 if word in _ASKING else 1)
    return score


def _is_clear(match: Match, question: Question, tools: list[Tool]) -> bool:
    """Whether the words that a call does not account for leave no doubt about it."""
    tool, count = match.tool, len(match.unexplained)
    is_foreign = any(english.stems(match.unexplained) & other.vocabulary for other in tools)
    if is_foreign or match.certainty == 0 or (question.is_imperative and question.verb in match.unexplained):
        return False
    said = len(tool.topics & question.stems)
    others = [_relevance(question, other) for other in tools if other is not tool]
    if count > 2 and said < len(tool.topics) and not others:
        return False
    is_far = bool(others) and _relevance(question, tool) >= max(others) + 1
    if said < 0.26 * len(tool.topics) and (count or not is_far):
        return False
    options = {prop.type for prop in tool.parameters if not prop.required and prop.name not in match.arguments}
    is_told_apart = match.certainty >= 3 and re.search(r"[.?!]\s", question.text)
    if count > 1 and options - {"integer", "number"} and not is_told_apart:
        return False
    unknown = [word in match.unexplained for word in question.content if word not in english.ASKING]
    share = sum(unknown) / max(1, len(unknown))
    return 2 <= match.certainty < LISTED or (share <= 0.4 and count <= (1 if match.certainty == LISTED else 2))


class _Command:
    """A command to a tool that may change something, of which every word must be accounted for."""

    def __init__(self, match: Match, question: Question, tools: list[Tool]) -> None:
        self.question, self.tool, self.taken = question, match.tool, match.taken
        self.end = len(question.tokens) - (question.lowers[-1] in (".", "!", "?"))
        self.owners = {
            at: prop for prop in match.tool.parameters if prop.name in match.taken
            for at in range(match.taken[prop.name].first, match.taken[prop.name].last + 1)
        }  # fmt: skip
        named = [prop.words for prop in match.tool.parameters if prop.required or prop.name in match.arguments]
        self.nouns = match.tool.name_words.union(match.tool.first_sentence, *named) - english.STOP - _PARTICLES
        others = [tool.name_words for tool in tools if tool is not match.tool]
        self.actions = english.stems(frozenset[str]().union(*others, *(tool.verbs for tool in tools)))

    def is_whole(self) -> bool:
        """Whether the verb, the tool's own words and the arguments are all there is."""
        has_values = all(self._is_value(prop, self.taken[prop.name]) for prop in self.owners.values())
        has_particle = _PARTICLES & self.tool.name_words <= frozenset(self.question.lowers)
        return has_values and has_particle and all(map(self._is_accounted, range(self.question.verb_at + 1, self.end)))

    def _is_accounted(self, at: int) -> bool:
        word, after = self.question.lower(at), self.question.text[self.question.tokens[at].end :]
        if self.owners.get(at) and self.owners.get(at) is self.owners.get(at + 1):
            return True
        if after[:1].strip() and at + 1 < self.end:  # a part of something longer
            return False
        if at in self.owners or word == "please":
            return True
        if word in _ARTICLES:
            return at + 1 in self.owners or self._is_noun(at + 1)
        if word in _PARTICLES and word in self.tool.name_words:
            return True
        return self._leads(word, at + 1) if word in _PREPOSITIONS else self._is_noun(at)

    def _is_noun(self, at: int) -> bool:
        """Whether a word is one of the tool's own; in the plural, or a unit, only after a number."""
        word, prop = self.question.lower(at), self.owners.get(at - 1)
        is_counted = prop is not None and self.taken[prop.name].kind == "number"
        is_unit = prop is not None and is_counted and english.unit_of(word) in prop.units
        return word in self.nouns or is_unit or (is_counted and english.singular(word) in self.nouns)

    def _leads(self, word: str, at: int) -> bool:
        """Whether a preposition leads to an argument that it fits, or to a noun as in the description."""
        at += self.question.lower(at) in _ARTICLES
        sentence, noun = self.tool.first_sentence, self.question.lower(at)
        if at not in self.owners and word in sentence and noun in sentence[sentence.index(word) :]:
            return self._is_noun(at)
        prop = self.owners.get(at) or self.owners.get(at + 1)
        if prop is None or (prop.side and word in ("from", "to", "into") and word[-2:] != prop.side[-2:]):
            return False
        if at not in self.owners:
            return noun in prop.words and word in ("with", "of", "for", "as", "to")
        is_number = self.taken[prop.name].kind == "number"
        is_set = is_number and word == "to" and self.question.verb in _SETTING
        is_side = bool(prop.side) and word in ("from", "to", "into")
        return is_set or is_side or word in prop.words or (word in sentence and not is_number)

    def _is_value(self, prop: Parameter, mention: Mention) -> bool:
        """Whether an argument stands there as a value: a number and no more, a quoted text, a name or a noun."""
        text = self.question.span(*mention[2:])
        if mention.kind == "number":
            return bool(_PLAIN_NUMBER.fullmatch(text))
        if mention.kind == "listed" or prop.values:
            return text.lower() in (str(mention.value).lower(), str(mention.value).lower().replace("_", " "))
        if mention.kind not in ("name", "bare"):
            return mention.kind != "percent" or prop.is_percent
        words = text.lower().split()
        is_verbal = any(len(word) > 4 and word.endswith(("ed", "ing", "ly")) for word in words)
        if is_verbal or not _NO_VALUE.isdisjoint(words) or english.stems(words) & self.actions:
            return False
        is_destroyed = self.question.verb in _DESTROYING
        if mention.kind == "name":
            return not is_destroyed or self._is_noun(mention.first - 1)
        return not is_destroyed and self._is_thing(words, mention)

    def _is_thing(self, words: list[str], mention: Mention) -> bool:
        """Whether bare words are a noun after the verb, a fitting number, `the` or a preposition."""
        before, first = self.question.lower(mention.first - 1), mention.first
        counted = self.owners.get(first - 1)
        are_many = [english.singular(word) != word for word in words]
        if len(words) > 2 or any(are_many[:-1]) or any(len(word) < 2 or english.unit_of(word) for word in words):
            return False
        if counted is not None and self.taken[counted.name].kind == "number":
            return are_many[-1] is bool(self.taken[counted.name].value != 1)
        if before in _ARTICLES:
            return before not in ("a", "an") and self.question.lower(mention.last + 1) not in _ARTICLES
        is_first = first - 1 == self.question.verb_at and before not in _NOUNS_TOO
        is_led = before in _PREPOSITIONS or (before in _PARTICLES and before in self.tool.name_words)
        return len(words) == 1 and (is_first or is_led) and _PARTICLES.isdisjoint(words)
