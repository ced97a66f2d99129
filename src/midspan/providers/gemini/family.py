"""Gemini as a family of models: how they are named, chosen, listed and checked."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from midspan.errors import AuthenticationError, ConfigError, MidspanError
from midspan.providers.family import HealthCheck, ProviderFamily
from midspan.providers.gemini.capabilities import DEFAULT_MODEL, KEY_VARIABLES, KNOWN_MODELS, Api

if TYPE_CHECKING:
    from midspan.providers.gemini import responses
    from midspan.providers.gemini.api import GeminiApi
    from midspan.providers.gemini.client import Gemini

# The functions import what they need: registering the family costs nothing.

_GENERATE = "generateContent"
_CHECK_TIMEOUT = 5.0


def _make(model: str = DEFAULT_MODEL) -> "Gemini":
    from midspan.providers.gemini.client import Gemini

    return Gemini(model)


def _is_configured(environment: Mapping[str, str]) -> bool:
    from midspan.providers.gemini.api import keys_in, wants_vertex

    return bool(keys_in(environment)) or wants_vertex(environment)


async def list_models(api: "GeminiApi") -> list["responses.Model"]:
    """Return the models of an API, from all pages of its list."""
    from midspan.providers.gemini import responses
    from midspan.providers.gemini.proto import from_plain

    models: list[responses.Model] = []
    path = "models" if api.endpoint.api is Api.DEVELOPER else "publishers/google/models"
    async for page in api.pages(path, responses.ListModelsResponse):
        models += page.models or [from_plain(responses.Model, model) for model in page.extra.get("publisherModels", [])]
    return models


async def _list_models() -> list[str]:
    from midspan.providers.gemini.api import connect

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
    """Check whether there are credentials, without showing them, and whether the API accepts them."""
    from midspan.providers.gemini.api import keys_in

    if not _is_configured(os.environ):
        return [HealthCheck("note", f"neither {' nor '.join(KEY_VARIABLES)} is set"), await _check_address()]
    keys = keys_in(os.environ)
    source = f"found a key in {' and in '.join(keys)}" if keys else "the environment selects Vertex"
    return [HealthCheck("ok", source), await _check_connection()]


async def _check_address() -> HealthCheck:
    from midspan.providers.gemini.api import endpoint
    from midspan.providers.rest import can_connect

    try:
        address = endpoint().base_url
    except ConfigError as error:
        return HealthCheck("problem", str(error))
    verb = "can" if await asyncio.to_thread(can_connect, address, _CHECK_TIMEOUT) else "cannot"
    return HealthCheck("note", f"{address} {verb} be reached; no request was sent, because there is no key")


async def _check_connection() -> HealthCheck:
    from midspan._http.messages import origin_of
    from midspan._http.retry import RetryPolicy
    from midspan.providers.gemini.api import connect

    server = "the Gemini API"
    try:
        api = connect(retry=RetryPolicy(max_attempts=1))
        server = origin_of(api.endpoint.base_url)
        try:
            async with asyncio.timeout(_CHECK_TIMEOUT):
                count = len(await list_models(api))
        finally:
            await api.aclose()
    except AuthenticationError:
        return HealthCheck("problem", f"{server} does not accept the key; is it complete?")
    except TimeoutError:
        return HealthCheck("problem", f"{server} did not respond within {_CHECK_TIMEOUT:g} seconds")
    except MidspanError as error:
        return HealthCheck("problem", f"the request to the Gemini API failed: {error}")
    return HealthCheck("ok", f"{server} accepts the key and has {count} models")


FAMILY = ProviderFamily(
    name="gemini",
    make=_make,
    prefixes=("gemini-", "gemma-", "models/"),
    environment=KEY_VARIABLES,
    is_configured=_is_configured,
    default_model=DEFAULT_MODEL,
    known_models=KNOWN_MODELS,
    list_models=_list_models,
    check=_check,
)
