"""The time, anywhere: tools that tell it and convert it."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Annotated, Any

from msgspec import Meta, Struct

from midspan.errors import ArgumentError, ConfigError, ToolError
from midspan.tools.function import Tool, tool
from midspan.toolsets.zones import LONGEST_NAME, zone_of

Zone = Annotated[str, Meta(min_length=1, max_length=LONGEST_NAME)]
WallTime = Annotated[str, Meta(max_length=32)]


class Moment(Struct, frozen=True):
    """A moment as it is in one zone."""

    time: str
    """ISO 8601, with the offset."""
    weekday: str
    zone: str
    abbreviation: str
    is_summer_time: bool


class Conversion(Struct, frozen=True):
    """A moment as it is in two zones."""

    source: Moment
    target: Moment
    target_is_ahead_by_hours: float
    note: str | None
    """What is odd about the time that was given, if anything."""


def utc_now() -> datetime:
    return datetime.now(UTC)


def clock_tools(*, now: Callable[[], datetime] = utc_now, home: str = "UTC") -> list[Tool[..., Any]]:
    """The tools `get_time` and `convert_time`; `home` is the zone where none is given."""
    try:
        zone_of(home, "home")
    except (ArgumentError, ToolError) as error:
        raise ConfigError(f"the home of the clock cannot be used: {error}") from error

    def get_time(zone: Zone = home) -> Moment:
        """The current date and time in a time zone, with the weekday.

        Args:
            zone: The time zone: its IANA name (Europe/Oslo), a city that one is named after (Tokyo, New York), or an
                offset (UTC+2).
        """
        name, there = zone_of(zone)
        return _moment(_now(now), name, there)

    def convert_time(time: WallTime, source: Zone, target: Zone = home) -> Conversion:
        """What the clocks in one time zone show when they show a given time in another, and how far they are apart.

        Args:
            time: What a clock shows in the source zone: 14:30 for today, or 2026-03-29T14:30 with a date.
            source: The zone that the time is given in: IANA name, city or offset, as in get_time.
            target: The zone to convert it to.
        """
        (from_name, here), (to_name, there) = zone_of(source, "source"), zone_of(target, "target")
        wall = _read(time, _now(now).astimezone(here))
        moment, note = _placed(wall, here)
        ahead = _offset(moment, there) - _offset(moment, here)
        return Conversion(
            _moment(moment, from_name, here), _moment(moment, to_name, there), ahead.total_seconds() / 3600, note
        )

    # Both only read. Neither result may be remembered: the time passes, and time zone rules change with the date.
    return [
        tool(reads="clock", repeatable=True, examples=[{"zone": "Europe/Oslo"}, {"zone": "Tokyo"}])(get_time),
        tool(
            reads="clock", repeatable=True,
            examples=[{"time": "09:00", "source": "New York", "target": "Europe/Berlin"}],
        )(convert_time),
    ]  # fmt: skip


def _now(now: Callable[[], datetime]) -> datetime:
    moment = now()
    if moment.tzinfo is None:
        raise ConfigError("the clock that was given to clock_tools tells times without a zone; use datetime.now(UTC)")
    return moment


def _moment(moment: datetime, name: str, zone: tzinfo) -> Moment:
    there = moment.astimezone(zone)
    return Moment(
        time=there.isoformat(timespec="seconds"),
        weekday=_WEEKDAYS[there.weekday()],
        zone=name,
        abbreviation=there.tzname() or "",
        is_summer_time=bool(there.dst()),
    )


_FIRST_YEAR, _LAST_YEAR = 1900, 2200
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def _read(time: str, today: datetime) -> datetime:
    text = time.strip().replace(" ", "T")
    text = text if "-" in text else f"{today:%Y-%m-%d}T{text.rjust(5, '0')}"
    try:
        read = datetime.fromisoformat(text)
    except ValueError:
        read = None
    if read is None or "T" not in text:
        raise ArgumentError("time", f"{time!r} is no time; give it as 14:30 or 2026-03-29T14:30")
    if not _FIRST_YEAR <= read.year <= _LAST_YEAR:
        raise ArgumentError(
            "time", f"the year {read.year} is too far away; give one from {_FIRST_YEAR} to {_LAST_YEAR}"
        )
    if read.tzinfo is not None:
        raise ArgumentError("time", f"{time!r} has an offset of its own; leave that out, and say it as the source")
    return read


def _placed(wall: datetime, zone: tzinfo) -> tuple[datetime, str | None]:
    """The moment at which clocks in a zone show this, with a word where they never do, or do so twice."""
    first, second = (wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    if first == second:
        return first, None
    if first.astimezone(zone).replace(tzinfo=None) != wall:
        return first, f"{wall:%H:%M} is left out there on that day, because clocks are put forward; this is after that"
    return first, f"{wall:%H:%M} comes twice there on that day, because clocks are put back; this is the first time"


def _offset(moment: datetime, zone: tzinfo) -> timedelta:
    return moment.astimezone(zone).utcoffset() or timedelta()
