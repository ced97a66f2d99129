import asyncio
from typing import Any

import pytest

from midspan._types.parts import ToolCall
from midspan.providers.gemini.profile import GEMINI_JSON_SCHEMA, GEMINI_PARAMETERS
from midspan.tools.adapted import AdaptedTools
from midspan.tools.execute import LocalTools
from midspan.tools.function import tool, tool_from_schema

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


def test_names_and_schemas_are_made_legal_and_calls_find_back() -> None:
    async def main() -> tuple[list[str], Any, Any]:
        spoken = AdaptedTools(source(), GEMINI_JSON_SCHEMA)
        plain, odd = await spoken.list_tools()
        assert odd.parameters is not None
        name, inner = odd.parameters["properties"]
        key = next(iter(odd.parameters["properties"][inner]["properties"]))
        result = await spoken.call(ToolCall("1", odd.name, {name: "Ann", inner: {key: 5}}))
        return [plain.name, odd.name, name, key], result, await spoken.call(ToolCall("2", "add", {"a": 3}))

    names, result, sum_ = asyncio.run(main())
    assert names[0] == "add"
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789_.-") for name in names)
    assert (result.name, result.value) == (names[1], {"user name": "Ann", "inner": {"x-y": 5}})
    assert sum_.value == 3


def test_what_a_dialect_cannot_say_is_listed_and_still_enforced() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer", "multipleOf": 5}}, "required": ["n"]}
    spoken = AdaptedTools(LocalTools([tool_from_schema("f", "F.", schema, lambda arguments: 1)]), GEMINI_PARAMETERS)

    async def main() -> Any:
        return await spoken.dropped_constraints(), await spoken.call(ToolCall("1", "f", {"n": 7}))

    losses, result = asyncio.run(main())
    assert [loss.keyword for loss in losses["f"]] == ["multipleOf"]
    assert result.is_error


def test_a_call_before_any_listing_and_one_of_nothing() -> None:
    spoken = AdaptedTools(source(), GEMINI_PARAMETERS)
    assert asyncio.run(spoken.call(ToolCall("1", "add", {"a": 3}))).value == 3
    assert asyncio.run(spoken.call(ToolCall("1", "ad"))).value.startswith("unknown tool: ad; did you mean add?")


def test_a_tool_without_parameters_has_no_schema() -> None:
    def now() -> str:
        """The time."""
        return "now"

    [spec] = asyncio.run(AdaptedTools(LocalTools([now]), GEMINI_PARAMETERS).list_tools())
    assert spec.parameters is None


def test_a_schema_is_lowered_once() -> None:
    spoken = AdaptedTools(source(), GEMINI_PARAMETERS)

    async def main() -> bool:
        first, second = await spoken.list_tools(), await spoken.list_tools()
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


KNOWN = "known are: user_name, 2, gr__e, inner, list"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "invalid parameters: user_name: is required but missing; expected string"),
        ({"user_name": "a", "_2": 1}, "invalid parameters: _2: must be at least 2, got 1"),
        ({"user_name": "a", "gr__e": "x"}, 'invalid parameters: gr__e: expected integer, got string "x"'),
        ({"user_name": "a", "inner": {}}, "invalid parameters: inner.x_y: is required but missing; expected integer"),
        (
            {"user_name": "a", "inner": {"x_y": "x-y"}},
            'invalid parameters: inner.x_y: expected integer, got string "x-y"',
        ),
        (
            {"user_name": {"user_name": "user name"}},
            'invalid parameters: user_name: expected string, got object {"user_name": "user name"}',
        ),
        (
            {"user_name": "a", "list": [{}, {"p_q": [1, 2]}]},
            "invalid parameters: list[1].p_q: expected string, got array [1, 2]",
        ),
        (
            {"user_name": "a", "usr_name": 1},
            f"invalid parameters: usr_name: is no property of this object; did you mean user_name? {KNOWN}",
        ),
        ({"user_name": "a"}, "my_f failed: ValueError: user name"),
    ],
)
def test_problems_are_told_under_the_names_that_the_model_saw(arguments: dict[str, Any], words: str) -> None:
    def callback(arguments: dict[str, Any]) -> None:
        raise ValueError("user name")

    spoken = AdaptedTools(LocalTools([tool_from_schema("my:f", "F.", ODD_NAMES, callback)]), GEMINI_JSON_SCHEMA)
    result = asyncio.run(spoken.call(ToolCall("1", "my_f", arguments)))
    assert (result.is_error, result.value) == (True, words)
