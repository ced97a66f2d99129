"""The arguments of a call: each parameter gets what suits it best, and nothing is used twice."""

from collections.abc import Iterable, Iterator
from datetime import date
from typing import Any

from msgspec import Struct

from midspan.providers.offline.declared.catalogue import Tool
from midspan.providers.offline.declared.parameters import Parameter
from midspan.providers.offline.filling.suited import suited
from midspan.providers.offline.reading.mention import Mention
from midspan.providers.offline.reading.prompt import Prompt

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

    @property
    def used(self) -> list[Mention]:
        return [source for sources in self.sources.values() for source in sources]


class _Offer(Struct, frozen=True, gc=False):
    score: float
    order: float
    parameter: Parameter
    value: Any
    sources: tuple[Mention, ...]


def fill(tool: Tool, prompt: Prompt, today: date, *, without: Iterable[Mention] = ()) -> Filled:
    """What the prompt gives for the parameters of a tool; what stands in `without` is spoken for."""
    offers = sorted(_offers(tool, prompt, today), key=lambda one: (-one.score, one.order))
    arguments: dict[str, Any] = {}
    sources: dict[tuple[str, ...], tuple[Mention, ...]] = {}
    taken = list(without)
    evidence = 0.0
    for one in offers:
        own = () if _shared(one) else one.sources
        if one.parameter.path in sources or any(source.overlaps(other) for source in own for other in taken):
            continue
        sources[one.parameter.path] = one.sources
        taken.extend(own)
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


def _shared(offer: _Offer) -> bool:
    """A day has a year and a month, which may go to two parameters; and $20 is an amount and a currency."""
    kind = offer.sources[0].kind if offer.sources else ""
    if kind == "name" and offer.value != offer.sources[0].value and ", " in offer.sources[0].value:
        return True
    if kind == "number":
        return "currency" in offer.parameter.roles
    return kind in ("date", "time") and isinstance(offer.value, int)


def _put(arguments: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for step in path[:-1]:
        arguments = arguments.setdefault(step, {})
    arguments[path[-1]] = value


def _offers(tool: Tool, prompt: Prompt, today: date) -> Iterator[_Offer]:
    for at, parameter in enumerate(tool.parameters):
        bonus, least = (0.6, _ENOUGH) if parameter.required else (0.0, _ENOUGH_FOR_OPTIONAL)
        for suiting, value, sources in suited(tool, parameter, prompt, today):
            place = sources[0].start / (len(prompt.text) + 1) if sources else 0.0
            if (score := suiting + bonus - 0.02 * at) >= least:
                yield _Offer(score, abs(at / 10 - place), parameter, value, sources)
