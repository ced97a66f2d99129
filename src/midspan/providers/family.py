"""Families of models: what a provider registers so that its models can be named, listed, chosen and checked.

The registry, the terminal and the choice of the default model use families and know no provider by name. Other
packages register theirs as entry points in the group `midspan.providers` that load a `ProviderFamily`.
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from msgspec import Struct

from midspan.errors import AuthenticationError, CredentialsError, MidspanError
from midspan.providers.provider import Provider

_OPENAI_NAMES = (
    "openai openai-responses azure openrouter xai groq mistral deepseek together google-openai ollama localai vllm "
    "llamacpp"
)
BUILTIN = {
    "gemini": "midspan.providers.gemini.family:FAMILY",
    "anthropic": "midspan.providers.anthropic.family:FAMILY",
    **dict.fromkeys(_OPENAI_NAMES.split(), "midspan.providers.openai.family:FAMILIES"),
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


_CHECK_SECONDS = 5.0


async def check_connection(server: str, list_models: Callable[[], Coroutine[Any, Any, Sequence[Any]]]) -> HealthCheck:
    """Ask a service for its models, to see whether it can be reached and accepts the key."""
    import asyncio  # registering a family costs nothing

    try:
        async with asyncio.timeout(_CHECK_SECONDS):
            count = len(await list_models())
    except (AuthenticationError, CredentialsError):
        return HealthCheck("problem", f"{server} does not accept the key; is it complete?")
    except TimeoutError:
        return HealthCheck("problem", f"{server} did not respond within {_CHECK_SECONDS:g} seconds")
    except MidspanError as error:
        return HealthCheck("problem", f"the request to {server} failed: {error}")
    return HealthCheck("ok", f"{server} accepts the key and has {count} models")


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
    """What users must know about a fallback family, as a clause: `it only calls tools`."""

    @property
    def own_variables(self) -> tuple[str, ...]:
        """The environment variables with the credentials, first those with the name of the family."""
        return tuple(sorted(self.environment, key=lambda name: not name.startswith(self.name.upper())))

    def has_credentials(self, environment: Mapping[str, str]) -> bool:
        if self.is_configured is not None:
            return self.is_configured(environment)
        return any(environment.get(name, "").strip() for name in self.environment)
