"""Gemini as a family of models: how they are named, chosen, listed and checked."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from midspan.errors import ConfigError
from midspan.providers.family import HealthCheck, ProviderFamily, check_connection
from midspan.providers.gemini.capabilities import DEFAULT_MODEL, KEY_VARIABLES, KNOWN_MODELS, Api

if TYPE_CHECKING:
    from midspan.providers.gemini import wire
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


async def list_models(api: "GeminiApi") -> list["wire.Model"]:
    """Return the models of an API, from all pages of its list."""
    path = "models" if api.endpoint.api is Api.DEVELOPER else "publishers/google/models"
    return [model async for page in api.pages(path) for model in page.models or page.publisher_models or []]


async def _list_models() -> list[str]:
    return [
        (model.name or "").rsplit("/", 1)[-1]
        for model in await _models_of_api()
        if model.name and _GENERATE in (model.supported_generation_methods or [_GENERATE])
    ]


async def _models_of_api(**connection: Any) -> list["wire.Model"]:
    from midspan.providers.gemini.api import connect

    api = connect(connection)
    try:
        return await list_models(api)
    finally:
        await api.aclose()


async def _check() -> Sequence[HealthCheck]:
    """Check whether there are credentials, without showing them, and whether the API accepts them."""
    from midspan._http.messages import origin_of
    from midspan._http.retry import RetryPolicy
    from midspan.providers.gemini.api import endpoint, keys_in
    from midspan.providers.rest import can_connect

    keys = keys_in(os.environ)
    state = HealthCheck("ok", f"found a key in {' and in '.join(keys)}" if keys else "the environment selects Vertex")
    if not _is_configured(os.environ):
        state = HealthCheck("note", f"neither {' nor '.join(KEY_VARIABLES)} is set")
    try:
        address = endpoint().base_url
    except ConfigError as error:
        return [state, HealthCheck("problem", str(error))]
    if state.state == "note":
        verb = "can" if await asyncio.to_thread(can_connect, address, _CHECK_TIMEOUT) else "cannot"
        return [
            state,
            HealthCheck("note", f"{address} {verb} be reached; no request was sent, because there is no key"),
        ]
    list_once = partial(_models_of_api, retry=RetryPolicy(max_attempts=1))
    return [state, await check_connection(origin_of(address), list_once)]


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
