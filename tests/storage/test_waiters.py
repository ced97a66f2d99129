import asyncio
import threading

import pytest

from midspan._storage.waiters import Waiters
from tests.bounds import BOUND


def test_waking_resolves_all_who_wait_for_the_run_and_no_others() -> None:
    async def main() -> None:
        waiters = Waiters()
        with waiters.waiting("a") as first, waiters.waiting("a") as second, waiters.waiting("b") as other:
            assert sorted(waiters.runs()) == ["a", "b"]
            waiters.wake("a", "told")
            assert (first.result(), second.result(), other.done()) == ("told", "told", False)
        assert not waiters

    asyncio.run(main())


def test_another_thread_wakes_whoever_waits() -> None:
    async def main() -> None:
        waiters = Waiters()
        with waiters.waiting("a") as woken:
            thread = threading.Thread(target=waiters.wake_all)
            thread.start()
            async with asyncio.timeout(BOUND):
                await woken
            thread.join(BOUND)

    asyncio.run(main())


def test_whoever_is_cancelled_is_forgotten() -> None:
    async def main() -> None:
        waiters = Waiters()

        async def wait() -> None:
            with waiters.waiting("a") as woken:
                await woken

        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        assert waiters
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not waiters

    asyncio.run(main())


def test_those_of_a_closed_loop_harm_nobody() -> None:
    waiters = Waiters()
    loop = asyncio.new_event_loop()

    async def enter() -> object:
        waiting = waiters.waiting("a")
        waiting.__enter__()
        return waiting

    left_open = loop.run_until_complete(enter())
    loop.close()
    waiters.wake("a")
    assert not waiters
    assert left_open
