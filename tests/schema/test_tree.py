"""The size of values, and the work that a schema can cause."""

import math
from typing import Any

import pytest

from midspan._schema.tree import SchemaTree, ValidationCost, measure, takes_quadratic_time
from midspan.errors import SchemaError

PAIR: dict[str, Any] = {"anyOf": [{}, {}]}


@pytest.mark.parametrize(
    ("value", "size"),
    [(5, (1, 0)), ([], (1, 0)), ([1, [2]], (4, 2)), ((1, 2), (3, 1)), ({"a": {"b": 1}, "c": 2}, (4, 2))],
)
def test_a_value_is_measured_by_the_number_and_the_depth_of_its_parts(value: Any, size: tuple[int, int]) -> None:
    assert measure(value, *reversed(size)) == size
    assert measure(value, size[1], size[0] - 1) is None or size[0] == 1
    assert measure(value, size[1] - 1, size[0]) is None


@pytest.mark.parametrize(
    ("schema", "cost"),
    [
        (True, ValidationCost(1, 1, 1)),
        ({"type": "string"}, ValidationCost(1, 1, 1)),
        (PAIR, ValidationCost(2, 2, 3)),
        ({"properties": {"a": PAIR}, "$defs": {"b": PAIR}}, ValidationCost(2, 2, 4)),
        ({"properties": {"a": {}, "b": {}, "c": {}}}, ValidationCost(1, 1, 4)),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"items": {}}}}, ValidationCost(1, 2, 3)),
        ({"allOf": [PAIR, PAIR], "not": {}}, ValidationCost(5, 3, 8)),
        ({"$ref": "#"}, ValidationCost(1, 2, math.inf)),
        ({"items": {"uniqueItems": True}}, ValidationCost(1, 1, math.inf)),
    ],
)
def test_the_cost_of_a_schema_counts_all_that_look_at_the_same_value(schema: Any, cost: ValidationCost) -> None:
    assert SchemaTree(schema).validation_cost() == cost
    assert cost.needs_measuring is (cost.expanded_size == math.inf)


def test_the_cost_of_a_value_grows_with_its_depth_up_to_the_size_of_the_schema() -> None:
    assert ValidationCost(2).estimate(3, 2) == 12
    assert ValidationCost(2).estimate(1, 50) == 2**40
    assert ValidationCost(2, expanded_size=7).estimate(3, 50) == 21
    assert [ValidationCost(nesting=nesting).max_value_depth for nesting in (1, 20, 400)] == [100, 50, 8]


def test_a_schema_with_too_many_branches_or_too_long_a_chain_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("midspan._schema.tree._MAX_BRANCHES", 2)
    monkeypatch.setattr("midspan._schema.tree._MAX_NESTING", 2)
    SchemaTree(PAIR).validation_cost()
    with pytest.raises(SchemaError, match="unfold into more than 2 checks of one value"):
        SchemaTree({"anyOf": [{}, {}, {}]}).validation_cost()
    with pytest.raises(SchemaError, match="a chain of more than 2 references"):
        SchemaTree({"allOf": [PAIR]}).validation_cost()


@pytest.mark.parametrize(
    ("pattern", "is_quadratic"),
    [
        (None, False),
        ("a|b", False),
        ("(?=a)b", True),
        (r"(a)\1", True),
        ("^(?=a)b", False),
        ("^(?=a|b)c", False),
        ("^(?=a)b|c", True),
        (r"^(?=a)[|]\|", False),
        (r"^\((?!x)|a", True),
        (r"^(a|(?!b)c)(d|e)", False),
    ],
)
def test_patterns_that_backtrack_from_any_character_take_quadratic_time(pattern: Any, is_quadratic: bool) -> None:
    assert takes_quadratic_time(pattern) is is_quadratic
