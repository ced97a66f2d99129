"""Days and times of day in a text."""

import re
from collections.abc import Iterator
from datetime import date, timedelta

from msgspec import Struct
from msgspec.structs import replace

from midspan.providers.offline.reading.mention import Mention

_YEAR = "january february march april may june july august september october november december"
_MONTHS = _YEAR.split()
_WEEKDAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
_MONTH = "(?P<month>" + "|".join(f"{name}|{name[:3]}" for name in _MONTHS) + "|sept)"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_FORMS = [
    re.compile(form, re.IGNORECASE)
    for form in (
        r"\b(?P<year>\d{4})[-/.](?P<number>\d{1,2})[-/.](?P<day>\d{1,2})\b",
        r"\b(?P<first>\d{1,2})[/.](?P<second>\d{1,2})[/.](?P<year>\d{4})\b",
        rf"\b(?P<year>\d{{4}})\s+{_MONTH}\.?\s+{_DAY}\b",
        rf"\b{_MONTH}\.?\s*(?:the\s+)?{_DAY}(?:,?\s*(?:of\s+|in\s+)?(?P<year>\d{{4}}))?\b",
        rf"\b(?:the\s+)?{_DAY}(?:\s+of)?\s+{_MONTH}\b\.?(?:,?\s*(?:of\s+|in\s+)?(?P<year>\d{{4}}))?\b",
        rf"\b{_MONTH}\.?,?\s+(?P<year>\d{{4}})\b",
        r"\b(?P<relative>day after tomorrow|today|tonight|tomorrow|yesterday)\b",
        r"\b(?P<span>(?:this|next|coming|last|past)\s+(?:weekend|week|month|year))\b",
        rf"\b(?:(?:this|next|coming|on)\s+)?(?P<weekday>{'|'.join(_WEEKDAYS)})\b",
    )
]
_TIME = re.compile(
    r"(?i)\b(?P<named>noon|midnight)\b|\b(?P<hour>\d{1,2})(?::(?P<minute>\d{2})(?::(?P<second>\d{2}))?)?"
    r"(?:\s?(?P<half>[ap]\.?m\b\.?|in the (?:morning|afternoon|evening)|at night)|(?<=:\d\d)\b)"
)
_LATE = re.compile(r"(?i)^p|afternoon|evening|night")
_OFFSETS = {"today": 0, "tonight": 0, "tomorrow": 1, "day after tomorrow": 2, "yesterday": -1}


class Day(Struct, frozen=True, gc=False):
    """A day as it was said; `year` is 0 where nobody said it, and `day` where only the month was."""

    said: str
    year: int = 0
    month: int = 0
    day: int = 0
    relative: str = ""

    def on(self, today: date) -> date | None:
        """The day of the calendar, as far as the words tell."""
        if self.relative in _OFFSETS:
            return today + timedelta(days=_OFFSETS[self.relative])
        if self.relative in _WEEKDAYS:
            ahead = (_WEEKDAYS.index(self.relative) - today.weekday()) % 7
            return today + timedelta(days=ahead or 7)
        if self.relative:
            return None
        try:
            return date(self.year or today.year, self.month, self.day)
        except ValueError:
            return None


class Time(Struct, frozen=True, gc=False):
    said: str
    hour: int
    minute: int
    second: int = 0

    def __str__(self) -> str:
        return f"{self.hour:02}:{self.minute:02}"


def days(text: str) -> Iterator[Mention]:
    """The days that a text names; a year that was said once holds for all of them."""
    found = [one for form in _FORMS for match in form.finditer(text) if (one := _day(match)) is not None]
    year = next((one.value.year for one in found if one.value.year), 0)
    for one in found:
        spoken = one.value.year or one.value.relative
        yield one if spoken else replace(one, value=replace(one.value, year=year))


def _day(match: re.Match[str]) -> Mention | None:
    given = match.groupdict()
    relative = (given.get("relative") or given.get("weekday") or given.get("span") or "").lower()
    if relative:
        start = match.start("weekday") if given.get("weekday") and match[0].lower().startswith("on") else match.start()
        said = match.string[start : match.end()]
        return Mention("date", Day(said, relative=relative), start, match.end())
    year, day = int(given.get("year") or 0), int(given.get("day") or 0)
    if given.get("month"):
        month = next(at for at, name in enumerate(_MONTHS, 1) if name.startswith(given["month"].lower()[:3]))
    elif given.get("number"):
        month = int(given["number"])
    else:
        month, day = int(given["first"]), int(given["second"])
        if month > 12:
            month, day = day, month
    if not (1 <= month <= 12 and day <= 31):
        return None
    return Mention("date", Day(match[0], year, month, day), match.start(), match.end())


def times(text: str) -> Iterator[Mention]:
    for match in _TIME.finditer(text):
        hour, minute, second = (int(match[part] or 0) for part in ("hour", "minute", "second"))
        if match["named"]:
            hour = 12 * (match["named"].lower() == "noon")
        elif match["half"]:
            hour = hour % 12 + 12 * bool(_LATE.search(match["half"]))
        if hour < 24 and minute < 60 and second < 60:
            yield Mention("time", Time(match[0], hour, minute, second), match.start(), match.end())
