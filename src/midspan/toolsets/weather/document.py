"""The answer of the weather service, as far as we use it.

What every report needs is required here. The rest may be missing or odd, and is then not told.
"""

import re
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw, Struct, field

from midspan.errors import ToolError

Words = Annotated[str, Meta(min_length=1, max_length=200)]
Reading = Annotated[str, Meta(max_length=12, pattern=r"^-?[0-9]+([.][0-9]+)?$")]
"""A number, which the service writes as text."""
Time = Annotated[str, Meta(pattern="^([0-9]|[0-5][0-9]|[0-9][0-5][0-9]|[01][0-9][0-5][0-9]|2[0-3][0-5][0-9])$")]
"""Hours and minutes without a colon, and without zeros before them: 0, 300, 1200."""


class Word(Struct):
    value: Words


OneWord = Annotated[tuple[Word, ...], Meta(min_length=1, max_length=10)]


class Sky(Struct):
    """What is told of now and of every third hour alike."""

    condition: OneWord = field(name="weatherDesc")
    feels_like_c: Any = field(name="FeelsLikeC", default=None)
    humidity: Any = None
    wind_kmph: Any = field(name="windspeedKmph", default=None)
    wind_direction: Any = field(name="winddir16Point", default=None)
    precipitation_mm: Any = field(name="precipMM", default=None)
    rain_chance: Any = field(name="chanceofrain", default=None)
    snow_chance: Any = field(name="chanceofsnow", default=None)
    pressure: Any = None
    visibility: Any = None
    cloud_cover: Any = field(name="cloudcover", default=None)
    uv_index: Any = field(name="uvIndex", default=None)


class Now(Sky, kw_only=True):
    temp_c: Reading = field(name="temp_C")
    observed_at: Any = field(name="localObsDateTime", default=None)


class Hour(Sky, kw_only=True):
    time: Time
    temp_c: Reading = field(name="tempC")


class Astronomy(Struct):
    sunrise: Any = None
    sunset: Any = None


class Day(Struct):
    date: Annotated[str, Meta(pattern="^[0-9]{4}-[0-9]{2}-[0-9]{2}$")]
    min_temp_c: Reading = field(name="mintempC")
    max_temp_c: Reading = field(name="maxtempC")
    hourly: Annotated[tuple[Hour, ...], Meta(min_length=1, max_length=24)]
    astronomy: Annotated[tuple[Astronomy, ...], Meta(max_length=10)] = ()


class Document(Struct):
    now: Annotated[tuple[Now, ...], Meta(min_length=1, max_length=10)] = field(name="current_condition")
    days: Raw = field(name="weather", default=Raw(b"[]"))
    """As they came: what is wrong with the forecast is no matter to whoever asks for the weather now."""
    areas: Any = field(name="nearest_area", default=None)


_decode = msgspec.json.Decoder(Document).decode
_decode_days = msgspec.json.Decoder(Annotated[tuple[Raw, ...], Meta(max_length=20)] | None).decode
_decode_day = msgspec.json.Decoder(Day).decode


def read(body: bytes) -> Document:
    """The document, if that is what the service sent."""
    try:
        return _decode(body)
    except msgspec.ValidationError as error:
        raise ToolError(f"API request failed: the answer is no weather report: {_told(error)}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ToolError("API request failed: the answer is not JSON; the place may be unknown") from error


def days_of(document: Document) -> list[Day | None]:
    """The forecast, day by day; None for one that lacks what every report needs."""
    try:
        return [_day_of(raw) for raw in _decode_days(document.days) or ()]
    except msgspec.DecodeError as error:
        raise ToolError("API request failed: the answer is no weather report: its forecast cannot be read") from error


def _day_of(raw: Raw) -> Day | None:
    try:
        return _decode_day(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _told(error: msgspec.ValidationError) -> str:
    """Where it is, without the words of a program about its types."""
    match = re.search(r"`\$([^`]*)`$", str(error))
    place = match[1].strip(".") if match else ""
    return f"what it says of {place} is missing or cannot be read" if place else "something in it cannot be read"
