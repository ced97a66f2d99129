"""Strings as JSON, Python and people write them: where they end, and what an escape in them stands for."""

import re

QUOTES = "\"'“”„\u2018\u2019"
ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\\": "\\", '"': '"', "/": "/"}
_PYTHON_ESCAPES = _ESCAPES | {"a": "\a", "v": "\v", "'": "'", "\n": "", "/": "\\/"}
SURROGATE = re.compile("[\ud800-\udfff]")


def letter(escape: re.Match[str]) -> str:
    """What an escape stands for in JSON; an apostrophe needs none, but nothing else can be meant."""
    word = escape[1]
    if word[0] == "u" and len(word) > 1:
        return chr(int(word[1:], 16))
    if word in _ESCAPES:
        return _ESCAPES[word]
    if word == "'":
        return word
    raise ValueError(escape[0])


def letter_in_odd_quotes(escape: re.Match[str]) -> str:
    """The same between quotes that JSON does not have.

    Who turned every double quote of JSON into a single one has made \\' of \\"; between letters that cannot be.
    """
    if escape[1] == "'":
        before, after = (
            escape.string[escape.start() - 1 : escape.start()],
            escape.string[escape.end() : escape.end() + 1],
        )
        if not (before.isalpha() and after.isalpha()):
            raise ValueError(escape[0])
    return letter(escape)


def python_letter(escape: re.Match[str]) -> str:
    """The same in Python, where an escape that is none stays as it is."""
    word = escape[1]
    if word[0] in "xuU" and len(word) > 1:
        return chr(int(word[1:], 16))
    if word in "01234567N":
        raise ValueError(escape[0])
    return _PYTHON_ESCAPES.get(word, escape[0])


def _string(closing: str) -> re.Pattern[str]:
    # Possessive, so that neither time nor memory grows with what was already read.
    other = closing if closing.startswith("[") else f"[{closing}]"
    return re.compile(rf"((?:[^\\{other[1:]}+|\\.)*+){other}", re.DOTALL)


STRINGS = {
    '"': _string('"'),
    "'": _string("'"),
    **dict.fromkeys("“”„", _string("[“”]")),
    **dict.fromkeys("\u2018\u2019", _string("[\u2018\u2019]")),
    '"""': re.compile(r'((?:[^\\"]+|\\.|"(?!""))*+)"""', re.DOTALL),
    "'''": re.compile(r"((?:[^\\']+|\\.|'(?!''))*+)'''", re.DOTALL),
}
