import asyncio
from typing import Any

import pytest

from midspan import Agent
from midspan._types.context import NO_CONTEXT, RunContext
from midspan._types.parts import ToolCall, ToolResult
from midspan._types.specs import ToolSpec
from midspan.errors import ConfigError, DuplicateToolError
from midspan.testing import ScriptedProvider
from midspan.tools.execution import LocalTools
from midspan.tools.source import ToolListing, ToolSource
from midspan.tools.wrap import (
    Filtered,
    LoopBound,
    Merged,
    Prefixed,
    Renamed,
    Required,
    TimeLimited,
    ToolSubset,
    WrapperSource,
)


def read(path: str) -> str:
    return path


def write(path: str) -> str:
    return path


async def wait() -> None:
    await asyncio.sleep(60)


FILES = LocalTools([read, write])


def names(source: ToolSource) -> list[str]:
    return [spec.name for spec in asyncio.run(source.list_tools())]


def call(source: ToolSource, name: str) -> Any:
    return asyncio.run(source.call(ToolCall("1", name, {"path": "x"})))


def test_prefixed_adds_a_prefix_to_every_name() -> None:
    source = Prefixed(FILES, "fs_")
    assert names(source) == ["fs_read", "fs_write"]
    assert (call(source, "fs_read").value, call(source, "fs_read").name) == ("x", "fs_read")
    assert call(source, "read").is_error


def test_renamed_can_swap_names() -> None:
    source = Renamed(FILES, {"read": "write", "write": "read"})
    assert names(source) == ["write", "read"]
    assert call(source, "write").name == "write"


def test_renamed_tool_cannot_be_called_by_its_old_name() -> None:
    source = Renamed(FILES, {"read": "read_file"})
    assert names(source) == ["read_file", "write"]
    assert call(source, "read_file").value == "x"
    assert call(source, "read").is_error


def test_renaming_two_tools_to_one_name_is_an_error() -> None:
    with pytest.raises(DuplicateToolError, match="the same name"):
        names(Renamed(FILES, {"read": "x", "write": "x"}))


def test_renaming_to_an_existing_name_is_an_error() -> None:
    with pytest.raises(DuplicateToolError, match="two tools the same name"):
        names(Renamed(FILES, {"read": "write"}))


def test_filtered_tools_cannot_be_called() -> None:
    for keep in ({"read"}, lambda spec: spec.name == "read"):
        source = Filtered(FILES, keep)
        assert names(source) == ["read"]
        assert call(source, "read").value == "x"
        assert call(source, "write").is_error


def test_time_limit_applies_to_every_tool() -> None:
    result = asyncio.run(TimeLimited(LocalTools([wait]), 0.02).call(ToolCall("1", "wait")))
    assert result.value == "wait timed out after 0.02 seconds and was cancelled"


def test_wrappers_can_be_nested() -> None:
    source = Filtered(Prefixed(TimeLimited(FILES, 5), "fs_"), {"fs_read"})
    assert names(source) == ["fs_read"]
    assert call(source, "fs_read").value == "x"


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_time_limit_must_be_a_positive_number(seconds: Any) -> None:
    with pytest.raises(ConfigError, match=f"must be a positive number of seconds, got {seconds!r}"):
        TimeLimited(FILES, seconds)


class Unavailable(ToolSource):
    """A source that cannot list its tools."""

    is_closed = False

    async def list_tools(self) -> ToolListing:
        raise OSError("no route to host")

    async def aclose(self) -> None:
        self.is_closed = True


def test_required_source_that_cannot_list_its_tools_is_an_error() -> None:
    with pytest.raises(ConfigError, match="the tools of Unavailable cannot be listed: OSError: no route to host"):
        names(Required(Unavailable()))
    assert names(Required(FILES)) == ["read", "write"]


def test_closing_a_wrapper_closes_its_source() -> None:
    source = Unavailable()
    asyncio.run(LoopBound(Prefixed(Required(source), "a_")).aclose())
    assert source.is_closed


def test_subset_has_the_order_of_its_names_and_only_known_ones() -> None:
    subset = ToolSubset(FILES, ["write", "read", "write"])
    assert names(subset) == ["write", "read"]
    only = ToolSubset(FILES, ["write"])
    assert names(only) == ["write"]
    assert call(only, "read").is_error
    with pytest.raises(ConfigError, match="the agent has no tool named 'delete'; it has: read, write"):
        names(ToolSubset(FILES, ["delete"]))


def test_filtered_does_not_take_one_name() -> None:
    with pytest.raises(ConfigError, match="Filtered takes a collection of names or a function"):
        Filtered(FILES, "read")


def test_wrappers_take_functions() -> None:
    assert names(Prefixed([read, write], "fs_")) == ["fs_read", "fs_write"]
    assert call(Filtered(read, {"read"}), "read").value == "x"


def test_call_that_ends_after_its_time_limit_says_so() -> None:
    class Stubborn(ToolSource):
        async def list_tools(self) -> ToolListing:
            return ToolListing()

        async def call(self, call: ToolCall, context: RunContext[Any] = NO_CONTEXT) -> ToolResult:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                return ToolResult(call.id, call.name, "paid")
            raise AssertionError

    context = RunContext[Any]()
    result = asyncio.run(TimeLimited(Stubborn(), 0.02).call(ToolCall("1", "pay"), context))
    assert context.cancelled
    assert result.is_error
    assert "returned too late" in result.value


def test_wrapper_adapts_tools_again_only_if_they_have_changed() -> None:
    class Remote(ToolSource):
        names: tuple[str, ...] = ("read",)

        async def list_tools(self) -> ToolListing:
            return ToolListing(tuple(ToolSpec(name) for name in self.names))  # new objects each time

        async def call(self, call: ToolCall, context: RunContext[Any] = NO_CONTEXT) -> ToolResult:
            raise AssertionError

    class Counting(WrapperSource):
        adapted = 0

        def adapt(self, tools: tuple[ToolSpec, ...]) -> tuple[ToolSpec, ...]:
            self.adapted += 1
            return tools

    source = Counting(Remote())
    assert asyncio.run(source.list_tools()) is asyncio.run(source.list_tools())
    assert source.adapted == 1
    Remote.names = ("read", "write")
    assert names(source) == ["read", "write"]
    assert source.adapted == 2


class LoopOf(ToolSource):
    """Says in which event loop it is used."""

    async def list_tools(self) -> ToolListing:
        return ToolListing((ToolSpec("which"),))

    async def call(self, call: ToolCall, context: RunContext[Any] = NO_CONTEXT) -> ToolResult:
        return ToolResult(call.id, call.name, id(asyncio.get_running_loop()))


def test_loop_bound_source_is_used_in_its_own_loop_while_that_runs() -> None:
    source = LoopBound(LoopOf())

    async def main() -> None:
        await source.list_tools()
        result = await asyncio.to_thread(lambda: asyncio.run(source.call(ToolCall("1", "which"))))
        assert result.value == id(asyncio.get_running_loop())

    asyncio.run(main())


def test_loop_bound_source_moves_to_another_loop_when_its_own_is_closed() -> None:
    source = LoopBound(LoopOf())
    asyncio.run(source.list_tools())

    async def main() -> None:
        assert (await source.call(ToolCall("1", "which"))).value == id(asyncio.get_running_loop())

    asyncio.run(main())


def test_loop_bound_source_cannot_be_used_while_its_loop_does_not_run() -> None:
    source = LoopBound(LoopOf())
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(source.list_tools())
        with pytest.raises(ConfigError, match="the event loop of this source is not running"):
            asyncio.run(source.list_tools())
    finally:
        loop.close()


@pytest.mark.parametrize("listing", [["add"], None, ToolListing(("add",))])  # type: ignore[arg-type]
def test_source_that_lists_something_other_than_specs_is_a_config_error(listing: Any) -> None:
    class Careless(ToolSource):
        async def list_tools(self) -> ToolListing:
            return listing  # type: ignore[no-any-return]

    with pytest.raises(ConfigError, match=r"Careless.list_tools\(\) must return a ToolListing of ToolSpecs, got"):
        asyncio.run(Merged([Careless()]).list_tools())


def test_two_tools_of_one_name_are_an_error_wherever_they_are_merged() -> None:
    merged = Merged([LocalTools([read]), LocalTools([read])])
    with pytest.raises(DuplicateToolError, match="two sources have a tool named 'read'"):
        Agent(ScriptedProvider([]), Prefixed(merged, "fs_")).run_sync("?")


def test_result_of_another_call_is_not_taken_for_that_of_a_renamed_tool() -> None:
    class Confused(ToolSource):
        async def list_tools(self) -> ToolListing:
            return ToolListing((ToolSpec("read"),))

        async def call(self, call: ToolCall, context: RunContext[Any] = NO_CONTEXT) -> ToolResult:
            return ToolResult(call.id, "write", "written")

    script = [ToolCall("1", "fs_read"), "done"]
    [tool_run] = Agent(ScriptedProvider(script), Prefixed(Confused(), "fs_")).run_sync("?").tool_calls
    assert (tool_run.is_error, tool_run.name) == (True, "fs_read")
    assert "the source did not return a result of this call" in tool_run.value
