"""Claude as a family of models: how they are named, chosen, listed and checked."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from midspan.providers.anthropic.profile import DEFAULT_MODEL, KEY_VARIABLES, KNOWN_MODELS
from midspan.providers.health import HealthCheck, check_connection
from midspan.providers.registry import ProviderFamily

if TYPE_CHECKING:
    from midspan.providers.anthropic.client import Anthropic


def _make(model: str = DEFAULT_MODEL, **options: Any) -> "Anthropic":
    from midspan.providers.anthropic.client import Anthropic  # the registry imports this module for every name

    return Anthropic(model, **options)


async def _list_models(**options: Any) -> list[str]:
    async with _make(**options) as provider:
        return await provider.list_models()


async def _check() -> Sequence[HealthCheck]:
    if not FAMILY.has_credentials(os.environ):
        return [HealthCheck("note", f"neither {' nor '.join(KEY_VARIABLES)} is set")]
    return [await check_connection("Anthropic", _list_models)]


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
