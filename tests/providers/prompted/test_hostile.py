"""Twice as much hostile text takes twice as many steps, in whatever pieces it comes."""

import sys
from types import FrameType
from typing import Any

import pytest

from midspan._types.parts import ToolCall
from midspan.providers.prompted.reader import MAX_CALLS, CallReader, RejectedCall
from tests.providers.prompted.hostile_texts import FORMS, TOOLS, Form

MOST_GROWTH = 2.2
"""With each doubling of the text; two are counted, because an open call is looked at again only now and then."""
SIZES = {1 << 12: 1 << 13, 1: 1 << 10}
"""Of the pieces and of the text; a text that is given whole is read in pieces, too."""
SLACK = 5_000
"""Steps, for what is done once, however long the text is."""


def steps(text: str, piece: int) -> int:
    """Functions called while a text is read, and characters read as values; both are the same on every machine."""
    counted = 0

    def count(frame: FrameType, event: str, _: Any) -> None:
        nonlocal counted
        if event != "return":
            counted += event in ("call", "c_call")
        elif frame.f_code is CallReader._read_call.__code__:
            counted += frame.f_locals["scanner"].parsed_chars

    reader = CallReader(TOOLS)
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        for at in range(0, len(text), piece):
            reader.feed(text[at : at + piece])
        reader.end()
    finally:
        sys.setprofile(before)
    return counted


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_twice_the_text_takes_twice_the_steps(form: Form) -> None:
    for piece, size in SIZES.items():
        few, many = steps(form(size), piece), steps(form(4 * size), piece)
        assert many <= MOST_GROWTH**2 * few + SLACK, f"in pieces of {piece}: {few:,} steps, then {many:,}"


@pytest.mark.parametrize("name", [name for name in FORMS if name.endswith(", closed")])
def test_what_is_closed_is_a_call_in_each_length(name: str) -> None:
    for size in (1 << 15, 1 << 17):
        reader = CallReader(TOOLS)
        assert [type(piece) for piece in [*reader.feed(FORMS[name](size)), *reader.end()]] == [ToolCall]


@pytest.mark.parametrize("name", ["llama calls", "llama calls of another tool", "mistral of another tool"])
def test_very_many_calls_in_one_list_are_not_all_kept(name: str) -> None:
    text = FORMS[name](1 << 18)
    reader = CallReader(TOOLS)
    pieces = [*reader.feed(text), *reader.end()]
    assert sum(isinstance(piece, ToolCall) for piece in pieces) <= MAX_CALLS
    refused = [piece for piece in pieces if isinstance(piece, RejectedCall)]
    assert len(refused) <= MAX_CALLS + 1
    assert sum(len(piece.text) for piece in refused) <= len(text)
