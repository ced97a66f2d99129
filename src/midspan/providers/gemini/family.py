"""Gemini as a family of models: how they are named, chosen, listed and checked."""

import os
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from midspan.errors import ConfigError
from midspan.providers.gemini.capabilities import DEFAULT_MODEL, KEY_VARIABLES, KNOWN_MODELS, Api
from midspan.providers.health import CHECK_SECONDS, HealthCheck, can_connect, check_connection
from midspan.providers.registry import ProviderFamily

if TYPE_CHECKING:
    from midspan.providers.gemini import wire
    from midspan.providers.gemini.api import GeminiApi
    from midspan.providers.gemini.client import Gemini

# The functions import what they need: registering the family costs nothing.

_GENERATE = "generateContent"


def _make(model: str = DEFAULT_MODEL) -> "Gemini":
    from midspan.providers.gemini.client import Gemini

    return Gemini(model)


def _is_configured(environment: Mapping[str, str]) -> bool:
    from midspan.providers.gemini.api import wants_vertex

    return any(environment.get(name, "").strip() for name in KEY_VARIABLES) or wants_vertex(environment)


async def list_models(api: "GeminiApi") -> list["wire.Model"]:
    """Return the models of an API, from all pages of its list."""
    path = "models" if api.endpoint.api is Api.DEVELOPER else "publishers/google/models"
    return [model async for page in api.pages(path) for model in page.models or page.publisher_models or []]


async def _list_models(**connection: Any) -> list[str]:
    from midspan.providers.gemini.api import connect

    async with aclosing(connect(connection)) as api:
        return [
            model.name.rsplit("/", 1)[-1]
            for model in await list_models(api)
            if model.name and _GENERATE in (model.supported_generation_methods or [_GENERATE])
        ]


async def _check() -> Sequence[HealthCheck]:
    """Check whether there are credentials, without showing them, and whether the API accepts them."""
    import asyncio

    from midspan._http.messages import host_and_port
    from midspan.providers.gemini.api import endpoint

    try:
        address = endpoint().base_url
    except ConfigError as error:
        return [HealthCheck("problem", str(error))]
    if not _is_configured(os.environ):
        is_reached = await asyncio.to_thread(can_connect, address, CHECK_SECONDS)
        reached = f"{address} {'can' if is_reached else 'cannot'} be reached; no request was sent without a key"
        return [HealthCheck("note", f"neither {' nor '.join(KEY_VARIABLES)} is set"), HealthCheck("note", reached)]
    keys = " and in ".join(name for name in KEY_VARIABLES if os.environ.get(name, "").strip())
    source = f"found a key in {keys}" if keys else "the environment selects Vertex"
    return [HealthCheck("ok", source), await check_connection(host_and_port(address), _list_models)]


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
