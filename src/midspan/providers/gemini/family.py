"""Gemini as a family of models: how they are named, chosen, listed and checked."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from midspan.errors import AuthenticationError, ConfigError, MidspanError
from midspan.providers.family import HealthCheck, ProviderFamily

if TYPE_CHECKING:
    from midspan.providers.gemini import responses
    from midspan.providers.gemini.client import Gemini
    from midspan.providers.gemini.connection import GeminiApi

_KEYS = ("GOOGLE_API_KEY", "GEMINI_API_KEY")
_GENERATE = "generateContent"
_SECONDS = 5.0
_KNOWN = (
    "gemini-3.8-flash",
    "gemini-3.7-flash",
    "gemini-3.6-flash",
    "gemini-3.5-flash",
    "gemini-3.5-flash-lite",
    "gemini-3.1-flash-lite",
    "gemini-3.1-pro-preview",
    "gemini-4-argon",
    "gemini-4-carbon",
    "gemini-2.5-pro",
    "gemini-2.5-flash",
    "gemini-2.5-flash-lite",
)
"""Models that call functions, when this version was made."""


def _make(model: str = _KNOWN[0]) -> "Gemini":
    from midspan.providers.gemini.client import Gemini  # nothing is imported before a model is wanted

    return Gemini(model)


def _is_configured(environment: Mapping[str, str]) -> bool:
    from midspan.providers.gemini.credentials import keys_in
    from midspan.providers.gemini.endpoint import wants_vertex

    return bool(keys_in(environment)) or wants_vertex(environment)


async def list_models(api: "GeminiApi") -> list["responses.Model"]:
    """Return the models of an API, from all pages of its list."""
    from midspan.providers.gemini import responses
    from midspan.providers.gemini.capabilities import Api
    from midspan.providers.gemini.proto import from_plain

    models: list[responses.Model] = []
    path = "models" if api.endpoint.api is Api.DEVELOPER else "publishers/google/models"
    async for page in api.pages(path, responses.ListModelsResponse):
        models += page.models or [from_plain(responses.Model, model) for model in page.extra.get("publisherModels", [])]
    return models


async def _list_models() -> list[str]:
    from midspan.providers.gemini.connection import connect

    api = connect()
    try:
        models = await list_models(api)
    finally:
        await api.aclose()
    return [
        (model.name or "").rsplit("/", 1)[-1]
        for model in models
        if model.name and _GENERATE in (model.supported_generation_methods or [_GENERATE])
    ]


async def _check() -> Sequence[HealthCheck]:
    """Whether there are credentials, never which, and whether the API takes them."""
    from midspan.providers.gemini.credentials import keys_in

    keys = keys_in(os.environ)
    if _is_configured(os.environ):
        found = f"there is a key in {' and in '.join(keys)}" if keys else "the environment chooses Vertex"
        return [HealthCheck("ok", found), await _check_connection()]
    return [HealthCheck("note", f"neither {' nor '.join(_KEYS)} is set"), await _check_address()]


async def _check_address() -> HealthCheck:
    from midspan.providers.gemini.endpoint import endpoint
    from midspan.providers.rest import can_connect

    try:
        address = endpoint().base_url
    except ConfigError as error:
        return HealthCheck("problem", str(error))
    verb = "can" if await asyncio.to_thread(can_connect, address, _SECONDS) else "cannot"
    return HealthCheck("note", f"{address} {verb} be reached; it is asked only where there is a key")


async def _check_connection() -> HealthCheck:
    from midspan._http.messages import origin_of
    from midspan._http.retry import RetryPolicy
    from midspan.providers.gemini.connection import connect

    where = "the Gemini API"
    try:
        api = connect(retry=RetryPolicy(max_attempts=1))
        where = origin_of(api.endpoint.base_url)
        try:
            async with asyncio.timeout(_SECONDS):
                count = len(await list_models(api))
        finally:
            await api.aclose()
    except AuthenticationError:
        return HealthCheck("problem", f"{where} does not accept the key; is all of it there?")
    except TimeoutError:
        return HealthCheck("problem", f"{where} did not answer within {_SECONDS:g} seconds")
    except MidspanError as error:
        return HealthCheck("problem", f"the Gemini API cannot be asked: {error}")
    return HealthCheck("ok", f"{where} answers, takes the key and has {count} models")


FAMILY = ProviderFamily(
    name="gemini",
    make=_make,
    prefixes=("gemini-", "gemma-", "models/"),
    environment=_KEYS,
    is_configured=_is_configured,
    default_model=_KNOWN[0],
    known_models=_KNOWN,
    list_models=_list_models,
    check=_check,
)
