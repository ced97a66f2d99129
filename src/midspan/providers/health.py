"""Whether a service can be reached and accepts the key, for `midspan doctor`.

The functions import what they need, because every family of models imports this module.
"""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Literal, NamedTuple

from midspan.errors import AuthenticationError, ConfigError, CredentialsError, MidspanError


class HealthCheck(NamedTuple):
    """One result of `midspan doctor`; only a problem makes it fail."""

    state: Literal["ok", "note", "problem"]
    message: str


CHECK_SECONDS = 5.0


async def check_connection(server: str, list_models: Callable[..., Coroutine[Any, Any, Sequence[Any]]]) -> HealthCheck:
    """Ask a service once (`list_models` takes a retry policy) to see whether it responds and accepts the key."""
    import asyncio

    from midspan._http.retry import RetryPolicy

    try:
        async with asyncio.timeout(CHECK_SECONDS):
            count = len(await list_models(retry=RetryPolicy(max_attempts=1)))
    except (AuthenticationError, CredentialsError):
        return HealthCheck("problem", f"{server} does not accept the key; is it complete?")
    except TimeoutError:
        return HealthCheck("problem", f"{server} did not respond within {CHECK_SECONDS:g} seconds")
    except MidspanError as error:
        return HealthCheck("problem", f"the request to {server} failed: {error}")
    return HealthCheck("ok", f"{server} accepts the key and has {count} models")


def can_connect(url: str, timeout: float) -> bool:
    """Whether a TCP connection can be opened to the host of a URL, or to its proxy."""
    import socket

    from midspan._http.routes import Route

    try:
        route = Route("GET", url)
        with socket.create_connection((route.proxy or route.server)[:2], timeout):
            return True
    except (OSError, ConfigError):
        return False
