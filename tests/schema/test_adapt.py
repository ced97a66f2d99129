"""Schemas adapted to a provider: accepted by it, and never narrower than the original."""

from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from midspan._schema.adapt import adapt_schema, adapt_spec
from midspan._schema.dialect import AdaptedSchema, SchemaDialect
from midspan._schema.signature import signature_of
from midspan._schema.tree import SchemaNode
from midspan._types.specs import ToolSpec
from midspan.providers.gemini.capabilities import GEMINI_JSON_SCHEMA, GEMINI_PARAMETERS

Schema = dict[str, Any]
BOTH = pytest.mark.parametrize("dialect", [GEMINI_PARAMETERS, GEMINI_JSON_SCHEMA], ids=["parameters", "json schema"])


def parameter(schema: Any, dialect: SchemaDialect = GEMINI_PARAMETERS) -> Schema:
    """One parameter as the dialect says it."""
    lowered = adapt_schema({"type": "object", "properties": {"p": schema}}, dialect)
    result: Schema = lowered.schema["properties"]["p"]
    return result


@pytest.mark.requirement("S0-03")
def test_a_plain_declaration_is_adapted_without_loss() -> None:
    schema = {
        "title": "Weather",
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Where.", "minLength": 1, "title": "City"},
            "days": {"type": "integer", "minimum": 1, "default": 3},
            "units": {"type": "string", "enum": ["metric", "imperial"]},
        },
        "required": ["city"],
    }
    assert adapt_schema(schema, GEMINI_PARAMETERS) == AdaptedSchema(
        {
            "type": "OBJECT",
            "properties": {
                "city": {"type": "STRING", "minLength": 1, "description": "Where."},
                "days": {"type": "INTEGER", "minimum": 1, "default": 3},
                "units": {"type": "STRING", "enum": ["metric", "imperial"]},
            },
            "required": ["city"],
        }
    )


@pytest.mark.parametrize(
    ("schema", "openapi", "json_schema"),
    [
        ({"const": "a"}, {"type": "STRING", "enum": ["a"]}, {"type": "string", "enum": ["a"]}),
        ({"type": ["string", "null"]}, {"type": "STRING", "nullable": True}, {"type": ["string", "null"]}),
        (
            {"type": ["string", "integer"]},
            {"anyOf": [{"type": "STRING"}, {"type": "INTEGER"}]},
            {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        ),
        (
            {"enum": [1, 2]},
            {"type": "INTEGER", "description": "(one of 1, 2)"},
            {"type": "integer", "enum": [1, 2]},
        ),
        (
            {"enum": ["a", None]},
            {"type": "STRING", "enum": ["a"], "nullable": True},
            {"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "null"}]},
        ),
        (
            {"enum": ["", "a"]},
            {"type": "STRING", "description": '(one of "", "a")'},
            {"type": "string", "description": '(one of "", "a")'},
        ),
        (
            {"type": "array", "prefixItems": [{"type": "number"}, {"type": "string"}], "items": False},
            {"type": "ARRAY", "items": {"anyOf": [{"type": "NUMBER"}, {"type": "STRING"}]}, "maxItems": 2},
            {
                "type": "array",
                "prefixItems": [{"type": "number"}, {"type": "string"}],
                "items": {},
                "maxItems": 2,
            },
        ),
        (
            {"type": "integer", "exclusiveMinimum": 0},
            {"type": "INTEGER", "description": "(more than 0)"},
            {"type": "integer", "description": "(more than 0)"},
        ),
        (
            {"type": "string", "format": "uri", "pattern": "^h"},
            {"type": "STRING", "pattern": "^h", "description": '(format "uri")'},
            {"type": "string", "format": "uri", "description": '(text that matches the pattern "^h")'},
        ),
        (
            {"allOf": [{"type": "integer", "minimum": 1}, {"type": "number", "maximum": 9, "minimum": 0}]},
            {"type": "INTEGER", "minimum": 1, "maximum": 9},
            {"type": "integer", "minimum": 1, "maximum": 9},
        ),
        (
            {"anyOf": [{"type": "integer"}, {"type": "string"}], "description": "Which."},
            {"anyOf": [{"type": "INTEGER", "description": "Which."}, {"type": "STRING"}]},
            {"anyOf": [{"type": "integer"}, {"type": "string"}], "description": "Which."},
        ),
        (
            {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
            {"type": "INTEGER", "nullable": True},
            {"type": ["integer", "null"]},
        ),
        (
            {"type": "object", "additionalProperties": {"type": "integer"}},
            {"type": "OBJECT", "description": '(other properties fit {"type": "integer"})'},
            {"type": "object", "additionalProperties": {"type": "integer"}},
        ),
    ],
)
def test_each_keyword_is_adapted_to_each_dialect(schema: Schema, openapi: Schema, json_schema: Schema) -> None:
    assert parameter(schema) == openapi
    assert parameter(schema, GEMINI_JSON_SCHEMA) == json_schema


@pytest.mark.parametrize(
    ("schema", "openapi", "json_schema"),
    [
        (
            {"allOf": [{"type": "integer"}, {"enum": ["a"]}]},
            {"type": "STRING", "enum": ["a"]},
            {"type": "string", "enum": ["a"]},
        ),
        (
            {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "maxItems": 2},
            {"type": "ARRAY", "items": {"anyOf": [{"type": "INTEGER"}, {"type": "STRING"}]}, "maxItems": 2},
            {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": {}, "maxItems": 2},
        ),
        (
            {"type": "string", "allOf": [{"pattern": "^b"}, {"pattern": "^a"}]},
            {"type": "STRING", "pattern": "^b"},
            {"type": "string", "description": '(text that matches the pattern "^b")'},
        ),
        (
            {"description": "X", "anyOf": [{"type": "integer", "description": "X"}, {"type": "string"}]},
            {"anyOf": [{"type": "INTEGER", "description": "X"}, {"type": "STRING"}]},
            {"description": "X", "anyOf": [{"type": "integer", "description": "X"}, {"type": "string"}]},
        ),
        (
            {"description": "X", "anyOf": [{"type": "integer", "description": "Y"}, {"type": "string"}]},
            {"anyOf": [{"type": "INTEGER", "description": "X Y"}, {"type": "STRING"}]},
            {"description": "X", "anyOf": [{"type": "integer", "description": "Y"}, {"type": "string"}]},
        ),
        (
            {"type": "object", "patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": False},
            {"type": "OBJECT", "description": '(other properties fit {"anyOf": [{"type": "integer"}]})'},
            {"type": "object", "additionalProperties": {"type": "integer"}},
        ),
        (
            {
                "type": "object",
                "patternProperties": {"^x": {"type": "integer"}},
                "additionalProperties": {"type": "string"},
            },
            {
                "type": "OBJECT",
                "description": '(other properties fit {"anyOf": [{"type": "integer"}, {"type": "string"}]})',
            },
            {"type": "object", "additionalProperties": {"anyOf": [{"type": "integer"}, {"type": "string"}]}},
        ),
    ],
)
def test_constraints_that_apply_together_are_adapted_as_one(
    schema: Schema, openapi: Schema, json_schema: Schema
) -> None:
    assert parameter(schema) == openapi
    assert parameter(schema, GEMINI_JSON_SCHEMA) == json_schema


def test_an_untyped_schema_keeps_only_what_it_says() -> None:
    assert parameter({"minimum": 1}, GEMINI_JSON_SCHEMA) == {"minimum": 1}
    prefix = {"prefixItems": [{"type": "integer"}]}
    assert parameter(prefix, GEMINI_JSON_SCHEMA) == {**prefix, "items": {}}


def test_a_tool_without_parameters_is_declared_without_parameters() -> None:
    for parameters in (None, {}, {"type": "object", "properties": {}}):
        spec, adapted = adapt_spec(ToolSpec("now", "The time.", parameters), GEMINI_JSON_SCHEMA)
        assert (spec.parameters, spec.strict) == (None, None)
        assert adapted.is_empty


def test_references_are_inlined() -> None:
    schema = {
        "properties": {
            "a": {"$ref": "#/$defs/place", "description": "Here."},
            "b": {"$ref": "#there"},
            "c": {"$ref": "#/definitions/place"},
        },
        "$defs": {"place": {"type": "string", "description": "A place."}, "x": {"$anchor": "there", "type": "int"}},
        "definitions": {"place": {"type": "boolean"}},
    }
    assert adapt_schema(schema, GEMINI_PARAMETERS).schema["properties"] == {
        "a": {"type": "STRING", "description": "Here."},
        "b": {"type": "INTEGER"},
        "c": {"type": "BOOLEAN"},
    }


@BOTH
def test_recursion_is_cut(dialect: SchemaDialect) -> None:
    tree = {"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/tree"}}}}
    lowered = adapt_schema({"$ref": "#/$defs/tree", "$defs": {"tree": tree}}, dialect)
    assert "$ref" not in str(lowered.schema)
    assert "endless" not in str(lowered.schema)
    assert str(lowered.schema).count("kids") == 3


def test_arrays_always_have_items_and_every_schema_a_type() -> None:
    lowered = parameter({"type": "array"})
    assert lowered["type"] == "ARRAY"
    types = [branch["type"] for branch in lowered["items"]["anyOf"]]
    assert types == ["STRING", "NUMBER", "BOOLEAN", "OBJECT", "ARRAY"]
    assert parameter({"type": "array"}, GEMINI_JSON_SCHEMA) == {"type": "array", "items": {}}


@BOTH
def test_alternatives_for_all_parameters_become_one_object(dialect: SchemaDialect) -> None:
    schema = {
        "oneOf": [
            {"properties": {"a": {"type": "integer"}}, "required": ["a", "c"], "additionalProperties": False},
            {"properties": {"b": {"type": "string"}}, "required": ["b", "c"], "additionalProperties": False},
        ],
        "properties": {"c": {"type": "boolean"}},
    }
    lowered = adapt_schema(schema, dialect)
    assert lowered.schema["type"] in ("OBJECT", "object")
    assert list(lowered.schema["properties"]) == ["c", "a", "b"]
    assert lowered.schema["required"] == ["c"]


@BOTH
def test_alternatives_in_alternatives_for_all_parameters_are_declared(dialect: SchemaDialect) -> None:
    a, b, c = ({"type": "object", "properties": {name: {"type": "string"}}, "required": [name]} for name in "abc")
    schema = {"$defs": {"inner": {"anyOf": [a, b]}}, "oneOf": [{"$ref": "#/$defs/inner"}, c]}
    assert list(adapt_schema(schema, dialect).schema["properties"]) == ["a", "b", "c"]


@BOTH
def test_only_alternatives_that_are_objects_become_one_object(dialect: SchemaDialect) -> None:
    by_name = {"type": "object", "description": "By name.", "properties": {"name": {"type": "string"}}}
    by_id = {"type": "object", "description": "By id.", "properties": {"id": {"type": "integer"}}}
    schema = {"type": "object", "anyOf": [by_name, by_id, {"type": "string", "properties": {"other": {}}}]}
    adapted = adapt_schema(schema, dialect).schema
    assert list(adapted["properties"]) == ["name", "id"]
    assert adapted["description"] == "By name.; or By id."
    assert adapt_schema({**schema, "description": "Find."}, dialect).schema["description"] == "Find."


def test_alternative_required_properties_become_a_description() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
    }
    assert parameter(schema)["description"] == "(needs a, or b)"
    schema["anyOf"] = [{"type": "object", "title": "A", "description": "A.", "required": ["a"]}, {"required": ["b"]}]
    assert parameter(schema)["description"] == "(needs a, or b)"


def test_required_properties_are_declared() -> None:
    lowered = adapt_schema({"type": "object", "required": ["a"]}, GEMINI_JSON_SCHEMA)
    assert lowered.schema == {"type": "object", "properties": {"a": {}}, "required": ["a"]}


def test_a_forbidden_property_is_not_declared() -> None:
    assert adapt_schema({"properties": {"a": False, "b": True}}, GEMINI_JSON_SCHEMA).schema["properties"] == {"b": {}}


@BOTH
def test_parameters_are_an_object_whatever_the_type_of_the_schema(dialect: SchemaDialect) -> None:
    assert adapt_schema({"type": "string"}, dialect).schema["type"] in ("OBJECT", "object")
    assert adapt_schema({}, dialect).is_empty
    assert not adapt_schema({"properties": {"a": {}}}, dialect).is_empty


@pytest.mark.parametrize("anything", [True, {}])
def test_properties_of_any_name_are_declared_where_the_dialect_can(anything: Any) -> None:
    schema = {"type": "object", "properties": {}, "additionalProperties": anything}
    adapted = adapt_schema(schema, GEMINI_JSON_SCHEMA)
    assert adapted.schema == {"type": "object", "additionalProperties": True}
    assert not adapted.is_empty
    assert adapt_schema(schema, GEMINI_PARAMETERS).schema == {"type": "OBJECT"}


def test_additional_properties_are_declared_beside_named_ones() -> None:
    def f(a: int, **fields: Any) -> None: ...

    schema = signature_of(f).parameters
    assert adapt_schema(schema, GEMINI_JSON_SCHEMA).schema["additionalProperties"] is True
    assert adapt_schema(schema, GEMINI_PARAMETERS).schema.keys() == {"type", "properties", "required"}


def test_an_object_without_properties_is_empty() -> None:
    assert adapt_schema({"type": "object", "properties": {}}, GEMINI_PARAMETERS).is_empty
    assert adapt_schema({"type": "object", "properties": {}}, GEMINI_JSON_SCHEMA).is_empty


def test_a_response_may_be_anything() -> None:
    assert adapt_schema({"type": "string"}, GEMINI_PARAMETERS, arguments=False).schema == {"type": "STRING"}


@pytest.mark.parametrize(
    ("schema", "adapted"),
    [
        ({"type": "string", "enum": ["a", "bb"], "maxLength": 1}, {"type": "string", "enum": ["a", "bb"]}),
        (
            {"type": "string", "allOf": [{"format": "date"}, {"format": "time"}]},
            {"type": "string", "format": "date"},
        ),
        ({"type": "string", "allOf": [{"type": "array", "items": {"type": "string"}}]}, {"type": "string"}),
        ({"type": "string", "enum": ["a"], "const": "b"}, {"type": "string", "enum": ["b"]}),
        ({"enum": [1, 9], "maximum": 5}, {"type": "integer", "enum": [1, 9]}),
        ({"allOf": [False]}, {}),
    ],
)
def test_of_constraints_that_cannot_be_combined_one_is_declared(schema: Schema, adapted: Schema) -> None:
    assert parameter(schema, GEMINI_JSON_SCHEMA) == adapted


@BOTH
def test_parameters_that_no_arguments_fit_are_widened(dialect: SchemaDialect) -> None:
    assert adapt_schema({"allOf": [False]}, dialect).is_empty
    assert list(adapt_schema({"required": ["a"], "additionalProperties": False}, dialect).schema["properties"]) == ["a"]
    assert adapt_schema({"type": "object", "enum": [{"a": 1}]}, dialect).is_empty
    assert adapt_schema({"const": {"a": 1}}, dialect).is_empty


@pytest.mark.parametrize(("other", "shared"), [(["b", "c"], ["b"]), (["x"], ["a", "b"])])
def test_enums_that_apply_together_are_merged_and_contradictions_keep_the_first(other: Any, shared: Any) -> None:
    schema = {"type": "string", "allOf": [{"enum": ["a", "b"]}, {"enum": other}]}
    assert parameter(schema)["enum"] == shared


def test_items_and_prefix_items_are_merged() -> None:
    schema = {"type": "array", "allOf": [{"items": {"minimum": 1}}, {"prefixItems": [{"type": "integer"}]}]}
    assert parameter(schema, GEMINI_JSON_SCHEMA) == {
        "type": "array",
        "prefixItems": [{"type": "integer"}],
        "items": {"minimum": 1},
    }


def test_any_value_is_a_union_with_no_more_than_three_arrays_in_each_other() -> None:
    assert str(parameter({})).count("ARRAY") == 3
    assert parameter({}, GEMINI_JSON_SCHEMA) == {}


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [{"const": None}, {"type": "null"}]},
        {"const": None, "nullable": True},
    ],
)
def test_nullable_is_declared_once(schema: Schema) -> None:
    assert parameter(schema, GEMINI_JSON_SCHEMA)["type"] == "null"
    assert str(parameter(schema)).count("NULL") + str(parameter(schema)).count("nullable") == 1


def test_a_described_union_keeps_null() -> None:
    inner = {"anyOf": [{"type": "string"}, {"type": "integer"}], "description": "Either."}
    assert parameter({"anyOf": [inner, {"type": "null"}]}, GEMINI_JSON_SCHEMA) == {"anyOf": [inner, {"type": "null"}]}


def test_a_constant_or_null_allows_both() -> None:
    schema = {"type": "string", "const": "a", "nullable": True}
    assert parameter(schema) == {"type": "STRING", "enum": ["a"], "nullable": True}


def test_constraints_that_the_dialect_lacks_become_descriptions() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "array", "items": {"type": "number", "multipleOf": 2}, "uniqueItems": True},
            "b": {"type": "string", "not": {"const": "x"}},
            "c": {"$ref": "http://127.0.0.1:9/never", "type": "string"},
        },
        "if": {"required": ["a"]},
        "then": {"required": ["b"]},
    }
    assert adapt_schema(schema, GEMINI_PARAMETERS).schema == {
        "type": "OBJECT",
        "properties": {
            "a": {
                "type": "ARRAY",
                "items": {"type": "NUMBER", "description": "(a multiple of 2)"},
                "description": "(no item twice)",
            },
            "b": {"type": "STRING", "description": '(nothing that fits {"const": "x"})'},
            "c": {"type": "STRING"},
        },
        "description": "(conditions apply)",
    }


INTEGER = {"type": "integer"}


@pytest.mark.parametrize(
    ("schema", "openapi", "json_schema"),
    [
        (
            {"type": "object", "default": {"a": 1}},
            {"type": "OBJECT", "description": '(default {"a": 1})'},
            {"type": "object", "description": '(default {"a": 1})'},
        ),
        (
            {"anyOf": [INTEGER, {"type": "string"}], "default": 3},
            {"anyOf": [{"type": "INTEGER", "description": "(default 3)"}, {"type": "STRING"}]},
            {"anyOf": [INTEGER, {"type": "string"}], "description": "(default 3)"},
        ),
        (
            {"type": "string", "examples": ["a", "b", "c", "d"], "example": "e"},
            {"type": "STRING", "description": '(for example "a", "b", "c")'},
            {"type": "string", "description": '(for example "a", "b", "c")'},
        ),
        (
            {"type": "string", "example": "e"},
            {"type": "STRING", "description": '(for example "e")'},
            {"type": "string", "description": '(for example "e")'},
        ),
        (
            {"enum": [1, 2.5]},
            {"type": "NUMBER", "description": "(one of 2.5, 1)"},
            {"type": "number", "enum": [2.5, 1]},
        ),
        (
            {"enum": list(range(21))},
            {"type": "INTEGER", "description": f"(one of {', '.join(map(str, range(20)))})"},
            {"type": "integer", "enum": list(range(21))},
        ),
        ({"type": "string", "allOf": [True]}, {"type": "STRING"}, {"type": "string"}),
        (
            {"anyOf": [False, INTEGER, {"type": "string"}]},
            {"anyOf": [{"type": "INTEGER"}, {"type": "STRING"}]},
            {"anyOf": [INTEGER, {"type": "string"}]},
        ),
        (
            {"type": "object", "additionalProperties": INTEGER, "allOf": [{"title": "x"}]},
            {"type": "OBJECT", "description": '(other properties fit {"type": "integer"})'},
            {"type": "object", "additionalProperties": INTEGER},
        ),
        (
            {"type": "object", "additionalProperties": False, "allOf": [{"additionalProperties": INTEGER}]},
            {"type": "OBJECT"},
            {"type": "object", "additionalProperties": False},
        ),
        (
            {
                "anyOf": [{"type": "object", "properties": {"a": INTEGER}}],
                "oneOf": [{"properties": {"b": INTEGER}}, {"properties": {"c": INTEGER}}, {"type": "string"}],
            },
            {
                "anyOf": [
                    {"type": "OBJECT", "properties": {"a": {"type": "INTEGER"}, name: {"type": "INTEGER"}}}
                    for name in ("b", "c")
                ]
            },
            {"anyOf": [{"type": "object", "properties": {"a": INTEGER, name: INTEGER}} for name in ("b", "c")]},
        ),
    ],
)
def test_annotations_and_alternatives_are_adapted_with_what_holds_beside_them(
    schema: Schema, openapi: Schema, json_schema: Schema
) -> None:
    assert parameter(schema) == openapi
    assert parameter(schema, GEMINI_JSON_SCHEMA) == json_schema


def test_the_only_alternative_that_is_an_object_is_the_object() -> None:
    variant = {"type": "object", "properties": {"a": INTEGER}, "required": ["a"], "additionalProperties": False}
    assert adapt_schema({"anyOf": [variant, {"type": "string"}]}, GEMINI_JSON_SCHEMA).schema == variant


def test_a_property_of_several_alternatives_has_all_their_types() -> None:
    closed = [
        {"properties": {"a": INTEGER}, "additionalProperties": False},
        {"properties": {"a": {"type": "string"}, "b": False}, "additionalProperties": False},
    ]
    assert adapt_schema({"oneOf": closed}, GEMINI_JSON_SCHEMA).schema == {
        "type": "object",
        "properties": {"a": {"anyOf": [INTEGER, {"type": "string"}]}},
        "additionalProperties": False,
    }
    variants = [{"properties": {"c": INTEGER}}, *closed]
    assert "additionalProperties" not in adapt_schema({"oneOf": variants}, GEMINI_JSON_SCHEMA).schema
    properties = adapt_schema({"oneOf": variants}, GEMINI_PARAMETERS).schema["properties"]
    assert list(properties) == ["c", "a", "b"]
    assert properties["c"] == {"type": "INTEGER"}
    assert [branch["type"] for branch in properties["a"]["anyOf"]][:2] == ["INTEGER", "STRING"]


@pytest.mark.parametrize(
    "nest",
    [
        lambda inner: {"type": "object", "properties": {"p": inner}},
        lambda inner: {"type": "object", "additionalProperties": inner},
        lambda inner: {"type": "array", "items": inner},
        lambda inner: {"type": "array", "prefixItems": [inner]},
    ],
)
def test_schemas_below_the_greatest_depth_accept_any_value(nest: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("midspan._schema.adapt._MAX_DEPTH", 3)
    assert "integer" in str(parameter(nest(nest(INTEGER)), GEMINI_JSON_SCHEMA))
    assert "integer" not in str(parameter(nest(nest(nest(INTEGER))), GEMINI_JSON_SCHEMA))
    union = {"anyOf": [nest(INTEGER), {"type": "string"}]}
    assert "integer" in str(parameter(union, GEMINI_JSON_SCHEMA))
    assert "integer" not in str(parameter(nest(union), GEMINI_JSON_SCHEMA))


def test_optional_properties_beyond_the_greatest_number_of_schemas_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("midspan._schema.adapt._MAX_NODES", 4)
    schema = {"properties": dict.fromkeys("abcdef", INTEGER), "required": ["f"], "additionalProperties": False}
    assert adapt_schema(schema, GEMINI_JSON_SCHEMA).schema == {
        "type": "object",
        "properties": {"a": INTEGER, "b": INTEGER, "c": INTEGER, "d": {}, "f": {}},
        "required": ["f"],
    }
    array = {"type": "array"}
    assert adapt_schema({"properties": {"a": array, "b": INTEGER}}, GEMINI_JSON_SCHEMA).schema["properties"] == {
        "a": {"type": "array", "items": {}},
        "b": INTEGER,
    }


# What follows generates schemas and values of them, and asks whether the lowered schema takes every value.

NAMES = st.sampled_from(["a", "b", "a b", "a-b", "1x", "größe"])
TEXTS = st.text(alphabet="ab1", max_size=4)
SCALARS = st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from([0.5, 2.0, -1.5]) | TEXTS
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
) | st.sampled_from([[[[[1]]]], {"a": [[[["b"]]]]}])
LEAVES: st.SearchStrategy[Any] = st.one_of(
    st.booleans(),
    st.fixed_dictionaries(
        {"type": st.just("string")},
        optional={
            "minLength": st.integers(0, 2),
            "maxLength": st.integers(1, 4),
            "pattern": st.sampled_from(["^a", "b"]),
            "format": st.just("uri"),
            "enum": st.lists(TEXTS, min_size=1, max_size=3),
        },
    ),
    st.fixed_dictionaries(
        {"type": st.sampled_from(["integer", "number", ["integer", "null"], ["string", "number"]])},
        optional={
            "minimum": st.integers(-5, 3),
            "exclusiveMinimum": st.sampled_from([-4, 0.5]),
            "exclusiveMaximum": st.integers(0, 9),
            "multipleOf": st.just(2),
        },
    ),
    st.fixed_dictionaries({"enum": st.lists(SCALARS, min_size=1, max_size=4)}),
    st.fixed_dictionaries({"const": SCALARS}),
    st.sampled_from([{}, {"type": "boolean"}, {"type": "null"}, {"type": "object"}, {"type": "array"}]),
    st.sampled_from([{"$ref": "#"}, {"$ref": "#/$defs/d"}, {"$ref": "#/$defs/r"}, {"minimum": 2}, {"minLength": 2}]),
)


def larger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    objects: st.SearchStrategy[Any] = st.fixed_dictionaries(
        {"properties": st.dictionaries(NAMES, inner, max_size=3)},
        optional={
            "type": st.just("object"),
            "required": st.lists(NAMES, max_size=2, unique=True),
            "additionalProperties": inner,
            "patternProperties": st.dictionaries(st.sampled_from(["^a", "x"]), inner, max_size=1),
            "maxProperties": st.integers(1, 3),
            "dependentRequired": st.just({"a": ["b"]}),
        },
    )
    arrays: st.SearchStrategy[Any] = st.fixed_dictionaries(
        {"items": inner},
        optional={
            "type": st.just("array"),
            "prefixItems": st.lists(inner, min_size=1, max_size=2),
            "minItems": st.integers(0, 1),
            "maxItems": st.integers(0, 3),
            "uniqueItems": st.booleans(),
        },
    )
    several = st.lists(inner, min_size=1, max_size=3)
    combined: st.SearchStrategy[Any] = st.fixed_dictionaries(
        {},
        optional={
            "anyOf": several,
            "oneOf": several,
            "allOf": several,
            "not": inner,
            "type": st.sampled_from(["object", "string", ["object", "null"]]),
            "properties": st.dictionaries(NAMES, inner, max_size=2),
            "$ref": st.sampled_from(["#/$defs/d", "#/$defs/r"]),
        },
    )
    described: st.SearchStrategy[Any] = st.fixed_dictionaries(
        {"description": st.just("One of these."), "anyOf": st.lists(inner, min_size=2, max_size=3)}
    )
    optional: st.SearchStrategy[Any] = st.builds(lambda one: {"anyOf": [one, {"type": "null"}]}, described)
    return objects | arrays | combined | described | optional


SCHEMAS = st.recursive(LEAVES, larger, max_leaves=8)


def documents() -> st.SearchStrategy[Schema]:
    recursive = {"type": "object", "properties": {"a": {"$ref": "#/$defs/r"}, "b": {"type": "integer"}}}
    return st.builds(
        lambda root, inner: {**(root if isinstance(root, dict) else {}), "$defs": {"d": inner, "r": recursive}},
        SCHEMAS,
        LEAVES,
    )


def back(schema: Any) -> Any:
    """The OpenAPI form as JSON Schema."""
    if not isinstance(schema, dict):
        return schema
    result: Schema = {}
    for keyword, value in schema.items():
        if keyword == "type":
            result[keyword] = value.lower() if isinstance(value, str) else value
        elif keyword == "properties":
            result[keyword] = {name: back(inner) for name, inner in value.items()}
        elif keyword in ("items", "additionalProperties"):
            result[keyword] = back(value)
        elif keyword in ("anyOf", "prefixItems"):
            result[keyword] = [back(inner) for inner in value]
        elif keyword != "nullable":
            result[keyword] = value
    return {"anyOf": [result, {"type": "null"}]} if schema.get("nullable") else result


def under_valid_names(value: Any, schemas: list[SchemaNode], valid: dict[str, str]) -> Any:
    """The value as a model would give it."""
    nodes = [node for schema in schemas for node in schema.with_alternatives]
    if isinstance(value, list):
        items = enumerate(value)
        return [under_valid_names(inner, [node.item(index) for node in nodes], valid) for index, inner in items]
    if not isinstance(value, dict):
        return value
    result = {}
    for name, inner in value.items():
        is_declared = any(name in node.properties or name in node.schema.get("required", ()) for node in nodes)
        below = [schema for node in nodes for schema in _below(node, name)]
        result[valid.get(name, name) if is_declared else name] = under_valid_names(inner, below, valid)
    return result


def _below(node: SchemaNode, name: str) -> list[SchemaNode]:
    named = node.properties.get(name)
    return [named] if named is not None else [node.additional, *node.pattern_properties.values()]


def arrays_in_arrays(value: Any) -> int:
    if not isinstance(value, list):
        return max((arrays_in_arrays(one) for one in value.values()), default=0) if isinstance(value, dict) else 0
    return 1 + max((arrays_in_arrays(one) for one in value), default=0)


@BOTH
@settings(suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(schema=documents(), values=st.lists(VALUES, min_size=6, max_size=6), arguments=st.booleans())
def test_every_valid_value_stays_valid_for_the_adapted_schema(
    dialect: SchemaDialect, schema: Schema, values: list[Any], arguments: bool
) -> None:
    valid = jsonschema_rs.validator_for(schema).is_valid
    fitting = [value for value in [*values, None] if valid(value)]
    fitting = [value for value in fitting if isinstance(value, dict) or not arguments]
    assume(fitting)
    lowered = adapt_schema(schema, dialect, arguments=arguments)
    check = jsonschema_rs.validator_for(back(lowered.schema))
    for value in fitting:
        valid_by_original = {original: name for name, original in lowered.renamed.items()}
        legal = under_valid_names(value, [lowered.original], valid_by_original)
        errors = [error.message for error in check.iter_errors(legal)]
        # The one thing that may be narrower.
        assert errors == [] or (arrays_in_arrays(value) > 3 and not dialect.untyped)
        if isinstance(value, dict):
            assert lowered.restore_names(legal) == value


@BOTH
@given(schema=documents())
def test_every_schema_is_adapted_to_keywords_of_the_dialect(dialect: SchemaDialect, schema: Schema) -> None:
    waiting: list[Any] = [adapt_schema(schema, dialect).schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, bool):
            continue
        assert node.keys() <= dialect.keywords
        if dialect is GEMINI_PARAMETERS:
            assert ("type" in node) != ("anyOf" in node)
            assert node.get("type") != "ARRAY" or "items" in node
            assert all(isinstance(value, str) and value for value in node.get("enum", ()))
        assert set(node.get("required", ())) <= set(node.get("properties", ()))
        waiting += [*node.get("properties", {}).values(), *node.get("anyOf", ()), *node.get("prefixItems", ())]
        waiting += [node[word] for word in ("items", "additionalProperties") if word in node]
