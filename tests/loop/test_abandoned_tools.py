"""Tools that ignore their cancellation: a run waits for them at most five seconds.

Each of these tests takes those five seconds, so they run concurrently.
"""

import asyncio
import subprocess
import sys
from contextlib import aclosing, suppress
from typing import Any

import pytest

from midspan import Agent, BackgroundRuns, Limits, tool
from midspan._types.events import ToolStart
from midspan._types.parts import ToolCall
from midspan.errors import LimitReachedError
from midspan.testing import ScriptedProvider
from midspan.tools.tasks import CANCEL_GRACE_SECONDS
from tests.bounds import BOUND, PATIENT_PROGRAM


class Polls:
    """A tool that ignores every cancellation until the test releases it."""

    def __init__(self, release: asyncio.Event) -> None:
        self._release = release
        self.starts = 0

    async def poll(self) -> str:
        """Never ends by itself."""
        self.starts += 1
        while not self._release.is_set():
            with suppress(BaseException):
                await asyncio.sleep(0.05)
        return "released"

    def agent(self, timeout: float | None, *, calls: int = 1) -> Agent[str]:
        provider = ScriptedProvider([[ToolCall(str(n), "poll", {}) for n in range(calls)], "done"])
        return Agent(provider, tools=[tool(timeout=timeout)(self.poll)])


async def clean_up() -> str:
    """Has a timeout of its own, and needs longer to clean up than a cancelled tool may take."""
    try:
        async with asyncio.timeout(0.01):
            try:
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(CANCEL_GRACE_SECONDS + 1)
    except TimeoutError:
        return "cleaned up"
    return "not reached"


async def timeout_of_the_tool(polls: Polls) -> None:
    result = await polls.agent(0.05).run("go")
    assert result.text == "done"
    assert result.tool_calls[0].value == (
        "poll timed out after 0.05 seconds, ignored its cancellation and was abandoned; it may still be running"
    )


async def time_limit_of_the_run(polls: Polls, calls: int) -> None:
    with pytest.raises(LimitReachedError, match="run time") as caught:
        await polls.agent(None, calls=calls).run("go", limits=Limits(max_seconds=1))
    assert caught.value.transcript is not None
    assert len(list(caught.value.transcript)[-1].results) == calls


async def stop_of_a_background_run(polls: Polls, calls: int) -> None:
    async with BackgroundRuns(polls.agent(None, calls=calls)) as streams:
        id = streams.start("go")
        async with aclosing(streams.subscribe(id)) as events:
            async for _, event in events:
                if isinstance(event, ToolStart):
                    break
        while polls.starts < calls:  # noqa: ASYNC110 - the journal stores the event before the tools start
            await asyncio.sleep(0.01)
        assert await streams.cancel(id)
        assert (await streams.status(id)).phase == "cancelled"


async def close_from_another_task(polls: Polls) -> None:
    stream = polls.agent(None).stream("go")

    async def take() -> list[Any]:
        return [event async for event in stream]

    taking = asyncio.create_task(take())
    while not polls.starts:  # noqa: ASYNC110 - the tool has no other way to say that it runs
        await asyncio.sleep(0.01)
    await stream.aclose()
    await taking
    assert (
        stream.messages[-1].results[0].value
        == "poll was cancelled before it ended; whether it had an effect is unknown"
    )


async def no_grace_period_for_a_timeout_inside_the_tool() -> None:
    provider = ScriptedProvider([ToolCall("1", "clean_up", {}), "done"])
    result = await Agent(provider, tools=[tool(timeout=None)(clean_up)]).run("go")
    assert result.tool_calls[0].value == "cleaned up"


def test_tool_that_ignores_its_cancellation_is_abandoned(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        release = asyncio.Event()
        try:
            async with asyncio.timeout(CANCEL_GRACE_SECONDS + BOUND), asyncio.TaskGroup() as group:
                group.create_task(timeout_of_the_tool(Polls(release)))
                group.create_task(time_limit_of_the_run(Polls(release), 1))
                group.create_task(time_limit_of_the_run(Polls(release), 3))
                group.create_task(stop_of_a_background_run(Polls(release), 1))
                group.create_task(stop_of_a_background_run(Polls(release), 2))
                group.create_task(close_from_another_task(Polls(release)))
                group.create_task(no_grace_period_for_a_timeout_inside_the_tool())
            abandoned = asyncio.all_tasks() - {asyncio.current_task()}
            assert len(abandoned) == 1 + 1 + 3 + 1 + 2 + 1
        finally:
            release.set()  # or asyncio.run would wait for the tools forever
        await asyncio.wait(abandoned, timeout=BOUND)
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())
    assert caplog.text.count("tool poll was cancelled but did not end; it was abandoned and keeps running") == 9


PROGRAM = """
import asyncio, sys
from midspan import Agent, tool
from midspan.testing import ScriptedProvider
from midspan._types.parts import ToolCall

@tool(timeout=0.05)
async def poll() -> str:
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        await asyncio.sleep(3600)

@tool(timeout=0.05)
async def poll_for_ever() -> str:
    while True:
        try:
            await asyncio.sleep(0.05)
        except BaseException:
            pass

def agent(name):
    return Agent(ScriptedProvider([ToolCall("1", name, {}), "done"]), tools=[poll, poll_for_ever])

if sys.argv[1] == "async":
    print(asyncio.run(agent("poll").run("go")).text)
else:
    print(agent("poll_for_ever").run_sync("go").text)
"""


def test_program_with_an_abandoned_tool_exits_without_a_warning() -> None:
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", PATIENT_PROGRAM + PROGRAM]
    both = [
        subprocess.Popen([*command, how], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for how in ("async", "sync")
    ]
    outputs = [process.communicate(timeout=BOUND) for process in both]
    assert [output for output, _ in outputs] == ["done\n"] * 2
    assert all("abandoned" in line for _, errors in outputs for line in errors.splitlines())
    assert [process.returncode for process in both] == [0, 0]
