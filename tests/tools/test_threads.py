import asyncio
import contextvars
import subprocess
import sys
import threading
import time

import pytest

from wasat.tools.threads import Threads


def test_functions_run_at_once_up_to_the_limit() -> None:
    at_once, peak, lock = 0, 0, threading.Lock()

    def work(gate: threading.Event) -> None:
        nonlocal at_once, peak
        with lock:
            at_once += 1
            peak = max(peak, at_once)
        gate.wait(5)
        with lock:
            at_once -= 1

    async def main() -> None:
        threads, gate = Threads(most=4), threading.Event()
        tasks = [asyncio.create_task(threads.run(work, gate)) for _ in range(10)]
        while peak < 4:  # noqa: ASYNC110 - it is set in other threads
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.05)
        gate.set()
        await asyncio.gather(*tasks)

    asyncio.run(asyncio.wait_for(main(), 10))
    assert peak == 4


def test_a_thread_that_was_given_up_on_makes_room() -> None:
    async def main() -> str:
        threads, gate = Threads(most=1), threading.Event()
        stuck = asyncio.create_task(threads.run(gate.wait, 30))
        await asyncio.sleep(0.02)
        stuck.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stuck
        try:
            return await asyncio.wait_for(threads.run(lambda: "free"), 5)
        finally:
            gate.set()

    assert asyncio.run(main()) == "free"


def test_the_limit_holds_whatever_is_cancelled_when() -> None:
    at_once, peak, lock = 0, 0, threading.Lock()

    def work() -> None:
        nonlocal at_once, peak
        with lock:
            at_once += 1
            peak = max(peak, at_once)
        time.sleep(0.002)
        with lock:
            at_once -= 1

    async def main() -> None:
        threads = Threads(most=2)
        for _ in range(50):  # cancelled when the function has ended and the loop has not heard of it yet
            task = asyncio.create_task(threads.run(lambda: None))
            await asyncio.sleep(0)
            time.sleep(0.001)  # noqa: ASYNC251 - so that the loop does not hear of it
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await asyncio.gather(*(threads.run(work) for _ in range(40)))

    asyncio.run(asyncio.wait_for(main(), 10))
    assert peak <= 2


def test_waiting_for_a_thread_is_not_the_functions_time() -> None:
    async def main() -> list[str]:
        threads = Threads(most=2)
        return await asyncio.gather(*(threads.run(lambda: time.sleep(0.05) or "done", seconds=0.2) for _ in range(12)))

    assert asyncio.run(asyncio.wait_for(main(), 10)) == ["done"] * 12


def test_work_cancelled_before_it_began_never_runs() -> None:
    ran: list[int] = []

    async def main() -> None:
        threads, gate = Threads(most=1), threading.Event()
        first = asyncio.create_task(threads.run(gate.wait, 30))
        await asyncio.sleep(0.02)
        second = asyncio.create_task(threads.run(ran.append, 1))
        await asyncio.sleep(0.02)
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        gate.set()
        await first
        await threads.run(ran.append, 2)

    asyncio.run(main())
    assert ran == [2]


def test_threads_are_used_again() -> None:
    async def main() -> set[int]:
        threads = Threads()
        return {await threads.run(threading.get_ident) for _ in range(20)}

    assert len(asyncio.run(main())) <= 2


def test_context_variables_are_seen_in_the_thread() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")

    async def main() -> str:
        variable.set("seen")
        return await Threads().run(variable.get)

    assert asyncio.run(main()) == "seen"


def test_many_event_loops_share_the_threads() -> None:
    threads = Threads()
    seen: list[int] = []

    def loop(number: int) -> None:
        seen.append(asyncio.run(threads.run(lambda: number)))

    workers = [threading.Thread(target=loop, args=(number,)) for number in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(5)
    assert sorted(seen) == list(range(8))


def test_a_function_that_hangs_does_not_keep_the_program_from_ending() -> None:
    program = """
import asyncio, time
from wasat.tools.execute import execute
from wasat.tools.function import tool
from wasat.types.parts import ToolCall

@tool(timeout=0.05)
def hang() -> None:
    time.sleep(600)

print(asyncio.run(execute(hang, ToolCall("1", "hang"))).value)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=20)
    assert ran.stdout.startswith("hang took longer than 0.05 seconds")
    assert (ran.returncode, ran.stderr) == (0, "")
