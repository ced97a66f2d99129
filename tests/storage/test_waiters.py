import asyncio
import threading

import pytest

from midspan._storage.waiters import Waiters
from tests.bounds import BOUND


def test_wake_resolves_the_futures_of_one_run() -> None:
    async def main() -> None:
        waiters = Waiters()
        with waiters.waiting("a") as first, waiters.waiting("a") as second, waiters.waiting("b") as other:
            waiters.wake("a", "told")
            assert (first.result(), second.result(), other.done()) == ("told", "told", False)
        assert not waiters

    asyncio.run(main())


def test_another_thread_can_wake_waiters() -> None:
    async def main() -> None:
        waiters = Waiters()
        with waiters.waiting("a") as woken:
            thread = threading.Thread(target=waiters.wake_all)
            thread.start()
            async with asyncio.timeout(BOUND):
                await woken
            thread.join(BOUND)

    asyncio.run(main())


def test_cancelled_waiter_is_removed() -> None:
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


def test_waiters_of_a_closed_loop_are_ignored() -> None:
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
