"""What every source of tools promises, whatever stands behind it."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from midspan.tools.local import LocalTools
from midspan.tools.merge import Merged
from midspan.tools.source import ToolSource
from midspan.tools.toolbox import Toolbox
from midspan.tools.wrap import Filtered, Prefixed, Renamed, TimeLimited
from midspan.types.parts import ToolCall, ToolResult


def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


async def fail() -> str:
    """Fails."""
    raise ValueError("broken")


def _toolbox() -> ToolSource:
    box = Toolbox()
    box.register(add)
    box.register(fail, session="s")
    return box.source("s")


SOURCES: dict[str, Callable[[], ToolSource]] = {
    "local": lambda: LocalTools([add, fail]),
    "merged": lambda: Merged([LocalTools([add]), LocalTools([fail])]),
    "toolbox": _toolbox,
    "renamed": lambda: Renamed(Renamed(LocalTools([add, fail]), {"add": "plus"}), {"plus": "add"}),
    "prefixed": lambda: Renamed(Prefixed(LocalTools([add, fail]), "x_"), {"x_add": "add", "x_fail": "fail"}),
    "filtered": lambda: Filtered(LocalTools([add, fail, print_nothing]), {"add", "fail"}),
    "limited": lambda: TimeLimited(LocalTools([add, fail]), 5),
}


def print_nothing() -> None: ...


@pytest.fixture(params=list(SOURCES))
def source(request: pytest.FixtureRequest) -> ToolSource:
    return SOURCES[request.param]()


def call(source: ToolSource, name: str, **arguments: Any) -> ToolResult:
    return asyncio.run(source.call(ToolCall("7", name, arguments)))


def test_it_is_a_source(source: ToolSource) -> None:
    assert isinstance(source, ToolSource)


def test_it_lists_its_tools(source: ToolSource) -> None:
    specs = asyncio.run(source.list_tools())
    assert [(spec.name, spec.description) for spec in specs] == [("add", "Adds."), ("fail", "Fails.")]


@pytest.mark.requirement("S3-05")
def test_it_does_a_call_under_the_calls_own_id_and_name(source: ToolSource) -> None:
    assert call(source, "add", a=2, b=3) == ToolResult("7", "add", 5)


@pytest.mark.requirement("S3-07")
def test_it_never_raises_for_a_tools_fault(source: ToolSource) -> None:
    for name, arguments in (("fail", {}), ("add", {"a": "x"}), ("ad", {}), ("", {}), ("print_nothing", {})):
        result = call(source, name, **arguments)
        assert (result.id, result.name, result.is_error) == ("7", name, True)


@pytest.mark.requirement("S3-07")
def test_it_offers_the_nearest_names_for_one_that_is_not_there(source: ToolSource) -> None:
    words = call(source, "ads").value
    assert words.startswith("unknown tool: ads; did you mean add?")
    assert "the tools are: add, fail" in words
