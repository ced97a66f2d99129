"""Arithmetic in words: 15 plus 27, divide 144 by 12."""

import re
from collections.abc import Iterator

# A number begins where no digit stands before it, and has an end: long rows of digits are read once.
_NUMBER = r"(?<![\d,.])(-?\d[\d,]{0,20}(?:\.\d{1,20})?)(?!\d)"
_OPERATIONS = (
    (re.compile(rf"{_NUMBER}\s*(?:plus|and added to|added to)\s*{_NUMBER}", re.IGNORECASE), "{0} + {1}"),
    (re.compile(rf"{_NUMBER}\s*(?:minus|less)\s*{_NUMBER}", re.IGNORECASE), "{0} - {1}"),
    (re.compile(rf"{_NUMBER}\s*(?:times|multiplied by|x)\s*{_NUMBER}", re.IGNORECASE), "{0} * {1}"),
    (re.compile(rf"{_NUMBER}\s*(?:divided by|over)\s*{_NUMBER}", re.IGNORECASE), "{0} / {1}"),
    (re.compile(rf"\bdivide\s+{_NUMBER}\s+by\s+{_NUMBER}", re.IGNORECASE), "{0} / {1}"),
    (re.compile(rf"\bmultiply\s+{_NUMBER}\s+(?:by|and|with)\s+{_NUMBER}", re.IGNORECASE), "{0} * {1}"),
    (re.compile(rf"\badd\s+{_NUMBER}\s+(?:to|and)\s+{_NUMBER}", re.IGNORECASE), "{0} + {1}"),
    (re.compile(rf"\bsubtract\s+{_NUMBER}\s+from\s+{_NUMBER}", re.IGNORECASE), "{1} - {0}"),
    (re.compile(rf"{_NUMBER}\s*(?:%|percent)\s+of\s+{_NUMBER}", re.IGNORECASE), "{0} / 100 * {1}"),
    (re.compile(rf"\bsquare root of\s+{_NUMBER}()", re.IGNORECASE), "sqrt({0})"),
)


def worded(text: str) -> Iterator[tuple[str, int, int]]:
    """The expressions, each with where its words begin and end."""
    for form, written in _OPERATIONS:
        for match in form.finditer(text):
            yield written.format(*(one.replace(",", "") for one in match.groups())), match.start(), match.end()
