"""Values that show by their form: quotations, literals, addresses, codes, expressions."""

import json
import re
from collections.abc import Iterator
from typing import Any

from midspan.providers.offline.reading.mention import Mention


def written(text: str) -> Iterator[Mention]:
    """What is written out, the surest forms first."""
    yield from _literals(text)
    for match in _QUOTED.finditer(text):
        inner = match[1] or match[2] or match[3] or match[4]
        yield Mention("quoted", inner.strip(), match.start(), match.end())
    for kind, form in _SHAPES.items():
        for match in form.finditer(text):
            plain = match[0].rstrip(".,;:!?")
            yield Mention(kind, plain, match.start(), match.start() + len(plain))


def formulas(text: str) -> Iterator[Mention]:
    """Expressions and codes; they may look like days and times, which are asked before them."""
    for match in _EXPRESSION.finditer(text):
        plain = match[0].strip()
        if _OPERATOR.search(plain[1:]) and not _is_label(text, plain, match.start()):
            value = _THOUSANDS.sub("", plain)
            yield Mention("expression", value, match.start(), match.start() + len(plain))
    for match in _CODE.finditer(text):
        yield Mention("code", match[0], match.start(), match.end())


def _is_label(text: str, plain: str, start: int) -> bool:
    """Whether two numbers with a dash are those of a phone, a score or a range: nobody asks for their difference."""
    asked_for = text.strip(" ?.=!") == plain or _ASKED_FOR.search(text[max(0, start - 40) : start])
    return _DASHED.fullmatch(plain) is not None and not asked_for


_THOUSANDS = re.compile(r",(?=\d{3}(?!\d))")
_DASHED = re.compile(r"\d[\d.,]*\s?-\s?\d[\d.,]*")
_ASKED_FOR = re.compile(
    r"(?i)(?:\bwhat(?:['\u2019]s| is| does| would| will)?|\bhow much(?: is| are)?|\bcalculat\w*|\bcomput\w*|\bfind"
    r"|\bevaluat\w*|\bsolve|\b(?:value|result|difference|expression|answer|equation)(?: of| to| is)?|\bwork out"
    r"|[=:(])\s*$"
)
_QUOTED = re.compile(
    r"\"([^\"\n]{1,4000})\"|“([^”\n]{1,4000})”|«([^»\n]{1,4000})»"
    r"|(?<![A-Za-z0-9])['\u2018`]([^'\u2019`\n]{1,2000}(?:['\u2019](?=[a-z])[^'\u2019`\n]{0,500})*)['\u2019`](?![A-Za-z0-9])"
)
_FILES = "csv|txt|json|xml|pdf|png|jpe?g|py|js|java|md|html|docx?|xlsx?|mp[34]|zip|wav"
_UUID = r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"
_SHAPES = {
    "email": re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+"),
    "url": re.compile(r"\b(?:https?|ftp|wss?)://[^\s\"'<>]+|\bwww\.[^\s\"'<>]+"),
    "path": re.compile(rf"(?<![\w/])(?:~?/|[A-Z]:\\|\./)[\w.\-/\\]+[\w/]|\b[\w-]{{1,100}}\.(?:{_FILES})\b"),
    "address": re.compile(rf"\b\d{{1,3}}(?:\.\d{{1,3}}){{3}}\b|{_UUID}"),
    "phone": re.compile(r"\+\d[\d\s()-]{6,18}\d|\b\d{3}-\d{3}-\d{4}\b"),
}
_OPERAND = r"(?:\d[\d,]{0,20}(?:\.\d{1,20})?[a-z]?|[a-z]|(?:sqrt|sin|cos|tan|log|exp|pi))\b(?:\^\d+)?"
_EXPRESSION = re.compile(
    rf"(?<![\w.])(?<!\d\s)(?:[-(]\s?){{0,6}}{_OPERAND}(?:\s?\)){{0,4}}"
    rf"(?:\s?(?:\*\*|[-+*/^\u00d7÷%])\s?(?:[-(]\s?){{0,4}}{_OPERAND}(?:\s?\)){{0,4}})+"
)
_OPERATOR = re.compile(r"[-+*/^\u00d7÷%]")
_AMOUNT = r"\d+(?:\.\d+)?(?:-[a-z]|(?:[eE][-+]?\d+|[A-Za-z]{1,4})?(?![\w-]|\.\w))"
"""Digits with a unit, which look like a code: 1.75m, 30-year."""
_CODE = re.compile(
    r"\b\d{4}-\d{4}\b"
    rf"|(?<![\w'\u2019.])(?!{_AMOUNT})(?=[\w.-]{{0,100}}\d)(?=[\w.-]{{0,100}}[A-Za-z])"
    r"[A-Za-z0-9]+(?:[-_.][A-Za-z0-9]+)+(?!\w)"
    r"|(?<![\w'\u2019.])(?:[A-Z]+\d+[A-Z0-9]*|\d+[A-Z]+[A-Z0-9]+|#\d+)(?!\w)"
    r"|\b[A-Za-z0-9]+(?:_[A-Za-z0-9]+)+\b|\b[a-z]+[A-Z]\w+\b|\b[A-Z][a-z]+(?:/[A-Z][A-Za-z_]+)+\b"
)


def _literals(text: str) -> Iterator[Mention]:
    """Lists and objects written out as JSON or Python has them."""
    at = 0
    for _ in range(50):
        start = min((spot for spot in (text.find("[", at), text.find("{", at)) if spot >= 0), default=-1)
        if start < 0:
            return
        end = _closed(text, start)
        value = _literal(text[start:end])
        if value is not None:
            yield Mention("list" if isinstance(value, list) else "object", value, start, end)
        at = end if value is not None else start + 1


def _closed(text: str, start: int) -> int:
    depth = 0
    for at in range(start, min(len(text), start + 4000)):
        depth += (text[at] in "[{") - (text[at] in "]}")
        if depth == 0:
            return at + 1
    return start + 1


def _literal(text: str) -> Any:
    in_json = text.replace("'", '"').replace("True", "true").replace("False", "false").replace("None", "null")
    for attempt in (text, in_json):
        try:
            value = json.loads(attempt)
        except (ValueError, RecursionError):
            continue
        return value if isinstance(value, list | dict) else None
    bare = [one.strip().strip("'\"") for one in text[1:-1].split(",")]
    return bare if text[0] == "[" and all(re.fullmatch(r"[\w .-]{1,60}", one) for one in bare) else None
