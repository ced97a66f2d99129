"""Arithmetic in words: 15 plus 27 times 2, divide 144 by 12 and add 1, a third of 90."""

import re
from collections.abc import Iterator

from midspan.providers.offline.reading.mention import Mention
from midspan.providers.offline.reading.numbers import SCALES, WORDED, worded_value

# A number begins where no digit stands before it, and has an end: long rows of digits are read once.
_DIGITS = re.compile(
    r"(?i)(?<![\d,.])(?P<sign>-?)(?P<number>\d{1,3}(?:,\d{3}){1,6}(?:\.\d{1,20})?|\d{1,20}(?:\.\d{1,20})?)(?![\d\w]|\.\d|,\d)"
    r"(?:\s?(?P<scale>hundred|thousand|million|billion)\b)?"
)
_PERCENT = re.compile(r"(?i)\s?(?:%(?!\s*\d)|percent\b|per cent\b)")
_OPERATORS = (
    (re.compile(r"(?i)\s*(?:\*\*|\^|(?:raised )?to the power(?: of)?\b)\s*"), "**"),
    (re.compile(r"(?i)\s*(?:\+|(?:and )?(?:plus|added to)\b)\s*"), "+"),
    (re.compile(r"(?i)\s*(?:[-\u2212]|minus\b|less\b(?! than))\s*"), "-"),
    (re.compile(r"(?i)\s*(?:[*\u00d7]|times\b|multiplied (?:by|with)\b|x(?=\s*\d))\s*"), "*"),
    (re.compile(r"(?i)\s*(?:[/÷]|divided by\b|over\b)\s*"), "/"),
    (re.compile(r"(?i)\s*(?:%(?=\s*\d)|mod(?:ulo)?\b)\s*"), "%"),
)
_OF = re.compile(r"(?i)\s+of\s+(?:the\s+)?")
_AFTER = (
    (re.compile(r"(?i)\s+squared\b"), "{0} ** 2"),
    (re.compile(r"(?i)\s+cubed\b"), "{0} ** 3"),
    (re.compile(r"(?i)\s+factorial\b"), "factorial({0})"),
)
_BEFORE = (
    (re.compile(r"(?i)(?:the )?square root of\s+"), "sqrt({0})"),
    (re.compile(r"(?i)(?:the )?factorial of\s+"), "factorial({0})"),
    (re.compile(r"(?i)(?:a )?half(?: of)?\s+"), "{0} / 2"),
    (re.compile(r"(?i)(?:a |one )third of\s+"), "{0} / 3"),
    (re.compile(r"(?i)(?:a |one )quarter of\s+"), "{0} / 4"),
    (re.compile(r"(?i)(?:twice|double)\s+"), "{0} * 2"),
)
_VERBS = (
    (re.compile(r"(?i)divide\s+"), re.compile(r"(?i)\s+by\s+"), "/"),
    (re.compile(r"(?i)multiply\s+"), re.compile(r"(?i)\s+(?:by|and|with)\s+"), "*"),
    (re.compile(r"(?i)add\s+"), re.compile(r"(?i)\s+(?:to|and)\s+|,\s*(?:and\s+)?"), "+"),
    (re.compile(r"(?i)subtract\s+"), re.compile(r"(?i)\s+from\s+"), "-"),
)
_THEN = r"(?i)(?:\s*,)?\s*(?:\b(?:and|then)\s+){1,2}"
_IT = r"(?: (?:it|that|this|the (?:result|sum)))?"
_GOING_ON = (
    (re.compile(rf"{_THEN}(?:multiply{_IT} (?:by|with)|(?:multiplied|times)(?: by)?)\s+"), "*"),
    (re.compile(rf"{_THEN}(?:divide{_IT}|divided) by\s+"), "/"),
    (re.compile(rf"{_THEN}(?:add|plus)\s+"), "+"),
    (re.compile(rf"{_THEN}(?:subtract|minus|take away)\s+"), "-"),
)
_BRACKET, _BRACKET_END = re.compile(r"\("), re.compile(r"\)")
_START = re.compile(
    r"(?i)(?<![\w.])(?:\(|-?\d|(?:the )?(?:square root|factorial) of|(?:a )?half|(?:a|one) (?:third|quarter) of"
    rf"|twice|double|divide|multiply|add|subtract)|{WORDED.pattern.removeprefix('(?i)')}"
)
_OPEN_BEFORE = re.compile(
    r"(?i)(?:\b(?:root|log|logarithm|sine?|cosine|tangent|power) of|\b(?:plus|minus|times|multiplied by|divided by)"
    r"|[+*/^\u00d7÷])\s*$"
)
_OPEN_AFTER = re.compile(
    r"(?i)\s*(?:(?:plus|minus|times|multiplied|divided|modulo|squared|cubed|percent|factorial|to the power)\b"
    r"|[%+*/^\u00d7÷]|-\s?\d|\s+of\s+\d|\.\d|\d|(?:,|and|then|\s)+(?:multiply|multiplied|divided?|subtract|plus|minus|times)\b"
    r"|(?:,|and|then|\s)+add\s+(?:\d|it\b|that\b))"
)
_DEEPEST = 6
_PER_HUNDRED = " / 100"


def chains(text: str) -> Iterator[Mention]:
    """All arithmetic that is not said in signs alone, as a calculator takes it.

    The value is empty where the words say more than was understood.
    """
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
            yield Mention("expression", "" if goes_on or went_before else value, match.start(), end)


class _Reader:
    """Reads one chain, from where it begins to as far as it goes."""

    def __init__(self, text: str, at: int) -> None:
        self.text, self.at = text, at
        self.signs_alone = True
        self._operations = 0

    def whole(self) -> str | None:
        value = self._commanded() or self._chain(0)
        while value is not None and (longer := self._going_on(value)) is not None:
            value = longer
        return value if self._operations else None

    def _commanded(self) -> str | None:
        """Divide 144 by 12."""
        start = self.at
        for verb, between, sign in _VERBS:
            if not self._take(verb):
                continue
            self.signs_alone = True  # the verb counts if there are two things to do it with
            value = self._operand(0)
            while value is not None and (other := self._behind(between)) is not None:
                self.signs_alone = False
                turned = sign == "-" or (sign == "+" and value.endswith(_PER_HUNDRED))  # add 10 % to 50
                value = _joined(other, sign, value) if turned else _joined(value, sign, other)
                if sign != "+":
                    break
            if value is not None and self._operations:
                return value
            self.at = start
        return None

    def _going_on(self, value: str) -> str | None:
        """… and multiply by 2."""
        for form, sign in _GOING_ON:
            if (other := self._behind(form)) is not None:
                return _joined(_closed(value) if sign in "*/" else value, sign, other)
        return None

    def _chain(self, depth: int) -> str | None:
        value = self._operand(depth)
        while value is not None:
            before = self.at
            sign = self._found(_OPERATORS)
            other = self._operand(depth) if sign else None
            if other is None:
                self.at = before
                return value
            self._operations += 1
            value = _joined(value, sign, other)
            if re.fullmatch(r"\d+ / \d+", value) and (whole := self._behind(_OF, depth)) is not None:
                value = f"{value} * {whole}"
        return value

    def _operand(self, depth: int) -> str | None:
        if depth > _DEEPEST:
            return None
        if written := self._found(_BEFORE):
            self._operations += 1
            inner = self._operand(depth + 1)
            return None if inner is None else written.format(inner)
        if self._take(_BRACKET):
            inner = self._chain(depth + 1)
            return f"({inner})" if inner is not None and self._take(_BRACKET_END) else None
        value = self._number()
        return None if value is None else self._changed(value, depth)

    def _number(self) -> str | None:
        if match := self._take(_DIGITS):
            digits = match["number"].replace(",", "")
            if match["scale"]:
                scaled = float(digits) * SCALES[match["scale"].lower()]
                digits = str(int(scaled)) if scaled.is_integer() else str(scaled)
            return match["sign"] + digits
        match = self._take(WORDED)
        return None if match is None else str(worded_value(match[0]))

    def _changed(self, value: str, depth: int) -> str | None:
        """With what stands behind it: squared, percent of."""
        if written := self._found(_AFTER):
            self._operations += 1
            return written.format(value)
        if not self._take(_PERCENT):
            return value
        self.signs_alone, value = False, value + _PER_HUNDRED
        if not self._take(_OF):
            return value
        self._operations += 1
        whole = self._operand(depth + 1)
        return None if whole is None else f"{value} * {whole}"

    def _behind(self, form: re.Pattern[str], depth: int = 0) -> str | None:
        """The operand behind these words; nothing is read if it is not there."""
        before = self.at, self.signs_alone
        value = self._operand(depth) if self._take(form) else None
        if value is None:
            self.at, self.signs_alone = before
        else:
            self._operations += 1
        return value

    def _found(self, forms: tuple[tuple[re.Pattern[str], str], ...]) -> str:
        """What the first of these that stands here means."""
        return next((meaning for form, meaning in forms if self._take(form)), "")

    def _take(self, form: re.Pattern[str]) -> re.Match[str] | None:
        match = form.match(self.text, self.at)
        if match:
            self.at = match.end()
            self.signs_alone = self.signs_alone and not re.search("[A-Za-z]", match[0])
        return match


def _joined(left: str, sign: str, right: str) -> str:
    if sign in "+-" and right.endswith(_PER_HUNDRED):  # 50 minus 10 % takes 10 % of the 50
        return f"{_closed(left)} * (1 {sign} {right})"
    return f"{left} {sign} {_closed(right) if sign in ('/', '**', '%') else right}"


def _closed(value: str) -> str:
    """In brackets, if it is more than a number."""
    return value if re.fullmatch(r"-?[\d.]+|\w+\([^()]*\)|\([^()]*\)", value) else f"({value})"
