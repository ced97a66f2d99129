"""What can be read at the speed of C: JSON as the standard has it, and runs of plain values that are nearly that."""

import json
import re
from math import isfinite
from typing import Any


def strict(text: str, at: int, deepest: int) -> tuple[Any, int]:
    """JSON as the standard has it, at the speed of C; a ValueError for all that has to be looked at more closely."""
    value, end = _decoder.raw_decode(text, at)
    if text.count("{", at, end) + text.count("[", at, end) > deepest and _is_deep(value, deepest):
        raise ValueError("too deep")
    if _HALF.search(text, at, end):
        raise ValueError("perhaps half a character")
    return value, end


def _is_deep(value: Any, deepest: int) -> bool:
    level = [value]
    for _ in range(deepest):
        inner = [one for box in level for one in (box.values() if type(box) is dict else box)]
        level = [one for one in inner if type(one) in (dict, list)]
        if not level:
            return False
    return True


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a name twice")
    return members


def _finite(digits: str) -> float:
    value = float(digits)
    if not isfinite(value):
        raise ValueError("too large")
    return value


def _refuse(word: str) -> Any:
    raise ValueError(word)


_decoder = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_finite, parse_constant=_refuse)
_HALF = re.compile(r"\\u[dD][89a-fA-F]")


def as_json(plain: str) -> str:
    """Plain values as JSON has them; no text in them has an escape or a quote, so every quote begins or ends one."""
    pieces = plain.replace("'", '"').split('"')
    outside = "\0".join(pieces[::2]).translate(_BRACKETS)
    for word, json_word in _PYTHON_WORDS.items():
        outside = outside.replace(word, json_word)
    pieces[::2] = _LAST_COMMA.sub("", outside).split("\0")
    return '"'.join(pieces)


lenient_decoder = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_finite, strict=False)
_BRACKETS = str.maketrans("()", "[]")
_PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}
_LAST_COMMA = re.compile(r",(?=[ \t\n\r]*+[\]}])")
SKIMMED_LEVELS = 3


def _runs(python: bool) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Expressions for plain items and plain members, each with its comma: such as have one reading, and are no deeper
    than a few levels. What is not plain, or not right, ends the run.
    """
    space = r"[ \t\n\r]*+"
    text = r"""(?:"[^"'\\]*+"|'[^"'\\]*+')"""
    scalar = rf"(?:-?(?:0|[1-9][0-9]{{0,17}}+)(?:\.[0-9]{{1,17}}+)?+|{text}|true|false|null|True|False|None)"
    item = scalar
    for _ in range(SKIMMED_LEVELS):
        kinds = [  # each begins with a letter of its own, so that none is tried in vain
            scalar,
            rf"\[{space}(?:{item}{space}(?:,{space}|(?=\])))*+\]",
            rf"\{{{space}(?:{text}{space}:{space}{item}{space}(?:,{space}|(?=\}})))*+\}}",
        ]
        if python:  # parentheses around one value are no list
            kinds.append(rf"\({space}(?:{item}{space},{space}(?:{item}{space}(?:,{space}|(?=\))))*+)?+\)")
        item = f"(?:{'|'.join(kinds)})"
    return (
        re.compile(rf"(?:{space}{item}{space},)++"),
        re.compile(rf"(?:{space}{text}{space}:{space}{item}{space},)++"),
    )


ITEMS, MEMBERS = ({python: _runs(python)[which] for python in (False, True)} for which in (0, 1))
