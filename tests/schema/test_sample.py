"""Samples of schemas: what is required, the values that a schema names, and an end where it refers to itself."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from midspan._schema.arguments import SchemaValidator
from midspan._schema.normalize import normalize, normalize_tree
from midspan._schema.sample import sample_object

TREE = {"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/tree"}}}}


def required(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


@pytest.mark.parametrize(
    ("properties", "sample"),
    [
        ({"a": {"type": "string", "minLength": 6}}, {"a": "texttt"}),
        ({"a": {"type": "integer", "minimum": 3}}, {"a": 3}),
        ({"a": {"type": "number", "exclusiveMinimum": 3}}, {"a": 4}),
        ({"a": {"type": "integer", "minimum": 0.5}}, {"a": 1}),
        ({"a": {"type": "integer", "exclusiveMaximum": 0}}, {"a": -1}),
        ({"a": {"type": "number", "maximum": 0.5}}, {"a": 0.5}),
        ({"a": {"enum": ["C", "F"]}}, {"a": "C"}),
        ({"a": {"type": "string", "examples": ["Oslo"], "default": "Rome"}}, {"a": "Oslo"}),
        ({"a": {"anyOf": [{"type": "null"}, {"type": "boolean"}]}}, {"a": True}),
        ({"a": {"type": "array", "items": {"type": "null"}, "minItems": 2}}, {"a": [None, None]}),
        ({"a": {"type": "array", "prefixItems": [{"const": 1}, {"const": 2}], "minItems": 2}}, {"a": [1, 2]}),
        ({"a": {"type": "object", "properties": {"b": {"type": "string"}}}}, {"a": {"b": "text"}}),
        ({"a": {"$ref": "#/$defs/tree"}}, {"a": {"kids": [{}]}}),
        ({"a": {"type": "integer"}}, {"a": 1}),
        ({"a": True}, {"a": "text"}),
        ({"a": {"type": "object", "properties": {"b": {"const": 1}, "c": {"const": 2}}}}, {"a": {"b": 1}}),
        ({"a": {"anyOf": [{"type": "null"}]}}, {"a": None}),
        ({"a": {"allOf": [{"type": "array"}, {"items": {"const": 5}}]}}, {"a": [5]}),
        (
            {"a": {"allOf": [{"type": "array", "minItems": 2}, {"prefixItems": [{"const": 1}, {"const": 2}]}]}},
            {"a": [1, 2]},
        ),
        ({"a": required(b=required(c={"type": "array", "items": {"type": "string"}}))}, {"a": {"b": {"c": []}}}),
        ({"a": required(b={"type": "array", "items": {"type": "string"}})}, {"a": {"b": ["text"]}}),
        ({"a": required(b=required(c=TREE))}, {"a": {"b": {"c": {}}}}),
    ],
)
def test_a_sample_is_valid_and_simple(properties: dict[str, Any], sample: Any) -> None:
    schema = {"type": "object", "properties": properties, "required": ["a"], "$defs": {"tree": TREE}}
    assert sample_object(normalize_tree(schema).root) == sample
    assert SchemaValidator(normalize(schema)).accepts(sample)


@pytest.mark.parametrize(
    ("schema", "sample"),
    [
        ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 0.000001}, 0.0000005),
        ({"type": "number", "minimum": 0.5, "exclusiveMaximum": 1}, 0.5),
        ({"type": "number", "minimum": 2, "exclusiveMinimum": 2}, 3),
        ({"type": "integer", "exclusiveMinimum": 3, "exclusiveMaximum": 5}, 4),
        ({"type": "integer", "maximum": 0.5}, 0),
        ({"type": "integer", "multipleOf": 5}, 5),
        ({"type": "integer", "minimum": 3, "maximum": 8, "multipleOf": 7}, 7),
        ({"type": "integer", "minimum": 1, "multipleOf": 1.5}, 3),
        ({"type": "number", "exclusiveMinimum": 0.1, "maximum": 0.35, "multipleOf": 0.1}, 0.2),
        ({"type": "integer", "minimum": 10**400}, 10**400),
    ],
)
def test_a_number_fits_narrow_bounds(schema: dict[str, Any], sample: float) -> None:
    assert sample_object(normalize_tree(required(a=schema)).root) == {"a": sample}
    assert SchemaValidator(normalize(schema)).accepts(sample)


BOUND = st.integers(-10, 10) | st.decimals(-3, 3, places=3).map(float) | st.floats(-1e-6, 1e-6)


@given(
    st.sampled_from(["integer", "number"]),
    st.lists(BOUND, min_size=2, max_size=2).map(sorted),
    st.tuples(st.sampled_from(["minimum", "exclusiveMinimum"]), st.sampled_from(["maximum", "exclusiveMaximum"])),
    st.none() | st.sampled_from([1, 2, 3, 7, 0.5, 0.1, 0.25, 0.01, 1.5]),
)
def test_a_number_fits_any_bounds_that_contain_one(
    type_name: str, bounds: list[float], names: tuple[str, str], step: float | None
) -> None:
    low, high = (Fraction(str(bound)) for bound in bounds)
    schema = {"type": type_name, **dict(zip(names, bounds, strict=True))} | ({"multipleOf": step} if step else {})
    validator = SchemaValidator(normalize(schema))
    size = Fraction(str(step or 1)).numerator if type_name == "integer" else Fraction(str(step or 0))
    exact = [(low // size + more) * size for more in (0, 1, 2)] if size else [low, high, (low + high) / 2]
    numbers = [int(number) if number.denominator == 1 else float(number) for number in exact]
    assume(any(map(validator.accepts, numbers)))
    assert validator.accepts(sample_object(normalize_tree(required(a=schema)).root)["a"])


def test_a_sample_of_a_schema_that_requires_itself_ends() -> None:
    tree = {"type": "object", "properties": {"kid": {"$ref": "#/$defs/tree"}}, "required": ["kid"]}
    assert "kid" in sample_object(normalize_tree({"$ref": "#/$defs/tree", "$defs": {"tree": tree}}).root)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "minLength": 10**8},
        {"type": "array", "items": {"type": "integer"}, "minItems": 10**6},
        {"$ref": "#/$defs/tree"},
    ],
)
def test_a_sample_is_small_whatever_the_schema_asks_for(schema: dict[str, Any]) -> None:
    kids = ["a", "b", "c"]
    tree = {"type": "object", "properties": {kid: {"$ref": "#/$defs/tree"} for kid in kids}, "required": kids}
    tool = {"type": "object", "properties": {"a": schema}, "required": ["a"], "$defs": {"tree": tree}}
    assert len(repr(sample_object(normalize_tree(tool).root))) < 10_000


@pytest.mark.parametrize(
    ("properties", "sample"),
    [
        ({"a": required(b=required(c={"type": "boolean"}))}, {"a": {"b": {"c": None}}}),
        ({"a": {"anyOf": [required(b={"type": "boolean"}), {"type": "string"}]}}, {"a": {"b": None}}),
        ({"a": {"anyOf": [{"type": "boolean"}, {"type": "string"}]}}, {"a": True}),
        ({"a": {"type": "array", "items": {"type": "array", "items": {"type": "boolean"}}}}, {"a": [[None]]}),
    ],
)
def test_values_below_the_greatest_depth_are_null(
    properties: dict[str, Any], sample: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("midspan._schema.sample._MAX_DEPTH", 2)
    assert sample_object(normalize_tree(required(**properties)).root) == sample


def test_values_beyond_the_greatest_number_are_null(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("midspan._schema.sample._MAX_VALUES", 2)
    schema = required(a={"type": "integer"}, b={"type": "integer"}, c={"type": "integer"})
    assert sample_object(normalize_tree(schema).root) == {"a": 1, "b": 1, "c": None}
