"""The weather service: where it is, what may be asked of it, and how much and how long it may answer."""

import os
import re
from urllib.parse import quote, urlsplit

from midspan._http.transport import HttpRequest, HttpStream, Timeouts, Transport
from midspan._version import VERSION
from midspan.errors import ArgumentError, ConfigError, ProviderError, TimedOut, ToolError

DEFAULT_TIMEOUT = 3.0

_DEFAULT_URL = "https://wttr.in"
_URL_VARIABLE = "MIDSPAN_WEATHER_URL"
_LARGEST_BODY = 2**20
_MOST_CONNECTIONS = 16
_HEADERS = {"Accept": "application/json", "User-Agent": f"midspan/{VERSION}"}

# What is quoted cannot leave its place in the address, but the service itself reads `@host` as a host to look up,
# `a:b` as places to take turns with, and a slash as the end of the place.
_NO_PART_OF_A_PLACE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff@:/\\?#%]")


class Service:
    """wttr.in, or a stand-in for it at another address."""

    def __init__(self, url: str | None, *, timeout: float, transport: Transport | None = None) -> None:
        self._url = _checked_url(url or os.environ.get(_URL_VARIABLE) or _DEFAULT_URL)
        if not isinstance(timeout, int | float) or not 0 < timeout < float("inf"):
            raise ConfigError(f"the timeout of the weather is a number of seconds above 0, not {timeout!r}")
        self._transport = transport or Transport(max_connections=_MOST_CONNECTIONS)
        self._timeouts = Timeouts(connect=timeout, first_byte=timeout, between_bytes=timeout, total=timeout)

    async def fetch(self, location: str) -> bytes:
        """What the service answers about this place."""
        request = HttpRequest("GET", f"{self._url}/{_quoted(location)}?format=j1", _HEADERS)
        try:
            async with self._transport.stream(request, self._timeouts) as answer:
                _check_status(answer.status, location)
                return await _bounded(answer)
        except TimedOut as error:
            raise ToolError("API request failed: timeout") from error
        except ProviderError as error:
            raise ToolError(f"API request failed: {error}") from error


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:
        is_usable = False
    if not is_usable or parts.query or parts.fragment:
        raise ConfigError(
            f"the address of the weather is {url!r}; it is one like {_DEFAULT_URL!r}, without a query, "
            f"from the parameter url or from {_URL_VARIABLE}"
        )
    return url.rstrip("/")


def _quoted(location: str) -> str:
    """The place as one segment of a path. One without a letter or a digit could be `..`, and lead elsewhere."""
    place = location.strip()
    if _NO_PART_OF_A_PLACE.search(place) or not any(map(str.isalnum, place)):
        raise ArgumentError(
            "location", f"{place!r} is no name of a place; give a city, an airport code, or coordinates as 48.85,2.35"
        )
    return quote(place, safe="")


def _check_status(status: int, location: str) -> None:
    match status:
        case 200:
            return
        case 404:
            words = (
                f"no place called {location!r} is known (status 404); try another spelling, or a larger place near it"
            )
        case 429:
            words = "too many requests (status 429); try again later"
        case _ if 300 <= status < 400:
            words = f"the service wants to send us elsewhere (status {status}), and we do not go there"
        case _:
            words = f"the service answered with status {status}; trying again later may help"
    raise ToolError(f"API request failed: {words}")


async def _bounded(answer: HttpStream) -> bytes:
    body = bytearray()
    async for piece in answer:
        body += piece
        if len(body) > _LARGEST_BODY:
            raise ToolError(f"API request failed: the answer is larger than {_LARGEST_BODY:,} bytes")
    return bytes(body)
