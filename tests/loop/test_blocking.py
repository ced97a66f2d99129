import asyncio
import gc
import inspect
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterable
from concurrent.futures import CancelledError
from typing import Any

import pytest

from midspan import Agent
from midspan._loop.blocking import iterate, run_blocking
from midspan._types.events import ToolEnd
from midspan._types.messages import Message
from midspan._types.parts import ToolCall, ToolResult
from midspan.errors import ConfigError
from midspan.testing import ScriptedProvider
from tests.bounds import BOUND, PATIENT_PROGRAM


async def give(value: Any) -> Any:
    await asyncio.sleep(0)
    return value


async def count(closed: threading.Event) -> AsyncIterator[int]:
    try:
        for number in range(100):
            yield number
            await asyncio.sleep(0)
    finally:
        closed.set()


def test_plain_code_can_wait_for_a_coroutine_in_any_thread() -> None:
    assert run_blocking(give(5)) == 5
    seen: list[int] = []
    threads = [threading.Thread(target=lambda: seen.append(run_blocking(give(7)))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND)
    assert seen == [7] * 8


def test_blocking_call_works_while_another_event_loop_runs_in_the_thread() -> None:
    async def main() -> Any:
        return run_blocking(give(5))

    assert asyncio.run(main()) == 5


def test_blocking_call_inside_a_blocking_call_is_an_error() -> None:
    coroutine = give(5)

    async def inner() -> Any:
        return run_blocking(coroutine)

    with pytest.raises(ConfigError, match="inside another blocking call; use the async version there"):
        run_blocking(inner())
    assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED


def test_blocking_call_whose_coroutine_is_cancelled_does_not_end_the_program() -> None:
    async def cancelled() -> None:
        raise asyncio.CancelledError

    with pytest.raises(CancelledError):
        run_blocking(cancelled())


def test_leaving_an_iteration_closes_the_async_iterator() -> None:
    closed = threading.Event()
    items = iterate(count(closed))
    assert next(items) == 0
    items.close()  # type: ignore[attr-defined]
    assert closed.wait(BOUND)


def test_leaving_a_plain_for_over_a_stream_cancels_the_run() -> None:
    started, cancelled = threading.Event(), threading.Event()

    async def wait() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def report() -> str:
        return "done"

    stream = Agent(calling("wait", "report"), tools=[wait, report]).stream("go")
    for event in stream:
        if isinstance(event, ToolEnd):
            break
    assert started.is_set()
    assert cancelled.wait(BOUND)
    with pytest.raises(ConfigError, match="there is no result"):
        _ = stream.result


def test_iteration_can_be_garbage_collected_in_the_thread_of_the_loop() -> None:
    class Box:
        pass

    box: Any = Box()
    box.me, box.items = box, iterate(count(threading.Event()))
    next(box.items)
    del box

    async def collect() -> None:
        gc.collect()

    run_blocking(collect())
    assert run_blocking(give(5)) == 5


@pytest.mark.parametrize("error", [KeyboardInterrupt("x"), SystemExit(3), GeneratorExit()])
def test_exit_exceptions_reach_their_caller_and_the_loop_continues(error: BaseException) -> None:
    async def fail() -> None:
        await asyncio.sleep(0)
        raise error

    async def fail_in_a_task() -> None:
        await asyncio.create_task(fail())

    waiting: list[Any] = []
    other = threading.Thread(target=lambda: waiting.append(run_blocking(asyncio.sleep(0.2, "other"))))
    other.start()
    for coroutine in (fail, fail_in_a_task):
        with pytest.raises(type(error)) as caught:
            run_blocking(coroutine())
        assert caught.value is error
        assert run_blocking(give(5)) == 5
    other.join(BOUND)
    assert waiting == ["other"]


def test_loop_continues_after_a_coroutine_stops_it() -> None:
    async def stop() -> str:
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0)
        return "on"

    assert run_blocking(asyncio.wait_for(stop(), 5)) == "on"
    assert run_blocking(give(5)) == 5


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
def test_next_run_works_whatever_a_model_raises(error: BaseException) -> None:
    with pytest.raises(type(error)):
        Agent(ScriptedProvider([error])).run_sync("go")
    assert Agent(ScriptedProvider(["done"])).run_sync("go").text == "done"


def test_agents_inside_tools_do_not_deadlock_when_all_threads_wait() -> None:
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


def test_agent_that_calls_itself_is_refused_at_the_maximum_depth() -> None:
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
from midspan import Agent
from midspan._loop.blocking import iterate, run_blocking
from midspan.testing import ScriptedProvider

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
        run_blocking(fail(kind))
    except kind:
        run_blocking(asyncio.sleep(0))

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
        "for event in Agent(ScriptedProvider(['hi'])).stream('x'): break",
        "run_blocking(asyncio.sleep(0))",
        "for kind in (KeyboardInterrupt, SystemExit, ValueError): run_blocking(cleaning(kind))",
        "caught(KeyboardInterrupt); caught(SystemExit); caught(GeneratorExit)",
    ],
)
def test_program_exits_at_once_and_silently_whatever_is_open(how: str) -> None:
    code = PATIENT_PROGRAM + PROGRAM.format(how=how)
    ran = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", code], capture_output=True, text=True, timeout=BOUND
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "end\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing to inherit where processes do not fork")
def test_forked_child_has_a_loop_of_its_own_and_exits_quietly() -> None:
    program = """
import asyncio, os, sys
from midspan._loop.blocking import run_blocking

print(run_blocking(asyncio.sleep(0, "parent")), flush=True)
child = os.fork()
print(run_blocking(asyncio.sleep(0, "parent" if child else "child")), flush=True)
if child:
    sys.exit(os.waitpid(child, 0)[1])
"""
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PATIENT_PROGRAM + program], capture_output=True, text=True, timeout=BOUND
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert sorted(ran.stdout.split()) == ["child", "parent", "parent"]
