import asyncio
import gc
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from wasat.errors import ConfigError
from wasat.loop.blocking import iterate, wait_for


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
        thread.join(5)
    assert seen == [7] * 8


def test_it_works_inside_a_running_loop() -> None:
    async def main() -> Any:
        return wait_for(give(5))

    assert asyncio.run(main()) == 5


def test_a_blocking_call_from_inside_another_one_is_refused() -> None:
    async def inner() -> Any:
        return wait_for(give(5))

    with pytest.raises(ConfigError, match="from inside another one"):
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


PROGRAM = """
import asyncio, sys, threading, time
from wasat.loop.blocking import iterate, wait_for

async def slow():
    yield 1
    await asyncio.sleep(600)
    yield 2

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
    ],
)
def test_a_program_ends_at_once_and_silently_whatever_is_open(how: str) -> None:
    code = PROGRAM.format(how=how)
    ran = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", code], capture_output=True, text=True, timeout=15
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "end\n", "")
