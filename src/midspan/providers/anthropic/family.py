"""Claude as a family of models: how they are named, chosen, listed and checked."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from midspan.errors import AuthenticationError, MidspanError
from midspan.providers.anthropic.profile import DEFAULT_MODEL, KEY_VARIABLES, KNOWN_MODELS
from midspan.providers.family import HealthCheck, ProviderFamily

if TYPE_CHECKING:
    from midspan.providers.anthropic.client import Anthropic


def _make(model: str = DEFAULT_MODEL) -> "Anthropic":
    from midspan.providers.anthropic.client import Anthropic  # the registry imports this module for every name

    return Anthropic(model)


async def _list_models() -> list[str]:
    provider = _make()
    try:
        return await provider.list_models()
    finally:
        await provider.aclose()


async def _check() -> Sequence[HealthCheck]:
    names = [name for name in KEY_VARIABLES if os.environ.get(name, "").strip()]
    if not names:
        return [HealthCheck("note", f"neither {' nor '.join(KEY_VARIABLES)} is set")]
    try:
        count = len(await _list_models())
    except AuthenticationError:
        return [HealthCheck("problem", f"Anthropic does not accept the key in {names[0]}; is it complete?")]
    except MidspanError as error:
        return [HealthCheck("problem", f"the request to Anthropic failed: {error}")]
    return [HealthCheck("ok", f"Anthropic accepts the key in {names[0]} and has {count} models")]


FAMILY = ProviderFamily(
    name="anthropic",
    make=_make,
    prefixes=("claude-",),
    environment=KEY_VARIABLES,
    default_model=DEFAULT_MODEL,
    known_models=KNOWN_MODELS,
    list_models=_list_models,
    check=_check,
)
