"""A prompt taken apart into the things it may ask for."""

import re

_BETWEEN = re.compile(
    r"(?i)(?:[.;!?]+\s+|,?\s+(?:and then|and also|then|also|and|plus(?!\s+\d)|additionally|as well as)\s+|\n+)(?=\S)"
)
_MARKS = re.compile(r"[\"'“”«»\[\]{}]")
MOST = 12


def clauses(text: str) -> list[str]:
    """The pieces between full stops and between ands, but nothing that stands in quotation marks is cut."""
    if len(text) > 2000:
        return [text]
    pieces: list[str] = []
    start = 0
    for match in _BETWEEN.finditer(text):
        if _MARKS.search(text[start : match.start()]) and _open(text[: match.start()]):
            continue
        pieces.append(text[start : match.start()])
        start = match.end()
        if len(pieces) >= MOST:
            break
    return [piece for piece in [*pieces, text[start:]] if piece.strip()]


def _open(text: str) -> bool:
    """Whether a quotation or a bracket is still open at the end."""
    brackets = sum(text.count(one) for one in "[{(") > sum(text.count(one) for one in "]})")
    single = len(re.findall(r"(?<!\w)'", text)) > len(re.findall(r"'(?!\w)", text))
    return brackets or single or text.count('"') % 2 == 1 or text.count("“") > text.count("”")
