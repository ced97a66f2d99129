"""The arguments of a call: each parameter gets what suits it best, and nothing is used twice."""

from collections.abc import Iterable, Iterator
from datetime import date
from typing import Any

from msgspec import Struct

from wasat.providers.offline.declared.catalogue import Tool
from wasat.providers.offline.declared.parameters import Parameter
from wasat.providers.offline.filling.suited import suited
from wasat.providers.offline.reading.mention import Mention
from wasat.providers.offline.reading.prompt import Prompt

_ENOUGH = 0.5
_ENOUGH_FOR_OPTIONAL = 2.3


class Filled(Struct, frozen=True):
    """The arguments that were found, and what else the call needs."""

    arguments: dict[str, Any]
    missing: tuple[Parameter, ...] = ()
    sources: dict[tuple[str, ...], tuple[Mention, ...]] = {}
    """For each parameter that was filled from something named, what that was."""
    evidence: float = 0.0
    """How well it all fits."""


class _Offer(Struct, frozen=True, gc=False):
    score: float
    order: float
    parameter: Parameter
    value: Any
    sources: tuple[Mention, ...]


def fill(tool: Tool, prompt: Prompt, today: date, *, without: Iterable[Mention] = ()) -> Filled:
    """What the prompt gives for the parameters of a tool; what stands in `without` is spoken for."""
    offers = [one for one in _offers(tool, prompt, today) if one.score >= _least(one.parameter)]
    offers.sort(key=lambda one: (-one.score, one.order))
    arguments: dict[str, Any] = {}
    sources: dict[tuple[str, ...], tuple[Mention, ...]] = {}
    taken = [(source.start, source.end) for source in without]
    evidence = 0.0
    for one in offers:
        spoken_for = not _shared(one) and any(_overlaps(source, taken) for source in one.sources)
        if one.parameter.path in sources or spoken_for:
            continue
        sources[one.parameter.path] = one.sources
        if not _shared(one):
            taken.extend((source.start, source.end) for source in one.sources)
        _put(arguments, one.parameter.path, one.value)
        evidence += min(one.score, 4.0)
    for parameter in tool.parameters:
        if parameter.required and parameter.path not in sources and parameter.default is not None:
            sources[parameter.path] = ()  # required, yet its description says what holds when nobody says anything
            _put(arguments, parameter.path, parameter.default)
    missing = tuple(one for one in tool.parameters if one.required and one.path not in sources)
    order = list(dict.fromkeys(one.path[0] for one in tool.parameters))
    arguments = {name: arguments[name] for name in order if name in arguments}
    return Filled(arguments, missing, sources, evidence)


def _least(parameter: Parameter) -> float:
    return _ENOUGH if parameter.required else _ENOUGH_FOR_OPTIONAL


def _overlaps(mention: Mention, taken: list[tuple[int, int]]) -> bool:
    return any(mention.start < end and start < mention.end for start, end in taken)


def _shared(offer: _Offer) -> bool:
    """A day has a year and a month, which may go to two parameters; and $20 is an amount and a currency."""
    kind = offer.sources[0].kind if offer.sources else ""
    if kind == "name" and offer.value != offer.sources[0].value and ", " in offer.sources[0].value:
        return True
    return (kind in ("date", "time") and isinstance(offer.value, int)) or (
        kind == "number" and "currency" in offer.parameter.roles
    )


def _put(arguments: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for step in path[:-1]:
        arguments = arguments.setdefault(step, {})
    arguments[path[-1]] = value


def _offers(tool: Tool, prompt: Prompt, today: date) -> Iterator[_Offer]:
    for at, parameter in enumerate(tool.parameters):
        for score, value, sources in suited(tool, parameter, prompt, today):
            place = sources[0].start / (len(prompt.text) + 1) if sources else 0.0
            bonus = 0.6 if parameter.required else 0.0
            yield _Offer(score + bonus - 0.02 * at, abs(at / 10 - place), parameter, value, sources)
