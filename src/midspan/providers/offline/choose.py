"""Chooses the calls that a question asks for; where anything is unclear, it chooses none."""

import re
from collections.abc import Sequence
from typing import Any

from midspan.providers.offline import language as english
from midspan.providers.offline.declaration import Tool
from midspan.providers.offline.language import Question
from midspan.providers.offline.match import LISTED, Match, Matcher
from midspan.types.specs import ToolSpec

_ASKING, _BRANCHING = english.stems(english.ASKING), english.words("branching")
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
    if match is None or not (match.tool.is_read_only or question.is_asked_by(match.tool.spec.description)):
        return None
    return match if _is_clear(match, question, tools) else None


def _command(question: Question, tool: Tool, tools: list[Tool]) -> Match | None:
    """The call of a tool that may change something: the question must be a command and its arguments, and no more."""
    inflected = english.stems(word for word in question.lowers if word.endswith(("ed", "ing")))
    names_another = any(inflected & english.stems(other.verbs) for other in tools)
    if names_another or not question.is_one_request or not _BRANCHING.isdisjoint(question.lowers):
        return None
    match = Matcher(tool, question).match()
    return match if match is not None and not match.unexplained else None


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
