"""The type of an answer, from JSON to a value."""

import datetime

import pytest

from midspan._schema.output_type import OutputType, parse_json_answer
from midspan.errors import ArgumentError, SchemaError


def test_an_answer_becomes_a_value_of_its_type() -> None:
    assert OutputType(dict[str, datetime.date]).parse({"a": "2024-02-29"}) == {"a": datetime.date(2024, 2, 29)}
    assert OutputType({"type": "integer"}).parse(5) == 5


@pytest.mark.parametrize(("output", "answer", "value"), [(int, 5.0, 5), (int, "5", 5), (list[int], "[1]", [1])])
def test_an_answer_is_coerced_like_an_argument(output: type, answer: object, value: object) -> None:
    assert repr(OutputType(output).parse(answer)) == repr(value)


@pytest.mark.parametrize("output", [list[int], {"type": "array", "items": {"type": "integer"}}])
def test_a_wrong_answer_is_an_error_that_says_where(output: object) -> None:
    with pytest.raises(ArgumentError) as caught:
        OutputType(output).parse([1, "x"])
    assert str(caught.value) == '[1]: expected integer, got string "x"'


def test_a_value_that_cannot_be_converted_is_an_error_that_says_where() -> None:
    with pytest.raises(ArgumentError) as caught:
        OutputType(list[datetime.date]).parse(["2023-02-29"])
    assert str(caught.value).startswith("[0]: expected a date that exists")


def test_json_may_stand_in_a_code_block() -> None:
    assert parse_json_answer('```json\n{"a": 1}\n```') == parse_json_answer(' {"a": 1} ') == {"a": 1}
    with pytest.raises(ArgumentError, match="it is not valid JSON"):
        parse_json_answer("```json {}")


def test_a_long_code_block_without_an_end_is_an_error_in_linear_time() -> None:
    with pytest.raises(ArgumentError, match="it is not valid JSON"):
        parse_json_answer("```json" + "\n" * 1_000_000 + "{}")


@pytest.mark.parametrize(
    "text", ['{"a": 1, "a": 2}', '[{"b": {"a": 1, "\\u0061": 1}}]', '```json\n{"a": 1, "a": 2}\n```']
)
def test_an_answer_with_a_name_twice_is_an_error(text: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        parse_json_answer(text)
    assert str(caught.value) == 'it is not valid JSON: "a" is given twice'


@pytest.mark.parametrize("output", ["City", 5, [1]])
def test_value_in_place_of_a_type_is_an_error(output: object) -> None:
    with pytest.raises(SchemaError, match=r"output cannot be .*; use plain types, lists, a dataclass or a TypedDict"):
        OutputType(output)
