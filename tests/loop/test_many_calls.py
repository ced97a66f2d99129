"""Many calls in one turn cost linear time: twice as many calls cost about twice as many Python function calls."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Any

import pytest

from midspan import Agent, BackgroundRuns, Limits, tool
from midspan._types.events import ToolEnd
from midspan._types.parts import ToolCall
from midspan.errors import LimitReachedError, NoAnswerError
from midspan.testing import ScriptedProvider

CALLS = 300


@tool
async def look(x: int) -> int:
    """Look."""
    return x


@tool
async def wait(x: int) -> int:
    """Wait."""
    await asyncio.sleep(0)
    return x


@tool(writes="everything")
async def write(x: int) -> int:
    """Write."""
    return x


def turn(count: int, name: str = "look", *, id: str | None = None) -> list[ToolCall]:
    return [ToolCall(id or str(number), name, {"x": number}) for number in range(count)]


def agent(*turns: Any, **options: Any) -> Agent[str]:
    return Agent(ScriptedProvider([*turns, "Done."]), tools=[look, wait, write], **options)


async def distinct_calls(count: int) -> None:
    assert len((await agent(turn(count)).run("Go.")).tool_calls) == count


async def calls_that_wait(count: int) -> None:
    await agent(turn(count, "wait")).run("Go.")


async def calls_with_a_time_limit(count: int) -> None:
    await agent(turn(count), limits=Limits(max_seconds=1000)).run("Go.")


async def calls_over_a_limit(count: int) -> None:
    with suppress(LimitReachedError):
        await agent(turn(count), limits=Limits(max_tool_calls=10)).run("Go.")
    await agent(turn(count), limits=Limits(max_tool_calls=10, on_limit="answer")).run("Go.")


async def calls_under_one_id(count: int) -> None:
    await agent(turn(count, id="same")).run("Go.")


async def copies_of_calls(count: int) -> None:
    await agent([*turn(count // 2, id="same"), *turn(count // 2, id="same")]).run("Go.")


async def repeated_calls(count: int) -> None:
    with suppress(NoAnswerError):
        await agent(*[turn(count)] * 5).run("Go.")


async def repeated_calls_that_write(count: int) -> None:
    await agent(*[turn(count, "write")] * 5).run("Go.")


async def unknown_tools(count: int) -> None:
    await agent([ToolCall(str(number), f"unknown_{number}", {}) for number in range(count)]).run("Go.")


async def background_run(count: int) -> None:
    async with (
        BackgroundRuns(agent(turn(count))) as streams,
        aclosing(streams.subscribe(streams.start("Go."))) as events,
    ):
        async for _ in events:
            pass


async def closed_stream(count: int) -> None:
    async with agent(turn(count, "wait")).stream("Go.") as stream:
        async for event in stream:
            if isinstance(event, ToolEnd):
                break
    assert len(stream.messages[-1].results) == count


def function_calls(run: Callable[[int], Awaitable[None]], count: int) -> int:
    total = 0

    def profile(_frame: Any, _event: str, _argument: Any) -> None:
        nonlocal total
        total += 1

    async def profiled() -> None:
        sys.setprofile(profile)
        try:
            await run(count)
        finally:
            sys.setprofile(None)

    asyncio.run(profiled())
    return total


@pytest.mark.parametrize(
    "run",
    [
        distinct_calls,
        calls_that_wait,
        calls_with_a_time_limit,
        calls_over_a_limit,
        calls_under_one_id,
        copies_of_calls,
        repeated_calls,
        repeated_calls_that_write,
        unknown_tools,
        background_run,
        closed_stream,
    ],
)
def test_calls_of_one_turn_cost_linear_time(run: Callable[[int], Awaitable[None]]) -> None:
    asyncio.run(run(2))  # type: ignore[arg-type]  # loads what is loaded once
    assert function_calls(run, 2 * CALLS) / function_calls(run, CALLS) < 2.5
