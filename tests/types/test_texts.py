import pytest

from midspan import Limits
from midspan._loop.policies import time_limit_error
from midspan._types.texts import (
    canonical_json,
    check_text,
    check_token,
    count_noun,
    estimate_tokens,
    truncate,
)
from midspan.errors import ConfigError
from midspan.tools.execution import timeout_message
from midspan.tools.tasks import Expired


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 seconds"), (1, "1 second"), (1.0, "1 second"), (0.05, "0.05 seconds"), (1234, "1,234 seconds")],
)
def test_count_has_the_noun_in_the_right_number(count: float, words: str) -> None:
    assert count_noun(count, "second") == words


def test_durations_in_errors_have_the_right_number() -> None:
    assert timeout_message("f", 1, Expired(" and was cancelled")) == "f timed out after 1 second and was cancelled"
    assert timeout_message("f", 2, Expired()) == "f timed out after 2 seconds"
    assert str(time_limit_error(Limits(max_seconds=1))) == "Maximum run time exceeded (1 second)"


@pytest.mark.parametrize("innermost", [1.0, "\ud800"])
def test_values_that_are_nested_too_deeply_have_a_key(innermost: float | str) -> None:
    deep: object = innermost
    for _ in range(20_000):
        deep = [deep]
    assert canonical_json(deep) == canonical_json(deep) != canonical_json([])


def test_equal_json_has_one_canonical_form() -> None:
    assert canonical_json({"b": [1.0, {"c": 2.5}], "a": "3.0"}) == b'{"a":"3.0","b":[1,{"c":2.5}]}'
    assert canonical_json({"b": 1}) == canonical_json({"b": 1.0}) != canonical_json({"b": 1.5})


def test_long_text_is_cut_with_a_mark() -> None:
    assert truncate("abc", 3) == "abc"
    assert truncate("abcd", 3) == "abc… [cut: the first 3 of 4 characters]"
    assert truncate("\ud800", 3) == "\ufffd"


def test_text_must_be_a_string_of_unicode() -> None:
    check_text("é", "the name")
    with pytest.raises(ConfigError, match="the name must be a string, got 5"):
        check_text(5, "the name")
    with pytest.raises(ConfigError, match=r"the name is not valid Unicode: it contains '\\ud800' at character 1"):
        check_text("a\ud800", "the name")


def test_token_has_at_least_16_printable_characters() -> None:
    check_token("x" * 16)
    for token, words in (("x" * 15, "fewer than 16"), ("é" * 16, "printable ASCII"), (5, "printable ASCII")):
        with pytest.raises(ConfigError, match=words):
            check_token(token)


def test_tokens_are_estimated_by_the_length_of_a_text() -> None:
    assert (estimate_tokens(""), estimate_tokens("x" * 8)) == (1, 3)
