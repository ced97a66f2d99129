"""Schemas as people write them, converted to JSON Schema 2020-12."""

import copy
from typing import Any

import pytest

from midspan._schema.arguments import SchemaValidator
from midspan._schema.normalize import normalize, normalize_tree
from midspan.errors import SchemaError


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("dict", {"type": "object"}),
        ("TYPE_UNSPECIFIED", {}),
        ("HashMap", {"type": "object"}),
        ("float", {"type": "number"}),
        ("Double", {"type": "number"}),
        ("long", {"type": "integer"}),
        ("INTEGER", {"type": "integer"}),
        ("tuple", {"type": "array"}),
        ("ArrayList", {"type": "array"}),
        ("Queue", {"type": "array"}),
        ("Stack<String>", {"type": "array", "items": {"type": "string"}}),
        ("bytes", {"type": "string"}),
        ("String", {"type": "string"}),
        ("Boolean", {"type": "boolean"}),
        ("None", {"type": "null"}),
        ("any", {}),
        ("", {}),
        ("datetime", {"type": "string"}),
        ("List[str]", {"type": "array", "items": {"type": "string"}}),
        ("ArrayList<Integer>", {"type": "array", "items": {"type": "integer"}}),
        ("java.util.HashMap<String, Integer>", {"type": "object"}),
        ("string[]", {"type": "array", "items": {"type": "string"}}),
        (["str", "null"], {"type": ["string", "null"]}),
        (["string", None], {"type": ["string", "null"]}),
        (6, {"type": "object"}),
        (0, {}),
        (7, {"type": "null"}),
    ],
)
def test_type_names_of_other_languages_are_accepted(word: Any, meant: dict[str, Any]) -> None:
    assert normalize({"type": word}) == meant


def test_an_unknown_type_name_is_an_error_with_its_path() -> None:
    with pytest.raises(SchemaError, match=r"unknown type 'frobnicate' at /properties/a/items"):
        normalize({"properties": {"a": {"type": "list", "items": {"type": "frobnicate"}}}})


@pytest.mark.parametrize("nonsense", [5, None, [], 2.5, [{"type": "string"}]])
def test_an_invalid_schema_is_an_error_with_its_path(nonsense: Any) -> None:
    with pytest.raises(SchemaError, match="no schema at the root"):
        normalize(nonsense)
    with pytest.raises(SchemaError, match="no schema at /properties/x"):
        normalize({"properties": {"x": nonsense}})


def test_a_property_named_like_a_keyword_is_a_property() -> None:
    schema = {"type": "object", "properties": {"type": {"type": "str"}, "enum": {"type": "list"}}}
    expected = {"type": "object", "properties": {"type": {"type": "string"}, "enum": {"type": "array"}}}
    assert normalize(schema) == expected


def test_the_given_schema_is_not_changed() -> None:
    schema = {"type": "dict", "properties": {"a": {"type": "float", "enum": ["1"]}}}
    before = repr(schema)
    normalize(schema)
    assert repr(schema) == before


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ({"type": "integer", "enum": ["1", "2"]}, {"enum": ["1", "2"]}),
        ({"type": "list", "enum": ["a"]}, {"type": "array", "items": {"enum": ["a"]}}),
        ({"type": "string", "enum": ["a", 1]}, {"type": "string", "enum": ["a", 1]}),
    ],
)
def test_enum_values_of_a_wrong_type_are_corrected(written: dict[str, Any], meant: dict[str, Any]) -> None:
    assert normalize(written) == meant


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (
            {"items": [{"type": "str"}], "additionalItems": False},
            {"prefixItems": [{"type": "string"}], "items": False},
        ),
        ({"dependencies": {"a": ["b"], "c": {"type": "dict"}}}, None),
        ({"type": "string", "nullable": True}, {"type": ["string", "null"]}),
        (
            {"type": "string", "nullable": True, "enum": ["a"]},
            {"type": ["string", "null"], "enum": ["a", None]},
        ),
        (
            {"description": "d", "minimum": 1, "nullable": True},
            {"description": "d", "anyOf": [{"minimum": 1}, {"type": "null"}]},
        ),
        ({"description": "d", "nullable": True}, {"description": "d"}),
        ({"properties": []}, {"properties": {}}),
        ({"minLength": 3.0, "maxLength": 5.0}, {"minLength": 3, "maxLength": 5}),
        ({"required": None, "items": None, "enum": []}, {}),
        ({"additionalProperties": "false"}, {"additionalProperties": False}),
    ],
)
def test_older_drafts_openapi_and_common_mistakes_are_normalized(
    written: dict[str, Any], meant: dict[str, Any] | None
) -> None:
    if "dependencies" in written:
        meant = {"dependentRequired": {"a": ["b"]}, "dependentSchemas": {"c": {"type": "object"}}}
    assert normalize(written) == meant


@pytest.mark.parametrize(
    ("path", "keyword", "value"),
    [
        ((), "required", ["a", 5]),
        (("properties", "3"), "minLength", "many"),
        (("properties", "a", "items"), "enum", "red"),
        (("properties", "a", "anyOf", 1), "pattern", 4),
        (("$defs", "b"), "multipleOf", 0),
        (("properties", "a"), "allOf", 5),
        ((), "exclusiveMinimum", True),
        (("properties", "a"), "required", True),
    ],
)
def test_a_malformed_keyword_is_left_out_for_models_with_a_warning_and_an_error_of_the_validator(
    path: tuple[str | int, ...], keyword: str, value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    schema: dict[str, Any] = {
        "properties": {"3": {"title": "x"}, "a": {"items": {"title": "x"}, "anyOf": [{}, {"title": "x"}]}},
        "$defs": {"b": {"title": "x"}},
    }
    expected = copy.deepcopy(schema)
    node: Any = schema
    for step in path:
        node = node[step]
    node[keyword] = value
    assert normalize_tree(schema).root.schema == expected
    assert [record.args and record.args[:2] for record in caplog.records] == [(keyword, value)]
    for other_keywords in ({}, {"nullable": True}):
        with pytest.raises(SchemaError, match=f"/{keyword}"):
            SchemaValidator(normalize({**schema, **other_keywords}))


def test_dangling_and_external_references_are_left_out_for_models() -> None:
    schema = {"properties": {"a": {"$ref": "https://example.com/x.json"}, "b": {"$ref": "#/$defs/no"}}}
    assert normalize_tree(schema).root.schema == {"properties": {"a": {}, "b": {}}}
    assert normalize(schema) == schema


def test_references_by_name_anchor_and_own_id_are_kept() -> None:
    schema = {
        "$id": "https://example.com/root",
        "$defs": {"a": {"$anchor": "here", "type": "str"}},
        "anyOf": [{"$ref": "#here"}, {"$ref": "#/$defs/a"}, {"$ref": "https://example.com/root#/$defs/a"}],
    }
    assert normalize(schema)["anyOf"] == schema["anyOf"]


def test_a_boolean_as_the_whole_schema_is_an_object() -> None:
    assert normalize(True) == {}
    assert normalize(False) == {"not": {}}


def test_a_schema_nested_too_deeply_is_an_error() -> None:
    schema: dict[str, Any] = {}
    for _ in range(2_000):
        schema = {"items": schema}
    with pytest.raises(SchemaError, match="nested more than 128 levels deep"):
        normalize(schema)
