"""What hostile text costs its reader in prompt mode, by form: CPU, growth, and the ratio to a hand-written floor.

    python benchmarks/hostile.py [--json] [FORM…]

Each form is read in two lengths, whole and in pieces. Growth is the ratio of the times to the ratio of the lengths: 1.0
is linear. The floor is the least that a reader in Python does: one expression stops at every sign of the text, another
finds where a call may begin, in every piece, and msgspec tries to read what stands there; it repairs nothing, and never
looks twice. A form is given three chances, of which the best counts, because machines have other things to do. Exits 1
where a form grows faster than it may, or is too far above the floor.
"""

import importlib
import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from midspan.providers.prompted.reader import CallReader

sys.path.insert(0, str(Path(__file__).parent.parent))
texts: Any = importlib.import_module("tests.providers.prompted.hostile_texts")

MOST_GROWTH = 1.6
CHANCES = 3
LEAST_SECONDS = 0.02
"""A time below is taken as this: in less, nothing can be told from noise."""
MOST_TRIES = 1_000

_SIGN = re.compile(r"\w+|[^\w\s]")
_PLACE = re.compile(
    r"TOOL_CALL:|<tool_call>|<\|python_tag\|>|<function=|\[TOOL_CALLS\]|call:|(?<=\n)(?:```|[\[{]|Action:)"
)
_LOOKED_BACK = 48


class Manner(NamedTuple):
    """How a text is given: in pieces of so many characters, in two lengths; how far above the floor it may be."""

    piece: int
    short: int
    long: int
    budget: float


MANNERS = {
    "whole": Manner(1 << 30, 1_000_000, 4_000_000, 10.0),
    "4 KiB": Manner(1 << 12, 1_000_000, 4_000_000, 10.0),
    "1 byte": Manner(1, 25_000, 100_000, 8.0),
}


class Figures(NamedTuple):
    """Of one form, given in one manner."""

    form: str
    manner: str
    seconds_per_megabyte: float
    growth: float
    ratio: float

    @property
    def holds(self) -> bool:
        return self.growth <= MOST_GROWTH and self.ratio <= MANNERS[self.manner].budget


def main(arguments: list[str]) -> int:
    wanted = [word for word in arguments if word != "--json"]
    unknown = [name for name in wanted if name not in texts.FORMS]
    if unknown:
        print(f"no such form: {', '.join(unknown)}; there are: {', '.join(texts.FORMS)}", file=sys.stderr)
        return 2
    found = list(measured(wanted or list(texts.FORMS)))
    broken = [figures for figures in found if not figures.holds]
    if "--json" in arguments:
        print(json.dumps([{**figures._asdict(), "holds": figures.holds} for figures in found], indent=1))
    else:
        show(found)
    return int(bool(broken))


def measured(names: list[str]) -> Iterator[Figures]:
    for number, name in enumerate(names, 1):
        print(f"{number}/{len(names)} {name}", file=sys.stderr)
        for manner in MANNERS:
            tries = [figures_of(name, manner)]
            while not best(tries).holds and len(tries) < CHANCES:
                tries.append(figures_of(name, manner))
            yield best(tries)


def best(tries: list[Figures]) -> Figures:
    return Figures(*tries[0][:2], *(min(column) for column in zip(*(one[2:] for one in tries), strict=True)))


def figures_of(name: str, manner: str) -> Figures:
    piece, short, long, _ = MANNERS[manner]
    text, longer = texts.FORMS[name](short), texts.FORMS[name](long)
    floor, ours, ours_longer = (
        seconds(stop_at_signs, text, piece),
        seconds(read, text, piece),
        seconds(read, longer, piece),
    )
    growth = ours_longer / ours / (len(longer) / len(text))
    # Behind the longest call much is not read any more, so the shorter text may be the dearer one.
    dearest = max(ours / len(text), ours_longer / len(longer)) * 1e6
    return Figures(name, manner, dearest, growth, ours / floor)


def seconds(work: Callable[[str, int], None], text: str, piece: int) -> float:
    start = time.process_time()
    work(text, piece)
    return max(LEAST_SECONDS, time.process_time() - start)


def read(text: str, piece: int) -> None:
    reader = CallReader(texts.TOOLS)
    for at in range(0, len(text), piece):
        reader.feed(text[at : at + piece])
    reader.end()


def stop_at_signs(text: str, piece: int) -> None:
    """The floor."""
    tries = 0
    before = "\n"
    for at in range(0, len(text), piece):
        new = text[at : at + piece]
        for place in _PLACE.finditer(before + new):
            tries += 1
            if tries <= MOST_TRIES:
                try_to_decode(text, at - len(before) + place.end() - 1)
        for _ in _SIGN.finditer(new):
            pass
        before = (before + new)[-_LOOKED_BACK:]


def try_to_decode(text: str, at: int) -> None:
    begin = text.find("{", max(0, at), at + _LOOKED_BACK)
    if begin < 0:
        return
    end = text.find("\n", begin)
    try:
        msgspec.json.decode(text[begin : end if end >= 0 else None])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return


def show(found: list[Figures]) -> None:
    width = max(len(figures.form) for figures in found)
    print(f"{'':{width}}  {'given':>6}  CPU s/MB  growth  x floor")
    for figures in found:
        line = f"{figures.form:{width}}  {figures.manner:>6}  {figures.seconds_per_megabyte:8.3f}"
        print(f"{line}  {figures.growth:6.2f}  {figures.ratio:7.2f}{'' if figures.holds else '  too much'}")
    for manner, (*_, budget) in MANNERS.items():
        some = [figures for figures in found if figures.manner == manner]
        growth, ratio = max(one.growth for one in some), max(one.ratio for one in some)
        print(f"{manner}: growth {growth:.2f} ({MOST_GROWTH}) {ratio:.2f}x ({budget})")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
