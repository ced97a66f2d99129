import asyncio
import gc
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest

from midspan import Agent
from midspan._loop.blocking import iterate, wait_for
from midspan._types.messages import Message
from midspan._types.parts import ToolCall, ToolResult
from midspan.errors import ConfigError
from midspan.testing import ScriptedProvider
from tests.bounds import BOUND, PATIENT_PROGRAM


async def give(value: Any) -> Any:
    await asyncio.sleep(0)
    return value


async def count(closed: list[str]) -> AsyncIterator[int]:
    try:
        for number in range(100):
            yield number
            await asyncio.sleep(0)
    finally:
        closed.append("closed")


def test_plain_code_waits_for_async_code_in_any_thread() -> None:
    assert wait_for(give(5)) == 5
    seen: list[int] = []
    threads = [threading.Thread(target=lambda: seen.append(wait_for(give(7)))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND)
    assert seen == [7] * 8


def test_it_works_inside_a_running_loop() -> None:
    async def main() -> Any:
        return wait_for(give(5))

    assert asyncio.run(main()) == 5


def test_a_blocking_call_from_inside_another_one_is_refused() -> None:
    async def inner() -> Any:
        return wait_for(give(5))

    with pytest.raises(ConfigError, match="from inside another one; use the async form there"):
        wait_for(inner())


def test_leaving_an_iteration_closes_it() -> None:
    closed: list[str] = []
    items = iterate(count(closed))
    assert next(items) == 0
    items.close()  # type: ignore[attr-defined]
    for _ in range(200):
        if closed:
            break
        wait_for(asyncio.sleep(0.01))
    assert closed == ["closed"]


def test_an_iteration_that_is_collected_in_the_loops_own_thread_does_no_harm() -> None:
    class Box:
        pass

    box: Any = Box()
    box.me, box.items = box, iterate(count([]))
    next(box.items)
    del box

    async def collect() -> None:
        gc.collect()

    wait_for(collect())
    assert wait_for(give(5)) == 5


@pytest.mark.parametrize("error", [KeyboardInterrupt("x"), SystemExit(3), GeneratorExit()])
def test_what_would_end_a_loop_is_for_the_caller_and_the_door_stays_open(error: BaseException) -> None:
    async def fail() -> None:
        await asyncio.sleep(0)
        raise error

    async def fail_in_a_task() -> None:
        await asyncio.create_task(fail())

    waiting: list[Any] = []
    other = threading.Thread(target=lambda: waiting.append(wait_for(asyncio.sleep(0.2, "other"))))
    other.start()
    for coroutine in (fail, fail_in_a_task):
        with pytest.raises(type(error)) as caught:
            wait_for(coroutine())
        assert caught.value is error
        assert wait_for(give(5)) == 5
    other.join(BOUND)
    assert waiting == ["other"]


def test_code_that_stops_the_loop_does_not_stop_the_door() -> None:
    async def stop() -> str:
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0)
        return "on"

    assert wait_for(asyncio.wait_for(stop(), 5)) == "on"
    assert wait_for(give(5)) == 5


def calling(*names: str) -> ScriptedProvider:
    """A model that makes these calls at once, and then answers."""
    calls = tuple(ToolCall(str(number), name) for number, name in enumerate(names))
    return ScriptedProvider(lambda request: "done" if results(request.history) else calls)


def results(messages: Iterable[Message]) -> list[ToolResult]:
    return [part for message in messages for part in message.parts if isinstance(part, ToolResult)]


@pytest.mark.parametrize("many", [1, 3])
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_next_run_works_whatever_an_async_tool_raises(kind: type[BaseException], many: int) -> None:
    async def fail() -> None:
        raise kind

    async def fine() -> str:
        return "fine"

    agent = Agent(calling(*["fail"] * many, *["fine"] * (many - 1)), tools=[fail, fine])
    if kind is not GeneratorExit:
        with pytest.raises(kind):
            agent.run_sync("go")
    else:
        assert agent.run_sync("go").text == "done"
    assert Agent(calling("fine"), tools=[fine]).run_sync("go").text == "done"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
def test_whatever_a_model_raises_the_next_run_runs(error: BaseException) -> None:
    with pytest.raises(type(error)):
        Agent(ScriptedProvider([error])).run_sync("go")
    assert Agent(ScriptedProvider(["done"])).run_sync("go").text == "done"


def test_agents_within_the_tools_of_agents_do_not_wait_for_each_other_for_ever() -> None:
    def leaf() -> str:
        return "leaf"

    inner = Agent(calling("leaf"), tools=[leaf])
    all_began = threading.Barrier(64)

    def ask() -> str:
        all_began.wait(BOUND)  # so that every thread of the first depth is held by one that waits
        return inner.run_sync("go").text

    result = Agent(calling(*["ask"] * 64), tools=[ask]).run_sync("go")
    assert result.text == "done"
    assert [part.value for part in results(result.messages)] == ["done"] * 64


def test_an_agent_may_ask_itself_many_times_over_but_not_for_ever() -> None:
    depth, deepest = 0, 80
    errors: list[Any] = []

    def again() -> str:
        nonlocal depth
        depth += 1
        if depth >= deepest:
            return "bottom"
        result = agent.run_sync("go")
        errors.extend(part.value for part in results(result.messages) if part.is_error)
        return result.text

    agent = Agent(calling("again"), tools=[again])
    assert agent.run_sync("go").text == "done"
    assert (depth, errors) == (80, [])
    depth, deepest = 0, 1_000
    assert agent.run_sync("go").text == "done"
    assert (depth, len(errors)) == (100, 1)
    assert "100 deep" in errors[0]


PROGRAM = """
import asyncio, sys, threading, time
from midspan._loop.blocking import iterate, wait_for

async def slow():
    yield 1
    await asyncio.sleep(600)
    yield 2

async def cleaning(kind):
    async def work():
        try:
            await asyncio.sleep(600)
        finally:
            raise kind
    tasks.append(asyncio.create_task(work()))
    await asyncio.sleep(0)

async def fail(kind):
    raise kind

def caught(kind):
    try:
        wait_for(fail(kind))
    except kind:
        wait_for(asyncio.sleep(0))

tasks = []
{how}
print("end")
"""


@pytest.mark.parametrize(
    "how",
    [
        "items = iterate(slow()); next(items)",
        "items = [iterate(slow())]; next(items[0]); items.append(items)",
        "threading.Thread(target=lambda: list(iterate(slow())), daemon=True).start(); time.sleep(0.2)",
        "wait_for(asyncio.sleep(0))",
        "wait_for(cleaning(KeyboardInterrupt)); wait_for(cleaning(SystemExit)); wait_for(cleaning(ValueError))",
        "caught(KeyboardInterrupt); caught(SystemExit); caught(GeneratorExit)",
    ],
)
def test_a_program_ends_at_once_and_silently_whatever_is_open(how: str) -> None:
    code = PATIENT_PROGRAM + PROGRAM.format(how=how)
    ran = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", code], capture_output=True, text=True, timeout=BOUND
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "end\n", "")
