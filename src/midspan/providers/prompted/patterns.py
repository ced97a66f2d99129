"""Finds where in a text a call may begin, and what at the end of a text may still become such a place."""

import re
from collections.abc import Callable, Collection, Iterable
from functools import lru_cache

from midspan.providers.prompted.forms import FORMS, MARKER, OBSERVATIONS, RESULTS, THOUGHTS
from midspan.providers.prompted.scanner import Form

# A lookbehind has a fixed width, so each indentation of a line is an alternative of its own.
_INDENTS = ("", " ", "  ", "   ", "    ", "\t")
# A nonce in brackets, bold marks and spaces may stand between the marker and its colon.
_NONCE = r"\[[^\]\n]{0,64}\]"
_NEAR_CHARS = 300
_COLON = r"[*`_]{0,3}[ \t]{0,3}[:\uff1a]"


class CallPatterns:
    """The start marks of all forms as one expression."""

    def __init__(self, marker: str, *, other_forms: bool) -> None:
        self._forms = {mark: form for form in FORMS if other_forms for mark in form.starts}
        anywhere = [mark for mark, form in self._forms.items() if not form.at_line_start]
        at_line_start = [mark for mark, form in self._forms.items() if form.at_line_start]
        thoughts = [*THOUGHTS, *(mark for mark in THOUGHTS.values() if mark.startswith("</"))]
        results = [*RESULTS, *OBSERVATIONS]
        self._starts = re.compile(f"(?=({_alternatives(marker, anywhere, at_line_start)}))(.)", re.DOTALL)
        self._places = re.compile(_alternatives(marker, [*anywhere, *thoughts], [*at_line_start, *results]))
        marks = [marker, *anywhere, *at_line_start, *THOUGHTS, *THOUGHTS.values(), *results]
        self._beginnings = frozenset(mark[:size].casefold() for mark in marks for size in range(1, len(mark)))
        self._longest = max(map(len, marks))
        self._open_marker = re.compile(
            rf"(?i:{re.escape(marker)})(?:\[[^\]\n]{{0,64}}|(?:{_NONCE})?[*`_]{{0,3}}[ \t]{{0,3}})\Z"
        )

    def find(self, text: str, at: int) -> re.Match[str] | None:
        """Return the next place where a call, a thought or a result may begin."""
        return self._places.search(text, at)

    def has_mark(self, text: str, begin: int, end: int) -> bool:
        """Whether a call begins in this part of the text, by a mark that does not occur in plain text."""
        return any(not self.form_of(place[1]).at_line_start for place in self._starts.finditer(text, begin, end))

    def form_of(self, mark: str) -> Form:
        return self._forms.get(mark, MARKER)

    def escape(self, text: str, escape: Callable[[str], str], names: Collection[str]) -> str:
        """Replace the first character of each start mark. Marks that also occur in plain text need a tool nearby."""

        def replace(place: re.Match[str]) -> str:
            near = text[place.start() : place.start() + _NEAR_CHARS]
            is_start = not self.form_of(place[1]).at_line_start or any(name in near for name in names)
            return escape(place[2]) if is_start else place[2]

        return self._starts.sub(replace, text)

    def held_from(self, text: str, at: int) -> int:
        """Return from where on the text must wait, because its end may be the beginning of a mark."""
        marker = self._open_marker.search(text, max(at, len(text) - self._longest - 80))
        held = len(text) if marker is None else marker.start()
        for size in range(min(self._longest, len(text) - at), 0, -1):
            if text[-size:].casefold() in self._beginnings:
                return min(held, len(text) - size)
        return held


@lru_cache(maxsize=256)
def call_patterns(marker: str, *, other_forms: bool) -> CallPatterns:
    return CallPatterns(marker, other_forms=other_forms)


def _alternatives(marker: str, anywhere: Iterable[str], at_line_start: Iterable[str]) -> str:
    """Return one expression. Each alternative begins with another character, so text without marks is skipped fast."""
    tails: dict[str, list[str]] = {}
    first, rest = marker[0], re.escape(marker[1:])
    # The marker as the prompt has it counts anywhere, even glued to a word; in other letters only where a word begins.
    tails[first] = [rf"(?<![_\\].){rest}(?:{_NONCE})?{_COLON}"]
    for letter in dict.fromkeys([first.upper(), first.lower()]):
        tails.setdefault(letter, []).append(rf"(?<![\w\\].)(?i:{rest})(?:{_NONCE})?{_COLON}")
    for mark in sorted(anywhere, key=len, reverse=True):
        before = r"(?<![\w\\.].)" if mark[0].isalpha() else r"(?<!\\.)"
        tails.setdefault(mark[0], []).append(before + re.escape(mark[1:]))
    for mark in sorted(at_line_start, key=len, reverse=True):
        line_start = "|".join(rf"(?<=\n{indent}{re.escape(mark[0])})" for indent in _INDENTS)
        tails.setdefault(mark[0], []).append(f"(?:{line_start}){re.escape(mark[1:])}")
    return "|".join(f"{re.escape(first)}(?:{'|'.join(branches)})" for first, branches in tails.items())
