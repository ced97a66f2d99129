"""Numbers for parameters that want numbers."""

import re
from typing import Any

from midspan.providers.offline.declared.parameters import Parameter
from midspan.providers.offline.reading.dates import Day, Time
from midspan.providers.offline.reading.meanings import concepts
from midspan.providers.offline.reading.mention import Mention
from midspan.providers.offline.reading.units import measured, unit_word
from midspan.providers.offline.reading.words import GENERIC, word_set

Fit = tuple[float, Any]
"""How well a thing suits a parameter, and the value that it would have there; a score below zero is no fit."""
NONE: Fit = (-1.0, None)

_RATES = word_set("percent rate ≈pric ≈probabil probabil interest percentag")
_SUMS = word_set("amount ≈pric pric cost budget invest salar ≈mone princip valu dollar")


def number_fit(parameter: Parameter, mention: Mention) -> Fit:
    """How well a thing suits a parameter that wants a number."""
    match mention.kind:
        case "number":
            if mention.vague and concepts(mention.unit)[0] in GENERIC:
                return NONE  # «two numbers»
            vague = 0.5 if mention.vague else 0.0
            return 1.0 - vague + measure(parameter, mention), _value(parameter, mention)
        case "quoted" if re.fullmatch(r"-?\d{1,15}(\.\d{1,15})?", mention.value):
            return 1.0, float(mention.value) if "." in mention.value else int(mention.value)
        case "date":
            return _component(parameter, mention.value, ("year", "month", "day"))
        case "time":
            return _component(parameter, mention.value, ("hour", "minute", "second"))
    return NONE


def _value(parameter: Parameter, mention: Mention) -> int | float:
    value: int | float = mention.value
    if mention.percent and parameter.type == "number" and not _in_percent(parameter):
        return round(value / 100, 10)
    if parameter.type == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _in_percent(parameter: Parameter) -> bool:
    """Whether 30 % is 30 here, or 0.3."""
    said = parameter.description.lower()
    if "decimal" in said or "between 0 and 1" in said or "0 to 1" in said:
        return False
    return "percent" in said or "%" in said or "percent" in parameter.name.lower() or (parameter.maximum or 0) > 1


def measure(parameter: Parameter, mention: Mention) -> float:
    """What its unit says for it."""
    known = parameter.name_concepts | parameter.concepts
    if mention.percent:
        return 2.5 if known & _RATES else 0.0
    if mention.currency:
        return 2.0 if known & _SUMS else 0.0
    if "year" in parameter.name_concepts and not mention.unit and isinstance(mention.value, int):
        return 2.0 if 1000 <= mention.value <= 2100 else 0.0
    counted = concepts(mention.unit) if mention.unit else ()
    if not parameter.name_concepts.isdisjoint(counted):
        return 2.5
    unit = unit_word(mention.unit)
    if not unit:
        return 1.6 if counted and counted[0] in parameter.concepts and counted[0] not in GENERIC else 0.0
    if unit in parameter.units:
        return 2.0
    if measured(mention.unit) & parameter.name_concepts:
        return 1.6
    return 0.8 if measured(mention.unit) & parameter.concepts else -0.4


def _component(parameter: Parameter, value: Day | Time, names: tuple[str, ...]) -> Fit:
    for name in names:
        if name in parameter.name_concepts or name in parameter.name.lower():
            found = getattr(value, name)
            return (2.5, found) if found or isinstance(value, Time) else NONE
    return NONE
