"""Numbers as people write them: 5, five, 2,500, 3.5k, 30%, $20, and what they are numbers of."""

import re
from collections.abc import Iterator
from math import isfinite

from midspan.providers.offline.reading.mention import Mention
from midspan.providers.offline.reading.words import STOP

_DIGITS = re.compile(
    r"(?<![\w.])(?P<sign>-)?(?P<currency>[$€£¥₹]\s?)?"
    r"(?P<number>\d{1,3}(?:,\d{3}){1,8}(?:\.\d{1,20})?|\d{1,40}(?:\.\d{1,40})?|\.\d{1,40})(?!\d)"
    r"(?P<exponent>[eE][-+]?\d{1,6})?(?:(?:st|nd|rd|th)\b)?(?P<scale>\s?(?:million|billion|thousand|hundred)\b|[kKM]\b)?"
    r"(?P<percent>\s?(?:%|percent\b|per cent\b))?(?P<currency_after>\s?[€£¥])?"
    r"(?P<unit>[\s-]?°?[A-Za-z]+(?:/[A-Za-z]+)?)?"
)
_BELOW_TWENTY = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_NAMED = {word: value for value, word in enumerate(_BELOW_TWENTY.split())}
_NAMED |= {word: 10 * tens for tens, word in enumerate(_TENS.split(), 2)}
SCALES = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9, "k": 1000, "K": 1000, "M": 10**6}
WORDED = re.compile(
    r"(?i)\b(?:(?:{0})(?:[\s-](?:and\s)?(?:{0}|hundred|thousand|million|billion)\b)*)\b".format("|".join(_NAMED))
)
_UNIT_AFTER = re.compile(r"[\s-]?([A-Za-z]+)")
CURRENCY_SIGNS = {"$": "USD", "€": "EUR", "£": "GBP", "¥": "JPY", "₹": "INR"}


def numbers(text: str) -> Iterator[Mention]:
    """The numbers of a text, in digits and then in words."""
    for match in _DIGITS.finditer(text):
        currency = (match["currency"] or match["currency_after"] or "").strip()
        scale = (match["scale"] or "").strip()
        unit, end = _unit(match["unit"]), match.start("unit") if match["unit"] else match.end()
        if scale in ("K", "M") and not currency:
            unit, end, scale = scale.lower(), match.start("scale"), ""  # 300K are kelvins, $300K is money
        value = _value(match, scale)
        if not isfinite(value):
            continue  # 1e999 is none that JSON can say
        sign, percent = CURRENCY_SIGNS.get(currency, ""), bool(match["percent"])
        yield Mention("number", value, match.start(), end, unit=unit, currency=sign, percent=percent)
    for match in WORDED.finditer(text):
        unit = _unit((after := _UNIT_AFTER.match(text, match.end())) and after[1])
        if match[0].lower() != "one" or unit:  # alone it is nearly always a pronoun
            yield Mention("number", worded_value(match[0]), match.start(), match.end(), unit=unit, vague=True)


def _unit(word: str | None) -> str:
    plain = (word or "").strip(" -").lower()
    return "" if plain in STOP else plain


def _value(match: re.Match[str], scale: str) -> int | float:
    digits = match["number"].replace(",", "")
    exact = match["exponent"] is None and "." not in digits
    value: int | float = int(digits) if exact else float(digits + (match["exponent"] or ""))
    if scale:
        value *= SCALES[scale]
        if isinstance(value, float) and value.is_integer():
            value = int(value)
    return -value if match["sign"] else value


def worded_value(text: str) -> int:
    """The number that words name: two hundred and five is 205."""
    total = current = 0
    for word in re.split(r"[\s-]+", text.lower()):
        if word in _NAMED:
            current += _NAMED[word]
        elif word == "hundred":
            current = (current or 1) * 100
        elif word in SCALES:
            total, current = total + (current or 1) * SCALES[word], 0
    return total + current
