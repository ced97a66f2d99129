"""The system prompt describes the tools and the form of a call; the same tools give the same prompt."""

import json

import pytest

from midspan._types.parts import ToolCall
from midspan._types.specs import ToolChoice, ToolSpec
from midspan.providers.prompted.prompt import choice_rule, example_call, system_prompt
from midspan.providers.prompted.reader import CallReader

BLUEPRINTS = ToolSpec("cloudgenie_get_blueprints", "Retrieves all available blueprints")
RESOURCE = ToolSpec(
    "cloudgenie_create_resource",
    "Creates a new resource",
    {
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "Name of the resource"},
            "type": {"type": "string", "description": "Type of resource"},
            "blueprint_id": {"type": "string", "description": "ID of blueprint to use"},
        },
        "required": ["name", "type", "blueprint_id"],
    },
)


@pytest.mark.requirement("S2-02")
def test_the_tools_are_listed_with_their_parameters_in_order() -> None:
    listed = """\
Available tools:
- cloudgenie_get_blueprints: Retrieves all available blueprints
  Parameters: (none)
- cloudgenie_create_resource: Creates a new resource
  Parameters:
    - name (string): Name of the resource
    - type (string): Type of resource
    - blueprint_id (string): ID of blueprint to use
  Required: name, type, blueprint_id
"""
    prompt = system_prompt([BLUEPRINTS, RESOURCE], "TOOL_CALL")
    assert prompt.startswith(listed)
    assert prompt == system_prompt([BLUEPRINTS, RESOURCE], "TOOL_CALL")


@pytest.mark.requirement("S2-03")
def test_the_form_is_stated_with_examples_of_the_real_tools_that_can_be_read_again() -> None:
    prompt = system_prompt([BLUEPRINTS, RESOURCE], "TOOL_CALL")
    assert "EXACT format:\nTOOL_CALL: tool_name({" in prompt
    for tool, arguments in ((BLUEPRINTS, set()), (RESOURCE, {"name", "type", "blueprint_id"})):
        example = example_call(tool, "TOOL_CALL")
        assert example in prompt.splitlines()
        reader = CallReader([tool])
        (call,) = [*reader.feed(example), *reader.end()]
        assert isinstance(call, ToolCall)
        assert call.arguments.keys() == arguments


def test_an_example_of_the_tool_itself_is_preferred() -> None:
    tool = ToolSpec("add", "Adds.", {"properties": {"a": {"type": "integer"}}}, examples=({"a": 41},))
    assert example_call(tool, "TOOL_CALL") == 'TOOL_CALL: add({"a": 41})'


def test_nested_parameters_choices_and_odd_schemas_are_described() -> None:
    address = {"properties": {"zip": {"type": ["string", "null"]}}, "required": ["zip"], "type": "object"}
    properties = {
        "unit": {"type": "string", "enum": ["C", "F"], "default": "C"},
        "homes": {"type": "array", "items": address, "description": "Where\n  they live"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "any": True,
    }
    prompt = system_prompt([ToolSpec("t", "Does\nthings.", {"type": "dict", "properties": properties})], "TOOL_CALL")
    for line in (
        "- t: Does things.",
        '    - unit (string) Schema: {"enum": ["C", "F"], "default": "C"}',
        f"    - homes (array): Where they live Schema: {json.dumps({'items': address})}",
        '    - tags (array) Schema: {"items": {"type": "string"}}',
        '    - either (string or integer) Schema: {"anyOf": [{"type": "string"}, {"type": "integer"}]}',
        "    - any (any)",
    ):
        assert line in prompt.splitlines()


def test_references_are_described_with_their_definitions() -> None:
    schema = {
        "properties": {"tree": {"$ref": "#/$defs/tree", "description": "The tree"}, "size": {"type": "float"}},
        "$defs": {
            "tree": {"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/tree"}}}}
        },
    }
    lines = system_prompt([ToolSpec("t", "", schema)], "TOOL_CALL").splitlines()
    definitions = {
        "tree": {"properties": {"kids": {"items": {"$ref": "#/$defs/tree"}, "type": "array"}}, "type": "object"}
    }
    assert lines[3:6] == [
        '    - tree (object): The tree Schema: {"$ref": "#/$defs/tree"}',
        "    - size (number)",
        f"  Definitions: {json.dumps(definitions)}",
    ]


def test_references_of_older_drafts_are_described() -> None:
    point = {"type": "object", "properties": {"x": {"type": "integer"}}}
    schema = {"properties": {"a": {"$ref": "#/definitions/P"}}, "definitions": {"P": point}}
    lines = system_prompt([ToolSpec("t", "", schema)], "TOOL_CALL").splitlines()
    assert '    - a (object) Schema: {"$ref": "#/definitions/P"}' in lines
    assert any(line.startswith("  Definitions: ") and '"x"' in line for line in lines)


def test_a_tool_choice_is_in_the_prompt() -> None:
    assert choice_rule(None) == choice_rule(ToolChoice("auto")) == ""
    assert "Do not call any tool" in choice_rule(ToolChoice("none"))
    assert "one of these tools: a, b" in choice_rule(ToolChoice("required", ("a", "b")))
    assert "at least one tool" in choice_rule(ToolChoice("required"))


def test_an_example_is_json_whatever_the_schema() -> None:
    for schema in ({}, None, {"properties": None}, {"properties": {"a": {"type": "array"}}}, {"required": ["x"]}):
        example = example_call(ToolSpec("t", "", schema), "TOOL_CALL")
        assert isinstance(json.loads(example.removeprefix("TOOL_CALL: t(").removesuffix(")")), dict)


def test_two_tools_have_an_example_in_the_prompt_those_with_parameters_first() -> None:
    tools = [BLUEPRINTS, ToolSpec("list_regions", "Lists the regions"), RESOURCE]
    lines = [line for line in system_prompt(tools, "TOOL_CALL").splitlines() if line.startswith("TOOL_CALL: ")]
    assert lines[1:] == [example_call(RESOURCE, "TOOL_CALL"), example_call(BLUEPRINTS, "TOOL_CALL")]
