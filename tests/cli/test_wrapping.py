"""Answers come in pieces, and are broken between words."""

from hypothesis import given
from hypothesis import strategies as st

from midspan._cli.wrapping import Wrapped


def wrapped(*pieces: str, width: int = 20) -> str:
    lines = Wrapped(width)
    return "".join(map(lines.feed, pieces)) + lines.rest()


def test_a_line_ends_before_a_word_that_has_no_place_on_it() -> None:
    assert wrapped("one two three four five six") == "one two three four\nfive six"
    assert wrapped("one two three fo", "ur fi", "ve six") == "one two three four\nfive six"
    assert wrapped("a\n\n  b c\n") == "a\n\n  b c\n"


def test_wide_letters_take_two_columns_and_a_long_word_is_left_to_the_terminal() -> None:
    assert wrapped("東京 東京 東京 東京 東京") == "東京 東京 東京 東京\n東京"
    assert wrapped("see " + "x" * 50 + " there") == "see\n" + "x" * 50 + " there"


@given(st.lists(st.text("ab \n", max_size=30)))
def test_nothing_but_spaces_is_changed(pieces: list[str]) -> None:
    shown = wrapped(*pieces)
    assert shown.split() == "".join(pieces).split()
    assert all(len(line) <= 20 or " " not in line.strip() for line in shown.split("\n"))
