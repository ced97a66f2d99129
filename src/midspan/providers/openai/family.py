"""OpenAI and the services that are compatible with it as families of models."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from midspan.providers.health import HealthCheck, check_connection
from midspan.providers.openai.profile import PRESETS, Preset
from midspan.providers.registry import ProviderFamily

if TYPE_CHECKING:
    from midspan.providers.openai.client import OpenAI
    from midspan.providers.openai_responses.client import OpenAIResponses


def _make(model: str | None = None, *, preset: str, **options: Any) -> "OpenAI":
    from midspan.providers.openai.client import OpenAI  # the registry imports this module for every name

    return OpenAI(model, preset=preset, **options)


def _make_responses(model: str | None = None, **options: Any) -> "OpenAIResponses":
    from midspan.providers.openai_responses.client import OpenAIResponses  # as above

    return OpenAIResponses(model, **options)


def _family(preset: Preset, make: Callable[..., Any] | None = None) -> ProviderFamily:
    make = make or partial(_make, preset=preset.name)
    variables = preset.key_variables if preset.needs_key else (preset.url_variable or "",)

    async def list_models(**options: Any) -> list[str]:
        async with make("any", **options) as provider:
            names: list[str] = await provider.list_models()
            return names

    async def check() -> Sequence[HealthCheck]:
        is_set = any(os.environ.get(name, "").strip() for name in variables)
        if preset.needs_key and not is_set:
            return [HealthCheck("note", f"{' or '.join(variables)} is not set")]
        result = await check_connection(preset.service, list_models)
        if result.state == "problem" and not is_set:
            result = result._replace(state="note")  # a local server that is not configured may not run
        return [result]

    return ProviderFamily(
        name=preset.name,
        make=make,
        prefixes=preset.prefixes,
        environment=variables,
        needs_credentials=preset.needs_key,
        is_configured=(lambda _environment: False) if preset.is_alternative else None,  # its key is the other one's
        default_model=preset.default_model,
        list_models=list_models,
        check=check,
    )


FAMILIES = {name: _family(preset) for name, preset in PRESETS.items()}
_RESPONSES = replace(PRESETS["openai"], name="openai-responses", prefixes=(), is_alternative=True)
FAMILIES[_RESPONSES.name] = _family(_RESPONSES, _make_responses)
