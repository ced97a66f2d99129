import asyncio
from typing import Any

import pytest

from midspan import Agent
from midspan._types.context import RunContext
from midspan._types.parts import ToolCall
from midspan._types.specs import Effects, ToolSpec
from midspan.errors import ConfigError, SchemaError
from midspan.testing import ScriptedProvider
from midspan.tools import tool
from midspan.tools.declared import spec_from_parameters, tool_from_schema, tool_from_spec
from midspan.tools.execution import execute

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.mark.requirement("S2-21")
@pytest.mark.parametrize(
    "declaration",
    [
        {"type": "function", "function": {"name": "double", "description": "Doubles.", "parameters": SCHEMA}},
        {"name": "double", "description": "Doubles.", "inputSchema": SCHEMA},
        {"name": "double", "description": "Doubles.", "input_schema": SCHEMA},
        ToolSpec("double", "Doubles.", SCHEMA),
    ],
)
def test_tool_is_declared_as_other_apis_write_it(declaration: Any) -> None:
    double = tool_from_spec(declaration, lambda arguments: 2 * arguments["n"])
    assert double.spec == ToolSpec("double", "Doubles.", SCHEMA)
    script = [[ToolCall("1", "double", {"n": 4}), ToolCall("2", "double", {"n": "x"})], "8"]
    valid, invalid = Agent(ScriptedProvider(script), [double]).run_sync("?").tool_calls
    assert (valid.value, invalid.is_error) == (8, True)


def test_options_replace_those_of_the_declaration() -> None:
    spec = ToolSpec("double", "Doubles.", SCHEMA, title="Old", read_only=True, final=True, strict=True)
    double = tool_from_spec(spec, lambda arguments: 2, title="New", timeout=5)
    assert (double.spec.title, double.spec.strict, double.spec.read_only) == ("New", True, True)
    assert (double.timeout, double.final) == (5, True)
    result = asyncio.run(execute(double, ToolCall("1", "double", {"n": 1}), RunContext()))
    assert result.is_final
    written = tool_from_spec(ToolSpec("double", "Doubles.", SCHEMA), lambda arguments: 2, writes="n:{n}")
    assert written.spec.effects == Effects(writes=("n:{n}",))


def test_response_schema_of_a_declaration_is_enforced() -> None:
    declaration = {"name": "double", "inputSchema": SCHEMA, "outputSchema": {"type": "integer"}}
    double = tool_from_spec(declaration, lambda arguments: "eight")
    result = asyncio.run(execute(double, ToolCall("1", "double", {"n": 4})))
    assert result.value == 'invalid response: expected integer, got string "eight"'


def test_invalid_schema_of_a_declaration_is_an_error_that_names_the_tool() -> None:
    with pytest.raises(SchemaError, match="failed to create tool double: "):
        tool_from_spec({"name": "double", "parameters": {"type": "quaternion"}}, lambda arguments: 1)


@pytest.mark.parametrize("schema", ['{"not":' * 100_000 + "{}" + "}" * 100_000, '{"title": "\ud800"}', b"\xff", True])
def test_schema_that_cannot_be_read_is_an_error_that_names_the_tool(schema: Any) -> None:
    with pytest.raises(SchemaError, match="failed to create tool double: invalid parameters schema: "):
        tool_from_schema("double", "Doubles.", schema, lambda arguments: 1)


def test_description_that_cannot_be_sent_is_an_error() -> None:
    with pytest.raises(ConfigError, match="the description of a tool is not valid Unicode"):
        tool_from_schema("double", "\ud800", SCHEMA, lambda arguments: 1)


@pytest.mark.requirement("S0-13")
def test_null_is_accepted_for_a_parameter_that_openapi_declares_as_nullable() -> None:
    properties = {"city": {"type": "string", "nullable": True}}
    schema = {"type": "object", "properties": properties, "required": ["city"]}
    weather = tool_from_schema("weather", "Weather.", schema, lambda arguments: arguments["city"])
    assert asyncio.run(execute(weather, ToolCall("1", "weather", {"city": None}))).value is None
    assert weather.parameters.validate({}).problems


def test_list_of_parameters_becomes_an_object_schema() -> None:
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


def test_no_parameters_become_an_empty_object_schema() -> None:
    assert spec_from_parameters("now", "The time.", []).parameters == {"type": "object", "properties": {}}


@pytest.mark.requirement("S0-13")
@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ([{"name": "x", "type": "quaternion"}], "parameters of book: 'x': .*quaternion"),
        ([{"type": "int"}], r"parameters of book: Object missing required field `name` - at `\$\[0\]`"),
        ([{"name": ""}], "parameters of book: .*length >= 1"),
        ([{"name": "x"}, {"name": "x"}], "parameters of book: two parameters have the same name"),
        ([{"name": "x", "validation_json": "{"}], "parameters of book: 'x': "),
        ([{"name": "x", "validation_json": "[1]"}], "parameters of book: 'x': Expected `object`, got `array`"),
        ([{"name": "x", "validation_json": '{"not":' * 100_000}], "parameters of book: 'x': "),
        ([{"name": "x", "validation_json": '{"title": "\ud800"}'}], "parameters of book: 'x': "),
        ([{"name": "x", "validation_json": 5}], r"parameters of book: .*at `\$\[0\].validation_json`"),
        ([{"name": "x", "required": "no"}], r"parameters of book: Expected `bool.*at `\$\[0\].required`"),
        ({"name": "x"}, "parameters of book: Expected `array`"),
        ([5], "parameters of book: Expected `object`"),
    ],
)
def test_invalid_parameter_is_an_error_that_names_it(parameters: Any, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        spec_from_parameters("book", "Books.", parameters)


@pytest.mark.parametrize("name", ["a\0b", "a\nb", "\x1b[0m", "a\u2028b", "a\ud800"])
def test_a_name_with_control_characters_or_line_breaks_is_an_error(name: str) -> None:
    def double(n: int) -> int:
        return 2 * n

    with pytest.raises(ConfigError, match="the name of a tool"):
        tool_from_schema(name, "Doubles.", SCHEMA, lambda arguments: arguments)
    with pytest.raises(ConfigError, match="the name of a tool"):
        tool_from_spec({"name": name, "inputSchema": SCHEMA}, lambda arguments: arguments)
    with pytest.raises(ConfigError, match="the name of a tool"):
        tool(name=name)(double)
