import asyncio
from typing import Any

import pytest

from midspan._types.context import NO_CONTEXT, RunContext
from midspan._types.parts import ToolCall, ToolResult
from midspan._types.specs import ToolSpec
from midspan.errors import ConfigError, DuplicateToolError
from midspan.tools.execution import LocalTools
from midspan.tools.function import tool
from midspan.tools.source import ToolListing
from midspan.tools.toolbox import Toolbox
from midspan.tools.wrap import Merged, source_of


def add(a: int) -> int:
    return a


@tool
def sub(a: int) -> int:
    return -a


def names(tools: Any) -> list[str]:
    return [spec.name for spec in asyncio.run(source_of(tools).list_tools())]


def test_functions_tools_and_sources_become_one_source() -> None:
    assert names(add) == ["add"]
    assert names(sub) == ["sub"]
    assert names([add, sub]) == ["add", "sub"]
    assert names([add, LocalTools([sub])]) == ["add", "sub"]
    assert names(LocalTools([sub])) == ["sub"]
    assert names([]) == []
    source = LocalTools([sub])
    assert source_of([source]) is source


def test_only_names_that_several_sources_have_get_the_name_of_their_source_as_a_prefix() -> None:
    class Named(LocalTools):
        def __init__(self, name: str, tools: list[Any]) -> None:
            super().__init__(tools)
            self._name = name

        async def list_tools(self) -> ToolListing:
            return ToolListing((await super().list_tools()).tools, name=self._name)

    merged = Merged([Named("one", [add]), Named("two", [add, sub])])
    assert names(merged) == ["one_add", "two_add", "sub"]
    result = asyncio.run(merged.call(ToolCall("1", "two_add", {"a": 3})))
    assert (result.name, result.value) == ("two_add", 3)


def test_value_that_is_not_a_tool_is_an_error() -> None:
    with pytest.raises(ConfigError, match="5 is not a tool"):
        source_of([add, 5])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("tools", "words"),
    [
        ({"add": add}, "a declaration needs a name and a description"),
        (None, "None is not a tool; expected a function"),
        (Toolbox(), "is not a tool; expected a function"),
    ],
)
def test_error_for_invalid_tools_says_what_to_pass(tools: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        source_of(tools)


def test_two_tools_of_one_name_are_an_error() -> None:
    with pytest.raises(DuplicateToolError, match="two tools are named 'add'"):
        source_of([add, add])
    with pytest.raises(DuplicateToolError, match="two sources have a tool named 'add'"):
        asyncio.run(Merged([LocalTools([add]), LocalTools([add])]).list_tools())


def test_merged_call_works_before_any_listing() -> None:
    merged = Merged([LocalTools([add]), LocalTools([sub])])
    assert asyncio.run(merged.call(ToolCall("1", "sub", {"a": 2}))).value == -2


def test_all_merged_sources_are_closed_and_the_error_of_one_is_raised() -> None:
    closed: list[str] = []

    class Remote(LocalTools):
        async def aclose(self) -> None:
            closed.append("remote")
            raise ConnectionError("the server is gone")

    with pytest.raises(ConnectionError, match="the server is gone"):
        asyncio.run(Merged([Remote([add]), Remote([sub])]).aclose())
    assert closed == ["remote", "remote"]


def test_unknown_tool_error_suggests_the_name_without_namespace() -> None:
    words = asyncio.run(LocalTools([add]).call(ToolCall("1", "default_api.add"))).value
    assert "did you mean add?" in words


def test_unknown_tool_error_says_that_there_are_no_tools() -> None:
    assert asyncio.run(LocalTools([]).call(ToolCall("1", "add"))).value == "unknown tool: add; there are no tools"


def test_call_of_a_declaration_without_a_function_ends_the_run_with_its_arguments() -> None:
    source = source_of({"name": "pick", "parameters": {"type": "object"}})
    result = asyncio.run(source.call(ToolCall("1", "pick", {"a": 1}), NO_CONTEXT))
    assert (result.value, result.is_final) == ({"a": 1}, True)


def test_result_of_another_tool_is_not_given_the_name_of_the_call() -> None:
    class Wrong(LocalTools):
        async def call(self, call: ToolCall, context: RunContext[Any] = NO_CONTEXT) -> ToolResult:
            return ToolResult(call.id, "other", 1)

    assert asyncio.run(Merged([Wrong([add])]).call(ToolCall("1", "add", {"a": 3}))).name == "other"


def test_declaration_may_have_its_function() -> None:
    source = source_of({"name": "pick", "parameters": {"type": "object"}, "function": lambda arguments: [*arguments]})
    result = asyncio.run(source.call(ToolCall("1", "pick", {"a": 1}), NO_CONTEXT))
    assert (result.value, result.is_final) == (["a"], False)


def test_listings_are_compared_by_version_if_both_have_one() -> None:
    old, new = ToolListing((ToolSpec("a"),), version=1), ToolListing((ToolSpec("b"),), version=1)
    assert old.is_same_as(new)
    assert not old.is_same_as(ToolListing(old.tools, version=2))
    assert not old.is_same_as(ToolListing(old.tools))
    assert not ToolListing(old.tools).is_same_as(old)
    assert not old.is_same_as(None)
    assert ToolListing(old.tools).is_same_as(ToolListing(old.tools))
    assert not ToolListing(old.tools).is_same_as(ToolListing(new.tools))
