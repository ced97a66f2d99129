import asyncio
from typing import Any

from midspan._types.parts import ToolCall
from midspan.providers.gemini.capabilities import GEMINI_JSON_SCHEMA, GEMINI_PARAMETERS
from midspan.tools.declared import tool_from_schema
from midspan.tools.execution import LocalTools
from midspan.tools.function import tool
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
    old = LocalTools([tool_from_schema("f", "Old.", SCHEMA, lambda arguments: arguments)])
    new = LocalTools([tool_from_schema("f", "New.", {"type": "object"}, lambda arguments: 1)])
    adapted = AdaptedTools(old, GEMINI_PARAMETERS)
    [before] = adapted.update(asyncio.run(old.list_tools()))
    [after] = adapted.update(asyncio.run(new.list_tools()))
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


def test_names_are_kept_if_no_tool_and_no_property_is_renamed() -> None:
    def keeps_names(name: str, parameters: dict[str, Any]) -> bool:
        tools = LocalTools([add, tool_from_schema(name, "F.", parameters, lambda arguments: 1)])
        adapted = AdaptedTools(tools, GEMINI_JSON_SCHEMA)
        asyncio.run(adapted.list_tools())
        return adapted.keeps_names

    assert keeps_names("greet", {"type": "object"})
    assert not keeps_names("my:greet", {"type": "object"})
    assert not keeps_names("greet", SCHEMA)
