"""Units of measurement: what they measure, and which of them are the same."""

from midspan.providers.offline.reading.meanings import concepts

_UNITS = """
length height width distance depth radius diameter side base altitude elevation: mm millimeter millimetre
length height width distance depth radius diameter side base altitude elevation: cm centimeter centimetre, m meter metre
length height width distance depth radius diameter side base altitude elevation: inch in, foot feet ft, yard yd
length distance altitude elevation: km kilometer kilometre, mile mi, lightyear
weight mass load: mg milligram, g gram, kg kilogram kilo, lb lbs pound, oz ounce, ton tonne
time duration period term interval length: ms millisecond, s sec second, min minute mins, h hr hour hrs, day, week
time duration period term interval length: month, year yr yrs
age: year
temperature heat: celsius c °c, fahrenheit f °f, kelvin k, degree
angle: degree, radian
speed velocity: mph, kph km/h, m/s, knot
acceleration: m/s²
volume capacity: ml milliliter millilitre, l liter litre, gallon gal, cup, pint, quart, tablespoon tbsp, teaspoon tsp
energy: joule j, calorie kcal, kwh, ev
power: watt w, kw kilowatt, horsepower hp
pressure: pascal pa, bar, atm atmosphere, psi
force: newton n
current: ampere amp a
voltage potential: volt v
resistance: ohm
frequency: hertz hz, khz, mhz, ghz
charge: coulomb
area: acre, hectare, sqft
size storage memory: byte, kb kilobyte, mb megabyte, gb gigabyte, tb terabyte
count guest person party people: people person guest adult passenger
"""
_MEASURES: dict[str, set[str]] = {}
_SAME: dict[str, str] = {}
for _line in _UNITS.strip().splitlines():
    _measured, _, _names = _line.partition(":")
    for _group in _names.split(","):
        _spellings = _group.split()
        for _spelling in _spellings:
            _SAME[_spelling] = _spellings[-1] if len(_spellings[0]) <= 2 else _spellings[0]
        _MEASURES.setdefault(_SAME[_spellings[0]], set()).update(concepts(_word)[0] for _word in _measured.split())


def unit_word(word: str) -> str:
    """One spelling for all those of a unit; empty for what is none."""
    plain = word.lower()
    return _SAME.get(plain) or _SAME.get(plain.removesuffix("s")) or _SAME.get(plain.removesuffix("es")) or ""


def measured(word: str) -> set[str]:
    """The stems of what a unit measures: weight and mass for kg."""
    return _MEASURES.get(unit_word(word), set())
