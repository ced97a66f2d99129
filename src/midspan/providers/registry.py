"""From the name of a model to its provider. Nothing is imported before somebody asks for it."""

from collections.abc import AsyncIterator
from importlib import import_module
from inspect import signature
from os import environ
from typing import Any

from midspan.errors import ConfigError
from midspan.providers.provider import Provider
from midspan.types.exchange import FinishReason, ModelRequest, ModelResponse
from midspan.types.messages import Message
from midspan.types.parts import Part

PROVIDERS = {
    "gemini": "midspan.providers.gemini.client:Gemini",
    "offline": "midspan.providers.offline.client:Offline",
}
GROUP = "midspan.providers"
"""The entry points under which other packages offer theirs."""
_BARE = {"gemini-": "gemini", "gemma-": "gemini", "models/": "gemini"}


def provider_of(name: str) -> Provider:
    """The provider of `"gemini:gemini-3.8-flash"`; the family may be left out where the model's own name tells it."""
    family, colon, model = name.partition(":")
    if not colon:
        family, model = _family(name)
    make = _maker(family)
    if make is None:
        raise ConfigError(f"unknown provider {family!r} in {name!r}; known: {', '.join(known_families())}")
    given = (model,) if model else ()
    if not _takes(make, *given):
        hint = f"{family!r} takes no name of a model; write {family!r} alone" if model else "name one after the colon"
        raise ConfigError(f"the model {name!r} cannot be had: {hint}")
    provider: Provider = make(*given)
    return provider


def default_provider() -> Provider:
    """The provider to use if no model is named: Gemini if a key is set, else one that raises at its first request."""
    return provider_of("gemini") if has_default_model() else MissingModel()


def has_default_model() -> bool:
    """Whether a key is set for the model that is used if none is named."""
    return any(environ.get(name) for name in _KEYS)


class MissingModel:
    """Stands in for a model where none is named and no key is set. Its first request raises ConfigError."""

    model = "missing"

    def __repr__(self) -> str:
        return "MissingModel()"

    async def stream(self, request: ModelRequest, *, whole: bool = False) -> AsyncIterator[Part | ModelResponse]:
        """Raise ConfigError with the ways to configure a model."""
        del request, whole
        raise ConfigError(
            "no model is configured: set GEMINI_API_KEY (or GOOGLE_API_KEY), name a model, for example "
            "Agent('gemini:gemini-3.8-flash'), or use Agent('offline'), which only calls tools"
        )
        yield ModelResponse(Message("model", ()), FinishReason.OTHER)  # makes this an async generator

    async def close(self) -> None:
        """Do nothing: there is no connection."""


_KEYS = ("GOOGLE_API_KEY", "GEMINI_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI")


def known_families() -> list[str]:
    """What can stand before the colon."""
    from importlib.metadata import entry_points  # slow to load, and most names are our own

    return sorted({*PROVIDERS, *(point.name for point in entry_points(group=GROUP))})


def _family(name: str) -> tuple[str, str]:
    if name in PROVIDERS:
        return name, ""
    for prefix, family in _BARE.items():
        if name.startswith(prefix):
            return family, name
    full = f"gemini:{name or 'gemini-3.8-flash'}"
    raise ConfigError(f"whose model {name!r} is cannot be told; write it as {full!r}")


def _takes(make: Any, *given: str) -> bool:
    try:
        signature(make).bind(*given)
    except TypeError:
        return False
    except ValueError:
        return True  # one that does not tell what it takes
    return True


def _maker(family: str) -> Any:
    home = PROVIDERS.get(family)
    if home is not None:
        module, _, attribute = home.partition(":")
        return getattr(import_module(module), attribute)
    from importlib.metadata import entry_points  # as above

    point = next(iter(entry_points(group=GROUP, name=family)), None)
    return None if point is None else point.load()
