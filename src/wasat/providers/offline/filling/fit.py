"""How well something that a prompt names suits a parameter."""

from datetime import date

from wasat.providers.offline.declared.parameters import Parameter
from wasat.providers.offline.filling.amounts import number_fit
from wasat.providers.offline.filling.cues import cue, direction
from wasat.providers.offline.filling.fits import NONE, Fit
from wasat.providers.offline.filling.texts import text_fit
from wasat.providers.offline.reading.mention import Mention


def fit(parameter: Parameter, mention: Mention, today: date) -> Fit:
    """The score and the value, by the kinds of both and by the words around."""
    score, value = _typed(parameter, mention, today)
    if score < 0:
        return NONE
    return score + cue(parameter, mention) + direction(parameter, mention), value


def _typed(parameter: Parameter, mention: Mention, today: date) -> Fit:
    match parameter.type:
        case "integer" | "number":
            return number_fit(parameter, mention)
        case "string":
            return text_fit(parameter, mention, today)
        case "any":
            return (1.0, mention.value) if mention.kind == "number" else text_fit(parameter, mention, today)
        case "array" if mention.kind == "list":
            return 2.0, mention.value
        case "object" if mention.kind == "object":
            return 2.0, mention.value
    return NONE
