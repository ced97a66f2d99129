"""Something that a prompt names and that may become an argument."""

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
    currency: str = ""
    percent: bool = False
    vague: bool = False
    group: int = -1
    """Things that are listed together (a, b and c) have the same number."""
