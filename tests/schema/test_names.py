"""Names that a provider accepts, and how they are restored."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midspan._schema.adapt import adapt_schema
from midspan._schema.dialect import valid_names
from midspan.providers.gemini.capabilities import GEMINI_PARAMETERS

LEGAL = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")


def test_legal_names_stay_and_illegal_ones_are_replaced() -> None:
    names = valid_names(["get_weather", "requests.get", "a:b", "1st", "größe", ""], GEMINI_PARAMETERS.functions)
    assert names["get_weather"] == "get_weather"
    assert names["requests.get"] == "requests.get"
    assert names["a:b"] == "a_b"
    assert names["1st"] == "_1st"
    assert names["größe"] == "gr__e"


def test_a_legal_name_is_never_taken_by_another() -> None:
    names = valid_names(["a b", "a_b", "a:b"], GEMINI_PARAMETERS.functions)
    assert names["a_b"] == "a_b"
    assert len(set(names.values())) == 3


def test_long_names_stay_apart() -> None:
    names = valid_names(["x" * 100 + "1", "x" * 100 + "2"], GEMINI_PARAMETERS.functions)
    assert len(set(names.values())) == 2
    assert all(len(name) <= 64 for name in names.values())


@given(st.lists(st.text(max_size=90)))
def test_any_set_of_names_becomes_as_many_legal_ones(names: list[str]) -> None:
    made = valid_names(names, GEMINI_PARAMETERS.functions)
    assert made.keys() == set(names)
    assert len(set(made.values())) == len(made)
    assert all(LEGAL.fullmatch(name) for name in made.values())


@pytest.mark.requirement("S0-09")
def test_arguments_come_back_under_the_names_of_the_schema_at_every_depth() -> None:
    inner = {"type": "object", "properties": {"x-y": {"type": "string"}, "x_y": {"type": "string"}}}
    schema = {
        "type": "object",
        "properties": {
            "the list": {"type": "array", "items": inner},
            "either": {"anyOf": [inner, {"type": "string"}]},
            "free": {"type": "object"},
        },
    }
    lowered = adapt_schema(schema, GEMINI_PARAMETERS)
    legal_list, legal_name = (
        "the_list",
        next(name for name in lowered.schema["properties"]["the_list"]["items"]["properties"] if name != "x_y"),
    )
    given = {
        legal_list: [{legal_name: "1", "x_y": "2"}],
        "either": {legal_name: "3"},
        "free": {legal_name: "4", "the_list": 5},
    }
    assert lowered.restore_names(given) == {
        "the list": [{"x-y": "1", "x_y": "2"}],
        "either": {"x-y": "3"},
        "free": {legal_name: "4", "the_list": 5},
    }


def test_no_property_is_lost_if_the_model_gives_it_under_both_names() -> None:
    inner = {"type": "object", "properties": {"x y": {}}}
    schema = {"properties": {"a b": {}, "c": inner, "d": {"items": inner}}, "additionalProperties": inner}
    adapted = adapt_schema(schema, GEMINI_PARAMETERS)
    for value in (
        {"a b": 1, "a_b": 2},
        {"a_b": 2, "a b": 1},
        {"c": {"x_y": 1, "x y": 2}},
        {"d": [{"x y": 1, "x_y": 2}]},
    ):
        assert adapted.restore_names(value) == value
    assert adapted.restore_names({"a_b": 1, "c": {"x_y": 2}}) == {"a b": 1, "c": {"x y": 2}}


def test_arguments_are_the_same_object_if_nothing_was_renamed() -> None:
    given = {"a": 1}
    assert adapt_schema({"properties": {"a": {}}}, GEMINI_PARAMETERS).restore_names(given) is given


def test_names_of_the_greatest_length_stay_and_two_invalid_ones_are_kept_apart() -> None:
    names = valid_names(["x" * 64, "a b", "a:b"], GEMINI_PARAMETERS.functions)
    assert (names["x" * 64], names["a b"]) == ("x" * 64, "a_b")
    assert names["a:b"].startswith("a_b_")
