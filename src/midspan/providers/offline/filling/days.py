"""Days and times in the form that a parameter asks for."""

import re
from datetime import date

from midspan.providers.offline.declared.parameters import Parameter
from midspan.providers.offline.reading.dates import Day, Time


def day_text(parameter: Parameter, day: Day, today: date, clock: str = "") -> str:
    """The day in the form that the parameter asks for; its own words where it asks for none."""
    said = parameter.description
    if day.relative:
        welcome = day.relative in said.lower() or not _DATE_FORM.search(said)
        found = None if welcome else day.on(today)
    else:
        found = day.on(today) if day.day and (day.year or _DATE_FORM.search(said)) else None
    if found is None:
        return day.said
    if re.search(r"(?i)YYYY-MM-DD.?HH:MM", said):
        return f"{found.isoformat()}{'T' if 'DDT' in said.upper() else ' '}{clock or '00:00'}:00"
    if re.search(r"(?i)\bMM[/-]DD[/-]YYYY", said):
        return found.strftime("%m/%d/%Y" if "/" in said else "%m-%d-%Y")
    if re.search(r"(?i)\bDD[/-]MM[/-]YYYY", said):
        return found.strftime("%d/%m/%Y" if "/" in said else "%d-%m-%Y")
    return found.isoformat()


_DATE_FORM = re.compile(r"(?i)YYYY|ISO|\d{4}-\d{2}-\d{2}|%Y")


def time_text(parameter: Parameter, time: Time) -> str:
    said = parameter.description
    if "HH:MM:SS" in said.upper():
        return f"{time}:{time.second:02}"
    return str(time) if re.search(r"(?i)HH:MM|24|\d\d:\d\d", said) else time.said
