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
from midspan.tools.tasks import Expired, Threads, ToolRaised
from tests.bounds import BOUND, PATIENT_PROGRAM, time_passes


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
        threads, gate = Threads(max_threads=4), threading.Event()
        tasks = [asyncio.create_task(threads.run(work, gate)) for _ in range(10)]
        while peak < 4:  # noqa: ASYNC110 - it is set in other threads
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.05)
        gate.set()
        await asyncio.gather(*tasks)

    asyncio.run(asyncio.wait_for(main(), BOUND))
    assert peak == 4


def test_abandoned_thread_releases_its_slot() -> None:
    async def main() -> str:
        threads, gate = Threads(max_threads=1), threading.Event()
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


def test_result_that_came_while_the_event_loop_was_blocked_is_returned() -> None:
    async def main() -> int:
        ended = threading.Event()
        running = asyncio.create_task(Threads().run(lambda: ended.set() or 5, timeout=0.05))
        await asyncio.sleep(0)
        ended.wait(BOUND)
        time.sleep(0.1)  # noqa: ASYNC251 - as a program does that blocks its event loop
        return await running

    assert asyncio.run(main()) == 5


def test_calls_are_refused_while_too_many_abandoned_threads_run() -> None:
    async def main() -> None:
        threads, gate = Threads(max_threads=2, max_abandoned=3), threading.Event()
        for _ in range(3):
            with pytest.raises(Expired):
                await threads.run(gate.wait, BOUND, timeout=0.01)
        for _ in range(20):
            with pytest.raises(ToolError, match=r"^3 earlier calls timed out or were cancelled and are still"):
                await threads.run(gate.wait, BOUND, timeout=0.01)
        gate.set()
        while True:
            try:
                assert await threads.run(lambda: "free") == "free"
            except ToolError:
                await asyncio.sleep(0.005)  # the abandoned threads have yet to end
            else:
                break

    asyncio.run(asyncio.wait_for(main(), BOUND))


def test_number_of_threads_is_bounded_however_many_calls_time_out() -> None:
    async def main() -> None:
        threads, gate = Threads(max_threads=4, max_abandoned=10), threading.Event()
        before = threading.active_count()
        errors: set[type] = set()
        for _ in range(10):
            calls = (threads.run(gate.wait, BOUND, timeout=0.01) for _ in range(20))
            errors |= {type(error) for error in await asyncio.gather(*calls, return_exceptions=True)}
        assert errors == {Expired, ToolError}
        assert threading.active_count() - before <= 10 + 20
        gate.set()

    asyncio.run(asyncio.wait_for(main(), BOUND))


def test_cancellation_at_any_time_does_not_exceed_the_limit() -> None:
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
        threads = Threads(max_threads=2)
        for _ in range(50):  # cancelled when the function has ended and the loop is not notified yet
            task = asyncio.create_task(threads.run(lambda: None))
            await asyncio.sleep(0)
            time.sleep(0.001)  # noqa: ASYNC251 - so that the loop is not notified
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await asyncio.gather(*(threads.run(work) for _ in range(40)))

    asyncio.run(asyncio.wait_for(main(), BOUND))
    assert peak <= 2


def test_waiting_for_a_thread_does_not_count_towards_the_timeout() -> None:
    async def main() -> list[str]:
        threads, loop = Threads(max_threads=2), asyncio.get_running_loop()
        both = threading.Barrier(2)  # neither thread runs ahead

        async def pass_time() -> str:
            time_passes(BOUND / 20)
            return "done"

        def work() -> str:
            both.wait(BOUND)
            return asyncio.run_coroutine_threadsafe(pass_time(), loop).result()

        return await asyncio.gather(*(threads.run(work, timeout=BOUND / 4) for _ in range(12)))

    assert asyncio.run(asyncio.wait_for(main(), BOUND)) == ["done"] * 12


def test_function_cancelled_before_its_start_never_runs() -> None:
    ran: list[int] = []

    async def main() -> None:
        threads, gate = Threads(max_threads=1), threading.Event()
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


def test_sequential_functions_share_one_thread() -> None:
    async def main() -> set[int]:
        threads = Threads()
        return {await threads.run(threading.get_ident) for _ in range(2_000)}

    assert len(asyncio.run(main())) == 1


def test_context_variables_are_visible_in_the_thread() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")

    async def main() -> str:
        variable.set("seen")
        return await Threads().run(variable.get)

    assert asyncio.run(main()) == "seen"


def test_closed_event_loops_are_forgotten() -> None:
    threads = Threads(max_threads=1)

    async def main() -> "weakref.ref[asyncio.AbstractEventLoop]":
        await asyncio.gather(*(threads.run(time.sleep, 0.01) for _ in range(3)))  # two of them wait for the slot
        return weakref.ref(asyncio.get_running_loop())

    loops = [asyncio.run(main()) for _ in range(5)]
    gc.collect()
    assert sum(loop() is not None for loop in loops) <= 1, "only the last one is still known"


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


def test_hanging_function_does_not_keep_the_program_from_exiting() -> None:
    program = """
import asyncio, time
from midspan.tools.execution import execute
from midspan.tools.function import tool
from midspan._types.parts import ToolCall

@tool(timeout=0.05)
def hang() -> None:
    time.sleep(600)

print(asyncio.run(execute(hang, ToolCall("1", "hang"))).value)
"""
    ran = subprocess.run(
        [sys.executable, "-c", PATIENT_PROGRAM + program], capture_output=True, text=True, timeout=BOUND
    )
    assert ran.stdout.startswith("hang timed out after 0.05 seconds; its thread was abandoned")
    assert (ran.returncode, ran.stderr) == (0, "")


def nested(threads: Threads, depth: int) -> int:
    """Like a tool that runs an agent: a thread waits for an event loop, which waits for another thread."""
    return 1 + asyncio.run(threads.run(nested, threads, depth - 1)) if depth else 0


def test_nested_functions_do_not_deadlock() -> None:
    async def main() -> None:
        threads = Threads(max_threads=2)
        assert await threads.run(nested, threads, 30) == 30
        assert await asyncio.gather(*(threads.run(nested, threads, 3) for _ in range(20))) == [3] * 20

    asyncio.run(asyncio.wait_for(main(), 20))


def test_limit_holds_at_each_nesting_depth() -> None:
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
        threads = Threads(max_threads=2)
        await threads.run(lambda: asyncio.run(many(threads)))

    asyncio.run(asyncio.wait_for(main(), BOUND))
    assert peak == 2


def test_too_deep_nesting_is_refused_with_an_error() -> None:
    async def main() -> None:
        threads = Threads(max_threads=2, max_depth=5)
        assert await threads.run(nested, threads, 4) == 4
        with pytest.raises(ToolRaised) as caught:
            await threads.run(nested, threads, 5)
        error: BaseException = caught.value
        while isinstance(error, ToolRaised):
            error = error.error
        assert isinstance(error, ToolError)
        assert "5 deep" in str(error)
        assert await threads.run(nested, threads, 4) == 4

    asyncio.run(asyncio.wait_for(main(), BOUND))


def test_cancelled_jobs_are_not_kept_alive() -> None:
    class Large:
        pass

    async def main() -> None:
        threads, gate = Threads(max_threads=1), threading.Event()
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


def test_arguments_are_not_kept_alive_after_the_end() -> None:
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
            await asyncio.sleep(0.01)  # the thread has set the result, but may not have dropped its references yet
        raise AssertionError("the idle thread keeps a reference")

    asyncio.run(asyncio.wait_for(main(), BOUND))


def test_result_is_not_kept_alive_after_the_end() -> None:
    class Large:
        pass

    async def main() -> None:
        threads = Threads()
        kept = weakref.ref(await threads.run(Large, timeout=BOUND))
        while kept() is not None:  # the thread may not have dropped its references yet
            await asyncio.sleep(0)
            gc.collect()

    asyncio.run(asyncio.wait_for(main(), BOUND / 2))


def test_threads_are_daemons() -> None:
    assert asyncio.run(Threads().run(lambda: threading.current_thread().daemon))


def test_error_when_no_thread_can_be_started() -> None:
    program = """
import asyncio, resource, threading
from midspan.tools.execution import execute
from midspan.tools.function import tool
from midspan._types.parts import ToolCall

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
    ran = subprocess.run(
        [sys.executable, "-c", PATIENT_PROGRAM + program], capture_output=True, text=True, timeout=BOUND
    )
    first, second = ran.stdout.splitlines()
    assert first.startswith("True add was not run: no thread could be started")
    assert (second, ran.stderr.startswith("no thread could be started")) == ("2", True)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing to inherit where processes do not fork")
def test_forked_child_starts_its_own_threads() -> None:
    program = """
import asyncio, os
from midspan.tools.tasks import THREADS

asyncio.run(THREADS.run(int))
child = os.fork()
if child == 0:
    print(asyncio.run(asyncio.wait_for(THREADS.run(lambda: "child"), 5)), flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PATIENT_PROGRAM + program], capture_output=True, text=True, timeout=BOUND
    )
    assert (ran.stdout, ran.stderr) == ("child\n", "")
