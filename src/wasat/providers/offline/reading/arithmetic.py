"""Arithmetic in words: 15 plus 27 times 2, divide 144 by 12 and add 1, a third of 90."""

import re
from collections.abc import Iterator

from msgspec import Struct

from wasat.providers.offline.reading.numbers import SCALES, WORDED, worded_value

# A number begins where no digit stands before it, and has an end: long rows of digits are read once.
_DIGITS = re.compile(
    r"(?<![\d,.])(?P<sign>-?)(?P<number>\d{1,3}(?:,\d{3}){1,6}(?:\.\d{1,20})?|\d{1,20}(?:\.\d{1,20})?)(?![\d\w]|\.\d|,\d)"
    r"(?:\s?(?P<scale>hundred|thousand|million|billion)\b)?",
    re.IGNORECASE,
)
_PERCENT = re.compile(r"\s?(?:%(?!\s*\d)|percent\b|per cent\b)", re.IGNORECASE)
_OPERATORS = (
    (re.compile(r"\s*(?:\*\*|\^|(?:raised )?to the power(?: of)?\b)\s*", re.IGNORECASE), "**"),
    (re.compile(r"\s*(?:\+|(?:and )?(?:plus|added to)\b)\s*", re.IGNORECASE), "+"),
    (re.compile(r"\s*(?:[-\u2212]|minus\b|less\b(?! than))\s*", re.IGNORECASE), "-"),
    (re.compile(r"\s*(?:[*\u00d7]|times\b|multiplied (?:by|with)\b|x(?=\s*\d))\s*", re.IGNORECASE), "*"),
    (re.compile(r"\s*(?:[/÷]|divided by\b|over\b)\s*", re.IGNORECASE), "/"),
    (re.compile(r"\s*(?:%(?=\s*\d)|mod(?:ulo)?\b)\s*", re.IGNORECASE), "%"),
)
_OF = re.compile(r"\s+of\s+(?:the\s+)?", re.IGNORECASE)
_AFTER = (("squared", "{0} ** 2"), ("cubed", "{0} ** 3"), ("factorial", "factorial({0})"))
_BEFORE = (
    (re.compile(r"(?:the )?square root of\s+", re.IGNORECASE), "sqrt({0})"),
    (re.compile(r"(?:the )?factorial of\s+", re.IGNORECASE), "factorial({0})"),
    (re.compile(r"(?:a )?half(?: of)?\s+", re.IGNORECASE), "{0} / 2"),
    (re.compile(r"(?:a |one )third of\s+", re.IGNORECASE), "{0} / 3"),
    (re.compile(r"(?:a |one )quarter of\s+", re.IGNORECASE), "{0} / 4"),
    (re.compile(r"(?:twice|double)\s+", re.IGNORECASE), "{0} * 2"),
)
_VERBS = (
    (re.compile(r"divide\s+", re.IGNORECASE), re.compile(r"\s+by\s+", re.IGNORECASE), "{0} / {1}"),
    (re.compile(r"multiply\s+", re.IGNORECASE), re.compile(r"\s+(?:by|and|with)\s+", re.IGNORECASE), "{0} * {1}"),
    (re.compile(r"add\s+", re.IGNORECASE), re.compile(r"\s+(?:to|and)\s+|,\s*(?:and\s+)?", re.IGNORECASE), "{0} + {1}"),
    (re.compile(r"subtract\s+", re.IGNORECASE), re.compile(r"\s+from\s+", re.IGNORECASE), "{1} - {0}"),
)
_THEN = r"(?:\s*,)?\s*(?:\b(?:and|then)\s+){1,2}"
_GOING_ON = (
    (re.compile(rf"{_THEN}multiply (?:(?:it|that|this|the (?:result|sum)) )?(?:by|with)\s+", re.IGNORECASE), "*"),
    (re.compile(rf"{_THEN}divide (?:(?:it|that|this|the (?:result|sum)) )?by\s+", re.IGNORECASE), "/"),
    (re.compile(rf"{_THEN}(?:multiplied|times)(?: by)?\s+", re.IGNORECASE), "*"),
    (re.compile(rf"{_THEN}divided by\s+", re.IGNORECASE), "/"),
    (re.compile(rf"{_THEN}(?:add|plus)\s+", re.IGNORECASE), "+"),
    (re.compile(rf"{_THEN}(?:subtract|minus|take away)\s+", re.IGNORECASE), "-"),
)
_START = re.compile(
    rf"(?<![\w.])(?:\(|-?\d|(?:the )?(?:square root|factorial) of|(?:a )?half|(?:a|one) (?:third|quarter) of"
    rf"|twice|double|divide|multiply|add|subtract)|{WORDED.pattern}",
    re.IGNORECASE,
)
_OPEN_BEFORE = re.compile(
    r"(?:\b(?:root|log|logarithm|sine?|cosine|tangent|power) of|\b(?:plus|minus|times|multiplied by|divided by)"
    r"|[+*/^\u00d7÷])\s*$",
    re.IGNORECASE,
)
_OPEN_AFTER = re.compile(
    r"\s*(?:(?:plus|minus|times|multiplied|divided|modulo|squared|cubed|percent|factorial|to the power)\b"
    r"|[%+*/^\u00d7÷]|-\s?\d|\s+of\s+\d|\.\d|\d|(?:,|and|then|\s)+(?:multiply|multiplied|divided?|subtract|plus|minus|times)\b"
    r"|(?:,|and|then|\s)+add\s+(?:\d|it\b|that\b))",
    re.IGNORECASE,
)
_DEEPEST = 6


class Worded(Struct, frozen=True, gc=False):
    """An expression as a calculator takes it, empty where the words say more than was understood."""

    value: str
    start: int
    end: int


def chains(text: str) -> Iterator[Worded]:
    """All arithmetic that is not said in signs alone, each with where its words begin and end."""
    end = 0
    for match in _START.finditer(text):
        if match.start() < end:
            continue
        reader = _Reader(text, match.start())
        value = reader.whole()
        if value is None:
            continue
        end = reader.at
        goes_on = _OPEN_AFTER.match(text, end)
        if not reader.signs_alone or goes_on:
            went_before = _OPEN_BEFORE.search(text[max(0, match.start() - 20) : match.start()])
            yield Worded("" if goes_on or went_before else value, match.start(), end)


class _Reader:
    """Reads one chain, from where it begins to as far as it goes."""

    def __init__(self, text: str, at: int) -> None:
        self.text, self.at = text, at
        self.signs_alone = True
        self._operations = 0

    def whole(self) -> str | None:
        value = self._commanded() or self._chain(0)
        if value is None:
            return None
        while (going_on := self._going_on(value)) is not None:
            value = going_on
        return value if self._operations else None

    def _commanded(self) -> str | None:
        """Divide 144 by 12."""
        start = self.at
        for verb, between, form in _VERBS:
            if not self._skip(verb):
                continue
            value = self._operand(0)
            while value is not None:
                before = self.at
                other = self._operand(0) if self._skip(between) else None
                if other is None:
                    self.at = before
                    break
                self._operations, self.signs_alone = self._operations + 1, False
                if value.endswith(" / 100") and "1" in form and form[4] in "+-":  # add 10 % to 50
                    value = f"{_closed(other)} * (1 {form[4]} {value})"
                else:
                    value = form.format(value, other)
                if "+" not in form:
                    break
            if value is not None and self._operations:
                return value
            self.at = start
        return None

    def _going_on(self, value: str) -> str | None:
        """… and multiply by 2."""
        start = self.at
        for form, sign in _GOING_ON:
            if self._skip(form):
                other = self._operand(0)
                if other is not None:
                    self._operations, self.signs_alone = self._operations + 1, False
                    return f"{_closed(value) if sign in '*/' else value} {sign} {other}"
                self.at = start
        return None

    def _chain(self, depth: int) -> str | None:
        value = self._operand(depth)
        while value is not None:
            before = self.at
            sign = self._sign()
            if not sign:
                return value
            other = self._operand(depth)
            if other is None:
                self.at = before
                return value
            self._operations += 1
            if sign in "+-" and other.endswith(" / 100"):  # 50 minus 10 % takes 10 % of the 50
                value = f"{_closed(value)} * (1 {sign} {other})"
            else:
                value = f"{value} {sign} {_closed(other) if sign in '/**%' and sign != '*' else other}"
            if re.fullmatch(r"\d+ / \d+", value) and self._skip(_OF):
                whole = self._operand(depth)
                if whole is None:
                    return value
                value, self.signs_alone = f"{value} * {whole}", False
        return value

    def _sign(self) -> str:
        for form, sign in _OPERATORS:
            match = form.match(self.text, self.at)
            if match:
                self.at = match.end()
                self.signs_alone = self.signs_alone and not re.search("[a-z]", match[0], re.IGNORECASE)
                return sign
        return ""

    def _operand(self, depth: int) -> str | None:
        if depth > _DEEPEST:
            return None
        for form, written in _BEFORE:
            if self._skip(form):
                inner = self._operand(depth + 1)
                self._operations, self.signs_alone = self._operations + 1, False
                return None if inner is None else written.format(inner)
        if self.text.startswith("(", self.at):
            self.at += 1
            inner = self._chain(depth + 1)
            if inner is None or not self.text.startswith(")", self.at):
                return None
            self.at += 1
            return f"({inner})"
        value = self._number()
        return None if value is None else self._changed(value, depth)

    def _number(self) -> str | None:
        if match := _DIGITS.match(self.text, self.at):
            self.at = match.end()
            digits = match["number"].replace(",", "")
            if match["scale"]:
                self.signs_alone = False
                scaled = float(digits) * SCALES[match["scale"].lower()]
                digits = str(int(scaled)) if scaled.is_integer() else str(scaled)
            return match["sign"] + digits
        if match := WORDED.match(self.text, self.at):
            self.at, self.signs_alone = match.end(), False
            return str(worded_value(match[0]))
        return None

    def _changed(self, value: str, depth: int) -> str | None:
        """With what stands behind it: squared, percent of."""
        for word, written in _AFTER:
            if self._skip(re.compile(rf"\s+{word}\b", re.IGNORECASE)):
                self._operations, self.signs_alone = self._operations + 1, False
                return written.format(value)
        if self._skip(_PERCENT):
            self.signs_alone = False
            value = f"{value} / 100"
            if self._skip(_OF):
                whole = self._operand(depth + 1)
                self._operations += 1
                return None if whole is None else f"{value} * {whole}"
        return value

    def _skip(self, form: re.Pattern[str]) -> bool:
        match = form.match(self.text, self.at)
        self.at = match.end() if match else self.at
        return match is not None


def _closed(value: str) -> str:
    """In brackets, if it is more than a number."""
    return value if re.fullmatch(r"-?[\d.]+|\w+\([^()]*\)|\([^()]*\)", value) else f"({value})"
