"""Arguments from a model: defaults, coercion, validation, and problems that the model can fix."""

import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midspan._schema.arguments import SchemaValidator, ValidatedArguments
from midspan._schema.problems import Problem
from midspan._schema.tree import measure
from midspan.errors import SchemaError
from tests.bounds import BOUND
from tests.schema.work import bounded_work

Schema = dict[str, Any]


def find_problems(value: Any, schema: Schema, **options: Any) -> list[Problem]:
    return list(SchemaValidator(schema, **options).problems(value))


def checker(required: tuple[str, ...] = (), **properties: Schema) -> SchemaValidator:
    return SchemaValidator({"type": "object", "properties": properties, "required": list(required)})


def prepared(given: Any, schema: Schema) -> ValidatedArguments:
    """One argument, `a`, through a schema for it."""
    return checker(a=schema).validate({"a": given})


def test_json_text_with_a_name_twice_is_not_read_as_an_object() -> None:
    assert prepared('{"id": 1}', {"type": "object"}).arguments == {"a": {"id": 1}}
    assert [problem.path for problem in prepared('{"id": 1, "id": 2}', {"type": "object"}).problems] == ["a"]


@pytest.mark.parametrize("version", ["3.10", "5.0", "12345678901234567.89"])
def test_a_number_with_a_fraction_is_not_read_as_text_because_its_last_digits_may_be_lost(version: str) -> None:
    for schema in ({"type": "string"}, {"type": "array", "items": {"type": "string"}}):
        assert [problem.path for problem in prepared(json.loads(version), schema).problems] == ["a"]


def test_an_integer_of_any_size_is_read_as_text() -> None:
    assert prepared(123456789012345678, {"type": "string"}).arguments == {"a": "123456789012345678"}


@pytest.mark.parametrize("given", [1e23, 2.0**53, -1.2345678901234567e19])
def test_integer_whose_digits_were_lost_is_a_problem(given: float) -> None:
    result = prepared([given], {"type": "array", "items": {"type": "integer"}})
    assert [str(problem) for problem in result.problems] == [
        f"a[0]: expected integer with all of its digits, got {json.dumps(given)}"
    ]
    assert prepared(given, {"anyOf": [{"type": "integer"}, {"type": "number"}]}) == ValidatedArguments({"a": given})
    assert prepared(2.0**53 - 1, {"type": "integer"}).arguments == {"a": 2**53 - 1}
    assert prepared(2**70, {"type": "integer"}).arguments == {"a": 2**70}


def test_valid_arguments_are_not_changed() -> None:
    given = {"city": "Rome", "days": 3}
    result = checker(city={"type": "string"}, days={"type": "integer"}).validate(given)
    assert result.arguments is given
    assert (result.changes, result.problems) == ((), ())


INTEGER, STRING = {"type": "integer"}, {"type": "string"}
INTEGERS = {"type": "array", "items": INTEGER}


@pytest.mark.parametrize(
    ("given", "schema", "expected"),
    [
        ("5", INTEGER, 5),
        ("-5", INTEGER, -5),
        ("5.0", INTEGER, 5),
        (5.0, INTEGER, 5),
        ("5.5", {"type": "number"}, 5.5),
        ("1e3", {"type": "number"}, 1000.0),
        ("true", {"type": "boolean"}, True),
        ("False", {"type": "boolean"}, False),
        ("[1]", INTEGERS, [1]),
        ('["1", 2.0]', INTEGERS, [1, 2]),
        ([1.0, "2"], INTEGERS, [1, 2]),
        ('{"x": "1"}', {"type": "object", "properties": {"x": INTEGER}}, {"x": 1}),
        (
            {"x": {"y": 7.0}},
            {"type": "object", "additionalProperties": {"additionalProperties": INTEGER}},
            {"x": {"y": 7}},
        ),
        (5, STRING, "5"),
        (True, STRING, "true"),
        (3, INTEGERS, [3]),
        ("a", {"type": "array", "items": STRING}, ["a"]),
        ("red", {"enum": ["Red", "Blue"]}, "Red"),
        ("2", {"enum": [1, 2]}, 2),
        ("7", {"anyOf": [INTEGER, {"type": "null"}]}, 7),
        (7.0, {"anyOf": [INTEGER, {"type": "null"}]}, 7),
        ('{"x": 1, "y": 2}', {"type": "array", "items": {"type": "object"}}, [{"x": 1, "y": 2}]),
        ("null", {"type": ["integer", "null"]}, None),
        ("1", {"allOf": [INTEGER]}, 1),
        ("5", INTEGERS, [5]),
        (5, {"type": "array", "items": STRING}, ["5"]),
        ({"x": "1"}, {"type": "array", "items": {"properties": {"x": INTEGER}, "required": ["x"]}}, [{"x": 1}]),
        ("5", {"anyOf": [INTEGERS, INTEGER]}, 5),
        (5.0, {"anyOf": [INTEGER, STRING]}, 5),
        (1.0, {"enum": [1, "a"]}, 1),
        (1.0, {"anyOf": [{"type": "boolean"}, INTEGER]}, 1),
        (5.0, {"anyOf": [INTEGERS, INTEGER]}, 5),
        ([5.0], {"anyOf": [INTEGERS, INTEGER]}, [5]),
        (
            {"n": 5.0},
            {"anyOf": [{"properties": {"m": INTEGER}, "required": ["m"]}, {"additionalProperties": INTEGER}]},
            {"n": 5},
        ),
        ({"x": [1, "ä"]}, STRING, '{"x":[1,"ä"]}'),
        ([{"x": 1}], STRING, '[{"x":1}]'),
        ({"x": 1}, {"anyOf": [{"type": "integer"}, STRING]}, '{"x":1}'),
        ({"x": "1"}, {"anyOf": [STRING, {"properties": {"x": INTEGER}, "type": "object"}]}, {"x": 1}),
        ("5.0", {"anyOf": [INTEGER, {"type": "number"}]}, 5),
        (5, {"anyOf": [{"type": "array", "items": STRING}, STRING]}, "5"),
        ("null", {"anyOf": [{"type": "array", "items": STRING}, {"type": "null"}]}, None),
        ([["1"]], {"type": "array", "prefixItems": [{"type": "array", "items": INTEGER}]}, [[1]]),
    ],
)
def test_a_value_with_one_possible_reading_is_coerced_and_the_change_is_reported(
    given: Any, schema: Schema, expected: Any
) -> None:
    result = prepared(given, schema)
    assert result.problems == ()
    assert result.arguments == {"a": expected}
    assert type(result.arguments["a"]) is type(expected)
    assert result.changes


@pytest.mark.parametrize(
    ("given", "schema"),
    [
        ("5", {"anyOf": [STRING, INTEGER]}),
        ("5", {"type": ["integer", "string"]}),
        ("5", {}),
        (5.0, {"type": "number"}),
        (5.0, {"type": ["integer", "number"]}),
        ("true", STRING),
        ("[1]", STRING),
        ([1], {"anyOf": [INTEGER, INTEGERS]}),
        (None, {"type": ["integer", "null"]}),
    ],
)
def test_a_valid_value_is_never_coerced(given: Any, schema: Schema) -> None:
    result = prepared(given, schema)
    assert result.arguments == {"a": given}
    assert type(result.arguments["a"]) is type(given)
    assert (result.changes, result.problems) == ((), ())


@pytest.mark.parametrize(
    ("given", "schema"),
    [
        ("five", INTEGER),
        ("5.5", INTEGER),
        (5.5, INTEGER),
        (True, INTEGER),
        ("yes", {"type": "boolean"}),
        (1, {"type": "boolean"}),
        ("[1", INTEGERS),
        ('{"a": 1}', INTEGERS),
        ("a", INTEGERS),
        (["Paris"], STRING),
        (["Paris", "Oslo"], STRING),
        ({}, STRING),
        ({"x": 1}, {"type": "string", "maxLength": 3}),
        ({"x": 1}, {"type": "array", "items": STRING}),
        ("r", {"enum": ["Red", "red "]}),
        ("nan", {"type": "number"}),
        ("9" * 5000, INTEGER),
        ("1e999", {"type": "number"}),
        ("1e999", INTEGER),
        ("9007199254740993.0", INTEGER),
        (False, {"type": "integer", "default": 0}),
        ([1, 2, 3], {"type": "array", "items": {"type": "array", "items": {"type": "number"}}}),
        ('["a", "b', {"type": "array", "items": STRING}),
        ("None", {"type": "array", "items": STRING}),
        ("none", {"enum": ["low", "high"]}),
        ("['a', 'b']", {"type": "array", "items": STRING}),
        ("a.txt, b.txt", {"type": "array", "items": STRING}),
        ("a;b", {"anyOf": [{"type": "array", "items": STRING}, {"type": "null"}]}),
        ("a\nb", {"type": "array", "items": STRING}),
        ('{"a": ', {"type": "array", "items": STRING}),
        (5, {"anyOf": [STRING, INTEGERS]}),
        (5, {"type": ["string", "array"], "items": INTEGER}),
        ({"k": 5}, {"anyOf": [{"properties": {"k": STRING}}, {"properties": {"k": INTEGERS}}]}),
        ({"k": 5}, {"anyOf": [{"type": "array", "items": {"type": "object"}}, STRING]}),
        ("red", {"anyOf": [{"enum": ["Red"]}, {"enum": ["RED"]}]}),
        ("none", {"anyOf": [{"enum": ["None"]}, {"type": "null"}]}),
    ],
)
def test_a_value_without_a_reading_is_kept_and_reported(given: Any, schema: Schema) -> None:
    result = prepared(given, schema)
    assert result.arguments == {"a": given}
    assert result.changes == ()
    assert {problem.path.split("[")[0] for problem in result.problems} == {"a"}
    assert all("\n" not in str(problem) for problem in result.problems)


def test_a_union_that_already_fits_is_not_coerced_because_of_another_problem() -> None:
    lists = {"properties": {"k": INTEGERS}}
    schema = {"properties": {"n": INTEGER}, "anyOf": [lists, {"properties": {"k": STRING, "m": {"default": 1}}}]}
    assert prepared({"n": "1", "k": "[5]"}, schema).arguments == {"a": {"n": 1, "k": "[5]", "m": 1}}


def test_a_discriminator_selects_the_variant_at_every_depth() -> None:
    left = {"$ref": "#/$defs/term"}
    terms = [{"properties": {"op": {"const": op}, "left": left, "n": INTEGER}} for op in ("add", "sub", "mul", "div")]
    check = SchemaValidator({"$defs": {"term": {"anyOf": terms}}, "properties": {"a": left}})
    given: Schema = {"op": "div", "n": "5"}
    expected: Schema = {"op": "div", "n": 5}
    for _ in range(10):
        given, expected = {"op": "div", "left": given}, {"op": "div", "left": expected}
    assert check.validate({"a": given}).arguments == {"a": expected}


def test_defaults_are_found_in_every_union_with_one_alternative_besides_null() -> None:
    days = {"properties": {"days": {"default": 3}}}
    schema = {"anyOf": [{"required": ["x"]}, {"required": ["y"]}], "oneOf": [days, {"const": None}]}
    assert prepared({"x": 1}, schema).arguments == {"a": {"x": 1, "days": 3}}


def test_null_is_dropped_for_an_optional_property_and_reported_for_a_required_one() -> None:
    optional = checker(a=STRING).validate({"a": None})
    assert (optional.arguments, optional.problems) == ({}, ())
    assert optional.changes == ("a: null dropped, it may be left out",)
    for schema in (INTEGER, {"enum": ["x"]}, {"type": "array", "items": STRING}):
        optional = checker(a=schema).validate({"a": "null"})
        assert (optional.arguments, optional.problems) == ({}, ())
        assert optional.changes == ('a: "null" dropped, it may be left out',)
    assert checker(a=STRING).validate({"a": "null"}).arguments == {"a": "null"}
    required = checker(required=("a",), a=STRING).validate({"a": None})
    assert [str(one) for one in required.problems] == ["a: expected string, got null"]
    required = checker(required=("a",), a={"type": "array", "items": STRING}).validate({"a": "null"})
    assert [str(one) for one in required.problems] == ['a: expected array, got string "null"']


def test_an_invalid_default_is_neither_filled_in_nor_an_error() -> None:
    check = checker(a={"enum": ["x", "y"], "default": "N/A"}, b={"type": "integer", "default": None})
    assert check.validate({}) == ValidatedArguments({})
    assert check.validate({"a": "N/A"}).arguments == {}
    assert check.validate({"a": "N/B"}).problems


def test_defaults_are_filled_in_before_validation_also_in_nested_objects() -> None:
    inner = {"type": "object", "properties": {"unit": {"type": "string", "default": "C"}}, "required": ["unit"]}
    check = SchemaValidator(
        {
            "type": "object",
            "properties": {
                "days": {"type": "integer", "default": 3},
                "place": {"$ref": "#/$defs/inner"},
                "places": {"type": "array", "items": {"$ref": "#/$defs/inner"}},
                "maybe": {"anyOf": [{"$ref": "#/$defs/inner"}, {"type": "null"}]},
            },
            "required": ["days"],
            "$defs": {"inner": inner},
        }
    )
    assert check.validate({}).arguments == {"days": 3}
    given: dict[str, Any] = {"place": {}, "places": [{}, {"unit": "F"}], "maybe": {}}
    assert check.validate(given).arguments == {
        "days": 3,
        "place": {"unit": "C"},
        "places": [{"unit": "C"}, {"unit": "F"}],
        "maybe": {"unit": "C"},
    }
    assert given == {"place": {}, "places": [{}, {"unit": "F"}], "maybe": {}}


def test_the_first_of_two_defaults_is_filled_in() -> None:
    first, second = ({"properties": {"a": {"default": default}}} for default in (1, 2))
    assert SchemaValidator({"allOf": [first, second]}).validate({}).arguments == {"a": 1}
    assert SchemaValidator({"type": "string"}).validate({}).problems
    assert not SchemaValidator({"type": "array"}).validate({}).problems  # an object where only an array fits


def test_a_default_is_never_shared_between_calls() -> None:
    check = checker(tags={"type": "array", "items": STRING, "default": ["a"]})
    first = check.validate({}).arguments
    first["tags"].append("b")
    assert check.validate({}).arguments == {"tags": ["a"]}


def test_defaults_inside_a_default_are_filled_in_and_recursion_ends() -> None:
    options = {"type": "object", "properties": {"deep": {"type": "integer", "default": 1}}, "default": {}}
    assert checker(options=options).validate({}).arguments == {"options": {"deep": 1}}
    endless = {"properties": {"a": {"$ref": "#", "default": {}}, "b": {"$ref": "#", "default": {}}}}
    assert SchemaValidator(endless).validate({}).problems == ()


@pytest.mark.parametrize(
    "rule",
    [
        {"oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
        {"not": {"required": ["b"]}},
        {"maxProperties": 1},
        {"dependentRequired": {"b": ["c"]}},
        {"if": {"required": ["b"]}, "then": {"required": ["c"]}},
    ],
)
def test_a_default_is_not_filled_in_where_it_would_break_a_valid_call(rule: Schema) -> None:
    check = SchemaValidator({"type": "object", "properties": {"a": STRING, "b": {**STRING, "default": "x"}}, **rule})
    assert check.validate({"a": "1"}) == ValidatedArguments({"a": "1"})
    assert check.validate({"a": 1}) == ValidatedArguments({"a": "1"}, ('a: 1 → "1"',))


def test_properties_are_coerced_to_the_schema_of_the_only_pattern_that_matches_their_name() -> None:
    patterns = {"^x": STRING, "^n": INTEGER, "n$": {"minimum": 0}}
    schema = {"properties": {"n": STRING}, "patternProperties": patterns, "additionalProperties": INTEGER}
    result = prepared({"x1": 5, "n1": "6", "y": "7", "n": 8, "nn": "9"}, schema)
    assert result.arguments == {"a": {"x1": "5", "n1": 6, "y": 7, "n": "8", "nn": "9"}}
    assert [problem.path for problem in result.problems] == ["a.n", "a.nn"]


def test_a_name_that_is_not_unicode_is_a_problem_where_names_have_patterns() -> None:
    (problem,) = prepared({"\ud800": "5"}, {"patternProperties": {"^n": INTEGER}}).problems
    assert "contains something that is not JSON" in problem.message


@pytest.mark.parametrize("value", [object(), [object()], {"x": object()}, {(1,): 2}, b"x"])
@pytest.mark.parametrize("schema", [STRING, {"type": "array", "items": STRING}, {"enum": ["a"]}])
def test_a_value_that_is_not_json_is_a_problem(value: object, schema: Schema) -> None:
    (problem,) = prepared(value, schema).problems
    assert "contains something that is not JSON" in problem.message


def test_names_are_matched_against_patterns_in_bounded_time() -> None:
    schema = {"type": "object", "patternProperties": {"^(a|aa)+(?=$)(?!a)x": INTEGER}}
    (problem,) = prepared({"a" * 5_000 + "!": "5"}, schema).problems
    assert problem.message == "takes too long to match against its pattern"


def test_defaults_and_coercion_reach_the_tuples_of_draft_7() -> None:
    pairs = {"items": [INTEGER, STRING], "additionalItems": INTEGER}
    check = SchemaValidator({"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"a": pairs}})
    assert check.validate({"a": ["5", 6, 7.0]}).arguments == {"a": [5, "6", 7]}


def test_whole_numbers_are_found_at_every_depth_of_a_recursive_schema() -> None:
    tree = {"properties": {"kids": {"type": "array", "items": {"$ref": "#"}}, "value": INTEGER}}
    given = {"kids": [{"kids": [{"kids": [{"value": 1.0}]}]}]}
    assert repr(SchemaValidator(tree).validate(given).arguments) == repr(
        {"kids": [{"kids": [{"kids": [{"value": 1}]}]}]}
    )


def test_thousands_of_unknown_names_are_reported_with_bounded_work() -> None:
    check = SchemaValidator({"additionalProperties": False, "properties": {f"property{i}": {} for i in range(3000)}})
    with bounded_work(1_000_000):
        found = check.validate({f"praperty{i}": i for i in range(3000)}).problems
    assert str(found[0]).startswith(
        "praperty0: is not a property of this object; did you mean property0? known properties: "
    )
    assert (len(found), found[-1]) == (21, Problem((), "and more"))


@pytest.mark.parametrize(
    ("value", "schema", "words"),
    [
        (
            {"abc": 1},
            {"propertyNames": {"maxLength": 1}},
            'has a property whose name is not allowed: expected at most 1 character, got "abc"',
        ),
        (
            {"a\nb": 1},
            {"properties": {"a\tb": {}}, "additionalProperties": False},
            '["a\\nb"]: is not a property of this object; did you mean "a\\tb"? known properties: "a\\tb"',
        ),
        (
            ["a", 1],
            {"prefixItems": [{}], "unevaluatedItems": False},
            'expected no other items, got ["a", 1]',
        ),
        (
            {},
            {"properties": {"a": {"type": "object"}}, "required": ["a"]},
            "a: is required but missing; expected object",
        ),
        (
            ["a"],
            {"contains": {"type": "integer"}},
            'expected an item that fits {"type": "integer"}, got ["a"]',
        ),
        (
            {"a": "w"},
            {"properties": {"a": {"$ref": "urn:a"}}, "$defs": {"a": {"$id": "urn:a", "enum": ["u", "v"]}}},
            'a: must be one of "u", "v", got "w"',
        ),
        (
            {"a": -1},
            {"properties": {"a": {"$ref": "urn:a"}}, "$defs": {"a": {"$id": "urn:a", "minimum": 0}}},
            "a: expected at least 0, got -1",
        ),
    ],
)
def test_each_problem_is_one_line(value: Any, schema: Schema, words: str) -> None:
    assert [str(problem) for problem in find_problems(value, schema)] == [words]


def test_the_arguments_of_the_model_are_never_changed() -> None:
    given = {"a": ["1"], "b": 2.0}
    checker(a=INTEGERS, b=INTEGER).validate(given)
    assert given == {"a": ["1"], "b": 2.0}


def test_all_problems_are_reported_at_once() -> None:
    place = {
        "type": "object",
        "properties": {"lat": {"type": "number"}, "lon": {"type": "number"}},
        "required": ["lat", "lon"],
        "additionalProperties": False,
    }
    check = SchemaValidator(
        {
            "type": "object",
            "properties": {
                "location": {"$ref": "#/$defs/place"},
                "tags": {"type": "array", "items": {"type": "string", "maxLength": 3}},
                "unit": {"enum": ["celsius", "fahrenheit"]},
                "days": {"type": "integer", "minimum": 1},
            },
            "required": ["days", "unit"],
            "$defs": {"place": place},
        }
    )
    given = {"location": {"lat": "north", "long": 1}, "tags": ["a", "b", "long one"], "unit": "celcius", "days": 0}
    assert {str(problem) for problem in check.validate(given).problems} == {
        'location.lat: expected number, got string "north"',
        "location.lon: is required but missing; expected number",
        "location.long: is not a property of this object; did you mean lon? known properties: lat, lon",
        'tags[2]: expected at most 3 characters, got "long one"',
        'unit: must be one of "celsius", "fahrenheit", got "celcius"; did you mean "celsius"?',
        "days: expected at least 1, got 0",
    }
    assert [str(one) for one in check.validate({"unit": "celsius"}).problems] == [
        "days: is required but missing; expected integer"
    ]


def test_problems_of_a_union_name_the_intended_branch_or_all_branches() -> None:
    circle = {"type": "object", "properties": {"kind": {"const": "circle"}, "r": {"type": "number"}}, "required": ["r"]}
    square = {"type": "object", "properties": {"kind": {"const": "square"}, "w": {"type": "number"}}, "required": ["w"]}
    check = checker(shape={"oneOf": [circle, square]}, id={"anyOf": [INTEGER, {"type": "boolean"}]})
    assert [str(one) for one in check.validate({"shape": {"kind": "circle"}}).problems] == [
        "shape.r: is required but missing; expected number"
    ]
    assert [str(one) for one in check.validate({"id": "x"}).problems] == ['id: expected integer or boolean, got "x"']


def test_problems_and_their_quotations_are_bounded() -> None:
    found = prepared(["x" * 1000] * 500, INTEGERS).problems
    assert len(found) == 21
    assert found[-1] == Problem((), "and more")
    assert all(len(str(problem)) < 300 for problem in found)


def test_of_a_very_large_value_the_first_problem_is_located() -> None:
    (problem,) = prepared([*range(100_000), "x"], INTEGERS).problems
    assert problem == Problem(("a", 100_000), 'does not fit: expected integer, got "x"')


def test_odd_property_names_are_quoted_in_paths() -> None:
    found = find_problems({"a b": {"c-d": [1]}}, {"additionalProperties": {"additionalProperties": {"items": STRING}}})
    assert [problem.path for problem in found] == ['["a b"].c-d[0]']


@pytest.mark.parametrize("value", [{1, 2}, b"x", object(), {1: 2}, "\ud800", float("nan")])
def test_a_value_that_is_not_json_serializable_is_a_problem(value: Any) -> None:
    assert prepared(value, INTEGER).problems
    assert find_problems(value, INTEGER)


@pytest.mark.requirement("S3-04")
@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"minLength": 2}, "a"),
        ({"maxLength": 2}, "abc"),
        ({"pattern": "^a+$"}, "b"),
        ({"pattern": "^(?!x)"}, "x"),
        ({"enum": [1, 2]}, 3),
        ({"minItems": 1}, []),
        ({"uniqueItems": True}, [1, 1]),
        ({"properties": {}, "additionalProperties": False}, {"a": 1}),
        ({"if": {"required": ["a"]}, "then": {"required": ["b"]}}, {"a": 1}),
        ({"prefixItems": [{"type": "string"}], "unevaluatedItems": False}, ["a", 1]),
        ({"not": {}}, 1),
        (False, 1),
    ],
)
def test_validation_is_full_json_schema(schema: Any, value: Any) -> None:
    assert len(find_problems(value, schema)) == 1


def test_formats_are_checked_only_on_request() -> None:
    schema = {"type": "string", "format": "ipv4"}
    assert find_problems("nowhere", schema) == []
    assert [str(one) for one in find_problems("nowhere", schema, check_formats=True)] == [
        'expected format "ipv4", got "nowhere"'
    ]


def test_problems_neither_fills_in_nor_coerces() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer", "default": 1}}, "required": ["a"]}
    assert [problem.path for problem in find_problems({}, schema)] == ["a"]
    assert [problem.path for problem in find_problems({"a": "1"}, schema)] == ["a"]


def test_references_to_given_documents_are_resolved() -> None:
    documents = {"https://example.com/int.json": {"type": "integer"}}
    schema = {"items": {"$ref": "https://example.com/int.json"}}
    assert find_problems([1], schema, retrieve=documents.__getitem__) == []
    assert find_problems(["x"], schema, retrieve=documents.__getitem__)


@pytest.mark.requirement("S3-02")
@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "strng"}, '^invalid parameters schema at /type: "strng" is not a type; the types are string, '),
        (
            {"properties": {"a": {"minimum": "x"}}},
            '^invalid parameters schema at /properties/a/minimum: "x" is not of type "number"$',
        ),
        ({"pattern": "("}, "invalid parameters schema"),
        ({"$ref": "http://127.0.0.1:9/x"}, "invalid parameters schema: Resource 'http.* schemas are not fetched$"),
        ({"$ref": "#/$defs/none"}, "invalid parameters schema: Pointer .* does not exist"),
        ({"$schema": "nope"}, "invalid parameters schema: Unknown meta-schema: 'nope'"),
    ],
)
def test_an_invalid_schema_is_an_error_with_the_label_of_the_caller(schema: Schema, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        SchemaValidator(schema)
    with pytest.raises(SchemaError, match=message.replace("parameters", "response")):
        SchemaValidator(schema, label="response")


def test_the_validator_is_loaded_with_the_first_schema_and_not_before() -> None:
    code = "import sys, midspan._schema.arguments; sys.exit('jsonschema_rs' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": ":".join(sys.path)}, timeout=BOUND).returncode
        == 0
    )


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
SCHEMAS: list[Schema] = [
    INTEGER,
    STRING,
    INTEGERS,
    {"anyOf": [INTEGER, STRING]},
    {"type": "object", "additionalProperties": INTEGERS},
    {"enum": ["a", 1, None]},
    {"$ref": "#"},
]


@given(value=VALUES, schema=st.sampled_from(SCHEMAS))
def test_any_arguments_are_valid_afterwards_or_have_problems(value: Any, schema: Schema) -> None:
    check = checker(a=schema)
    result = check.validate({"a": value})
    inexact = [problem for problem in result.problems if "all of its digits" in problem.message]
    assert [problem for problem in result.problems if problem not in inexact] == [*check.problems(result.arguments)]
    if not check.problems({"a": value}):
        assert result.arguments == {"a": value}


def test_a_call_that_lacks_only_defaults_is_filled_without_coercion() -> None:
    check = checker(city=STRING, days={"type": "integer", "default": 3}, tags=INTEGERS)
    assert check.fill_if_valid({"city": "Rome"}) == {"city": "Rome", "days": 3}
    assert check.validate({"tags": [1, 2.0]}) == ValidatedArguments({"tags": [1, 2], "days": 3}, ("tags[1]: 2.0 → 2",))
    lists = checker(tags={**INTEGERS, "default": []})
    first, second = lists.validate({}).arguments, lists.validate({}).arguments
    assert first == second == {"tags": []}
    assert first["tags"] is not second["tags"]
    unready: list[Any] = [{"city": 5}, {"days": 2.0}, {"days": "2"}, {"city": {1, 2}}, [], None]
    assert [check.fill_if_valid(one) for one in unready] == [None] * len(unready)


def test_a_value_too_deep_for_a_recursive_schema_is_not_accepted() -> None:
    check = SchemaValidator({"properties": {"next": {"$ref": "#"}}})
    value: Any = {}
    for _ in range(200):
        value = {"next": value}
    assert check.accepts({"next": {}})
    assert not check.accepts(value)


def test_items_after_a_list_of_schemas_are_coerced_as_older_drafts_write_it() -> None:
    pair = {"items": [STRING], "additionalItems": INTEGER}
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"a": pair}}
    assert SchemaValidator(schema).validate({"a": ["x", "1", "2"]}).arguments == {"a": ["x", 1, 2]}


def test_an_option_in_another_case_is_not_chosen_if_two_options_differ_only_in_case() -> None:
    options = {"enum": ["Red", "RED", "blue"]}
    assert prepared("BLUE", options).arguments == {"a": "blue"}
    assert prepared("red", options).problems


def test_default_stays_as_it_is_if_the_defaults_inside_it_would_make_it_invalid() -> None:
    prop = {"type": "integer", "default": 1}
    inner = {"type": "object", "default": {}, "maxProperties": 0, "properties": {"a": prop}}
    assert SchemaValidator({"properties": {"o": inner}}).validate({}).arguments == {"o": {}}


def test_a_change_inside_a_default_is_reported_under_its_own_path() -> None:
    inner = {"type": "object", "properties": {"n": INTEGER}, "default": {"n": 5.0}}
    result = checker(a={"type": "object", "properties": {"inner": inner}}).validate({"a": {}})
    assert (result.arguments, result.changes) == ({"a": {"inner": {"n": 5}}}, ("a.inner.n: 5.0 → 5",))


def test_contains_in_a_schema_with_an_id_of_its_own_is_not_described_as_null() -> None:
    numbers = {"$id": "https://example.org/numbers", "contains": INTEGER}
    schema = {"$defs": {"numbers": numbers}, "properties": {"a": {"$ref": "https://example.org/numbers"}}}
    (problem,) = find_problems({"a": ["x"]}, schema)
    assert str(problem) == 'a: expected an item that fits "the schema", got ["x"]'


def test_parts_are_coerced_although_the_value_fits_no_alternative_but_null() -> None:
    inner = {"type": "object", "properties": {"a": INTEGER, "c": INTEGER}}
    result = prepared({"a": "5", "c": "x"}, {"anyOf": [inner, {"type": "null"}]})
    assert result.arguments == {"a": {"a": 5, "c": "x"}}
    assert [str(problem) for problem in result.problems] == ['a.c: expected integer, got string "x"']
    other = {"type": "object", "properties": {"b": INTEGER}, "additionalProperties": False}
    union = {"anyOf": [inner, other, {"type": "null"}]}
    assert prepared({"a": "5", "c": "x"}, union).arguments == {"a": {"a": "5", "c": "x"}}


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        ({"type": "string", "required": ["x"]}, "string"),
        ({"type": "object", "required": ["x", "y"]}, "object with x, y"),
        ({"type": "object"}, "object"),
        ({"type": "array"}, "array"),
        ({"type": "array", "items": {"type": "array", "items": INTEGER}}, "array of array of integer"),
        ({"type": ["string", "null"]}, "string or null"),
        ({"const": "größe"}, '"größe"'),
        ({"enum": ["a", "ü"]}, 'one of "a", "ü"'),
        ({"anyOf": [STRING, STRING, INTEGER]}, "string or integer"),
        ({"$ref": "#/$defs/number"}, "number"),
        ({"$ref": "#/$defs/1"}, "number"),
        ({"type": "array", "items": {"type": "array", "items": INTEGERS}}, "array of array of array"),
        ({"anyOf": [{"type": "array", "items": INTEGERS}]}, "array of array"),
        ({"anyOf": [STRING, INTEGER], "oneOf": [STRING, {"type": "null"}]}, "string or integer"),
    ],
)
def test_a_missing_property_is_described_by_its_schema(missing: Schema, expected: str) -> None:
    chain = {str(index): {"$ref": f"#/$defs/{index + 1}"} for index in range(8)}
    definitions = {"number": {"type": "number"}, **chain, "8": {"type": "number"}}
    schema = {"properties": {"a": missing}, "required": ["a"], "$defs": definitions}
    assert find_problems({}, schema) == [Problem(("a",), f"is required but missing; expected {expected}")]
    for unknown in ({"required": ["a"]}, {**schema, "properties": {"a": {"$ref": "#/$defs/0"}}}):
        assert find_problems({}, unknown) == [Problem(("a",), "is required but missing")]


@pytest.mark.parametrize(
    ("value", "schema", "expected"),
    [
        ([], {"minItems": 1}, "at least 1 item"),
        ([], {"minItems": 2}, "at least 2 items"),
        ("", {"minLength": 1}, "at least 1 character"),
        ({}, {"minProperties": 1}, "at least 1 property"),
        ({}, {"minProperties": 2}, "at least 2 properties"),
        (0, {"minimum": 1}, "at least 1"),
    ],
)
def test_limits_of_one_are_in_the_singular(value: Any, schema: Schema, expected: str) -> None:
    assert [problem.message.partition(",")[0] for problem in find_problems(value, schema)] == [f"expected {expected}"]


def test_large_wrong_arguments_are_reported_with_bounded_work() -> None:
    schema = {"type": "object", "properties": {"n": INTEGERS}, "additionalProperties": INTEGER}
    validator = SchemaValidator(schema)
    for arguments in ({"n": ["x"] * 100_000}, dict.fromkeys(map(str, range(100_000)), "x")):
        with bounded_work(200_000):
            (problem,) = validator.validate(arguments).problems
        assert 'expected integer, got "x"' in problem.message


def test_of_many_wrong_values_the_first_are_coerced_and_the_others_left_as_they_are() -> None:
    result = prepared(["5", *["x"] * 21, "6"], INTEGERS)
    assert result.arguments == {"a": [5, *["x"] * 21, "6"]}
    assert prepared(["5", *["x"] * 20, "6"], INTEGERS).arguments == {"a": [5, *["x"] * 20, 6]}


def test_at_most_twenty_changes_are_listed() -> None:
    changes = prepared(["5"] * 22, INTEGERS).changes
    assert changes == (*(f'a[{index}]: "5" → 5' for index in range(20)), "and 2 more")
    assert len(prepared(["5"] * 20, INTEGERS).changes) == 20


def test_at_most_twenty_problems_and_twelve_choices_are_listed() -> None:
    found = [str(problem) for problem in find_problems(["x"] * 21, INTEGERS)]
    assert found == [f'[{index}]: expected integer, got string "x"' for index in range(20)] + ["and more"]
    assert len(find_problems(["x"] * 20, INTEGERS)) == 20
    listed = ", ".join(map(str, range(12)))
    assert str(find_problems("q", {"enum": list(range(12))})[0]) == f'must be one of {listed}, got "q"'
    assert str(find_problems("q", {"enum": list(range(13))})[0]) == f'must be one of {listed} and 1 more, got "q"'


def test_long_values_are_cut_in_messages() -> None:
    for size, shown in ((118, '"' + "x" * 118 + '"'), (119, '"' + "x" * 118 + "…")):
        assert find_problems("x" * size, INTEGER) == [Problem((), f"expected integer, got string {shown}")]


def test_a_boolean_is_an_option_in_another_case() -> None:
    assert prepared(True, {"type": "string", "enum": ["True", "False"]}).arguments == {"a": "True"}


def nullable(**properties: Schema) -> Schema:
    return {"anyOf": [{"type": "object", "properties": properties}, {"type": "null"}]}


@pytest.mark.parametrize(
    ("given", "schema", "depth", "expected"),
    [
        ({"b": "5"}, {"properties": {"b": INTEGER}}, 2, {"b": 5}),
        (["5"], INTEGERS, 2, [5]),
        ("5", INTEGERS, 3, [5]),
        ({"n": 5.0}, nullable(n=INTEGER), 3, {"n": 5}),
        ({"n": "5"}, nullable(n=INTEGER), 3, {"n": 5}),
        ({"n": "5", "m": "x"}, nullable(n=INTEGER, m=INTEGER), 3, {"n": 5, "m": "x"}),
    ],
)
def test_values_below_the_greatest_depth_are_not_coerced(
    given: Any, schema: Schema, depth: int, expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit, result in ((depth, expected), (depth - 1, given)):
        monkeypatch.setattr("midspan._schema.arguments._MAX_DEPTH", limit)
        assert repr(prepared(given, schema).arguments["a"]) == repr(result)


@pytest.mark.parametrize(
    ("given", "schema", "attempts", "expected"),
    [
        (["1", "2", "3"], INTEGERS, 3, [1, 2, "3"]),
        ("7", {"anyOf": [INTEGER, {"type": "boolean"}]}, 4, 7),
        ("7", {"anyOf": [INTEGER, {"type": "boolean"}]}, 3, "7"),
    ],
)
def test_a_value_that_takes_too_many_attempts_is_left_as_it_is(
    given: Any, schema: Schema, attempts: int, expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = measure({"a": given}, 100)
    assert measured is not None
    monkeypatch.setattr("midspan._schema.arguments._MAX_ATTEMPTS", attempts - 4 * measured[0])
    assert prepared(given, schema).arguments == {"a": expected}


def test_if_the_list_of_problems_takes_too_much_work_only_the_first_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("midspan._schema.arguments._MAX_CHECKS", 3)
    assert len(find_problems(["x", "y"], INTEGERS)) == 2
    assert find_problems([1, "x", "y"], INTEGERS) == [Problem((1,), 'does not fit: expected integer, got "x"')]
    rows = {"properties": {"a": {"items": {"properties": {"b": {"minimum": 3}}}}}}
    assert find_problems({"c": 0, "a": [{}, {"b": 1}]}, rows) == [
        Problem(("a", 1, "b"), "does not fit: expected another value, got 1")
    ]


def test_an_error_about_a_value_that_is_not_json_is_cut() -> None:
    (problem,) = find_problems(type("X" * 400, (), {})(), INTEGER)
    assert len(problem.message) == 300


def test_a_value_that_is_not_json_fits_no_alternative() -> None:
    union = {"anyOf": [{"properties": {"k": STRING, "n": INTEGER}}, {"properties": {"k": STRING}, "required": ["m"]}]}
    assert prepared({"k": {1}, "n": "5"}, union).changes == ()


def test_a_schema_nested_too_deeply_is_an_error() -> None:
    schema: Schema = {"type": "string"}
    for _ in range(129):
        schema = {"items": schema}
    with pytest.raises(SchemaError, match="nested more than 128 levels deep"):
        SchemaValidator(schema)
    assert SchemaValidator(schema["items"]["items"])


def test_the_most_similar_name_is_suggested_up_to_a_length() -> None:
    for size, is_suggested in ((120, True), (121, False)):
        schema = {"properties": {"x" * (size - 1) + "y": {}}, "additionalProperties": False}
        assert ("did you mean" in str(find_problems({"x" * size: 1}, schema)[0])) is is_suggested
    schema = {"properties": {"x" * 121: {}}, "additionalProperties": False}
    assert "did you mean" not in str(find_problems({"x" * 120: 1}, schema)[0])


def test_every_item_of_a_large_array_is_coerced_and_gets_its_defaults() -> None:
    item = {"type": "object", "properties": {"count": {"type": "integer", "default": 1}}}
    array = {"type": "array", "items": {"anyOf": [item, {"type": "integer"}]}}
    values: list[Any] = [2.0, {}] * 20_000
    result = SchemaValidator({"type": "object", "properties": {"values": array}}).validate({"values": values})
    assert not result.problems
    assert result.arguments["values"] == [2, {"count": 1}] * 20_000
    assert float not in set(map(type, result.arguments["values"]))


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "number"}, 1.5),
        ({"type": "array", "items": {"type": "number"}}, [1.5, 2.0]),
        ({"type": "array", "items": {"type": "integer"}}, [1, 2]),
        ({"type": "object", "properties": {"name": {"type": "string"}}}, {"name": "a"}),
    ],
)
def test_valid_values_that_cannot_change_need_no_repair(schema: dict[str, Any], value: Any) -> None:
    defaults = {"tags": {"type": "array", "items": {"type": "string"}, "default": []}}
    validator = SchemaValidator({"type": "object", "properties": {"value": schema, **defaults}})
    filled = validator.fill_if_valid({"value": value})
    assert filled == {"value": value, "tags": []}
    filled["tags"].append("changed by the tool")
    assert validator.fill_if_valid({"value": value}) == {"value": value, "tags": []}


def test_an_integer_written_as_a_float_in_an_additional_property_is_coerced() -> None:
    validator = SchemaValidator({"type": "object", "additionalProperties": {"type": "integer"}})
    assert type(validator.validate({"any": 5.0}).arguments["any"]) is int
