"""Tools that go on when they are stopped: nobody waits for them for ever.

Each of these takes the five seconds for which such a tool is waited for, so they are done at once.
"""

import asyncio
import subprocess
import sys
from contextlib import aclosing, suppress
from typing import Any

import pytest

from midspan import Agent, BackgroundRuns, Limits, tool
from midspan.errors import LimitReached
from midspan.loop.background_runs import Phase
from midspan.testing import ScriptedProvider
from midspan.tools.apart import PATIENCE_SECONDS
from midspan.types.events import ToolStart
from midspan.types.parts import ToolCall
from tests.bounds import BOUND, PATIENT_PROGRAM

STOPPED = "did not end when it was stopped, and is not waited for any longer"


async def poll() -> str:
    """Never dies."""
    while True:
        with suppress(BaseException):
            await asyncio.sleep(0.05)


async def tidy() -> str:
    """Has a limit of its own, and needs longer to tidy up than anybody would wait for it."""
    try:
        async with asyncio.timeout(0.01):
            try:
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(PATIENCE_SECONDS + 1)
    except TimeoutError:
        return "tidy"
    return "not reached"


def agent(timeout: float | None, *, calls: int = 1) -> Agent[str]:
    provider = ScriptedProvider([[ToolCall(str(n), "poll", {}) for n in range(calls)], "done"])
    return Agent(provider, tools=[tool(timeout=timeout)(poll)])


async def by_its_own_time() -> None:
    result = await agent(0.05).run("go")
    assert result.text == "done"
    assert result.tool_calls[0].value == f"poll took longer than 0.05 seconds, {STOPPED}"


async def by_the_time_of_the_run(calls: int) -> None:
    with pytest.raises(LimitReached, match="run time") as caught:
        await agent(None, calls=calls).run("go", limits=Limits(max_seconds=1))
    assert caught.value.transcript is not None
    assert len(list(caught.value.transcript)[-1].results) == calls


async def by_stopping_the_stream(calls: int) -> None:
    async with BackgroundRuns(agent(None, calls=calls)) as runs:
        id = runs.start("go")
        async with aclosing(runs.subscribe(id)) as events:
            async for _, event in events:
                if isinstance(event, ToolStart):
                    break
        assert await runs.cancel(id)
        assert (await runs.status(id)).phase is Phase.CANCELLED


async def by_closing_it_from_another_task() -> None:
    stream = agent(None).stream("go")

    async def take() -> list[Any]:
        return [event async for event in stream]

    taking = asyncio.create_task(take())
    await asyncio.sleep(0.05)
    await stream.aclose()
    await taking
    assert (
        stream.messages[-1].results[0].value == "poll was cancelled before it ended; what it did until then is unknown"
    )


async def but_not_for_a_limit_of_its_own() -> None:
    result = await Agent(ScriptedProvider([ToolCall("1", "tidy", {}), "done"]), tools=[tool(timeout=None)(tidy)]).run(
        "go"
    )
    assert result.tool_calls[0].value == "tidy"


def test_a_tool_that_will_not_end_is_left_behind() -> None:
    async def main() -> None:
        async with asyncio.timeout(3 * PATIENCE_SECONDS), asyncio.TaskGroup() as group:
            group.create_task(by_its_own_time())
            group.create_task(by_the_time_of_the_run(1))
            group.create_task(by_the_time_of_the_run(3))
            group.create_task(by_stopping_the_stream(1))
            group.create_task(by_stopping_the_stream(2))
            group.create_task(by_closing_it_from_another_task())
            group.create_task(but_not_for_a_limit_of_its_own())
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())


PROGRAM = """
import asyncio, sys
from midspan import Agent, tool
from midspan.testing import ScriptedProvider
from midspan.types.parts import ToolCall

@tool(timeout=0.05)
async def poll() -> str:
    while True:
        try:
            await asyncio.sleep(0.05)
        except BaseException:
            pass

agent = Agent(ScriptedProvider([ToolCall("1", "poll", {}), "done"]), tools=[poll])
print((asyncio.run(agent.run("go")) if sys.argv[1] == "async" else agent.run_sync("go")).text)
"""


def test_a_program_ends_silently_though_a_tool_was_left_behind() -> None:
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", PATIENT_PROGRAM + PROGRAM]
    both = [
        subprocess.Popen([*command, how], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for how in ("async", "sync")
    ]
    assert [process.communicate(timeout=BOUND) for process in both] == [("done\n", "")] * 2
    assert [process.returncode for process in both] == [0, 0]
