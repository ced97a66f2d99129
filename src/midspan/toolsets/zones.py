"""Time zones by the names that people and models use: `Europe/Oslo`, `Tokyo`, `new york`, `UTC+2`."""

import re
import unicodedata
import zoneinfo
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from difflib import get_close_matches
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from midspan.errors import ArgumentError, ToolError

LONGEST_NAME = 64

_OFFSET = re.compile(r"(?:UTC|GMT)?([+-])([0-9]{1,2})(?::?([0-9]{2}))?", re.IGNORECASE)
_LARGEST_OFFSET = timedelta(hours=14)
_MOST_OFFERED = 3
_NEAR = 0.75


def zone_of(name: str, parameter: str = "zone") -> tuple[str, tzinfo]:
    """A zone and its full name; `parameter` is what an error is about."""
    wanted = name.strip()
    if wanted.upper() in ("UTC", "GMT", "Z", "ETC/UTC"):
        return "UTC", UTC
    if (offset := _offset(wanted)) is not None:
        return str(offset), offset
    if (exact := _loaded(wanted)) is not None:
        return wanted, exact
    found = _found(wanted, parameter)
    zone = _loaded(found)
    if zone is None:
        raise ToolError(f"the data of this machine for the time zone {found} cannot be read; give another zone")
    return found, zone


def _offset(name: str) -> timezone | None:
    match = _OFFSET.fullmatch(name.replace(" ", ""))
    if match is None:
        return None
    sign, hours, minutes = match.groups(default="0")
    ahead = timedelta(hours=int(hours), minutes=int(minutes))
    if ahead > _LARGEST_OFFSET or int(minutes) >= 60:
        return None
    return timezone(-ahead if sign == "-" else ahead)


def _loaded(name: str) -> tzinfo | None:
    try:
        return zoneinfo.ZoneInfo(name)
    # Beside what zoneinfo says of unknown names, a name may be that of a folder, or of a file that is no zone.
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return None


def _found(wanted: str, parameter: str) -> str:
    names = _names()
    if not names:
        raise ToolError(
            "this machine has no data about time zones, so only UTC and offsets such as UTC+2 are known; "
            "whoever runs it can install the Python package tzdata"
        )
    key = _key(wanted)
    ends = names.get(key) or _qualified(key, wanted, parameter)
    if len(ends) == 1 or (ends and _alike(ends)):
        return ends[0]
    if ends:
        raise ArgumentError(parameter, f"{wanted!r} may be {' or '.join(ends)}; say which")
    near = dict.fromkeys(names[one][0] for one in get_close_matches(key, names, _MOST_OFFERED, _NEAR))
    offer = f"did you mean {' or '.join(near)}? Otherwise " if near else ""
    raise ArgumentError(
        parameter, f"there is no time zone {wanted!r}; {offer}give the IANA name, such as America/Los_Angeles"
    )


def _qualified(key: str, wanted: str, parameter: str) -> tuple[str, ...]:
    """The zones of a city that lies where the words after the comma say: «Sydney, Australia», not «Paris, Texas»."""
    city, *where = (part.strip("_") for part in key.split(","))
    ends = _names().get(city, ()) if where else ()
    fitting = tuple(name for name in ends if all(_key(part) in _regions(name) for part in where if part))
    if ends and not fitting:
        raise ArgumentError(
            parameter,
            f"{wanted!r} is not known to lie in {' or '.join(ends)}; give the IANA name of the zone it is in, such as "
            "America/Toronto",
        )
    return fitting


def _regions(name: str) -> frozenset[str]:
    """What a city that a zone is named after may be said to lie in: its continent, country, state or province."""
    parts = [_key(part) for part in name.split("/")]
    return frozenset(parts[:-1]) | _countries().get(name, frozenset()) | frozenset(_STATES.get(name, "").split())


_STATES = {
    "America/New_York": "ny new_york new_york_state", "America/Los_Angeles": "ca california",
    "America/Chicago": "il illinois", "America/Denver": "co colorado", "America/Phoenix": "az arizona",
    "America/Detroit": "mi michigan", "America/Anchorage": "ak alaska", "America/Boise": "id idaho",
    "Pacific/Honolulu": "hi hawaii", "America/Toronto": "on ontario", "America/Vancouver": "bc british_columbia",
    "America/Edmonton": "ab alberta", "America/Winnipeg": "mb manitoba", "America/Halifax": "ns nova_scotia",
    "Australia/Sydney": "nsw new_south_wales", "Australia/Melbourne": "vic victoria",
    "Australia/Brisbane": "qld queensland", "Australia/Perth": "wa western_australia",
    "Australia/Adelaide": "sa south_australia",
}  # fmt: skip
_ALIASES = {"US": "usa united_states_of_america u.s. u.s.a.", "GB": "england great_britain united_kingdom",
            "AE": "uae", "CZ": "czechia", "RU": "russian_federation", "KR": "korea", "NL": "holland"}  # fmt: skip


@lru_cache(maxsize=1)
def _countries() -> dict[str, frozenset[str]]:
    """For each zone the code and the names of its country; empty where the machine has no such tables."""
    said: dict[str, frozenset[str]] = {}
    for code, name in _table("iso3166.tab"):
        plain, _, beside = name.partition(" (")
        spoken = {code, name, plain, beside.rstrip(")"), *_ALIASES.get(code, "").split()}
        said[code] = frozenset(_key(one) for one in spoken if one)
    return {row[2]: said.get(row[0], frozenset()) for row in _table("zone.tab") if len(row) > 2}


def _table(name: str) -> list[list[str]]:
    """The rows of one of the tables that come with the zones, from where the zones themselves are read."""
    places: list[Traversable] = [Path(one) for one in zoneinfo.TZPATH]
    with suppress(ModuleNotFoundError):
        places.append(files("tzdata") / "zoneinfo")
    for place in places:
        with suppress(OSError, UnicodeDecodeError):
            lines = (place / name).read_text(encoding="utf-8").splitlines()
            return [line.split("\t") for line in lines if "\t" in line and not line.startswith("#")]
    return []


@lru_cache(maxsize=1)
def _names() -> dict[str, tuple[str, ...]]:
    """The full names by themselves and by how they end. Kept, because the list is made of hundreds of files."""
    names: dict[str, tuple[str, ...]] = {}
    for name in sorted(zoneinfo.available_timezones()):
        for key in {_key(name), _key(name.rpartition("/")[2])}:
            names[key] = (*names.get(key, ()), name)
    return names


def _key(name: str) -> str:
    """What names are compared by: without case, accents and the choice between space, hyphen and underscore."""
    plain = "".join(one for one in unicodedata.normalize("NFKD", name) if not unicodedata.combining(one))
    return re.sub(r"[\s_-]+", "_", plain.casefold().strip())


def _alike(names: tuple[str, ...]) -> bool:
    """Whether it does not matter which: several names of one zone, by its hours in winter and summer."""
    seasons = (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 7, 1, tzinfo=UTC))
    zones = [zone for name in names if (zone := _loaded(name)) is not None]
    return len({tuple(moment.astimezone(zone).utcoffset() for moment in seasons) for zone in zones}) == 1
