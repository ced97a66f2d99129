"""From the name of a model to its provider. Providers are imported when they are needed."""

import os
from collections.abc import Iterator, Mapping
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING

from midspan._types.exchange import ModelRequest, ModelResponse
from midspan.errors import ConfigError
from midspan.providers.auth import missing_key
from midspan.providers.family import BUILTIN, ENTRY_POINTS, ProviderFamily
from midspan.providers.provider import ModelProfile, Provider
from midspan.providers.stream import NonStreamingProvider

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints


def provider_of(name: str) -> Provider:
    """Return the provider of `"family:model"`. The family can be omitted if the prefix of the model identifies it."""
    family, model = _resolve(name)
    return family.make(model) if model else _make_default(family)


def _make_default(family: ProviderFamily) -> Provider:
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
    return MissingModel() if family is None else _make_default(family)


def default_family(environment: Mapping[str, str] = os.environ) -> ProviderFamily | None:
    """Return the first family whose credentials the environment has."""
    return next((family for family in families() if family.environment and family.has_credentials(environment)), None)


def fallback_family() -> ProviderFamily:
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
            f"Agent({_example_model()!r}), or use Agent({fallback_family().name!r}), which only calls tools"
        )


def _example_model() -> str:
    return next(f"{family.name}:{family.default_model}" for family in families() if family.default_model)


def families() -> Iterator[ProviderFamily]:
    """Yield all families: those of this package first, then those of others by name."""
    yield from map(_family, BUILTIN)
    yield from map(_family, sorted(_entry_points().names - BUILTIN.keys()))


def family_names() -> list[str]:
    """Return what can stand before the colon, without importing a provider."""
    return sorted(BUILTIN.keys() | _entry_points().names)


def _resolve(name: str) -> tuple[ProviderFamily, str]:
    """Split a name into its family and the name of the model, which may be empty."""
    prefix, colon, model = name.partition(":")
    if colon or prefix in BUILTIN:
        return _family(prefix), model
    for family in families():
        if name == family.name:
            return family, ""
        if name.startswith(family.prefixes):
            return family, name
    example, names = _example_model(), ", ".join(family_names())
    raise ConfigError(f"unknown model {name!r}; use 'provider:model', for example {example!r}; providers: {names}")


def _family(name: str) -> ProviderFamily:
    if name not in BUILTIN:
        return _load(name)
    module, _, attribute = BUILTIN[name].partition(":")
    value = getattr(import_module(module), attribute)
    family: ProviderFamily = value[name] if isinstance(value, dict) else value
    return family


def _entry_points() -> "EntryPoints":
    from importlib.metadata import entry_points  # slow to import, and most names are built in

    return entry_points(group=ENTRY_POINTS)


def _load(name: str) -> ProviderFamily:
    """Return the family that another package registers under this name."""
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
