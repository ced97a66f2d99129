"""The host's end of a worker's socket, in the event loops of a pool and of a caller."""

import asyncio
import gc
import socket
import threading
from collections.abc import Iterator
from queue import SimpleQueue

import pytest

from midspan.tools.workers.channel import Channel
from tests.bounds import BOUND
from tests.tools.workers.conftest import run

LEND_SECONDS = "midspan.tools.workers.channel._LEND_SECONDS"


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    theirs.settimeout(BOUND)
    with ours, theirs:
        yield ours, theirs


@pytest.fixture
def caller() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop that does not run yet."""
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


class Reads:
    """What a channel has read, and in which thread."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[tuple[int, bytes]] = SimpleQueue()

    def __call__(self, data: bytes) -> None:
        self._queue.put((threading.get_ident(), data))

    async def next(self) -> tuple[int, bytes]:
        return await asyncio.to_thread(self._queue.get, timeout=BOUND / 2)


Ends = tuple[socket.socket, socket.socket]


def test_event_loop_of_a_caller_reads_a_channel_that_it_was_lent(
    ends: Ends, caller: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LEND_SECONDS, BOUND)

    async def main() -> None:
        reads = Reads()
        channel = Channel(ends[0], reads, lambda: None)
        descriptor = ends[0].fileno()
        channel.lend(caller)
        assert not asyncio.get_running_loop().remove_reader(descriptor)
        thread = threading.Thread(target=caller.run_forever)
        thread.start()
        try:
            ends[1].send(b"x")
            assert await reads.next() == (thread.ident, b"x")
        finally:
            channel.close()
            caller.call_soon_threadsafe(caller.stop)
            await asyncio.to_thread(thread.join)
        assert not caller.remove_reader(descriptor)
        assert ends[0].fileno() == -1

    run(main())


def test_channel_is_read_in_its_own_event_loop_if_that_of_the_caller_is_blocked(
    ends: Ends, caller: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LEND_SECONDS, 0.01)

    async def main() -> None:
        reads = Reads()
        channel = Channel(ends[0], reads, lambda: None)
        ends[1].send(b"x")
        assert await reads.next() == (threading.get_ident(), b"x")
        channel.lend(caller)
        ends[1].send(b"y")
        assert await reads.next() == (threading.get_ident(), b"y")
        await asyncio.to_thread(caller.run_until_complete, asyncio.sleep(0))
        assert not caller.remove_reader(ends[0])
        channel.close()
        assert ends[0].fileno() == -1

    run(main())


def test_channel_whose_caller_has_closed_its_event_loop_is_closed(
    ends: Ends, caller: asyncio.AbstractEventLoop
) -> None:
    async def main() -> None:
        channel = Channel(ends[0], Reads(), lambda: None)
        channel.lend(caller)
        caller.close()
        channel.close()
        assert ends[0].fileno() == -1

    run(main())


def test_socket_is_closed_if_an_event_loop_ends_before_it_has_closed_it(
    ends: Ends, caller: asyncio.AbstractEventLoop
) -> None:
    async def main() -> None:
        channel = Channel(ends[0], Reads(), lambda: None)
        channel.lend(caller)
        channel.close()
        assert ends[0].fileno() != -1

    run(main())
    caller.close()
    gc.collect()
    assert ends[0].fileno() == -1


def test_closed_channel_is_not_read_again(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LEND_SECONDS, 0.01)
    errors: list[object] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: errors.append(context))
        channel = Channel(ends[0], Reads(), lambda: None)
        channel.lend(loop)
        channel.close()
        await asyncio.sleep(0.05)

    run(main())
    assert errors == []


def test_all_bytes_are_sent_in_order_if_the_other_side_reads_late(ends: Ends) -> None:
    def receive() -> bytes:
        data = bytearray()
        while received := ends[1].recv(65_536):
            data += received
        return bytes(data)

    async def main() -> None:
        channel = Channel(ends[0], Reads(), lambda: None)
        large = bytes(range(256)) * 10_000
        channel.send(large)
        channel.send(b"the end")
        reader = asyncio.create_task(asyncio.to_thread(receive))
        while channel._unsent:  # noqa: ASYNC110 - nobody is told
            await asyncio.sleep(0.01)
        assert not asyncio.get_running_loop().remove_writer(ends[0])
        channel.end_stream()
        assert await reader == large + b"the end"
        channel.close()

    run(main())


def test_end_of_the_other_side_is_reported_once(ends: Ends) -> None:
    async def main() -> None:
        ended = asyncio.Event()
        count = 0

        def on_end() -> None:
            nonlocal count
            count += 1
            ended.set()

        channel = Channel(ends[0], Reads(), on_end)
        ends[1].close()
        await ended.wait()
        await asyncio.sleep(0.01)
        assert count == 1
        channel.send(b"nobody reads it")
        channel.close()


def test_closed_channel_is_not_registered_any_more(ends: Ends) -> None:
    async def main() -> None:
        loop, descriptor = asyncio.get_running_loop(), ends[0].fileno()
        channel = Channel(ends[0], Reads(), lambda: None)
        channel.send(bytes(10_000_000))
        await asyncio.sleep(0)  # the rest waits for the other side
        channel.close()
        assert not loop.remove_reader(descriptor)
        assert not loop.remove_writer(descriptor)
        assert ends[0].fileno() == -1

    run(main())
