import asyncio
import socket
import traceback
from collections.abc import Coroutine
from typing import Any

import pytest

from midspan._http.transport import HttpRequest, Timeouts, Transport
from midspan.errors import ConfigError, NetworkError, ProviderError, StreamCut, TimedOut
from tests.bounds import BOUND, time_passes
from tests.http import misbehaving
from tests.http.misbehaving import Behaviour, Server

SECRET = "sesame-42"
SHORT = 0.05
PATIENT = Timeouts(connect=BOUND, first_byte=BOUND, between_bytes=BOUND, total=BOUND)


def run(main: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(BOUND):
            await main
        assert await other_tasks() == set()

    asyncio.run(bounded())


async def other_tasks() -> set[asyncio.Task[Any]]:
    """The tasks that are left, once those that were cancelled have had the time to notice."""
    for _ in range(10):
        await asyncio.sleep(0)
    return asyncio.all_tasks() - {asyncio.current_task()}


def post(url: str, body: bytes = b"{}") -> HttpRequest:
    return HttpRequest("POST", f"{url}?key={SECRET}", {"x-goog-api-key": SECRET, "content-type": "text/json"}, body)


async def failure_of(behaviour: Behaviour, timeouts: Timeouts = PATIENT, **more: Any) -> ProviderError:
    """The error of a request to a server that behaves so, after which no connection is left."""
    async with Server(behaviour, **more) as server, Transport(timeouts) as transport:
        with pytest.raises(ProviderError) as caught:
            await transport.send(post(server.url))
        await server.until_all_gone()
        assert f"127.0.0.1:{server.port}" in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("behaviour", "kind"),
    [
        (misbehaving.reset_before_head, NetworkError),
        (misbehaving.close_before_head, NetworkError),
        (misbehaving.close_within_head, NetworkError),
        (misbehaving.garbage, NetworkError),
        (misbehaving.huge_head, NetworkError),
        (misbehaving.endless_head, NetworkError),
        (misbehaving.only_interim, NetworkError),
        (misbehaving.close_within_chunk, StreamCut),
        (misbehaving.close_between_chunks, StreamCut),
        (misbehaving.promise_more_than_sent, StreamCut),
        (misbehaving.bad_compression, StreamCut),
    ],
)
def test_each_way_to_break_off_is_an_error_of_its_kind(behaviour: Behaviour, kind: type[Exception]) -> None:
    async def main() -> None:
        error = await failure_of(behaviour)
        assert type(error) is kind
        assert error.retryable

    run(main())


@pytest.mark.parametrize("behaviour", [misbehaving.reset_in_body, misbehaving.bad_chunk_size])
def test_what_breaks_in_the_body_is_a_cut_stream_after_the_pieces_that_came(behaviour: Behaviour) -> None:
    async def main() -> None:
        async with Server(behaviour) as server, Transport(PATIENT) as transport:
            async with transport.stream(post(server.url)) as answer:
                assert await anext(answer) == b"data: 1\r\n\r\n"
                server.go_on.set()
                with pytest.raises(StreamCut, match=str(server.port)):
                    await anext(answer)
            await server.until_all_gone()

    run(main())


def test_answers_that_only_announce_the_answer_are_not_waited_for_without_an_end() -> None:
    async def main() -> None:
        for timeouts in (Timeouts(), Timeouts(connect=None, first_byte=None, between_bytes=None)):
            error = await failure_of(misbehaving.only_interim, timeouts)
            assert str(error).endswith("it consists of 101 interim (1xx) responses and no final one")

    run(main())


def test_some_announcements_do_no_harm() -> None:
    async def behaviour(exchange: misbehaving.Exchange) -> None:
        await exchange.send(b"HTTP/1.1 102 Processing\r\n\r\n" * 100)
        await misbehaving.answer(exchange)

    async def main() -> None:
        async with Server(behaviour) as server, Transport(PATIENT) as transport:
            for _ in range(2):
                assert (await transport.send(post(server.url))).body == b'{"ok": true}'
            assert server.accepted == 1

    run(main())


def test_a_port_where_nobody_listens_refuses() -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        async with Transport(PATIENT) as transport:
            with pytest.raises(NetworkError, match=f"cannot connect to 127.0.0.1:{port}: connection refused"):
                await transport.send(post(f"http://127.0.0.1:{port}/"))

    run(main())


def test_a_name_that_does_not_exist_is_named() -> None:
    async def main() -> None:
        async with Transport(PATIENT) as transport:
            with pytest.raises(NetworkError, match=r"cannot resolve the name of no-such-host\.invalid:443"):
                await transport.send(post("https://no-such-host.invalid/"))

    run(main())


@pytest.mark.parametrize(
    ("behaviour", "timeouts", "words"),
    [
        (misbehaving.stall_before_head, Timeouts(first_byte=SHORT), "within 0.05 s (timeout 'first_byte')"),
        (misbehaving.stall_within_head, Timeouts(first_byte=SHORT), "within 0.05 s (timeout 'first_byte')"),
        (misbehaving.drip_interim, Timeouts(first_byte=SHORT), "within 0.05 s (timeout 'first_byte')"),
        (misbehaving.stall_in_body, Timeouts(between_bytes=SHORT), "within 0.05 s (timeout 'between_bytes')"),
        (misbehaving.stall_before_head, Timeouts(total=SHORT), "within 0.05 s (timeout 'total')"),
        (misbehaving.stall_in_body, Timeouts(total=SHORT), "within 0.05 s (timeout 'total')"),
        (misbehaving.drip, Timeouts(total=SHORT), "within 0.05 s (timeout 'total')"),
    ],
)
def test_each_stage_has_its_deadline(behaviour: Behaviour, timeouts: Timeouts, words: str) -> None:
    async def main() -> None:
        error = await failure_of(behaviour, timeouts)
        assert type(error) is TimedOut
        assert words in str(error)

    run(main())


def test_a_tls_greeting_without_an_answer_ends_with_the_connect_deadline() -> None:
    async def stall(exchange: misbehaving.Exchange) -> None:
        await exchange.until_gone()

    async def main() -> None:
        async with (
            Server(misbehaving.answer, on_connection=stall) as server,
            Transport(Timeouts(connect=SHORT)) as transport,
        ):
            with pytest.raises(TimedOut, match=r"no connection to .* within 0.05 s \(timeout 'connect'\)"):
                await transport.send(post(server.url.replace("http:", "https:")))
            await server.until_all_gone()

    run(main())


def test_a_server_that_does_not_accept_ends_with_the_connect_deadline() -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0), backlog=0) as deaf:
            place = deaf.getsockname()
            with socket.create_connection(place):  # the one that the queue has room for
                async with Transport(Timeouts(connect=SHORT)) as transport:
                    with pytest.raises(TimedOut, match="timeout 'connect'"):
                        await transport.send(post(f"http://127.0.0.1:{place[1]}/"))

    run(main())


@pytest.mark.parametrize("size", [900_000, 30_000_000])
def test_a_server_that_does_not_read_ends_with_the_first_byte_deadline(size: int) -> None:
    async def main() -> None:
        async with (
            Server(misbehaving.answer, on_connection=misbehaving.never_read) as server,
            Transport(Timeouts(first_byte=SHORT)) as transport,
        ):
            with pytest.raises(TimedOut, match="timeout 'first_byte'"):
                await transport.send(post(server.url, b"x" * size))
            server.go_on.set()
            await server.until_all_gone()
            assert size < 2**20 or server.received < size, "what was still to be sent is thrown away"

    run(main())


def test_the_silence_between_bytes_does_not_count_while_the_caller_is_busy() -> None:
    async def answer_in_two(exchange: misbehaving.Exchange) -> None:
        await exchange.send(misbehaving.CHUNKED_HEAD + misbehaving.chunk(b"one"))
        await exchange.server.go_on.wait()
        await exchange.send(misbehaving.chunk(b"two") + b"0\r\n\r\n")

    async def main() -> None:
        async with (
            Server(answer_in_two) as server,
            Transport(Timeouts(between_bytes=BOUND / 3)) as transport,
            transport.stream(post(server.url)) as answer,
        ):
            assert await anext(answer) == b"one"
            time_passes(BOUND / 2)
            await asyncio.sleep(0.01)
            server.go_on.set()
            assert await answer.read() == b"two"

    run(main())


def test_a_drip_that_keeps_coming_is_no_silence() -> None:
    async def drip_slowly(exchange: misbehaving.Exchange) -> None:
        await exchange.send(misbehaving.CHUNKED_HEAD)
        for drop in (b"one", b"two", b"three", b"four"):
            await exchange.server.go_on.wait()
            exchange.server.go_on.clear()
            time_passes(BOUND / 6)
            await exchange.send(misbehaving.chunk(drop))
        await exchange.until_gone()

    async def main() -> None:
        async with (
            Server(drip_slowly) as server,
            Transport(Timeouts(between_bytes=BOUND / 3)) as transport,
            transport.stream(post(server.url)) as answer,
        ):
            for drop in (b"one", b"two", b"three", b"four"):
                asyncio.get_running_loop().call_soon(server.go_on.set)
                assert await anext(answer) == drop

    run(main())


def test_a_failure_that_the_caller_catches_leaves_no_deadline_behind() -> None:
    async def main() -> None:
        async with (
            Server(misbehaving.close_between_chunks) as server,
            Transport(Timeouts(between_bytes=SHORT)) as transport,
            transport.stream(post(server.url)) as answer,
        ):
            with pytest.raises(StreamCut):
                await answer.read()
            await asyncio.sleep(2 * SHORT)

    run(main())


def test_a_deadline_of_ours_and_a_cancellation_of_others_do_not_get_mixed_up() -> None:
    async def main() -> None:
        async with Server(misbehaving.stall_before_head) as server, Transport() as transport:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(SHORT):
                    await transport.send(post(server.url))
            async with asyncio.timeout(BOUND) as outer:
                with pytest.raises(TimedOut):
                    await transport.send(post(server.url), Timeouts(first_byte=SHORT))
                await asyncio.sleep(0)
            assert not outer.expired()
            task = asyncio.current_task()
            assert task is not None
            assert task.cancelling() == 0

    run(main())


@pytest.mark.parametrize(
    "behaviour", [misbehaving.stall_before_head, misbehaving.stall_within_head, misbehaving.stall_in_body]
)
def test_cancelling_closes_the_connection_at_once(behaviour: Behaviour) -> None:
    async def main() -> None:
        async with Server(behaviour) as server, Transport() as transport:
            task = asyncio.create_task(transport.send(post(server.url)))
            await server.until(lambda: len(server.requests) == 1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await server.until_all_gone()

    run(main())


@pytest.mark.parametrize("value", ["two\r\nlines", "null\0", "trailing newline\n"])
def test_a_header_with_a_control_character_is_refused_without_being_shown(value: str) -> None:
    async def main() -> None:
        async with Server(misbehaving.answer) as server, Transport(PATIENT) as transport:
            with pytest.raises(ConfigError, match="control character") as caught:
                await transport.send(HttpRequest("POST", server.url, {"x-goog-api-key": value}))
            assert value not in everything_told(caught.value)

    run(main())


@pytest.mark.parametrize(
    "url",
    ["", "no address", "ftp://127.0.0.1/", "http://", "http://[::1/", "http://a:99999/", f"http://{'a' * 64}.b/"],
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    async def main() -> None:
        async with Transport(PATIENT) as transport:
            with pytest.raises(ConfigError, match="cannot send a request to"):
                await transport.send(HttpRequest("POST", url))

    run(main())


@pytest.mark.parametrize(
    "behaviour",
    [
        misbehaving.reset_before_head,
        misbehaving.close_before_head,
        misbehaving.garbage,
        misbehaving.huge_head,
        misbehaving.close_within_chunk,
        misbehaving.stall_before_head,
        misbehaving.stall_in_body,
    ],
)
def test_no_failure_tells_a_secret(behaviour: Behaviour) -> None:
    timeouts = Timeouts(first_byte=SHORT, between_bytes=SHORT)

    async def main() -> None:
        assert SECRET not in everything_told(await failure_of(behaviour, timeouts))

    run(main())


@pytest.mark.parametrize("behaviour", [misbehaving.stall_before_head, misbehaving.stall_in_body])
@pytest.mark.parametrize("size", [2, 2**21])
def test_a_cancellation_tells_no_secret(behaviour: Behaviour, size: int) -> None:
    async def main() -> None:
        async with Server(behaviour) as server, Transport() as transport:
            task = asyncio.create_task(transport.send(post(server.url, b"x" * size)))
            await server.until(lambda: bool(server.requests))
            task.cancel()
            with pytest.raises(asyncio.CancelledError) as caught:
                await task
            assert SECRET not in everything_told(caught.value)
            await server.until_all_gone()

    run(main())


def test_no_failure_to_connect_tells_a_secret() -> None:
    async def main() -> None:
        async with Transport(Timeouts(connect=SHORT)) as transport:
            for url in ("http://127.0.0.1:1/", "https://no-such-host.invalid/", "ftp://127.0.0.1/"):
                with pytest.raises((NetworkError, ConfigError)) as caught:
                    await transport.send(post(url))
                assert SECRET not in everything_told(caught.value)

    run(main())


def everything_told(error: BaseException) -> str:
    """Whatever a log or a debugger could show of an error: its chain, its fields, and the locals of our frames."""
    told, seen = "", set[int]()
    todo: list[BaseException | None] = [error]
    while todo:
        one = todo.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        told += f"{one!r} {one} {one.args!r} {vars(one)!r}\n"
        for frame, line in traceback.walk_tb(one.__traceback__):
            if "tests" not in frame.f_code.co_filename:
                told += f"{frame.f_code.co_filename}:{line} {frame.f_locals!r}\n"
        todo += [one.__cause__, one.__context__]
    return told
