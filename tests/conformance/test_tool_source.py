"""What every tool source promises, whatever is behind it."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from midspan import Agent, tool
from midspan._types.context import NO_CONTEXT, RunContext
from midspan._types.parts import ToolCall, ToolResult
from midspan._types.specs import ToolSpec
from midspan.errors import ConfigError
from midspan.providers.gemini.capabilities import GEMINI_JSON_SCHEMA
from midspan.testing import ScriptedProvider
from midspan.tools.execution import LocalTools
from midspan.tools.source import ToolListing, ToolSource
from midspan.tools.toolbox import Toolbox
from midspan.tools.workers.source import Workers
from midspan.tools.wrap import (
    AdaptedTools,
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
from tests.bounds import BOUND


def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


async def fail() -> str:
    """Fails."""
    raise ValueError("broken")


async def whose(context: RunContext[str]) -> list[str]:
    """Says what its context holds."""
    return [context.user, context.run_id, context.call_id]


def hidden() -> None:
    """Is filtered out."""


FUNCTIONS = (add, fail, whose)
WORKER_FILE = Path(__file__).with_name("worker_tools.py")
"""Has the same functions."""
NAMES = [function.__name__ for function in FUNCTIONS]


def _toolbox() -> ToolSource:
    box = Toolbox()
    box.register(add)
    box.register(fail, session="s")
    box.register(whose, session="s")
    return box.source("s")


def _local() -> LocalTools:
    return LocalTools(FUNCTIONS)


class ListedAnew(WrapperSource):
    """Builds its list anew each time, as a source does that asks a server."""

    async def list_tools(self) -> ToolListing:
        listing = await self.source.list_tools()
        return ToolListing(tuple(ToolSpec(spec.name, spec.description, spec.parameters) for spec in listing))


SOURCES: dict[str, Callable[[], ToolSource]] = {
    "local": _local,
    "listed anew": lambda: ListedAnew(_local()),
    "merged": lambda: Merged([LocalTools([add]), LocalTools([fail, whose])]),
    "toolbox": _toolbox,
    "renamed": lambda: Renamed(Renamed(_local(), {"add": "plus"}), {"plus": "add"}),
    "prefixed": lambda: Renamed(Prefixed(_local(), "x_"), {f"x_{name}": name for name in NAMES}),
    "filtered": lambda: Filtered(LocalTools([*FUNCTIONS, hidden]), NAMES),
    "subset": lambda: ToolSubset(LocalTools([hidden, *FUNCTIONS]), NAMES),
    "time limited": lambda: TimeLimited(_local(), 5),
    "required": lambda: Required(_local()),
    "loop bound": lambda: LoopBound(_local()),
    "adapted": lambda: AdaptedTools(_local(), GEMINI_JSON_SCHEMA),
    "workers": lambda: Workers(WORKER_FILE, processes=2),
    "session of workers": lambda: SessionOfWorkers(),
}


class SessionOfWorkers(WrapperSource):
    """A session, and the workers to which it belongs."""

    def __init__(self) -> None:
        self.workers = Workers(WORKER_FILE, processes=1)
        self.workers.open_session("s")
        super().__init__(self.workers.source("s"))

    async def aclose(self) -> None:
        await self.workers.aclose()


@pytest.fixture(params=list(SOURCES))
def source(request: pytest.FixtureRequest) -> Iterator[ToolSource]:
    source = SOURCES[request.param]()
    yield source
    asyncio.run(source.aclose())


def call(source: ToolSource, name: str, context: RunContext[Any] = NO_CONTEXT, **arguments: Any) -> ToolResult:
    return asyncio.run(source.call(ToolCall("7", name, arguments), context))


def test_source_satisfies_the_protocol(source: ToolSource) -> None:
    assert isinstance(source, ToolSource)


def test_tools_are_listed_in_order_with_their_descriptions(source: ToolSource) -> None:
    listing = asyncio.run(source.list_tools())
    assert [(spec.name, spec.description) for spec in listing] == [
        ("add", "Adds."),
        ("fail", "Fails."),
        ("whose", "Says what its context holds."),
    ]
    assert listing.unavailable == ()


def test_two_listings_are_the_same_if_nothing_changed(source: ToolSource) -> None:
    async def main() -> bool:
        return (await source.list_tools()).is_same_as(await source.list_tools())

    assert asyncio.run(main())


@pytest.mark.requirement("S3-05")
def test_result_has_the_id_and_the_name_of_its_call(source: ToolSource) -> None:
    assert call(source, "add", a=2, b=3) == ToolResult("7", "add", 5)


@pytest.mark.requirement("S3-07")
def test_failures_of_tools_are_results(source: ToolSource) -> None:
    for name, arguments in (("fail", {}), ("add", {"a": "x"}), ("ad", {}), ("", {}), ("hidden", {})):
        result = call(source, name, **arguments)
        assert (result.id, result.name, result.is_error) == ("7", name, True)


@pytest.mark.requirement("S3-07")
def test_unknown_tool_is_answered_with_the_nearest_name(source: ToolSource) -> None:
    message = call(source, "ads").value
    assert message.startswith("unknown tool: ads; did you mean add? The tools are: add, fail, whose")


def test_context_reaches_the_tool(source: ToolSource) -> None:
    context = RunContext("ada", run_id="run_1", call_id="7")
    assert call(source, "whose", context).value == ["ada", "run_1", "7"]


def test_calls_at_the_same_time_keep_their_results_apart(source: ToolSource) -> None:
    async def main() -> list[ToolResult]:
        calls = [ToolCall(str(number), "add", {"a": number, "b": 1}) for number in range(20)]
        return list(await asyncio.gather(*(source.call(call, NO_CONTEXT) for call in calls)))

    assert [(result.id, result.value) for result in asyncio.run(main())] == [(str(n), n + 1) for n in range(20)]


def test_source_can_be_used_from_two_event_loops(source: ToolSource) -> None:
    asyncio.run(source.list_tools())

    async def main() -> Any:
        await source.call(ToolCall("1", "add", {"a": 1, "b": 1}), NO_CONTEXT)
        return await asyncio.to_thread(call, source, "add", a=1, b=1)

    assert asyncio.run(asyncio.wait_for(main(), BOUND)).value == 2


def test_source_can_be_closed(source: ToolSource) -> None:
    asyncio.run(source.aclose())


class Counted(WrapperSource):
    """Counts how often it is listed and closed."""

    def __init__(self) -> None:
        super().__init__(_local())
        self.listed = self.closed = 0

    async def list_tools(self) -> ToolListing:
        self.listed += 1
        return await super().list_tools()

    async def aclose(self) -> None:
        self.closed += 1


WRAPPERS: dict[str, Callable[[ToolSource], ToolSource]] = {
    "merged": lambda source: Merged([source, LocalTools([hidden])]),
    "renamed": lambda source: Renamed(source, {"fail": "failed"}),
    "filtered": lambda source: Filtered(source, {"add"}),
    "subset": lambda source: ToolSubset(source, ["add"]),
    "time limited": lambda source: TimeLimited(source, 5),
    "required": Required,
    "loop bound": LoopBound,
    "adapted": lambda source: AdaptedTools(source, GEMINI_JSON_SCHEMA),
}


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_wrapper_lists_the_tools_once_for_any_number_of_calls(wrap: Callable[[ToolSource], ToolSource]) -> None:
    inner = Counted()
    source = wrap(inner)
    asyncio.run(source.list_tools())
    for _ in range(5):
        assert call(source, "add", a=1, b=1).value == 2
    assert inner.listed == 1


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_wrapper_closes_the_source_within(wrap: Callable[[ToolSource], ToolSource]) -> None:
    inner = Counted()
    asyncio.run(wrap(inner).aclose())
    assert inner.closed == 1


def test_run_lists_the_tools_once() -> None:
    inner = Counted()
    script = [*(ToolCall(str(n), "add", {"a": n, "b": 1}) for n in range(3)), "done"]
    result = Agent(ScriptedProvider(script), tools=Filtered(inner, {"add"})).run_sync("?")
    assert (len(result.tool_calls), inner.listed) == (3, 1)


def test_changed_tools_are_noticed_by_their_version() -> None:
    one, two = ToolSpec("one"), ToolSpec("two")
    assert ToolListing((one,), 1).is_same_as(ToolListing((two,), 1))
    assert not ToolListing((one,), 1).is_same_as(ToolListing((one,), 2))
    assert ToolListing((one,)).is_same_as(ToolListing((ToolSpec("one"),)))
    assert not ToolListing((one,)).is_same_as(ToolListing((two,)))


def test_required_source_that_cannot_list_its_tools_is_an_error() -> None:
    class Down(ToolSource):
        async def list_tools(self) -> ToolListing:
            raise ConnectionError("nobody is there")

        async def call(self, call: ToolCall, context: RunContext[Any]) -> ToolResult:
            raise AssertionError

    listing = asyncio.run(Merged([Down(), _local()]).list_tools())
    assert [spec.name for spec in listing] == NAMES
    assert [(failure.name, failure.message) for failure in listing.unavailable] == [
        ("Down", "ConnectionError: nobody is there")
    ]
    for source in (Required(Down()), Merged([Required(Down()), _local()]), Required(Merged([Down()]))):
        with pytest.raises(ConfigError, match="the tools of Down cannot be listed"):
            asyncio.run(source.list_tools())


def test_result_that_is_not_json_serializable_is_an_error_result() -> None:
    class Odd(ToolSource):
        async def list_tools(self) -> ToolListing:
            return ToolListing((ToolSpec("odd"),))

        async def call(self, call: ToolCall, context: RunContext[Any]) -> ToolResult:
            return ToolResult(call.id, call.name, object())

    [run] = Agent(ScriptedProvider([ToolCall("1", "odd"), "so"]), tools=Odd()).run_sync("?").tool_calls
    assert run.value == "odd failed: TypeError: Encoding objects of type object is unsupported"


@pytest.mark.requirement("S3-16")
def test_function_gets_the_callers_object_and_the_run_context_by_annotation() -> None:
    @tool
    def both(context: RunContext[dict[str, int]], n: int) -> list[Any]:
        """Look at the context."""
        return [context.user["x"] + n, bool(context.run_id), context.deadline is not None, context.cancelled]

    result = Agent(ScriptedProvider([ToolCall("1", "both", {"n": 1}), "so"]), tools=both).run_sync(
        "?", context={"x": 1}
    )
    assert result.tool_calls[0].value == [2, True, True, False]
    assert list(both.spec.parameters["properties"]) == ["n"]  # type: ignore[index]


@pytest.mark.requirement("S3-16")
def test_plain_function_sees_in_its_thread_that_it_timed_out() -> None:
    seen = threading.Event()

    @tool(timeout=0.5)  # a function that has not started then never runs
    def wait(context: RunContext[None]) -> None:
        """Wait until it is cancelled."""
        while not context.cancelled:
            pass
        seen.set()

    result = Agent(ScriptedProvider([ToolCall("1", "wait"), "so"]), tools=wait).run_sync("?")
    assert result.tool_calls[0].is_error
    assert seen.wait(BOUND)
