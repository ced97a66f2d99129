"""The registry of model families, which finds the provider for a model name. Providers are imported when needed.

Other packages register their families as entry points in the group `midspan.providers` that load a `ProviderFamily`.
"""

import os
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from midspan._types.exchange import ModelRequest, ModelResponse
from midspan.errors import ConfigError
from midspan.providers.auth import missing_key
from midspan.providers.health import HealthCheck
from midspan.providers.provider import ModelProfile, Provider
from midspan.providers.stream import NonStreamingProvider

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

_OPENAI_NAMES = (
    "openai openai-responses azure openrouter xai groq mistral deepseek together google-openai ollama localai vllm "
    "llamacpp"
)
_BUILTIN = {
    "gemini": "midspan.providers.gemini.family:FAMILY",
    "anthropic": "midspan.providers.anthropic.family:FAMILY",
    **dict.fromkeys(_OPENAI_NAMES.split(), "midspan.providers.openai.family:FAMILIES"),
    "offline": "midspan.providers.offline.client:FAMILY",
}
"""The families of this package, in the order in which the default is chosen. `FAMILIES` is a dict by name."""


class ProviderFamily(Struct, frozen=True, kw_only=True):
    """The models of one provider. Importing the module of a family should be cheap; `make` may import the rest."""

    name: str
    """The part before the colon in `name:model`."""
    make: Callable[..., Provider]
    """Called with the name of a model, or without arguments if no model is named."""
    prefixes: tuple[str, ...] = ()
    """Model names that start with one of these belong to this family, even without `name:`."""
    environment: tuple[str, ...] = ()
    """Environment variables with the credentials. A family without any needs no configuration and is the fallback."""
    needs_credentials: bool = True
    """Whether requests without credentials are refused."""
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
    """What users must know about a family that needs no credentials, as a clause: `it only calls tools`."""

    @property
    def own_variables(self) -> tuple[str, ...]:
        """The environment variables with the credentials, first those with the name of the family."""
        return tuple(sorted(self.environment, key=lambda name: not name.startswith(self.name.upper())))

    def has_credentials(self, environment: Mapping[str, str]) -> bool:
        if self.is_configured is not None:
            return self.is_configured(environment)
        return any(environment.get(name, "").strip() for name in self.environment)


def provider_of(name: str) -> Provider:
    """Return the provider of `"family:model"`. The family can be omitted if the prefix of the model identifies it."""
    family, model = _resolve(name)
    if model:
        return family.make(model)
    try:
        signature(family.make).bind()
    except TypeError as error:
        raise ConfigError(f"{family.name!r} needs a model name after the colon") from error
    return family.make()


def check_credentials(name: str) -> None:
    """Raise CredentialsError if the environment has no credentials for a model. Requests look for them anyway."""
    family, service = _resolve(name)[0], provider_of(name).profile.service
    has_key = family.has_credentials(os.environ) or any(os.environ.get(key, "").strip() for key in family.environment)
    if family.environment and family.needs_credentials and not has_key:
        raise missing_key(service, family.environment, family=family.name)


def family_name(name: str | None) -> str:
    """Return the family of a model's name, or that of the default model."""
    family = default_family() if name is None else _resolve(name)[0]
    return "" if family is None else family.name


def default_provider() -> Provider:
    """Return the provider to use if no model is named; without credentials, one that raises at its first request."""
    family = default_family()
    return MissingModel() if family is None else provider_of(family.name)


def default_family(environment: Mapping[str, str] = os.environ) -> ProviderFamily | None:
    """Return the first family whose credentials the environment has."""
    return next((family for family in families() if family.environment and family.has_credentials(environment)), None)


def offline_family() -> ProviderFamily:
    """Return the family that needs no credentials. The caller must tell the user, who may expect a real model."""
    return next(family for family in families() if not family.environment)


def credential_variables() -> str:
    """Return environment variables that configure a model, one of each family, for messages."""
    names = dict.fromkeys(family.own_variables[0] for family in families() if family.environment)
    return f"{', '.join([*names][:3])} or another provider's key"


def family_variables(variable: str) -> tuple[str, ...]:
    """Return all credential variables of the family that reads this variable."""
    return next((family.environment for family in families() if variable in family.environment), (variable,))


class MissingModel(NonStreamingProvider):
    """Stands in for a model if none is named and no key is set. Its first request raises ConfigError."""

    model = "missing"
    profile = ModelProfile()

    async def generate(self, request: ModelRequest) -> ModelResponse:  # noqa: ARG002 - of the protocol
        """Raise ConfigError with the ways to configure a model."""
        raise ConfigError(
            f"no model is configured: set {credential_variables()}, name a model, for example "
            f"Agent({_example_model()!r}), or use Agent({offline_family().name!r}), which only calls tools"
        )


def _example_model() -> str:
    return next(f"{family.name}:{family.default_model}" for family in families() if family.default_model)


def families() -> Iterator[ProviderFamily]:
    """Yield all families: those of this package first, then those of others by name."""
    yield from map(_family, _BUILTIN)
    yield from map(_family, sorted(_entry_points().names - _BUILTIN.keys()))


def family_names() -> list[str]:
    """Return the names of all families, without importing a provider."""
    return sorted(_BUILTIN.keys() | _entry_points().names)


def _resolve(name: str) -> tuple[ProviderFamily, str]:
    """Split a name into its family and the name of the model, which may be empty."""
    prefix, colon, model = name.partition(":")
    if colon or prefix in _BUILTIN:
        return _family(prefix), model
    for family in families():
        if name == family.name:
            return family, ""
        if name.startswith(family.prefixes):
            return family, name
    example, names = _example_model(), ", ".join(family_names())
    raise ConfigError(f"unknown model {name!r}; use 'provider:model', for example {example!r}; providers: {names}")


def _entry_points() -> "EntryPoints":
    from importlib.metadata import entry_points  # slow to import, and most names are built in

    return entry_points(group="midspan.providers")


def _family(name: str) -> ProviderFamily:
    """Return a family of this package, or the one that another package registers under this name."""
    if name in _BUILTIN:
        module, _, attribute = _BUILTIN[name].partition(":")
        value: Any = getattr(import_module(module), attribute)
        return value[name] if isinstance(value, dict) else value  # type: ignore[no-any-return]  # of any module
    point = next(iter(_entry_points().select(name=name)), None)
    if point is None:
        raise ConfigError(f"unknown provider {name!r}; known providers: {', '.join(family_names())}")
    try:
        family = point.load()
    except Exception as error:
        raise ConfigError(f"the provider {name!r} cannot be loaded from {point.value}: {error}") from error
    if not isinstance(family, ProviderFamily):
        raise ConfigError(f"the entry point {name!r} must load a ProviderFamily, got {family!r:.80}")
    return family
