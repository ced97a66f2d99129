from typing import Any

import pytest

from midspan.errors import SchemaError
from midspan.tools.declared import spec_from_parameters


@pytest.mark.requirement("S0-13")
def test_a_list_of_parameters_becomes_an_object_schema() -> None:
    spec = spec_from_parameters(
        "book",
        "Books a room.",
        [
            {"name": "city", "type": "STRING", "description": "Where.", "required": True},
            {"name": "nights", "type": "int", "required": False, "default": 1, "description": ""},
            {"name": "guests", "type": "list[str]", "validation_json": '{"minItems": 1}', "required": True},
            {"name": "room", "type": "string", "enum": ["single", "double"]},
            {"name": "extra"},
        ],
    )
    assert (spec.name, spec.description) == ("book", "Books a room.")
    assert spec.parameters == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Where."},
            "nights": {"type": "integer", "default": 1},
            "guests": {"type": "array", "items": {"type": "string"}, "minItems": 1},
            "room": {"type": "string", "enum": ["single", "double"]},
            "extra": {},
        },
        "required": ["city", "guests"],
    }


def test_without_parameters_it_is_an_empty_object() -> None:
    assert spec_from_parameters("now", "The time.", []).parameters == {"type": "object", "properties": {}}


@pytest.mark.requirement("S0-13")
@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ([{"name": "x", "type": "quaternion"}], "parameter 'x' of book: .*quaternion"),
        ([{"type": "int"}], "a parameter of book has no name"),
        ([{"name": "x"}, {"name": "x"}], "book has two parameters named 'x'"),
        ([{"name": "x", "validation_json": "{"}], "parameter 'x' of book"),
        ([{"name": "x", "validation_json": "[1]"}], "parameter 'x' of book: validation_json must be a JSON object"),
        ([{"name": "x", "validation_json": 5}], "parameter 'x' of book: validation_json must be JSON text, got 5"),
        ([{"name": "x", "required": "no"}], "parameter 'x' of book: required must be a bool, got 'no'"),
        (5, "book: parameters must be a list of dicts, got 5"),
        ({"name": "x"}, "book: parameters must be a list of dicts, got {'name': 'x'}"),
        ([5], "book: a parameter must be a dict with a name and a type, got 5"),
    ],
)
def test_what_cannot_be_understood_is_named(parameters: Any, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        spec_from_parameters("book", "Books.", parameters)


def test_a_described_tool_has_a_name_and_words() -> None:
    for name in (5, ""):
        with pytest.raises(SchemaError, match="the name of a tool must be a non-empty str"):
            spec_from_parameters(name, "Books.", [])  # type: ignore[arg-type]
    with pytest.raises(SchemaError, match="book: description must be a str, got 5"):
        spec_from_parameters("book", 5, [])  # type: ignore[arg-type]
