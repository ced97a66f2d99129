"""The tool `get_time`: the time in any time zone."""

import re
import unicodedata
import zoneinfo
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from difflib import get_close_matches
from functools import cache
from typing import Annotated, Any

from msgspec import Meta, Struct

from midspan.errors import ArgumentError, ConfigError, ToolError
from midspan.tools.function import Tool, tool

Zone = Annotated[str, Meta(min_length=1, max_length=64)]

_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_OFFSET = re.compile(r"(?:UTC|GMT)?([+-])(0?[0-9]|1[0-4])(?::?([0-5][0-9]))?", re.IGNORECASE)


class Moment(Struct, frozen=True):
    """A moment in one time zone."""

    time: str
    """ISO 8601, with the offset."""
    weekday: str
    zone: str
    abbreviation: str
    is_summer_time: bool


def clock_tool(*, now: Callable[[], datetime] = lambda: datetime.now(UTC), home: str = "UTC") -> Tool[..., Any]:
    """Return the tool `get_time`. `home` is the zone that is used if none is given."""
    try:
        find_zone(home)
    except (ArgumentError, ToolError) as error:
        raise ConfigError(f"clock_tool cannot use this home: {error}") from error

    # Read-only, but repeatable: the same call has another result later.
    @tool(reads="clock", repeatable=True, examples=[{"zone": "Europe/Oslo"}, {"zone": "Tokyo"}])
    def get_time(zone: Zone = home) -> Moment:
        """The current date and time in a time zone, with the weekday.

        Args:
            zone: The time zone: its IANA name (Europe/Oslo), a city that one is named after (Tokyo, New York), or an
                offset (UTC+2).
        """
        name, time_zone = find_zone(zone)
        local = now().astimezone(time_zone)
        weekday = _WEEKDAYS[local.weekday()]
        return Moment(local.isoformat(timespec="seconds"), weekday, name, local.tzname() or "", bool(local.dst()))

    return get_time


def find_zone(name: str) -> tuple[str, tzinfo]:
    """Return the full name of a zone, and the zone."""
    text = name.strip()
    if text.upper() in ("UTC", "GMT", "Z", "ETC/UTC"):
        return "UTC", UTC
    if match := _OFFSET.fullmatch(text.replace(" ", "")):  # not `Etc/GMT+2`, which is two hours behind UTC
        zone = timezone(timedelta(hours=int(match[1] + match[2]), minutes=int(match[1] + (match[3] or "0"))))
        return str(zone), zone
    zones = _zones()
    if not zones:
        raise ToolError("this machine has no time zone data (the Python package tzdata); use UTC or an offset as UTC+2")
    if full_name := zones.get(_key(text)):
        return full_name, zoneinfo.ZoneInfo(full_name)
    similar = get_close_matches(_key(text.partition(",")[0]), zones, 3, 0.75)  # of "Paris, France", only the city
    suggestions = " or ".join(dict.fromkeys(zones[key] for key in similar))
    hint = f"did you mean {suggestions}? Otherwise use" if suggestions else "use"
    raise ArgumentError("zone", f"unknown time zone {text!r}; {hint} the IANA name, such as America/Los_Angeles")


@cache  # because the names are collected from hundreds of files
def _zones() -> dict[str, str]:
    """The IANA names by their key, and by the key of their city; of several with one city, the first."""
    names = sorted(zoneinfo.available_timezones(), reverse=True)
    return {_key(name.rpartition("/")[2]): name for name in names} | {_key(name): name for name in names}


def _key(name: str) -> str:
    """A name without case, accents, and the difference of spaces, hyphens and underscores."""
    letters = "".join(char for char in unicodedata.normalize("NFKD", name) if not unicodedata.combining(char))
    return re.sub(r"[\s_-]+", "_", letters.casefold().strip())
