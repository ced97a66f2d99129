"""The tool `get_weather`: the weather at any place, from wttr.in or a service with the same API."""

import os
import re
from contextlib import suppress
from datetime import date as calendar_date
from datetime import timedelta
from importlib.resources import files
from typing import Any
from urllib.parse import quote

import msgspec

from midspan._http.messages import check_base_url
from midspan._http.transport import HttpRequest, Timeouts, Transport
from midspan._types.context import trace_headers
from midspan._types.texts import SURROGATE
from midspan._version import VERSION
from midspan.errors import ArgumentError, ConfigError, ProviderError, RequestTimeoutError, ToolError
from midspan.tools.declared import tool_from_schema
from midspan.tools.function import Tool

__all__ = ["weather_tool"]

_DEFAULT_URL = "https://wttr.in"
_URL_VARIABLE = "MIDSPAN_WEATHER_URL"
_GRACE_SECONDS = 10.0
"""The tool's own timeout is longer by this, so that the model gets our error and not that of a tool that hangs."""
_HEADERS = {"Accept": "application/json", "User-Agent": f"midspan/{VERSION}"}
_DESCRIPTION = (
    "The weather at a place: the temperature and the condition now, and if asked for, a forecast for one of the next "
    "days. Call it once for each place."
)
_EXAMPLES = (
    {"location": "東京"},
    {"location": "Oslo", "date": "tomorrow", "detail": "detailed"},
    {"location": "Springfield, Illinois", "date": "today", "hourly": True},
)

# The service reads `@host` as a host to look up, `a:b` as several places, and a slash as the end of the place.
_NOT_IN_A_PLACE = re.compile(r"[\x00-\x1f\x7f-\x9f@:/\\?#%]")
_DETAIL = re.compile(r"-?[0-9]{1,9}([.][0-9]{1,9})?|[NESW]{1,3}")
"""A number, or the direction of the wind."""
_REASONS = {
    404: "unknown place {!r}; try another spelling, or a larger place near it",
    429: "too many requests; try later",
}
_RELATIVE_DAYS = {"today": 0, "tomorrow": 1, "day_after_tomorrow": 2}
_DETAILED = {
    "feels_like_c": "FeelsLikeC",
    "humidity_percent": "humidity",
    "wind_kmph": "windspeedKmph",
    "wind_direction": "winddir16Point",
    "precipitation_mm": "precipMM",
    "rain_chance_percent": "chanceofrain",
    "snow_chance_percent": "chanceofsnow",
}
_FULL = {
    **_DETAILED,
    "pressure_hpa": "pressure",
    "visibility_km": "visibility",
    "cloud_cover_percent": "cloudcover",
    "uv_index": "uvIndex",
}


def weather_tool(*, url: str | None = None, timeout: float = 3.0) -> Tool[..., Any]:
    """Return the tool `get_weather`.

    `url` is the address of the service. Without it, the environment variable MIDSPAN_WEATHER_URL is used, or wttr.in.
    `timeout` limits the whole request, in seconds.
    """
    try:
        base_url = check_base_url(url or os.environ.get(_URL_VARIABLE) or _DEFAULT_URL)
    except ConfigError as error:
        raise ConfigError(f"weather_tool, url=… or {_URL_VARIABLE}: {error}") from error
    transport = Transport(Timeouts(connect=timeout, total=timeout), max_connections=16, max_body_bytes=2**20)
    schemas = files(__package__)

    async def get_weather(arguments: dict[str, Any]) -> dict[str, Any]:
        return _report(await _fetch(transport, base_url, arguments["location"]), **arguments)

    return tool_from_schema(
        "get_weather",
        _DESCRIPTION,
        schemas.joinpath("parameters.json").read_bytes(),
        get_weather,
        response=schemas.joinpath("response.json").read_bytes(),
        reads="weather:{location}",
        examples=_EXAMPLES,
        timeout=timeout + _GRACE_SECONDS,
    )


async def _fetch(transport: Transport, base_url: str, location: str) -> dict[str, Any]:
    place = location.strip()
    # A place without a letter or a digit could be `..`, another path.
    if _NOT_IN_A_PLACE.search(place) or SURROGATE.search(place) or not any(map(str.isalnum, place)):
        raise ArgumentError(
            "location", f"{place!r} is not a valid place; use a city, an airport code, or coordinates as 48.85,2.35"
        )
    request = HttpRequest("GET", f"{base_url}/{quote(place, safe='')}?format=j1", _HEADERS | trace_headers())
    try:
        response = await transport.send(request)
    except RequestTimeoutError as error:
        raise ToolError("API request failed: timeout") from error
    except ProviderError as error:
        raise ToolError(f"API request failed: {error}") from error
    if response.status != 200:
        reason = _REASONS.get(response.status, "the service failed; try again later").format(place)
        raise ToolError(f"API request failed: {reason} (status {response.status})")
    try:
        return msgspec.json.decode(response.body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ToolError("API request failed: the response is not a JSON object; the place may be unknown") from error


def _report(
    document: dict[str, Any], location: str, *, date: str | None = None, detail: str = "basic", hourly: bool = False
) -> dict[str, Any]:
    """The result: three fields, and those that were asked for. Numbers stay text, as the service writes them.

    What is missing or invalid in the document is found when the result is validated with the response schema.
    """
    now = _first(document, "current_condition")
    report: dict[str, Any] = {"location": location, "current_temp_c": now.get("temp_C"), **_sky(now, detail)}
    if detail == "full":
        area = _first(document, "nearest_area")
        names = [str(_first(area, key).get("value", "")) for key in ("areaName", "country")]
        report |= _texts(area=", ".join(filter(None, names)), observed_at=now.get("localObsDateTime"))
    if date is not None or hourly:
        today = str(now.get("localObsDateTime") or _first(document, "weather").get("date"))[:10]
        report["forecast"] = _forecast(_find_day(document, date or "today", today), detail, hourly=hourly)
    return report


def _find_day(document: dict[str, Any], day: str, today: str) -> dict[str, Any]:
    """The forecast of a day. A report that the service has cached since yesterday begins with yesterday."""
    forecasts = {str(forecast.get("date")): forecast for forecast in _records(document, "weather")}
    date = day
    if day in _RELATIVE_DAYS:
        with suppress(ValueError):
            date = str(calendar_date.fromisoformat(today) + timedelta(_RELATIVE_DAYS[day]))
    if date not in forecasts:
        known = ", ".join(forecasts) or "no day"
        raise ToolError(f"there is no forecast for {day!r}; there are forecasts for {known}")
    return forecasts[date]


def _forecast(day: dict[str, Any], detail: str, *, hourly: bool) -> dict[str, Any]:
    hours = {_clock(hour): hour for hour in _records(day, "hourly")}
    forecast: dict[str, Any] = {
        "date": day.get("date"),
        "min_temp_c": day.get("mintempC"),
        "max_temp_c": day.get("maxtempC"),
        **_sky(hours.get("12:00", {}), detail),
    }
    if detail == "full":
        astronomy = _first(day, "astronomy")
        forecast |= _texts(sunrise=astronomy.get("sunrise"), sunset=astronomy.get("sunset"))
    if hourly:
        forecast["hourly"] = [
            {"time": time, "temp_c": hour.get("tempC"), **_sky(hour, detail)} for time, hour in hours.items()
        ]
    return forecast


def _clock(hour: dict[str, Any]) -> str:
    """The time of an hour, which the service writes without a colon and without leading zeros: 0, 300, 1200."""
    digits = str(hour.get("time")).zfill(4)
    return f"{digits[:-2]}:{digits[-2:]}"


def _sky(record: dict[str, Any], detail: str) -> dict[str, Any]:
    """The condition, and the details that are there and valid."""
    sky: dict[str, Any] = {"condition": _first(record, "weatherDesc").get("value")}
    if detail != "basic":
        keys = _FULL if detail == "full" else _DETAILED
        values = {name: record.get(key) for name, key in keys.items()}
        sky["details"] = {
            name: value for name, value in values.items() if isinstance(value, str) and _DETAIL.fullmatch(value)
        }
    return sky


def _texts(**values: Any) -> dict[str, str]:
    return {name: value[:40] for name, value in values.items() if isinstance(value, str) and value.strip()}


def _first(record: dict[str, Any], key: str) -> dict[str, Any]:
    return next(iter(_records(record, key)), {})


def _records(record: dict[str, Any], key: str) -> list[dict[str, Any]]:
    items = record.get(key)
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
