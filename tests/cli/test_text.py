"""Text that arrives in pieces is wrapped between words."""

from hypothesis import given
from hypothesis import strategies as st

from midspan._cli.output import WordWrapper


def wrapped(*pieces: str, width: int = 20) -> str:
    wrapper = WordWrapper(width)
    return "".join(map(wrapper.feed, (*pieces, "\n"))).removesuffix("\n")


def test_word_that_does_not_fit_starts_a_new_line() -> None:
    assert wrapped("one two three four five six") == "one two three four\nfive six"
    assert wrapped("one two three fo", "ur fi", "ve six") == "one two three four\nfive six"
    assert wrapped("a\n\n  b c\n") == "a\n\n  b c\n"


def test_wide_characters_take_two_columns_and_words_longer_than_a_line_are_not_broken() -> None:
    assert wrapped("東京 東京 東京 東京 東京") == "東京 東京 東京 東京\n東京"
    assert wrapped("see " + "x" * 50 + " there") == "see\n" + "x" * 50 + "\nthere"


@given(st.lists(st.text("ab \n", max_size=30)))
def test_wrapping_changes_only_white_space(pieces: list[str]) -> None:
    shown = wrapped(*pieces)
    assert shown.split() == "".join(pieces).split()
    assert all(len(line) <= 20 or " " not in line.strip() for line in shown.split("\n"))
