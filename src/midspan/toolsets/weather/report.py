"""The service's document → what the model is told of it.

Numbers stay text, as the service writes them: they are for reading, and nobody has to ask how they were rounded.
"""

import re
from collections.abc import Sequence
from datetime import date as calendar_date
from typing import Any

from midspan.errors import ArgumentError, ToolError
from midspan.toolsets.weather.document import Day, Document, Hour, Sky, days_of

_NUMBER = re.compile(r"-?[0-9]{1,9}([.][0-9]{1,9})?")
_WORDS_FOR_DAYS = {"today": 0, "tomorrow": 1, "day_after_tomorrow": 2}
_NOON = 1200
_LONGEST_WORDS = 40


def report(
    document: Document, location: str, *, date: str | None = None, detail: str = "basic", hourly: bool = False
) -> dict[str, Any]:
    """What is told: three fields, and those that were asked for."""
    now = document.now[0]
    told: dict[str, Any] = {"location": location, "current_temp_c": now.temp_c, "condition": _condition(now)}
    if detail != "basic":
        told["details"] = _details(now, detail)
    if detail == "full":
        told |= _words(area=_area(document), observed_at=now.observed_at)
    if date is not None or hourly:
        told["forecast"] = _forecast(_day(document, date or "today"), detail, hourly=hourly)
    return told


def _day(document: Document, wanted: str) -> Day:
    ahead = _days_ahead(wanted)
    days = days_of(document)
    if not days:
        raise ToolError("API request failed: the answer has no forecast; ask for the weather now, without a date")
    if ahead is None:
        found = next((day for day in days if day is not None and day.date == wanted), None)
    else:
        index = _index_of_today(document, days) + ahead
        found = days[index] if index < len(days) else None
        if found is None and index < len(days):
            raise ToolError(f"API request failed: the answer is no forecast that can be read for {wanted!r}")
    if found is None:
        dates = ", ".join(day.date for day in days if day is not None)
        raise ToolError(f"there is no forecast for {wanted!r}; there is one for {dates or 'no day'}")
    return found


def _days_ahead(wanted: str) -> int | None:
    """How far a day is away; None for one that is given as a date."""
    word = re.sub(r"[\s_-]+", "_", wanted.strip().lower())
    if word in _WORDS_FOR_DAYS:
        return _WORDS_FOR_DAYS[word]
    if re.fullmatch(r"\+?[0-9]{1,2}", word):
        return int(word)
    if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", wanted) or not _is_in_the_calendar(wanted):
        raise ArgumentError("date", f"{wanted!r} is no day; give today, tomorrow, 2 (days ahead) or YYYY-MM-DD")
    return None


def _is_in_the_calendar(text: str) -> bool:
    try:
        calendar_date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _index_of_today(document: Document, days: Sequence[Day | None]) -> int:
    # A report that the service has kept since yesterday begins with yesterday.
    observed = str(document.now[0].observed_at)[:10]
    dates = [None if day is None else day.date for day in days]
    if observed in dates:
        return dates.index(observed)
    # If it is told what day it is, and no day that can be read is that one, it is one that cannot be read.
    return dates.index(None) if None in dates and _is_in_the_calendar(observed) else 0


def _forecast(day: Day, detail: str, *, hourly: bool) -> dict[str, Any]:
    noon = min(day.hourly, key=lambda hour: abs(int(hour.time) - _NOON))
    told: dict[str, Any] = {
        "date": day.date,
        "min_temp_c": day.min_temp_c,
        "max_temp_c": day.max_temp_c,
        "condition": _condition(noon),
    }
    if detail != "basic":
        told["details"] = _details(noon, detail)
    if detail == "full" and day.astronomy:
        told |= _words(sunrise=day.astronomy[0].sunrise, sunset=day.astronomy[0].sunset)
    if hourly:
        told["hourly"] = [_hour(hour, detail) for hour in day.hourly]
    return told


def _hour(hour: Hour, detail: str) -> dict[str, Any]:
    hours, minutes = divmod(int(hour.time), 100)
    told: dict[str, Any] = {
        "time": f"{hours:02}:{minutes:02}",
        "temp_c": hour.temp_c,
        "condition": _condition(hour),
    }
    return told if detail == "basic" else {**told, "details": _details(hour, detail)}


def _details(sky: Sky, detail: str) -> dict[str, str]:
    told = _readings(
        feels_like_c=sky.feels_like_c,
        humidity_percent=sky.humidity,
        wind_kmph=sky.wind_kmph,
        precipitation_mm=sky.precipitation_mm,
        rain_chance_percent=sky.rain_chance,
        snow_chance_percent=sky.snow_chance,
    ) | _words(wind_direction=sky.wind_direction)
    if detail == "full":
        told |= _readings(
            pressure_hpa=sky.pressure,
            visibility_km=sky.visibility,
            cloud_cover_percent=sky.cloud_cover,
            uv_index=sky.uv_index,
        )
    return told


def _condition(sky: Sky) -> str:
    return sky.condition[0].value.strip()


def _area(document: Document) -> str | None:
    """Town and country; a place at sea may have no country."""
    match document.areas:
        case [{"areaName": [{"value": str(town)}, *_], "country": [{"value": str(country)}, *_]}, *_]:
            return f"{town}, {country}".strip(", ")
    return None


def _readings(**found: Any) -> dict[str, str]:
    return {name: text for name, text in found.items() if isinstance(text, str) and _NUMBER.fullmatch(text)}


def _words(**found: Any) -> dict[str, str]:
    return {name: text[:_LONGEST_WORDS] for name, text in found.items() if isinstance(text, str) and text.strip()}
