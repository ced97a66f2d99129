"""Yes or no: whether a prompt asks for what a flag switches on."""

import re

from midspan.providers.offline.declared.parameters import Parameter
from midspan.providers.offline.reading.prompt import Prompt
from midspan.providers.offline.reading.words import STOP, Word, name_words, word_set

_NEGATIONS = word_set("no not without don't doesn't isn't never non dont disable disabled except exclude excluding off")
_INDIFFERENT = word_set("care concerned mind matter matters picky worry worried fussy particular")
_ABOUT_FLAGS = word_set(
    "is has have should include includ including enabl allow need want show use with only flag return whether "
    "accept add valu option request requir support can enable enabled disable get"
)


def truth(parameter: Parameter, prompt: Prompt, shared: frozenset[str] = frozenset()) -> tuple[float, bool]:
    """Whether the prompt asks for a flag, or asks that it be off; a score of 0 says that it does neither.

    Words that are `shared` with other flags, or with the name of the tool, tell nothing.
    """
    literal = re.search(rf"(?i){re.escape(parameter.name)}\W+(?:is|to|=|as|set to)?\W*(true|false)\b", prompt.text)
    if literal:
        return 3.5, literal[1].lower() == "true"
    if (particle := _particle(parameter, prompt)) is not None:
        return 3.0, particle
    wanted = _telling(parameter)
    wanted = [word for word in wanted if word.concepts[0] not in shared] or wanted
    places = [place for place in (_place(word, prompt, alone=len(wanted) == 1) for word in wanted) if place >= 0]
    if not places or 2 * len(places) < len(wanted):
        return 0.0, False
    return _asked(prompt, min(places), max(places))


_SWITCHES = word_set("on off enabled active power powered state status")
_SWITCHING = word_set("turn turned turning switch switched switching put leave keep")


def _particle(parameter: Parameter, prompt: Prompt) -> bool | None:
    """What «turn it on» and «switch off the light» say for the parameter that is a switch."""
    named = {word.lower for word in name_words(parameter.name)}
    if not named & _SWITCHES or named - _SWITCHES - STOP - {"turned"}:
        return None
    spoken = [word.lower for word in prompt.words]
    for at, word in enumerate(spoken):
        if word in ("on", "off") and not _SWITCHING.isdisjoint(spoken[max(0, at - 6) : at]):
            return (word == "on") != ("off" in named)
    return None


def _telling(parameter: Parameter) -> list[Word]:
    spoken = [word for word in name_words(parameter.name) if word.lower not in STOP]
    return [word for word in spoken if word.lower not in _ABOUT_FLAGS and word.concepts[0] not in _ABOUT_FLAGS]


def _place(wanted: Word, prompt: Prompt, *, alone: bool) -> int:
    """Where the prompt says the word, or one of the same meaning if it is the only one that tells; -1 if nowhere."""
    near = set(wanted.concepts if alone else wanted.concepts[:1])
    exact = (at for at, word in enumerate(prompt.words) if word.concepts[0] == wanted.concepts[0])
    return next(exact, next((at for at, word in enumerate(prompt.words) if near & set(word.concepts)), -1))


def _asked(prompt: Prompt, first: int, last: int) -> tuple[float, bool]:
    before = [word.lower for word in prompt.words[max(0, first - 8) : first]]
    after = [word.lower for word in prompt.words[last + 1 : last + 4]]
    if _INDIFFERENT & set(before) and _NEGATIONS & set(before):
        return 0.0, False
    return 3.0, _NEGATIONS.isdisjoint(before[-4:]) and _OFF.isdisjoint(after)


_OFF = word_set("false off disabled")
