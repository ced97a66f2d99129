"""The tools `get_time` and `convert_time`: the time in any time zone."""

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
WallTime = Annotated[str, Meta(max_length=32)]

_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_WALL_TIME = re.compile(r"(?:19|20|21)[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(?::[0-9]{2})?", re.ASCII)
"""From 1900 to 2199, without an offset."""
_OFFSET = re.compile(r"(?:UTC|GMT)?([+-])([0-9]{1,2})(?::?([0-5][0-9]))?", re.IGNORECASE)
_MAX_OFFSET = timedelta(hours=14)


class Moment(Struct, frozen=True):
    """A moment in one time zone."""

    time: str
    """ISO 8601, with the offset."""
    weekday: str
    zone: str
    abbreviation: str
    is_summer_time: bool


class Conversion(Struct, frozen=True):
    """A moment in two time zones."""

    source: Moment
    target: Moment
    target_is_ahead_by_hours: float
    note: str | None
    """A warning about the given time, for example that clocks skip it."""


def clock_tools(*, now: Callable[[], datetime] = lambda: datetime.now(UTC), home: str = "UTC") -> list[Tool[..., Any]]:
    """Return the tools `get_time` and `convert_time`. `home` is the zone that is used if none is given."""
    try:
        find_zone(home, "home")
    except (ArgumentError, ToolError) as error:
        raise ConfigError(f"clock_tools cannot use this home: {error}") from error

    def get_time(zone: Zone = home) -> Moment:
        """The current date and time in a time zone, with the weekday.

        Args:
            zone: The time zone: its IANA name (Europe/Oslo), a city that one is named after (Tokyo, New York), or an
                offset (UTC+2).
        """
        return _moment(now(), *find_zone(zone, "zone"))

    def convert_time(time: WallTime, source: Zone, target: Zone = home) -> Conversion:
        """What the clocks in one time zone show when they show a given time in another, and how far they are apart.

        Args:
            time: What a clock shows in the source zone: 14:30 for today, or 2026-03-29T14:30 with a date.
            source: The zone that the time is given in: IANA name, city or offset, as in get_time.
            target: The zone to convert it to.
        """
        source_name, source_zone = find_zone(source, "source")
        target_name, target_zone = find_zone(target, "target")
        wall_time = _read(time, now().astimezone(source_zone))
        moment, note = _resolve(wall_time, source_zone)
        ahead = _offset_at(moment, target_zone) - _offset_at(moment, source_zone)
        return Conversion(
            _moment(moment, source_name, source_zone),
            _moment(moment, target_name, target_zone),
            ahead.total_seconds() / 3600,
            note,
        )

    # Read-only, but repeatable: the same call has another result later.
    conversion = {"time": "09:00", "source": "New York", "target": "Europe/Berlin"}
    return [
        tool(reads="clock", repeatable=True, examples=[{"zone": "Europe/Oslo"}, {"zone": "Tokyo"}])(get_time),
        tool(reads="clock", repeatable=True, examples=[conversion])(convert_time),
    ]


def _moment(moment: datetime, name: str, zone: tzinfo) -> Moment:
    local = moment.astimezone(zone)
    weekday = _WEEKDAYS[local.weekday()]
    return Moment(local.isoformat(timespec="seconds"), weekday, name, local.tzname() or "", bool(local.dst()))


def _read(time: str, today: datetime) -> datetime:
    text = time.strip().replace(" ", "T")
    text = text if "-" in text else f"{today:%Y-%m-%d}T{text.rjust(5, '0')}"
    if not _WALL_TIME.fullmatch(text):
        raise ArgumentError("time", f"{time!r} is not a valid time; write it as 14:30 or 2026-03-29T14:30")
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise ArgumentError("time", f"{time!r} is not a valid time: {error}") from error


def _resolve(wall_time: datetime, zone: tzinfo) -> tuple[datetime, str | None]:
    """Return the moment at which clocks in a zone show this time, with a note if they never do, or do so twice."""
    first, second = (wall_time.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    if first == second:
        return first, None
    if first.astimezone(zone).replace(tzinfo=None) != wall_time:
        return first, f"clocks skip {wall_time:%H:%M} on that day, because summer time begins; this is the time after"
    return first, f"clocks show {wall_time:%H:%M} twice on that day, because summer time ends; this is the first time"


def _offset_at(moment: datetime, zone: tzinfo) -> timedelta:
    return moment.astimezone(zone).utcoffset() or timedelta()


def find_zone(name: str, parameter: str) -> tuple[str, tzinfo]:
    """Return the full name of a zone, and the zone. `parameter` is the argument that errors are about."""
    text = name.strip()
    if text.upper() in ("UTC", "GMT", "Z", "ETC/UTC"):
        return "UTC", UTC
    if match := _OFFSET.fullmatch(text.replace(" ", "")):
        offset = timedelta(hours=int(match[2]), minutes=int(match[3] or 0))
        if offset <= _MAX_OFFSET:
            zone = timezone(-offset if match[1] == "-" else offset)
            return str(zone), zone
    zones = _zones()
    if not zones:
        raise ToolError(
            "this machine has no time zone data, so only UTC and offsets such as UTC+2 are known; "
            "the Python package tzdata has the data"
        )
    names = zones.get(_key(text), ())
    if names and _are_equivalent(names):
        return names[0], zoneinfo.ZoneInfo(names[0])
    if names:
        raise ArgumentError(parameter, f"{text!r} is ambiguous: {' or '.join(names)}?")
    similar = get_close_matches(_key(text.partition(",")[0]), zones, 3, 0.75)  # of «Paris, France», only the city
    suggestions = " or ".join(dict.fromkeys(zones[key][0] for key in similar))
    hint = f"did you mean {suggestions}? Otherwise use" if suggestions else "use"
    raise ArgumentError(parameter, f"unknown time zone {text!r}; {hint} the IANA name, such as America/Los_Angeles")


@cache  # because the names are collected from hundreds of files
def _zones() -> dict[str, tuple[str, ...]]:
    """The IANA names by their key, and by the key of their city."""
    zones: dict[str, tuple[str, ...]] = {}
    for name in sorted(zoneinfo.available_timezones()):
        for key in {_key(name), _key(name.rpartition("/")[2])}:
            zones[key] = (*zones.get(key, ()), name)
    return zones


def _key(name: str) -> str:
    """A name without case, accents, and the difference of spaces, hyphens and underscores."""
    letters = "".join(char for char in unicodedata.normalize("NFKD", name) if not unicodedata.combining(char))
    return re.sub(r"[\s_-]+", "_", letters.casefold().strip())


def _are_equivalent(names: tuple[str, ...]) -> bool:
    """Whether these are names of one zone, judged by its offsets in winter and summer."""
    seasons = (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 7, 1, tzinfo=UTC))
    return len({tuple(_offset_at(moment, zoneinfo.ZoneInfo(name)) for moment in seasons) for name in names}) == 1
