"""Chooses the calls that a question asks for; where anything is unclear, it chooses none."""

import re
from collections.abc import Sequence
from typing import Any

from midspan._types.specs import ToolSpec
from midspan.providers.offline import language as english
from midspan.providers.offline.language import Mention, Question
from midspan.providers.offline.match import MatchedTool, Matcher

_ASKING, _BRANCHING = english.stems(english.ASKING), english.words("branching")
_ARTICLES, _PARTICLES, _PREPOSITIONS = map(english.words, ("articles", "particles", "prepositions"))
_NO_VALUE = english.words("no_value") | english.STOP | english.ASKING | english.DAYS | _BRANCHING
_DESTROYING, _NOUNS_TOO, _SETTING = map(english.words, ("destroying", "nouns_too", "setting"))
_PLAIN_NUMBER = re.compile(r"#?-?\d+(?:\.\d+)?|\d{1,3}(?:,\d{3})+|[a-z]+", re.IGNORECASE)
_CLAUSE = re.compile(r"(?i)[,;.?!]?\s+and\s+(?=(?:what|how|who|where|when|which|tell|show|get|give|find)\b)|[.;?!]\s+")


def choose_calls(text: str, specs: Sequence[ToolSpec]) -> list[tuple[str, dict[str, Any]]]:
    """Return the calls to make: one, or one per clause if every clause clearly asks for one call that only reads."""
    tools = [MatchedTool(spec) for spec in specs]
    if match := _choose(Question(text), tools):
        return [(match.tool.name, match.arguments)]
    clauses = [clause for clause in _CLAUSE.split(text.strip()) if clause.strip(" .?!")]
    matches = [_choose(Question(clause), tools) for clause in clauses]
    clear = [match for match in matches if match and match.tool.is_read_only and not match.unexplained()]
    is_each_clear = len({match.tool.name for match in clear}) == len(clauses)
    return [(match.tool.name, match.arguments) for match in clear] if is_each_clear else []


def _choose(question: Question, tools: list[MatchedTool]) -> Matcher | None:
    if question.is_negated or not tools:
        return None
    commanded = [tool for tool in tools if question.verb in tool.verbs and tool.particles <= {*question.lowers}]
    if any(not tool.is_read_only for tool in commanded):
        command = Matcher(commanded[0], question)
        is_plain = len(commanded) == 1 and question.is_one_request and _BRANCHING.isdisjoint(question.lowers)
        return command if is_plain and command.match() and _Command(command, tools).accounts_for_every_word() else None
    relevance = {tool.name: _relevance(question, tool) for tool in tools}
    best = max(relevance.values())
    matchers = [Matcher(tool, question) for tool in tools if relevance[tool.name] == best]
    readings = [matcher for matcher in matchers if matcher.match()]
    if len(readings) != 1 or not readings[0].tool.is_read_only:
        return None
    others = [score for name, score in relevance.items() if name != readings[0].tool.name]
    is_far = bool(others) and best >= max(others) + 1
    return readings[0] if _is_clear(readings[0], tools, is_far=is_far) else None


def _relevance(question: Question, tool: MatchedTool) -> float:
    """Score the words that the tool has: 2 in its name, 1 in its description or names of parameters, 0.25 elsewhere."""
    words = (english.stems(question.content) - _ASKING) & tool.known_stems()
    return sum(2 if word in tool.name_stems else 1 if word in tool.vocabulary else 0.25 for word in words)


def _is_clear(match: Matcher, tools: list[MatchedTool], *, is_far: bool) -> bool:
    """Whether the words that a call does not account for leave no doubt about it."""
    tool, question, filled = match.tool, match.question, len(match.arguments)
    unexplained = [question.lowers[at] for at in match.unexplained()]
    is_foreign = any(english.stems(unexplained) & other.vocabulary for other in tools)
    if is_foreign or match.has_bare_text or (question.is_imperative and question.verb in unexplained):
        return False
    named = len(tool.topics & question.stems) / len(tool.topics) if tool.topics else float(filled > 0)
    if named <= 0.25:
        return is_far and filled > 0 and not unexplained
    if any(prop.could_be_meant for prop in tool.parameters if not prop.required and prop.name not in match.arguments):
        return filled > 0 and len(unexplained) <= (named == 1 and filled > 1) and (filled > 1 or named == 1)
    if filled > 1:
        return len(unexplained) <= 2
    return not unexplained or (named >= 0.5 and question.has_context)


class _Command:
    """A command to a tool that may change something: every word of it must be accounted for."""

    def __init__(self, match: Matcher, tools: list[MatchedTool]) -> None:
        self.question, self.tool, self.taken = match.question, match.tool, match.taken
        self.end = len(self.question.tokens) - (self.question.lowers[-1] in (".", "!", "?"))
        taken = [prop for prop in self.tool.parameters if prop.name in self.taken]
        self.parameter_at = {at: prop for prop in taken for at in self.taken[prop.name].tokens}
        named = [prop.words for prop in match.tool.parameters if prop.name in match.arguments]
        self.nouns = match.tool.name_words.union(match.tool.first_sentence, *named) - english.STOP - _PARTICLES
        others = [tool.name_words for tool in tools if tool is not match.tool]
        self.actions = english.stems(frozenset[str]().union(*others, *(tool.verbs for tool in tools)))

    def accounts_for_every_word(self) -> bool:
        has_values = all(map(self._is_value, self.taken.values()))
        return has_values and all(map(self._is_accounted_for, range(self.question.verb_at + 1, self.end)))

    def _is_accounted_for(self, at: int) -> bool:
        word, after = self.question.lower(at), self.question.text[self.question.tokens[at].end() :]
        if self.parameter_at.get(at) and self.parameter_at.get(at) is self.parameter_at.get(at + 1):
            return True
        if after[:1].strip() and at + 1 < self.end:  # a part of something longer
            return False
        if at in self.parameter_at or word in self.tool.particles or (word == "please" and at + 1 == self.end):
            return True
        if word in _ARTICLES:
            return at + 1 in self.parameter_at or self._is_noun(at + 1)
        return self._introduces(word, at + 1) if word in _PREPOSITIONS else self._is_noun(at)

    def _is_noun(self, at: int) -> bool:
        """Whether a word is one of the tool's own; in the plural, or a unit, only after a number."""
        word, prop = self.question.lower(at), self.parameter_at.get(at - 1)
        if word == "number":
            return at + 1 in self.parameter_at and self._is_noun(at - 1)
        if prop is None or self.taken[prop.name].kind != "number":
            return word in self.nouns
        return {word, english.singular(word)} & self.nouns != set() or english.unit_of(word) in prop.units

    def _introduces(self, word: str, at: int) -> bool:
        """Whether a preposition introduces an argument that it fits, or a noun as in the description."""
        at += self.question.lower(at) in _ARTICLES
        sentence, noun = self.tool.first_sentence, self.question.lower(at)
        if at not in self.parameter_at and word in sentence and noun in sentence[sentence.index(word) :]:
            return self._is_noun(at)
        prop = self.parameter_at.get(at) or self.parameter_at.get(at + 1)
        if prop is None:
            return False
        if prop.side and word in ("from", "to", "into"):
            return word[-2:] == prop.side[-2:]
        if at not in self.parameter_at:
            return noun in prop.words and word in ("with", "of", "for", "as", "to")
        if self.taken[prop.name].kind == "number" and word not in prop.words:
            return word == "to" and self.question.verb in _SETTING
        return word in prop.words or word in sentence

    def _is_value(self, mention: Mention) -> bool:
        """Whether an argument stands there as a value: a number and no more, a quoted text, a name or a noun."""
        text = self.question.span(*mention[2:]).lower()
        if mention.kind == "number":
            return bool(_PLAIN_NUMBER.fullmatch(text))
        if mention.kind == "listed":
            return text in (str(mention.value).lower(), str(mention.value).lower().replace("_", " "))
        if mention.kind not in ("name", "bare"):
            return True
        is_verbal = any(len(word) > 4 and word.endswith(("ed", "ing", "ly")) for word in text.split())
        if is_verbal or not _NO_VALUE.isdisjoint(text.split()) or english.stems(text.split()) & self.actions:
            return False
        if self.question.verb in _DESTROYING:
            return mention.kind == "name" and self._is_noun(mention.first - 1)
        return mention.kind == "name" or self._is_plain_noun(text.split(), mention)

    def _is_plain_noun(self, words: list[str], mention: Mention) -> bool:
        """Whether bare words are a noun after the verb, a fitting number, `the` or a preposition."""
        before, counted = self.question.lower(mention.first - 1), self.parameter_at.get(mention.first - 1)
        are_many = [english.singular(word) != word for word in words]
        if len(words) > 2 or any(are_many[:-1]) or any(len(word) < 2 or english.unit_of(word) for word in words):
            return False
        if counted is not None and self.taken[counted.name].kind == "number":
            return are_many[-1] is bool(self.taken[counted.name].value != 1)
        if before in _ARTICLES:
            return before not in ("a", "an") and self.question.lower(mention.last + 1) not in _ARTICLES
        is_object = mention.first - 1 == self.question.verb_at and before not in _NOUNS_TOO
        is_led = is_object or before in _PREPOSITIONS or before in self.tool.particles
        return len(words) == 1 and is_led and _PARTICLES.isdisjoint(words)
