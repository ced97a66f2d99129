"""Families of models: what a provider registers so that its models can be named, listed, chosen and checked.

The registry, the terminal and the choice of the default model use families and know no provider by name. Other
packages register theirs as entry points in the group `midspan.providers` that load a `ProviderFamily`.
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from msgspec import Struct

from midspan.providers.provider import Provider

_OPENAI = "midspan.providers.openai.family:FAMILIES"
BUILTIN = {
    "gemini": "midspan.providers.gemini.family:FAMILY",
    "anthropic": "midspan.providers.anthropic.family:FAMILY",
    "openai": _OPENAI,
    "openai-responses": _OPENAI,
    "azure": _OPENAI,
    "openrouter": _OPENAI,
    "xai": _OPENAI,
    "groq": _OPENAI,
    "mistral": _OPENAI,
    "deepseek": _OPENAI,
    "together": _OPENAI,
    "google-openai": _OPENAI,
    "ollama": _OPENAI,
    "localai": _OPENAI,
    "vllm": _OPENAI,
    "llamacpp": _OPENAI,
    "offline": "midspan.providers.offline.client:FAMILY",
}
"""The families of this package, in the order in which the default is chosen. Each is imported when it is needed.

An attribute that is a dict has several families by name.
"""
ENTRY_POINTS = "midspan.providers"


class HealthCheck(NamedTuple):
    """One result of `midspan doctor`; only a problem makes it fail."""

    state: Literal["ok", "note", "problem"]
    message: str


class ProviderFamily(Struct, frozen=True, kw_only=True):
    """The models of one provider. Importing the module of a family should be cheap; `make` may import the rest."""

    name: str
    """What stands before the colon in `name:model`."""
    make: Callable[..., Provider]
    """Called with the name of a model, or without arguments if no model is named."""
    prefixes: tuple[str, ...] = ()
    """Model names that start with one of these belong to this family, also without `name:`."""
    environment: tuple[str, ...] = ()
    """Environment variables with the credentials. A family without any needs no configuration and is the fallback."""
    is_configured: Callable[[Mapping[str, str]], bool] | None = None
    """Whether the environment holds credentials. Default: one of the variables is set and not blank."""
    default_model: str | None = None
    """An example for error messages and help."""
    known_models: tuple[str, ...] = ()
    """Models that `midspan models` shows without asking the API."""
    list_models: Callable[[], Coroutine[Any, Any, Sequence[str]]] | None = None
    """Asks the API for its models."""
    check: Callable[[], Coroutine[Any, Any, Sequence[HealthCheck]]] | None = None
    """Checks credentials and connection for `midspan doctor`."""
    summary: str = ""
    """What users must know about a fallback family, as a clause: `it calls tools, but knows nothing`."""

    def has_credentials(self, environment: Mapping[str, str]) -> bool:
        if self.is_configured is not None:
            return self.is_configured(environment)
        return any(environment.get(name, "").strip() for name in self.environment)
