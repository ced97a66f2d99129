"""Something that a prompt names and that may become an argument."""

from collections.abc import Iterable
from typing import Any

from msgspec import Struct


class Mention(Struct, frozen=True, gc=False):
    """Something named, where it stands, and the words around it in the same sentence, nearest first."""

    kind: str
    value: Any
    start: int
    end: int
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    unit: str = ""
    """The word after a number: 20 «kilometers»."""
    currency: str = ""
    percent: bool = False
    vague: bool = False
    """«One» may be no number at all, and «the two» no argument."""
    group: int = -1
    """Things that are listed together (a, b and c) have the same number."""

    def holds(self, place: int) -> bool:
        return self.start <= place < self.end

    def overlaps(self, other: "Mention") -> bool:
        return self.start < other.end and other.start < self.end


def covered(text: str, mentions: Iterable[Mention]) -> bytearray:
    """For each place of a text, whether one of these stands there."""
    marked = bytearray(len(text))
    for one in mentions:
        marked[one.start : one.end] = b"\1" * (one.end - one.start)
    return marked
