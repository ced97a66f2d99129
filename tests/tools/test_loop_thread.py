"""Event loops in threads of their own."""

import asyncio
import os
import threading
import warnings
from collections.abc import AsyncIterator

import pytest

from midspan.errors import ConfigError
from midspan.tools.loop_thread import LoopThread
from tests.bounds import BOUND


def test_a_loop_thread_can_be_closed_twice() -> None:
    thread = LoopThread("test")
    loop = thread.loop()
    thread.close()
    thread.close()
    assert loop.is_closed()


def test_closing_cancels_the_tasks_and_closes_the_async_generators() -> None:
    thread = LoopThread("test")
    started, ended = threading.Event(), []

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            ended.append("generator")

    generator = numbers()

    async def wait() -> None:
        await anext(generator)
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("task")

    asyncio.run_coroutine_threadsafe(wait(), thread.loop())
    assert started.wait(BOUND)
    loop = thread.loop()
    thread.close()
    assert (ended, loop.is_closed()) == (["task", "generator"], True)


def test_a_coroutine_is_started_from_another_thread_while_the_loop_runs() -> None:
    thread, ran, was_current = LoopThread("test"), threading.Event(), []

    async def note() -> None:
        was_current.append(thread.is_current)
        ran.set()

    thread.start_soon(note)  # there is no loop yet
    thread.loop()
    thread.start_soon(note)
    assert ran.wait(BOUND)
    assert (was_current, thread.is_current) == ([True], False)
    thread.close()
    thread.start_soon(note)
    assert was_current == [True]
    with pytest.raises(ConfigError, match="the program is exiting"):
        thread.loop()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing to inherit where processes do not fork")
def test_forked_child_has_an_event_loop_of_its_own() -> None:
    thread = LoopThread("test")
    loop = thread.loop()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python 3.12 warns of forks of processes with threads
        child = os.fork()
    if child == 0:
        try:
            answer = asyncio.run_coroutine_threadsafe(asyncio.sleep(0, "child"), thread.loop())
            os._exit(0 if thread.loop() is not loop and answer.result(BOUND) == "child" else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    thread.close()


def test_loop_is_closed_if_its_thread_cannot_start_and_the_next_call_starts_it() -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    def make_loop() -> asyncio.AbstractEventLoop:
        loops.append(asyncio.new_event_loop())
        return loops[-1]

    loop_thread = LoopThread("test", make_loop)
    usual = threading.stack_size(2**47)  # more than a process can have
    try:
        with pytest.raises(RuntimeError, match="can't start new thread"):
            loop_thread.loop()
    finally:
        threading.stack_size(usual)
    assert loops[0].is_closed()
    assert asyncio.run_coroutine_threadsafe(asyncio.sleep(0, 5), loop_thread.loop()).result(BOUND) == 5
    loop_thread.close()
