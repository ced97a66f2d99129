"""What to do next about a request: calls to make, a question to ask, or nothing."""

import re
from datetime import date
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from midspan.providers.offline.choose import SURE, Candidate, candidate, candidates
from midspan.providers.offline.declared.catalogue import Catalogue, Tool
from midspan.providers.offline.declared.parameters import Parameter, is_id
from midspan.providers.offline.filling.fill import fill
from midspan.providers.offline.lookup import matched, readers
from midspan.providers.offline.mood import acts, verb_of, wants
from midspan.providers.offline.reading.clauses import clauses
from midspan.providers.offline.reading.prompt import Prompt
from midspan.providers.offline.reading.words import STOP
from midspan.providers.offline.several import several
from midspan.providers.offline.situation import Done, Situation

_ELLIPTIC = 8
"""A prompt of so few words may lean on the one before it."""
_CONTINUES = re.compile(r"(?i)(?:and|or|what about|how about)\b")
_SURE_APART = 0.4
"""A clause that stands for a call of its own must be surer than a whole prompt."""

Wanted = tuple[Tool, dict[str, Any]]


class Plan(Struct, frozen=True):
    calls: tuple[Wanted, ...] = ()
    tool: Tool | None = None
    missing: tuple[Parameter, ...] = ()
    """What to ask the user for, so that `tool` can be called."""
    labels: tuple[str, ...] = ()
    """Or which of these he means."""
    looked_up: frozenset[str] = frozenset()
    """Calls that were made only to learn an id; nobody asked for what they say."""


def plan(known: Catalogue, now: Situation, today: date, *, forced: bool = False) -> Plan:
    if not known.tools or not now.text:
        return Plan()
    meant = _meant(known, now, today, forced=forced)
    if not meant:
        return Plan()
    calls: list[Wanted] = []
    looked_up: set[str] = set()
    for one in meant:
        step = _step(known, one, now, today)
        looked_up |= step.looked_up
        if step.missing or step.labels:
            if len(meant) == 1 and forced and not now.done:
                return Plan(((one.tool, one.filled.arguments),))
            return replace(step, calls=tuple(calls), looked_up=frozenset(looked_up))
        calls.extend(call for call in step.calls if call not in calls)
    return Plan(tuple(call for call in calls if not _made(call, now.done)), looked_up=frozenset(looked_up))


def _made(call: Wanted, done: tuple[Done, ...]) -> bool:
    return any(made.name == call[0].name and made.arguments == call[1] for made, _ in done)


def _meant(known: Catalogue, now: Situation, today: date, *, forced: bool) -> list[Candidate]:
    """The calls that the request asks for, complete or not."""
    prompt = Prompt(now.text)
    if _CONTINUES.match(prompt.text) and (leaning := _leaning(known, now, prompt, today)):
        return leaning
    apart = _apart(known, prompt.text, today)
    if len(apart) > 1:
        return apart
    ranked = candidates(known, prompt, today)
    best = ranked[0] if ranked[0].wanted else _instead(ranked, prompt)
    if best.is_meant:
        return several(best, prompt, today)
    return _leaning(known, now, prompt, today) or (ranked[:1] if forced else [])


def _instead(ranked: list[Candidate], prompt: Prompt) -> Candidate:
    """Where what fits best shall not be done: a tool that only tells something, if the prompt says its verb."""
    named = (one for one in ranked if one.wanted and not acts(one.tool) and verb_of(one.tool) & prompt.concepts)
    return next(named, ranked[0])


def _apart(known: Catalogue, text: str, today: date) -> list[Candidate]:
    """The calls of the clauses, where more than one of them asks for a call by itself."""
    pieces = clauses(text)
    found: list[Candidate] = []
    for piece in pieces if len(pieces) > 1 else []:
        prompt = Prompt(piece)
        best = candidates(known, prompt, today)[0]
        if best.wanted and best.score > SURE + _SURE_APART and not best.filled.missing and not _vague(best):
            found.extend(several(best, prompt, today))
    kinds = {(one.tool.name, repr(one.filled.arguments)): one for one in found}
    return list(kinds.values()) if _are_apart(list(kinds.values())) else []


def _vague(one: Candidate) -> bool:
    """Whether it goes on plain words, which may belong to another clause."""
    return any(source.kind == "phrase" for source in one.filled.used)


def _are_apart(found: list[Candidate]) -> bool:
    """Two calls of one tool are two only if they tell the same of different things; else they are one in parts."""
    shapes: dict[str, set[str]] = {}
    for one in found:
        kinds = {path: [source.kind for source in sources] for path, sources in one.filled.sources.items()}
        shapes.setdefault(one.tool.name, set()).add(repr(sorted(kinds.items())))
    return all(len(shape) == 1 for shape in shapes.values())


def _leaning(known: Catalogue, now: Situation, prompt: Prompt, today: date) -> list[Candidate]:
    """What a short prompt means after what was said before it: an answer to a question, or «and in London?»."""
    if now.answered:
        return _after_question(known, now, today)
    if not now.last_calls or len(prompt.words) > _ELLIPTIC:
        return []
    last = now.last_calls[-1]
    tool = next((one for one in known.tools if one.name == last.name), None)
    if tool is None:
        return []
    one = candidate(tool, prompt, known, today)
    sources = one.filled.used
    says_more = any(not any(source.holds(word.start) for source in sources) for word in prompt.telling)
    if not sources or not one.wanted or (says_more and not _CONTINUES.match(prompt.text)):
        return []
    arguments = {**last.arguments, **one.filled.arguments}
    missing = tuple(missed for missed in one.filled.missing if missed.path[0] not in arguments)
    return several(replace(one, filled=replace(one.filled, arguments=arguments, missing=missing)), prompt, today)


def _after_question(known: Catalogue, now: Situation, today: date) -> list[Candidate]:
    first = candidates(known, Prompt(now.answered[0]), today)[0]
    if not first.is_meant or _TAKEN_BACK.fullmatch(now.text) or not wants(first.tool, Prompt(now.text)):
        return []
    before = fill(first.tool, Prompt("\n".join(now.answered)), today)
    joined = fill(first.tool, Prompt("\n".join([*now.answered, now.text])), today)
    arguments = {**joined.arguments, **before.arguments}
    missing = [one for one in joined.missing if one.path[0] not in arguments]
    takes_words = [one for one in missing[:1] if one.type == "string" and not one.choices and not is_id(one.name)]
    if takes_words and _is_value(now.text):
        arguments[missing.pop(0).name] = now.text.strip(" .!")
    return [replace(first, filled=replace(joined, arguments=arguments, missing=tuple(missing)))]


_TAKEN_BACK = re.compile(r"(?i)\W*(?:never ?mind|forget (?:it|that|about it)|no(?:thing| thanks?)?)\W*")
_ASKS_BACK = re.compile(r"(?i)(?:what|which|who|why|how|where|when|huh|pardon|sorry)\b.{0,40}\?|\W*")


def _is_value(text: str) -> bool:
    """Whether an answer is short enough to be a value as it stands, and does not ask back."""
    plain = [word for word in Prompt(text).words if word.lower not in STOP]
    return bool(plain) and len(text.split()) <= _ELLIPTIC and not _ASKS_BACK.fullmatch(text.strip())


def _step(known: Catalogue, one: Candidate, now: Situation, today: date) -> Plan:
    """The call itself, or what must come before it."""
    arguments, missing = dict(one.filled.arguments), list(one.filled.missing)
    looked_up: set[str] = set()
    for parameter in [unknown for unknown in missing if is_id(unknown.name)]:
        names = {tool.name for tool in readers(known, one.tool, parameter)}
        read = [done for done in (*now.earlier, *now.done) if done[0].name in names]
        if not read:
            fetch = _fetch(known, one, parameter, now, today)
            return Plan((fetch,)) if fetch else Plan(tool=one.tool, missing=tuple(missing))
        looked_up |= {made.id for made, _ in read}
        good = [result for _, result in read if not result.is_error]
        said = [Prompt(text) for text in (*now.answered, now.text)]
        found = matched(good[-1].value, said, one.tool, parameter) if good else None
        if found is None:
            return Plan()
        if found.id is None:
            return Plan(tool=one.tool, missing=(parameter,), labels=found.labels, looked_up=frozenset(looked_up))
        arguments[parameter.name] = found.id
        missing.remove(parameter)
    if missing:
        return Plan(tool=one.tool, missing=tuple(missing), looked_up=frozenset(looked_up))
    return Plan(((one.tool, arguments),), looked_up=frozenset(looked_up))


def _fetch(known: Catalogue, one: Candidate, parameter: Parameter, now: Situation, today: date) -> Wanted | None:
    prompt = Prompt(now.text)
    for tool in readers(known, one.tool, parameter):
        filled = fill(tool, prompt, today, without=one.filled.used)
        if not filled.missing:
            return tool, {name: value for name, value in filled.arguments.items() if _is_needed(tool, name)}
    return None


def _is_needed(tool: Tool, name: str) -> bool:
    """A filter may hide the very thing that is looked for, so only what must be given is given."""
    return any(one.path[0] == name and one.required for one in tool.parameters)
