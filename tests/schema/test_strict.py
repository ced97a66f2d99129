"""Dialects with closed objects, required properties and references, as strict modes demand them."""

from typing import Any

import jsonschema_rs
from msgspec.structs import replace

from midspan._schema.adapt import adapt_schema, adapt_spec
from midspan._schema.arguments import SchemaValidator
from midspan._schema.dialect import SchemaDialect
from midspan._schema.tree import TYPES
from midspan._types.specs import ToolSpec

STRICT = SchemaDialect(
    keywords=frozenset({"type", "description", "enum", "items", "properties", "required", "additionalProperties"}),
    types={name: name for name in TYPES},
    enum_types=frozenset({"string", "integer", "number"}),
    references=True,
    closed=True,
    all_required=True,
    strict=True,
)
CLOSED = replace(STRICT, all_required=False, strict=False)

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "unit": {"enum": ["m", "ft"]},
        "parent": {"$ref": "#/$defs/person", "description": "The mother."},
        "friends": {"type": "array", "items": {"$ref": "#/$defs/person"}},
    },
    "required": ["name"],
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"who": {"$ref": "#/$defs/person"}},
    "required": ["who"],
    "$defs": {"person": PERSON},
}


def test_in_strict_mode_objects_are_closed_and_all_properties_are_required() -> None:
    adapted = adapt_schema(SCHEMA, STRICT)
    assert adapted.strict
    assert adapted.schema == {
        "type": "object",
        "properties": {"who": {"$ref": "#/$defs/person"}},
        "required": ["who"],
        "additionalProperties": False,
        "$defs": {
            "person": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "unit": {"anyOf": [{"type": "string", "enum": ["m", "ft"]}, {"type": "null"}]},
                    "parent": {
                        "anyOf": [
                            {"anyOf": [{"$ref": "#/$defs/person"}], "description": "The mother."},
                            {"type": "null"},
                        ]
                    },
                    "friends": {"type": ["array", "null"], "items": {"$ref": "#/$defs/person"}},
                },
                "required": ["name", "unit", "parent", "friends"],
                "additionalProperties": False,
            }
        },
    }


def test_null_for_an_optional_property_means_that_it_is_left_out() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 3}}}
    adapted = adapt_schema(schema, STRICT)
    arguments = {"city": None, "days": None}
    assert jsonschema_rs.validator_for(adapted.schema).is_valid(arguments)
    assert SchemaValidator(schema).validate(arguments).arguments == {"days": 3}


def test_a_schema_with_a_free_form_object_is_adapted_without_strict_mode() -> None:
    for free in ({"type": "object"}, {"type": "object", "additionalProperties": {"type": "string"}}, {}):
        adapted = adapt_schema({"type": "object", "properties": {"labels": free, "city": {"type": "string"}}}, STRICT)
        assert not adapted.strict
        assert "required" not in adapted.schema
        assert adapted.schema["properties"]["city"] == {"type": "string"}
        assert jsonschema_rs.validator_for(adapted.schema).is_valid({"labels": {"a": "b"}})


def test_a_schema_with_an_untyped_value_is_adapted_without_strict_mode() -> None:
    parts = {"properties": {"a": {"type": "string"}}, "items": {"type": "string"}}
    for untyped in ({"minimum": 3}, {"properties": {"a": {"type": "string"}}}, parts, {"enum": [True, None]}):
        schema = {"type": "object", "properties": {"a": untyped}, "required": ["a"]}
        assert adapt_schema(schema, STRICT).strict is (untyped == {"enum": [True, None]})


def test_the_schema_of_an_answer_is_not_a_reference_itself() -> None:
    adapted = adapt_schema({"$ref": "#/$defs/person", "$defs": {"person": PERSON}}, STRICT, arguments=False)
    assert adapted.strict
    assert adapted.schema["type"] == "object"
    assert adapted.schema["properties"]["friends"]["items"] == {"$ref": "#/$defs/person"}
    assert adapted.schema["$defs"]["person"]["required"] == ["name", "unit", "parent", "friends"]


def test_closed_objects_need_not_require_all_properties() -> None:
    adapted = adapt_schema(SCHEMA, CLOSED)
    person = adapted.schema["$defs"]["person"]
    assert person["required"] == ["name"]
    assert person["additionalProperties"] is False
    assert person["properties"]["unit"] == {"type": "string", "enum": ["m", "ft"]}


def test_an_object_that_is_declared_open_loses_that_in_a_closed_dialect() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": True}
    assert adapt_schema(schema, STRICT).schema["additionalProperties"] is False


def test_names_are_restored_through_references_that_are_kept() -> None:
    node = {"type": "object", "properties": {"first name": {"type": "string"}, "next": {"$ref": "#/$defs/a node"}}}
    schema = {"type": "object", "properties": {"head": {"$ref": "#/$defs/a node"}}, "$defs": {"a node": node}}
    adapted = adapt_schema(schema, CLOSED)
    assert adapted.schema["properties"]["head"] == {"$ref": "#/$defs/a_node"}
    value = {"head": {"first_name": "a", "next": {"first_name": "b"}}}
    assert adapted.restore_names(value) == {"head": {"first name": "a", "next": {"first name": "b"}}}


def test_a_reference_to_the_whole_schema_and_equal_names_are_kept_apart() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#"}, "b": {"$ref": "#/$defs/x"}, "c": {"$ref": "#/definitions/x"}},
        "$defs": {"x": {"type": "string"}},
        "definitions": {"x": {"type": "integer"}},
    }
    adapted = adapt_schema(schema, CLOSED).schema
    validator = jsonschema_rs.validator_for(adapted)
    assert validator.is_valid({"a": {"b": "text", "a": {"c": 1}}})
    assert not validator.is_valid({"a": {"b": 1}})
    assert not validator.is_valid({"c": "text"})


def test_a_tool_is_strict_if_its_schema_is_unless_it_says_otherwise() -> None:
    for strict, expected in ((None, True), (False, False), (True, True)):
        assert adapt_spec(ToolSpec("f", "", SCHEMA, strict=strict), STRICT)[0].strict is expected


def test_properties_that_accept_null_already_stay_as_they_are() -> None:
    null = {"type": "null"}
    properties = {
        "a": {"type": ["string", "null"]},
        "b": {"anyOf": [{"type": "string"}, {"type": "integer"}, null]},
        "c": {"type": "string", "default": "x"},
    }
    assert adapt_schema({"type": "object", "properties": properties}, STRICT).schema["properties"] == {
        "a": {"type": ["string", "null"]},
        "b": {"anyOf": [{"type": "string"}, {"type": "integer"}, null]},
        "c": {"type": ["string", "null"], "description": '(default "x")'},
    }


def test_a_definition_is_named_after_the_last_step_of_its_reference() -> None:
    schema = {"properties": {"a": {"$ref": "#/x-types/n"}}, "x-types": {"n": {"type": "integer"}}}
    adapted = adapt_schema(schema, CLOSED).schema
    assert adapted["properties"] == {"a": {"$ref": "#/$defs/n"}}
    assert adapted["$defs"] == {"n": {"type": "integer"}}
