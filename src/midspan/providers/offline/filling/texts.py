"""Texts for parameters that want texts."""

import re
from datetime import date

from midspan.providers.offline.declared.parameters import Parameter, is_id
from midspan.providers.offline.declared.roles import EXCLUSIVE
from midspan.providers.offline.filling.amounts import NONE, Fit, measure
from midspan.providers.offline.filling.cues import cue
from midspan.providers.offline.filling.days import day_text, time_text
from midspan.providers.offline.reading.meanings import concepts
from midspan.providers.offline.reading.mention import Mention
from midspan.providers.offline.reading.places import in_state_code
from midspan.providers.offline.reading.units import unit_word
from midspan.providers.offline.reading.words import concepts_of, word_set, words

_SHORT = word_set("ID API URL URI IP")
"""Written like names, and none."""
_INTO = word_set("in to into as from")
_PLACED = word_set("in at for near around from to of within across towards")


def text_fit(parameter: Parameter, mention: Mention, today: date) -> Fit:
    """How well a thing suits a parameter that wants a text."""
    roles = parameter.roles
    match mention.kind:
        case "date":
            score = 2.5 if mention.value.relative else 3.0
            return (score, day_text(parameter, mention.value, today)) if "date" in roles else NONE
        case "time":
            return (2.5, time_text(parameter, mention.value)) if "time" in roles else NONE
        case "currency" | "unit" | "email" | "url" | "path" | "expression" | "language":
            return _special(parameter, mention)
        case "number":
            return _numeric_text(parameter, mention)
        case "code" | "address" | "phone":
            unfit = roles & (EXCLUSIVE - {"expression", "path"})
            return NONE if unfit else (2.0 if "id" in roles else 0.9, mention.value)
        case "quoted":
            return _quoted(parameter, mention)
        case "name":
            return _named(parameter, mention)
    return NONE


def _special(parameter: Parameter, mention: Mention) -> Fit:
    if mention.kind in parameter.roles:
        asked = parameter.required or mention.kind != "unit" or {*mention.before[:1]} & _INTO
        return 3.0 if asked else 1.0, mention.value
    if mention.kind == "currency" and "unit" in parameter.roles and unit_word(mention.unit):
        return 2.5, mention.unit  # a pound of both kinds
    if mention.kind in ("currency", "unit") or parameter.roles & EXCLUSIVE:
        return NONE
    return {"email": 1.2, "language": 0.6}.get(mention.kind, 0.4), mention.value


def _numeric_text(parameter: Parameter, mention: Mention) -> Fit:
    if mention.currency and "currency" in parameter.roles:
        return 2.5 - 2.0 * ("to" in parameter.roles), mention.currency
    sure = cue(parameter, mention) >= 1.5
    value = str(mention.value)
    if "year" in parameter.name_concepts:
        return (1.0 + measure(parameter, mention), value) if 1000 <= mention.value <= 2100 else NONE
    if "id" in parameter.roles and sure:
        return 1.2, value
    return (0.2, value) if sure and not parameter.roles & (EXCLUSIVE | {"place", "person", "text"}) else NONE


def _quoted(parameter: Parameter, mention: Mention) -> Fit:
    if "email" in parameter.roles:
        return (3.0, mention.value) if "@" in mention.value else NONE
    if parameter.roles & {"currency", "language", "unit"}:
        return 1.2, mention.value
    return 1.6 + 1.2 * bool(parameter.roles & {"text", "name", "expression"}), mention.value


def _named(parameter: Parameter, mention: Mention) -> Fit:
    roles = parameter.roles
    if roles & {"date", "time"} - ({"time"} if "place" in roles else set()) or (
        roles & EXCLUSIVE and "place" not in roles
    ):
        return NONE  # a time zone is a place, a departure date is none
    score, value = 1.0, mention.value
    if all(not parameter.name_concepts.isdisjoint(concepts(word.lower)) for word in words(value)):
        return NONE
    if value in _SHORT:
        return NONE
    nearest = mention.before[0] if mention.before else ""
    if "place" in roles:
        score += 1.5 if nearest in _PLACED else 0.4
        value = in_state_code(value) if _STATE_CODE.search(parameter.description) else value
    elif roles & {"person", "name"}:
        score += 1.5 if _introduced(parameter, nearest) else 0.7
        score -= 1.0 * (nearest in ("in", "at", "near"))
    elif not roles and not parameter.required:
        score -= 0.4
    elif "text" in roles:
        score += 0.8 if nearest in ("about", "on", "for", "of") else 0.2
    if is_id(parameter.name) and value.isalpha():
        return NONE
    if "id" in roles and not roles & {"place", "person"}:
        score -= 0.6 if value.isupper() else 1.4
    return score, value


_MAKERS = concepts_of("author director artist writer composer singer painter creator")
_PLAYERS = concepts_of("actor cast starring actress player performer")
_FEATURING = concepts_of("featuring starring acted")


def _introduced(parameter: Parameter, nearest: str) -> bool:
    """Whether the word before a name is one that brings this kind of name."""
    if nearest == "by":
        return not parameter.name_concepts.isdisjoint(_MAKERS)
    if nearest == "with" or concepts(nearest)[0] in _FEATURING:
        return not parameter.name_concepts.isdisjoint(_PLAYERS)
    return nearest in ("named", "called", "of", "for")


_STATE_CODE = re.compile(r",\s?[A-Z]{2}\b|\bState\b|abbrev")
