import asyncio
import contextvars
import gc
import os
import subprocess
import sys
import threading
import time
import weakref

import pytest

from midspan.errors import ToolError
from midspan.tools.deadline import Raised
from midspan.tools.threads import Threads
from tests.bounds import BOUND, time_passes


def test_functions_run_at_once_up_to_the_limit() -> None:
    at_once, peak, lock = 0, 0, threading.Lock()

    def work(gate: threading.Event) -> None:
        nonlocal at_once, peak
        with lock:
            at_once += 1
            peak = max(peak, at_once)
        gate.wait(BOUND)
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

    asyncio.run(asyncio.wait_for(main(), BOUND))
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

    asyncio.run(asyncio.wait_for(main(), BOUND))
    assert peak <= 2


def test_waiting_for_a_thread_is_not_the_functions_time() -> None:
    async def main() -> list[str]:
        threads, loop = Threads(most=2), asyncio.get_running_loop()
        both = threading.Barrier(2)  # neither thread runs ahead

        async def pass_time() -> str:
            time_passes(BOUND / 20)
            return "done"

        def work() -> str:
            both.wait(BOUND)
            return asyncio.run_coroutine_threadsafe(pass_time(), loop).result()

        return await asyncio.gather(*(threads.run(work, seconds=BOUND / 4) for _ in range(12)))

    assert asyncio.run(asyncio.wait_for(main(), BOUND)) == ["done"] * 12


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


def test_one_thread_is_enough_for_one_function_after_another() -> None:
    async def main() -> set[int]:
        threads = Threads()
        return {await threads.run(threading.get_ident) for _ in range(2_000)}

    assert len(asyncio.run(main())) == 1


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
        worker.join(BOUND)
    assert sorted(seen) == list(range(8))


def test_a_function_that_hangs_does_not_keep_the_program_from_ending() -> None:
    program = """
import asyncio, time
from midspan.tools.execute import execute
from midspan.tools.function import tool
from midspan.types.parts import ToolCall

@tool(timeout=0.05)
def hang() -> None:
    time.sleep(600)

print(asyncio.run(execute(hang, ToolCall("1", "hang"))).value)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=BOUND)
    assert ran.stdout.startswith("hang took longer than 0.05 seconds")
    assert (ran.returncode, ran.stderr) == (0, "")


def nested(threads: Threads, depth: int) -> int:
    """As a tool that asks an agent of its own: a thread waits for a loop, and that for another thread."""
    return 1 + asyncio.run(threads.run(nested, threads, depth - 1)) if depth else 0


def test_functions_that_wait_for_functions_never_wait_for_each_other() -> None:
    async def main() -> None:
        threads = Threads(most=2)
        assert await threads.run(nested, threads, 30) == 30
        assert await asyncio.gather(*(threads.run(nested, threads, 3) for _ in range(20))) == [3] * 20

    asyncio.run(asyncio.wait_for(main(), 20))


def test_each_depth_keeps_to_the_limit() -> None:
    at_once, peak, lock = 0, 0, threading.Lock()

    def work() -> None:
        nonlocal at_once, peak
        with lock:
            at_once += 1
            peak = max(peak, at_once)
        time.sleep(0.002)
        with lock:
            at_once -= 1

    async def many(threads: Threads) -> None:
        await asyncio.gather(*(threads.run(work) for _ in range(40)))

    async def main() -> None:
        threads = Threads(most=2)
        await asyncio.gather(*(threads.run(lambda: asyncio.run(many(threads))) for _ in range(3)))

    asyncio.run(asyncio.wait_for(main(), BOUND))
    assert peak == 2


def test_what_goes_too_deep_is_told_and_the_threads_go_on() -> None:
    async def main() -> None:
        threads = Threads(most=2, deepest=5)
        assert await threads.run(nested, threads, 4) == 4
        with pytest.raises(Raised) as caught:
            await threads.run(nested, threads, 5)
        error: BaseException = caught.value
        while isinstance(error, Raised):
            error = error.error
        assert isinstance(error, ToolError)
        assert "5 deep" in str(error)
        assert await threads.run(nested, threads, 4) == 4

    asyncio.run(asyncio.wait_for(main(), BOUND))


def test_what_a_function_left_behind_is_not_within_it() -> None:
    async def main() -> int:
        threads = Threads(most=2, deepest=3)
        contexts = [contextvars.copy_context()]

        def leave() -> None:
            contexts.append(contextvars.copy_context())

        for _ in range(10):  # each starts where the one before has ended
            await asyncio.create_task(threads.run(leave), context=contexts[-1])
        return len(contexts)

    assert asyncio.run(asyncio.wait_for(main(), BOUND)) == 11


def test_where_nothing_ends_for_a_while_who_waits_gets_a_thread() -> None:
    """A function may wait for another in a way that cannot be seen from here: through a thread of its own, say."""

    async def main() -> list[int]:
        threads = Threads(most=2, patience=0.02)

        def hidden() -> int:
            given: list[int] = []
            own = threading.Thread(target=lambda: given.append(asyncio.run(threads.run(lambda: 5))))
            own.start()
            own.join(BOUND)
            return given[0]

        return list(await asyncio.gather(*(threads.run(hidden) for _ in range(6))))

    assert asyncio.run(asyncio.wait_for(main(), BOUND)) == [5] * 6


def test_work_that_was_given_up_on_is_not_kept() -> None:
    class Large:
        pass

    async def main() -> None:
        threads, gate = Threads(most=1), threading.Event()
        stuck = asyncio.create_task(threads.run(gate.wait, 10))
        await asyncio.sleep(0.02)
        large = Large()
        kept = weakref.ref(large)
        waiting = [asyncio.create_task(threads.run(id, large)) for _ in range(50)]
        del large
        await asyncio.sleep(0)
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
        del waiting, task
        gc.collect()
        assert kept() is None
        gate.set()
        await stuck

    asyncio.run(asyncio.wait_for(main(), BOUND))


def test_what_a_function_was_given_is_not_kept_after_it_ended() -> None:
    class Large:
        pass

    async def main() -> None:
        threads = Threads()
        large = Large()
        kept = weakref.ref(large)
        await threads.run(id, large)
        del large
        for _ in range(200):
            gc.collect()
            if kept() is None:
                return
            await asyncio.sleep(0.01)  # the thread has told what came of it, and has yet to forget it
        raise AssertionError("the idle thread keeps it")

    asyncio.run(asyncio.wait_for(main(), BOUND))


def test_where_no_thread_can_be_started_it_is_told() -> None:
    program = """
import asyncio, resource, threading
from midspan.tools.execute import execute
from midspan.tools.function import tool
from midspan.types.parts import ToolCall

@tool
def add(a: int) -> int:
    return a + 1

resource.setrlimit(resource.RLIMIT_AS, (1 << 31, 1 << 31))
call = ToolCall("1", "add", {"a": 1})
old = threading.stack_size(1 << 32)
first = asyncio.run(execute(add, call))
print(first.is_error, first.value)
threading.stack_size(old)
print(asyncio.run(execute(add, call)).value)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=BOUND)
    first, second = ran.stdout.splitlines()
    assert first.startswith("True no thread could be started")
    assert (second, ran.stderr) == ("2", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing to inherit where processes do not fork")
def test_a_forked_child_starts_threads_of_its_own() -> None:
    program = """
import asyncio, os
from midspan.tools.threads import THREADS

asyncio.run(THREADS.run(int))
child = os.fork()
if child == 0:
    print(asyncio.run(asyncio.wait_for(THREADS.run(lambda: "child"), 5)), flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""
    ran = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, timeout=BOUND)
    assert (ran.stdout, ran.stderr) == ("child\n", "")
