import asyncio
from typing import Any

import pytest

from midspan._types.parts import ToolCall
from midspan.providers.gemini.capabilities import GEMINI_JSON_SCHEMA, GEMINI_PARAMETERS
from midspan.tools.declared import tool_from_schema
from midspan.tools.execution import LocalTools
from midspan.tools.function import tool
from midspan.tools.toolbox import Toolbox
from midspan.tools.wrap import AdaptedTools

SCHEMA = {
    "type": "object",
    "properties": {
        "user name": {"type": "string"},
        "inner": {"type": "object", "properties": {"x-y": {"type": "integer"}}},
    },
    "required": ["user name"],
}


@tool
def add(a: int) -> int:
    """Adds."""
    return a


def source() -> LocalTools:
    greet = tool_from_schema("my:greet/user", "Greets.", SCHEMA, lambda arguments: arguments)
    return LocalTools([add, greet])


def test_names_and_schemas_are_made_valid_and_calls_are_mapped_back() -> None:
    async def main() -> tuple[list[str], Any, Any]:
        adapted = AdaptedTools(source(), GEMINI_JSON_SCHEMA)
        plain, odd = await adapted.list_tools()
        assert odd.parameters is not None
        name, inner = odd.parameters["properties"]
        key = next(iter(odd.parameters["properties"][inner]["properties"]))
        result = await adapted.call(ToolCall("1", odd.name, {name: "Ann", inner: {key: 5}}))
        return [plain.name, odd.name, name, key], result, await adapted.call(ToolCall("2", "add", {"a": 3}))

    names, result, sum_ = asyncio.run(main())
    assert names[0] == "add"
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789_.-") for name in names)
    assert (result.name, result.value) == (names[1], {"user name": "Ann", "inner": {"x-y": 5}})
    assert sum_.value == 3


def test_constraint_that_the_dialect_cannot_express_is_still_enforced() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer", "multipleOf": 5}}, "required": ["n"]}
    adapted = AdaptedTools(LocalTools([tool_from_schema("f", "F.", schema, lambda arguments: 1)]), GEMINI_PARAMETERS)
    [spec] = asyncio.run(adapted.list_tools())
    assert "multipleOf" not in str(spec.parameters)
    assert asyncio.run(adapted.call(ToolCall("1", "f", {"n": 7}))).is_error


def test_tool_that_changes_under_its_name_is_adapted_again() -> None:
    toolbox = Toolbox()
    toolbox.register(tool_from_schema("f", "Old.", SCHEMA, lambda arguments: arguments))
    adapted = AdaptedTools(toolbox.source(), GEMINI_PARAMETERS)
    [before] = asyncio.run(adapted.list_tools())
    toolbox.register(tool_from_schema("f", "New.", {"type": "object"}, lambda arguments: 1), duplicates="override")
    [after] = asyncio.run(adapted.list_tools())
    assert (before.description, after.description, after.parameters) == ("Old.", "New.", None)


def test_call_before_any_listing_works() -> None:
    adapted = AdaptedTools(source(), GEMINI_PARAMETERS)
    assert asyncio.run(adapted.call(ToolCall("1", "add", {"a": 3}))).value == 3
    assert asyncio.run(adapted.call(ToolCall("1", "ad"))).value.startswith("unknown tool: ad; did you mean add?")


def test_tool_without_parameters_has_no_schema() -> None:
    def now() -> str:
        """The time."""
        return "now"

    [spec] = asyncio.run(AdaptedTools(LocalTools([now]), GEMINI_PARAMETERS).list_tools())
    assert spec.parameters is None


def test_schema_is_adapted_once() -> None:
    adapted = AdaptedTools(source(), GEMINI_PARAMETERS)

    async def main() -> bool:
        first, second = await adapted.list_tools(), await adapted.list_tools()
        return all(one is other for one, other in zip(first, second, strict=True))

    assert asyncio.run(main())


ODD_NAMES = {
    "type": "object",
    "properties": {
        "user name": {"type": "string"},
        "2": {"type": "integer", "minimum": 2},
        "größe": {"type": "integer"},
        "inner": {"type": "object", "properties": {"x-y": {"type": "integer"}}, "required": ["x-y"]},
        "list": {"type": "array", "items": {"type": "object", "properties": {"p q": {"type": "string"}}}},
    },
    "required": ["user name"],
    "additionalProperties": False,
}


NAMES = {"user name": "user_name", "2": "_2", "größe": "gr__e", "x-y": "x_y", "p q": "p_q", "my:f": "my_f"}


@pytest.mark.parametrize(
    ("arguments", "message", "names"),
    [
        ({}, "invalid parameters: user name: is required but missing; expected string", ["user name"]),
        ({"user_name": "a", "_2": 1}, 'invalid parameters: ["2"]: expected at least 2, got 1', ["2"]),
        ({"user_name": "a", "inner": {}}, "invalid parameters: inner.x-y: is required but missing", ["x-y"]),
        ({"user_name": "a", "list": [{}, {"p_q": [1]}]}, "invalid parameters: list[1]", ["p q"]),
        ({"user_name": "a"}, "my:f failed: ValueError: user name", ["user name", "my:f"]),
    ],
)
def test_error_has_a_note_on_names_that_the_model_knows_by_other_names(
    arguments: dict[str, Any], message: str, names: list[str]
) -> None:
    def callback(arguments: dict[str, Any]) -> None:
        raise ValueError("user name")

    adapted = AdaptedTools(LocalTools([tool_from_schema("my:f", "F.", ODD_NAMES, callback)]), GEMINI_JSON_SCHEMA)
    result = asyncio.run(adapted.call(ToolCall("1", "my_f", arguments)))
    assert result.is_error
    assert result.hint == f"In this message, {', '.join(f'{name} is your {NAMES[name]}' for name in names)}."


def test_error_without_renamed_names_has_no_note() -> None:
    adapted = AdaptedTools(source(), GEMINI_JSON_SCHEMA)
    assert asyncio.run(adapted.call(ToolCall("1", "add", {"a": "x"}))).hint is None
