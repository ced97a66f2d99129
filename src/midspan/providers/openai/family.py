"""OpenAI and the services that are compatible with it as families of models."""

import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from midspan.providers.openai.profile import PRESETS, Preset
from midspan.providers.provider import Provider
from midspan.providers.registry import HealthCheck, ProviderFamily, check_connection

if TYPE_CHECKING:
    from midspan.providers.openai.client import OpenAI
    from midspan.providers.openai_responses.client import OpenAIResponses


def _make(model: str | None = None, *, preset: str) -> "OpenAI":
    from midspan.providers.openai.client import OpenAI  # the registry imports this module for every name

    return OpenAI(model, preset=preset)


def _make_responses(model: str | None = None) -> "OpenAIResponses":
    from midspan.providers.openai_responses.client import OpenAIResponses  # as above

    return OpenAIResponses(model)


def _is_configured(environment: Mapping[str, str], preset: Preset) -> bool:
    if preset.is_alternative:
        return False  # the key configures the other provider
    names = preset.key_variables if preset.needs_key else (preset.url_variable or "",)
    return any(environment.get(name, "").strip() for name in names)


async def _list_models(make: Callable[..., Any]) -> list[str]:
    provider = make("any")
    try:
        names: list[str] = await provider.list_models()
        return names
    finally:
        await provider.aclose()


async def _check(make: Callable[..., Any], preset: Preset) -> Sequence[HealthCheck]:
    if preset.needs_key and not any(os.environ.get(name, "").strip() for name in preset.key_variables):
        return [HealthCheck("note", f"{' or '.join(preset.key_variables)} is not set")]
    check = await check_connection(preset.service, partial(_list_models, make))
    if check.state == "problem" and not _is_configured(os.environ, preset):
        check = check._replace(state="note")  # a local server that nobody has configured may not run
    return [check]


def _family(preset: Preset, make: Callable[..., Provider] | None = None) -> ProviderFamily:
    make = make or partial(_make, preset=preset.name)
    list_models: Callable[[], Coroutine[Any, Any, Sequence[str]]] = partial(_list_models, make)
    return ProviderFamily(
        name=preset.name,
        make=make,
        prefixes=preset.prefixes,
        environment=preset.key_variables if preset.needs_key else (preset.url_variable or "",),
        needs_credentials=preset.needs_key,
        is_configured=partial(_is_configured, preset=preset),
        default_model=preset.default_model,
        list_models=list_models,
        check=partial(_check, make, preset),
    )


FAMILIES = {name: _family(preset) for name, preset in PRESETS.items()}
_RESPONSES = replace(PRESETS["openai"], name="openai-responses", prefixes=(), is_alternative=True)
FAMILIES[_RESPONSES.name] = _family(_RESPONSES, _make_responses)
