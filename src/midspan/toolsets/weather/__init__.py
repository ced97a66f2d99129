"""The tool `get_weather`: the weather at any place, from wttr.in or a service with the same API."""

import os
import re
from datetime import date as calendar_date
from importlib.resources import files
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

from midspan._http.transport import HttpRequest, Timeouts, Transport
from midspan._version import VERSION
from midspan.errors import ArgumentError, ConfigError, ProviderError, TimedOut, ToolError
from midspan.tools.declared import tool_from_schema
from midspan.tools.function import Tool

__all__ = ["weather_tool"]

_DEFAULT_URL = "https://wttr.in"
_URL_VARIABLE = "MIDSPAN_WEATHER_URL"
_MAX_BODY_BYTES = 2**20
_MAX_CONNECTIONS = 16
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
_NOT_IN_A_PLACE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff@:/\\?#%]")
_NUMBER = re.compile(r"-?[0-9]{1,9}([.][0-9]{1,9})?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_HOUR = re.compile("[0-9]|[0-5][0-9]|[0-9][0-5][0-9]|[01][0-9][0-5][0-9]|2[0-3][0-5][0-9]")
"""Hours and minutes without a colon and without leading zeros: 0, 300, 1200."""
_RELATIVE_DAYS = {"today": 0, "tomorrow": 1, "day_after_tomorrow": 2}
_DETAILED = {
    "feels_like_c": "FeelsLikeC",
    "humidity_percent": "humidity",
    "wind_kmph": "windspeedKmph",
    "precipitation_mm": "precipMM",
    "rain_chance_percent": "chanceofrain",
    "snow_chance_percent": "chanceofsnow",
}
_FULL = {
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
    base_url = _checked_url(url or os.environ.get(_URL_VARIABLE) or _DEFAULT_URL)
    if not isinstance(timeout, int | float) or not 0 < timeout < float("inf"):
        raise ConfigError(f"timeout must be a positive number of seconds, got {timeout!r}")
    timeouts = Timeouts(connect=timeout, first_byte=timeout, between_bytes=timeout, total=timeout)
    transport = Transport(timeouts, max_connections=_MAX_CONNECTIONS, max_body_bytes=_MAX_BODY_BYTES)

    async def get_weather(arguments: dict[str, Any]) -> dict[str, Any]:
        return _report(await _fetch(transport, base_url, arguments["location"]), **arguments)

    return tool_from_schema(
        "get_weather",
        _DESCRIPTION,
        files(__package__).joinpath("parameters.json").read_bytes(),
        get_weather,
        response=files(__package__).joinpath("response.json").read_bytes(),
        reads="weather:{location}",
        examples=_EXAMPLES,
        timeout=timeout + _GRACE_SECONDS,
    )


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:
        is_valid = False
    if not is_valid or parts.query or parts.fragment:
        raise ConfigError(
            f"the URL of the weather service, from url=… or {_URL_VARIABLE}, must be like {_DEFAULT_URL!r}, got {url!r}"
        )
    return url.rstrip("/")


async def _fetch(transport: Transport, base_url: str, location: str) -> Any:
    place = location.strip()
    # A place without a letter or a digit could be `..`, another path.
    if _NOT_IN_A_PLACE.search(place) or not any(map(str.isalnum, place)):
        raise ArgumentError(
            "location", f"{place!r} is not a valid place; use a city, an airport code, or coordinates as 48.85,2.35"
        )
    request = HttpRequest("GET", f"{base_url}/{quote(place, safe='')}?format=j1", _HEADERS)
    try:
        response = await transport.send(request)
    except TimedOut as error:
        raise ToolError("API request failed: timeout") from error
    except ProviderError as error:
        raise ToolError(f"API request failed: {error}") from error
    if response.status != 200:
        raise ToolError(f"API request failed: {_status_message(response.status, location)} (status {response.status})")
    try:
        return msgspec.json.decode(response.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ToolError("API request failed: the response is not JSON; the place may be unknown") from error


def _status_message(status: int, location: str) -> str:
    match status:
        case 404:
            return f"unknown place {location!r}; try another spelling, or a larger place near it"
        case 429:
            return "too many requests; try again later"
        case _ if 300 <= status < 400:
            return "redirects are not followed"
    return "the service failed; try again later"


def _report(
    document: Any, location: str, *, date: str | None = None, detail: str = "basic", hourly: bool = False
) -> dict[str, Any]:
    """The result: three fields, and those that were asked for. Numbers stay text, as the service writes them."""
    now = _first(document, "current_condition")
    report: dict[str, Any] = {"location": location, "current_temp_c": _number(now, "temp_C"), **_sky(now, detail)}
    if detail == "full":
        match document.get("nearest_area"):
            case [{"areaName": [{"value": str(town)}, *_], "country": [{"value": str(country)}, *_]}, *_]:
                report |= _texts(area=f"{town}, {country}".strip(", "))
        report |= _texts(observed_at=now.get("localObsDateTime"))
    if date is not None or hourly:
        report["forecast"] = _forecast(_find_day(document, date or "today"), detail, hourly=hourly)
    return report


def _find_day(document: dict[str, Any], wanted: str) -> Any:
    days_ahead = _days_ahead(wanted)
    days = document.get("weather")
    if not isinstance(days, list):
        raise _invalid("weather")
    if not days:
        raise ToolError("API request failed: the response has no forecast; ask for the weather now, without a date")
    dates = [str(day.get("date")) if isinstance(day, dict) else "" for day in days]
    if days_ahead is None:
        index = dates.index(wanted) if wanted in dates else len(days)
    else:
        # A report that the service has cached since yesterday begins with yesterday.
        today = str(_first(document, "current_condition").get("localObsDateTime"))[:10]
        index = days_ahead + (dates.index(today) if today in dates else len(days) if _is_date(today) else 0)
    if index >= len(days):
        known = ", ".join(filter(_is_date, dates))
        raise ToolError(f"there is no forecast for {wanted!r}; there are forecasts for {known or 'no day'}")
    return days[index]


def _days_ahead(wanted: str) -> int | None:
    """How many days ahead a day is; None if it is given as a date."""
    word = re.sub(r"[\s_-]+", "_", wanted.strip().lower())
    if word in _RELATIVE_DAYS:
        return _RELATIVE_DAYS[word]
    if re.fullmatch(r"\+?[0-9]{1,2}", word):
        return int(word)
    if not _is_date(wanted):
        raise ArgumentError("date", f"{wanted!r} is not a valid day; use today, tomorrow, 2 (days ahead) or YYYY-MM-DD")
    return None


def _is_date(text: str) -> bool:
    try:
        return bool(_DATE.fullmatch(text) and calendar_date.fromisoformat(text))
    except ValueError:
        return False


def _forecast(day: Any, detail: str, *, hourly: bool) -> dict[str, Any]:
    hours = day.get("hourly") if isinstance(day, dict) else None
    if not isinstance(hours, list) or not hours:
        raise _invalid("hourly")
    times = [int(_text(hour, "time", _HOUR)) for hour in hours]
    noon = hours[min(range(len(hours)), key=lambda index: abs(times[index] - 1200))]
    forecast: dict[str, Any] = {
        "date": _text(day, "date", _DATE),
        "min_temp_c": _number(day, "mintempC"),
        "max_temp_c": _number(day, "maxtempC"),
        **_sky(noon, detail),
    }
    match day.get("astronomy"):
        case [dict(astronomy), *_] if detail == "full":
            forecast |= _texts(sunrise=astronomy.get("sunrise"), sunset=astronomy.get("sunset"))
    if hourly:
        forecast["hourly"] = [
            {"time": f"{time // 100:02}:{time % 100:02}", "temp_c": _number(hour, "tempC"), **_sky(hour, detail)}
            for time, hour in zip(times, hours, strict=True)
        ]
    return forecast


def _sky(record: dict[str, Any], detail: str) -> dict[str, Any]:
    """The condition, and the details that are there and valid."""
    sky: dict[str, Any] = {"condition": _text(_first(record, "weatherDesc"), "value").strip()}
    if detail != "basic":
        keys = {**_DETAILED, **_FULL} if detail == "full" else _DETAILED
        values = {name: record.get(key) for name, key in keys.items()}
        numbers = {name: value for name, value in values.items() if isinstance(value, str) and _NUMBER.fullmatch(value)}
        sky["details"] = numbers | _texts(wind_direction=record.get("winddir16Point"))
    return sky


def _first(record: Any, key: str) -> dict[str, Any]:
    match record:
        case dict() if isinstance(items := record.get(key), list) and items and isinstance(items[0], dict):
            return items[0]
    raise _invalid(key)


def _number(record: dict[str, Any], key: str) -> str:
    return _text(record, key, _NUMBER)


def _text(record: Any, key: str, pattern: re.Pattern[str] = re.compile(".{1,200}")) -> str:
    value = record.get(key) if isinstance(record, dict) else None
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise _invalid(key)
    return value


def _texts(**values: Any) -> dict[str, str]:
    return {name: value[:40] for name, value in values.items() if isinstance(value, str) and value.strip()}


def _invalid(key: str) -> ToolError:
    return ToolError(f"API request failed: the response is not a weather report: {key} is missing or invalid")
