"""The exception tree."""

import copy
import pickle
import re

import pytest

from midspan import errors
from midspan.errors import (
    ArgumentError,
    InvalidRequestError,
    LimitReachedError,
    ResultError,
    RunElsewhereError,
    RunExistsError,
    UnknownRunError,
)


def classes(base: type = errors.MidspanError) -> list[type]:
    return [base, *(cls for child in base.__subclasses__() for cls in classes(child))]


def test_the_tree_in_the_docstring_is_complete() -> None:
    drawn = re.findall(r"^[│├└─ ]*([A-Z]\w+)", errors.__doc__ or "", re.MULTILINE)[1:]
    assert sorted(drawn) == sorted(cls.__name__ for cls in classes() if cls.__module__ == "midspan.errors")


ERRORS = {
    "stops[0].day: there is no 31st of February": ArgumentError("stops[0].day", "there is no 31st of February"),
    "nested too deeply": ArgumentError("", "nested too deeply"),
    "items[0]: a set is not JSON serializable": ResultError("a set is not JSON serializable").within(".items[0]"),
    "Maximum tokens exceeded": LimitReachedError("Maximum tokens exceeded", "max_tokens"),
    "unknown run 'r'; it was never started, or was deleted": UnknownRunError("r"),
    "run_id 'r' is already used; choose another or omit it": RunExistsError("r"),
    "run 'r' has 3 events, not 2; another writer has appended to it": RunElsewhereError("r", expected=2, stored=3),
    "run 'r' has already ended": RunElsewhereError("r", 2, 3, ended=True),
    "bad": InvalidRequestError("bad", status=400, details=[{"a": 1}], violations=[("a", "missing")]),
}


@pytest.mark.parametrize("message", ERRORS)
def test_errors_keep_their_message_and_fields_when_they_are_copied_or_pickled(message: str) -> None:
    error = ERRORS[message]
    assert str(error) == message
    for same in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert (type(same), str(same), vars(same)) == (type(error), message, vars(error))
