import pytest

from midspan import Limits
from midspan._loop.policies import time_limit_error
from midspan._types.texts import canonical_json, count_noun
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
