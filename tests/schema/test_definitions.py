"""Named types in `$defs`, and schemas walked without mistaking data for schemas."""

from midspan._schema.tree import Definitions, reference, without_titles


def test_a_type_used_once_is_inlined():
    definitions = Definitions()
    name = definitions.reserve("A")
    definitions.schemas[name] = {"type": "string", "description": "a"}
    schema = {"type": "array", "items": {**reference(name), "description": "b"}}
    assert definitions.resolve(schema) == {"type": "array", "items": {"type": "string", "description": "b"}}


def test_only_reachable_definitions_are_kept():
    definitions = Definitions()
    for name in ("Used", "Unused"):
        definitions.schemas[definitions.reserve(name)] = {"type": "string"}
    schema = {"prefixItems": [reference("Used"), reference("Used")]}
    assert definitions.resolve(schema) == {**schema, "$defs": {"Used": {"type": "string"}}}


def test_types_that_refer_to_each_other_are_kept():
    definitions = Definitions()
    first, second = definitions.reserve("First"), definitions.reserve("Second")
    definitions.schemas[first] = {"properties": {"next": reference(second)}}
    definitions.schemas[second] = {"properties": {"next": reference(first)}}
    resolved = definitions.resolve(reference(first))
    first_schema = {"properties": {"next": {"properties": {"next": reference(first)}}}}
    assert resolved == {**reference(first), "$defs": {"First": first_schema}}


def test_definition_names_are_unique():
    definitions = Definitions()
    assert [definitions.reserve("A") for _ in range(3)] == ["A", "A2", "A3"]


def test_data_that_looks_like_a_schema_is_not_changed():
    data = {"$ref": "#/$defs/Nowhere", "title": "T"}
    schema = {
        "title": "Gone",
        "properties": {"title": {"title": "Gone", "type": "string"}, "default": {"default": data}},
        "enum": [data],
        "anyOf": [True, {"title": "Gone"}],
    }
    assert without_titles(schema) == {
        "properties": {"title": {"type": "string"}, "default": {"default": data}},
        "enum": [data],
        "anyOf": [True, {}],
    }
    definitions = Definitions()
    assert definitions.resolve(schema) == schema
