"""A run that is closed or cancelled at each of its events: nothing keeps running, and the conversation can continue."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from midspan import Agent, tool
from midspan._types.events import TextDelta
from midspan._types.exchange import ModelRequest
from midspan._types.messages import History
from midspan._types.parts import Text, ToolCall
from midspan.testing import ScriptedProvider
from tests.bounds import BOUND, PATIENT_PROGRAM
from tests.streaming import PartsProvider

SCRIPT = [
    [Text("Let me see."), ToolCall("1", "work", {"n": 1}), ToolCall("2", "work", {"n": 2}), ToolCall("3", "no", {})],
    [ToolCall("4", "work", {"n": 4})],
    [Text("do"), Text("ne")],
]
EVENTS = 19


class Workshop:
    """Tools that know what of them is running, and a model that knows whether it is being listened to."""

    def __init__(self) -> None:
        self.running = 0
        self.listening = 0

    def agent(self) -> Agent:
        @tool
        async def work(n: int) -> int:
            """Work."""
            self.running += 1
            try:
                for _ in range(3):
                    await asyncio.sleep(0)
                return n
            finally:
                self.running -= 1

        workshop = self

        class Model(PartsProvider, ScriptedProvider):
            async def parts(self, request: ModelRequest) -> AsyncIterator[Any]:
                workshop.listening += 1
                try:
                    await asyncio.sleep(0)
                    async for part in ScriptedProvider.stream(self, request):
                        yield part
                finally:
                    workshop.listening -= 1

        return Agent(Model(SCRIPT), tools=[work])


def run(main: Any) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(BOUND):
            return await main

    return asyncio.run(bounded())


def is_legal(history: History) -> bool:
    following = [*history.messages[1:], None]
    return all(
        not one.calls or (after is not None and [result.id for result in after.results] == [c.id for c in one.calls])
        for one, after in zip(history, following, strict=True)
    )


def test_scripted_run_has_the_expected_number_of_events() -> None:
    async def main() -> int:
        return len([event async for event in Workshop().agent().stream("go")])

    assert asyncio.run(main()) == EVENTS


@pytest.mark.parametrize("after", range(1, EVENTS + 1))
def test_closing_after_any_event_leaves_nothing_running_and_a_valid_history(after: int) -> None:
    async def main() -> None:
        shop = Workshop()
        stream = shop.agent().stream("go")
        seen = 0
        async for _ in stream:
            seen += 1
            if seen == after:
                break
        await stream.aclose()
        assert (shop.running, shop.listening, len(asyncio.all_tasks())) == (0, 0, 1)
        assert is_legal(stream.messages)
        result = await Agent(ScriptedProvider(["went on"])).run("go on", messages=stream.messages)
        assert result.text == "went on"
        assert is_legal(result.messages)

    run(main())


@pytest.mark.parametrize("steps", range(30))
def test_cancelling_at_any_step_leaves_nothing_running_and_a_valid_history(steps: int) -> None:
    async def main() -> None:
        shop = Workshop()
        stream = shop.agent().stream("go")

        async def take() -> None:
            async with stream:
                async for _ in stream:
                    pass

        task = asyncio.create_task(take())
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert (shop.running, shop.listening, len(asyncio.all_tasks())) == (0, 0, 1)
        assert is_legal(stream.messages)

    run(main())


@pytest.mark.parametrize("steps", range(0, 30, 3))
def test_cancelling_a_blocking_run_leaves_nothing_running(steps: int) -> None:
    async def main() -> None:
        shop = Workshop()
        task = asyncio.create_task(shop.agent().run("go"))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        for _ in range(5):
            await asyncio.sleep(0)
        assert (shop.running, shop.listening, len(asyncio.all_tasks())) == (0, 0, 1)

    run(main())


def test_cancelled_call_has_a_result_under_its_id() -> None:
    started = asyncio.Event

    async def main() -> History:
        began = started()

        @tool
        async def slow() -> None:
            began.set()
            await asyncio.sleep(60)

        stream = Agent(ScriptedProvider([[ToolCall("x", "slow", {})]]), tools=[slow]).stream("?")

        async def take() -> None:
            async for _ in stream:
                pass

        task = asyncio.create_task(take())
        await began.wait()
        task.cancel()
        await asyncio.wait([task])
        assert not stream.state.calls
        return stream.messages

    result = run(main())[-1].results[0]
    assert (result.id, result.is_error) == ("x", True)
    assert "was cancelled" in result.value


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("then", ["the model", "a tool"])
def test_run_that_is_cancelled_while_it_computes_ends_when_it_waits_next(then: str, streams: bool) -> None:
    ran = []

    async def pay() -> str:
        ran.append("begun")
        await asyncio.sleep(0)
        ran.append("paid")
        return "paid"

    async def slow(_: Any) -> str:
        await asyncio.sleep(0)
        return "never"

    def interrupt(_: Any) -> Any:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()  # as asyncio.run does for Ctrl-C
        return ToolCall("2", "pay" if then == "a tool" else "none", {})

    agent = Agent(ScriptedProvider([interrupt, slow, "never"]), tools=[pay])

    async def main() -> Any:
        return [event async for event in agent.stream("?")] if streams else await agent.run("?")

    with pytest.raises(asyncio.CancelledError):
        run(main())
    assert "paid" not in ran


@pytest.mark.parametrize("waits", [False, True])
def test_cancellation_between_two_events_is_not_an_error_of_the_model(waits: bool) -> None:
    async def slow(_: Any) -> str:
        await asyncio.sleep(0)
        return "never"

    async def main() -> None:
        stream = Agent(ScriptedProvider([[Text("a"), Text("b")] if waits else slow])).stream("?")
        async for _ in stream:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()  # as asyncio.run does for Ctrl-C

    with pytest.raises(asyncio.CancelledError):
        run(main())


def test_consumer_may_handle_a_cancellation_itself_between_two_events() -> None:
    async def main() -> None:
        waits = asyncio.Event()
        seen: list[str] = []

        async def consume() -> str:
            async for event in Agent(ScriptedProvider([[Text("a"), Text("b")]])).stream("?"):
                if isinstance(event, TextDelta):
                    seen.append(event.text)
                    if event.text == "a":
                        waits.set()
                        with suppress(asyncio.CancelledError):
                            await asyncio.sleep(60)
            return "".join(seen)

        task = asyncio.create_task(consume())
        await waits.wait()
        task.cancel()
        assert await task == "ab"

    run(main())


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("calls", [1, 2])
def test_tool_that_cancels_its_own_task_does_not_end_the_run(waits: bool, calls: int) -> None:
    async def cancel() -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        if waits:
            await asyncio.sleep(0)
        return "ok"

    script = [[ToolCall(str(n), "cancel", {}) for n in range(calls)], "done"]
    result = Agent(ScriptedProvider(script), tools=[cancel]).run_sync("?")
    assert (result.text, [one.value for one in result.tool_calls]) == (
        "done",
        ["cancel failed: CancelledError"] * calls,
    )


EXIT_PROGRAM = """
import asyncio, os, signal, sys
from midspan import Agent
from midspan.testing import ScriptedProvider
from midspan._types.parts import ToolCall

signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))

async def crunch(n: int) -> str:
    if n == 0:
        {wait}
        os.kill(os.getpid(), signal.SIGTERM)
    else:
        await asyncio.sleep(60)
    return "done"

calls = [ToolCall(str(n), "crunch", {{"n": n}}) for n in range({calls})]
agent = Agent(ScriptedProvider([calls, "never"]), [crunch])
print({run}.text)
"""


@pytest.mark.parametrize("calls", [1, 2])
@pytest.mark.parametrize("wait", ["pass", "await asyncio.sleep(0.01)"])
@pytest.mark.parametrize("how", ['asyncio.run(agent.run("?"))', "asyncio.run(stream())"])
def test_system_exit_of_a_signal_handler_in_an_async_tool_ends_the_program(how: str, wait: str, calls: int) -> None:
    program = EXIT_PROGRAM.format(wait=wait, calls=calls, run=how)
    program = program.replace(
        "print(", 'async def stream():\n    return [event async for event in agent.stream("?")]\n\nprint('
    )
    ran = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", PATIENT_PROGRAM + program],
        capture_output=True,
        text=True,
        timeout=BOUND,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (7, "", "")


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("calls", [1, 2])
def test_keyboard_interrupt_and_system_exit_in_an_async_tool_end_the_run(kind: type[BaseException], calls: int) -> None:
    async def leave() -> None:
        raise kind

    provider = ScriptedProvider([[ToolCall(str(n), "leave", {}) for n in range(calls)], "never"])
    with pytest.raises(kind):
        Agent(provider, tools=[leave]).run_sync("?")
    assert len(provider.requests) == 1
