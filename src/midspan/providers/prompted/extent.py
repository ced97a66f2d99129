"""Where a call that cannot be read is over: on its own line, or nobody can say."""

import re

_SIGN = re.compile(r"""\\.|["'()\[\]{}]""", re.DOTALL)
_PAIRS = {")": "(", "]": "[", "}": "{"}
_LONGEST = 20_000
"""Characters; of a longer one it is not worth while to know."""


def is_closed(text: str, begin: int, shows_at: int, end: int) -> bool:
    """Whether a broken call is over before `end`, the end of the line on which it shows that it is broken.

    All its brackets are closed, and no text can be open: else the lines below may be a part of that text.
    """
    if end - begin > _LONGEST:
        return False
    opened: list[str] = []
    quotes = {'"': 0, "'": 0}
    brackets = 0
    for found in _SIGN.finditer(text, begin, end):
        sign = found[0]
        if sign in quotes:
            quotes[sign] += 1
        elif sign in _PAIRS.values():
            opened.append(sign)
            brackets += 1
        elif sign in _PAIRS:
            if not opened:
                continue
            if opened.pop() != _PAIRS[sign]:
                return False
            if not opened and found.start() >= shows_at:
                return _ends_a_value(text, begin, found.start(), quotes)
    return not opened and quotes['"'] % 2 == 0 and (not brackets or quotes["'"] % 2 == 0)


def _ends_a_value(text: str, begin: int, at: int, quotes: dict[str, int]) -> bool:
    """Whether the bracket at `at` comes after a value, and not somewhere in a text."""
    if quotes['"'] % 2:
        return False
    last = text[begin : at + 1].rstrip(")]}")[-1:]
    return last in "\"'([{" or last.isdigit() or (last.isalnum() and not any(quotes.values()))
