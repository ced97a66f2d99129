import asyncio
import socket
import traceback
from collections.abc import Coroutine
from typing import Any

import pytest

from midspan._http.transport import HttpRequest, Timeouts, Transport
from midspan.errors import ConfigError, IncompleteResponseError, NetworkError, ProviderError, RequestTimeoutError
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


async def error_of(behaviour: Behaviour, timeouts: Timeouts = PATIENT, **more: Any) -> ProviderError:
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
        (misbehaving.close_within_chunk, IncompleteResponseError),
        (misbehaving.close_between_chunks, IncompleteResponseError),
        (misbehaving.promise_more_than_sent, IncompleteResponseError),
        (misbehaving.bad_compression, IncompleteResponseError),
    ],
)
def test_incomplete_and_malformed_responses_raise_a_retryable_error(
    behaviour: Behaviour, kind: type[Exception]
) -> None:
    async def main() -> None:
        error = await error_of(behaviour)
        assert type(error) is kind
        assert error.retryable

    run(main())


@pytest.mark.parametrize("behaviour", [misbehaving.reset_in_body, misbehaving.bad_chunk_size])
def test_error_inside_a_body_is_raised_after_the_pieces_before_it(behaviour: Behaviour) -> None:
    async def main() -> None:
        async with Server(behaviour) as server, Transport(PATIENT) as transport:
            async with transport.stream(post(server.url)) as answer:
                assert await anext(answer) == b"data: 1\r\n\r\n"
                server.go_on.set()
                with pytest.raises(IncompleteResponseError, match=str(server.port)):
                    await anext(answer)
            await server.until_all_gone()

    run(main())


def test_number_of_interim_responses_is_limited() -> None:
    async def main() -> None:
        for timeouts in (Timeouts(), Timeouts(connect=None, first_byte=None, between_bytes=None)):
            error = await error_of(misbehaving.only_interim, timeouts)
            assert str(error).endswith("its head or trailers are too large")

    run(main())


def test_a_hundred_interim_responses_are_skipped() -> None:
    async def behaviour(exchange: misbehaving.Exchange) -> None:
        await exchange.send(b"HTTP/1.1 102 Processing\r\n\r\n" * 100)
        await misbehaving.answer(exchange)

    async def main() -> None:
        async with Server(behaviour) as server, Transport(PATIENT) as transport:
            for _ in range(2):
                assert (await transport.send(post(server.url))).body == b'{"ok": true}'
            assert server.accepted == 1

    run(main())


def test_refused_connection_names_host_and_port() -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        async with Transport(PATIENT) as transport:
            with pytest.raises(NetworkError, match=f"cannot connect to 127.0.0.1:{port}: connection refused"):
                await transport.send(post(f"http://127.0.0.1:{port}/"))

    run(main())


def test_unknown_host_is_named_in_the_error() -> None:
    async def main() -> None:
        async with Transport(PATIENT) as transport:
            with pytest.raises(NetworkError, match=r"cannot resolve the name of no-such-host\.invalid:443"):
                await transport.send(post("https://no-such-host.invalid/"))

    run(main())


@pytest.mark.parametrize(
    ("behaviour", "timeouts", "words"),
    [
        (misbehaving.stall_before_head, Timeouts(first_byte=SHORT), "timeout 'first_byte' of 0.05 s"),
        (misbehaving.stall_within_head, Timeouts(first_byte=SHORT), "timeout 'first_byte' of 0.05 s"),
        (misbehaving.drip_interim, Timeouts(first_byte=SHORT), "timeout 'first_byte' of 0.05 s"),
        (misbehaving.stall_in_body, Timeouts(between_bytes=SHORT), "timeout 'between_bytes' of 0.05 s"),
        (misbehaving.stall_before_head, Timeouts(total=SHORT), "timeout 'total' of 0.05 s"),
        (misbehaving.stall_in_body, Timeouts(total=SHORT), "timeout 'total' of 0.05 s"),
        (misbehaving.drip, Timeouts(total=SHORT), "timeout 'total' of 0.05 s"),
    ],
)
def test_each_stage_has_its_own_timeout(behaviour: Behaviour, timeouts: Timeouts, words: str) -> None:
    async def main() -> None:
        error = await error_of(behaviour, timeouts)
        assert type(error) is RequestTimeoutError
        assert words in str(error)

    run(main())


def test_silent_tls_handshake_ends_with_the_connect_timeout() -> None:
    async def stall(exchange: misbehaving.Exchange) -> None:
        await exchange.until_gone()

    async def main() -> None:
        async with (
            Server(misbehaving.answer, on_connection=stall) as server,
            Transport(Timeouts(connect=SHORT)) as transport,
        ):
            with pytest.raises(RequestTimeoutError, match=r"timeout 'connect' of 0\.05 s"):
                await transport.send(post(server.url.replace("http:", "https:")))
            await server.until_all_gone()

    run(main())


def test_server_that_does_not_accept_ends_with_the_connect_timeout() -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0), backlog=0) as deaf:
            place = deaf.getsockname()
            with socket.create_connection(place):  # the one that the queue has room for
                async with Transport(Timeouts(connect=SHORT)) as transport:
                    with pytest.raises(RequestTimeoutError, match="timeout 'connect'"):
                        await transport.send(post(f"http://127.0.0.1:{place[1]}/"))

    run(main())


@pytest.mark.parametrize("size", [900_000, 30_000_000])
def test_server_that_does_not_read_the_request_ends_with_the_first_byte_timeout(size: int) -> None:
    async def main() -> None:
        async with (
            Server(misbehaving.answer, on_connection=misbehaving.never_read) as server,
            Transport(Timeouts(first_byte=SHORT)) as transport,
        ):
            with pytest.raises(RequestTimeoutError, match="timeout 'first_byte'"):
                await transport.send(post(server.url, b"x" * size))
            server.go_on.set()
            await server.until_all_gone()
            assert size < 2**20 or server.received < size, "what was still to be sent is thrown away"

    run(main())


def test_between_bytes_timeout_does_not_run_while_the_caller_is_busy() -> None:
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


def test_between_bytes_timeout_starts_again_with_each_piece() -> None:
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


def test_no_timeout_fires_after_a_stream_has_failed() -> None:
    async def main() -> None:
        async with (
            Server(misbehaving.close_between_chunks) as server,
            Transport(Timeouts(between_bytes=BOUND / 3)) as transport,
            transport.stream(post(server.url)) as answer,
        ):
            with pytest.raises(IncompleteResponseError):
                await answer.read()
            time_passes(BOUND / 2)
            await asyncio.sleep(0.01)

    run(main())


def test_timeouts_of_the_transport_and_of_the_caller_are_distinguished() -> None:
    async def main() -> None:
        async with Server(misbehaving.stall_before_head) as server, Transport() as transport:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(SHORT):
                    await transport.send(post(server.url))
            async with asyncio.timeout(BOUND) as outer:
                with pytest.raises(RequestTimeoutError):
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
def test_cancelled_request_closes_its_connection(behaviour: Behaviour) -> None:
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
def test_header_with_a_control_character_is_an_error_that_does_not_show_it(value: str) -> None:
    async def main() -> None:
        async with Server(misbehaving.answer) as server, Transport(PATIENT) as transport:
            with pytest.raises(ConfigError, match="control character") as caught:
                await transport.send(HttpRequest("POST", server.url, {"x-goog-api-key": value}))
            assert value not in everything_shown(caught.value)

    run(main())


@pytest.mark.parametrize(
    "url",
    [
        *("", "no address", "ftp://127.0.0.1/", "http://", "http://[::1/", "http://a:99999/", f"http://{'a' * 64}.b/"),
        *("ftp://127.0.0.1:21/x", "http://127.0.0.1:1/\ud800", "http://127.0.0.1:1/?\ud800"),
    ],
)
def test_invalid_url_is_a_config_error(url: str) -> None:
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
def test_errors_show_no_secret(behaviour: Behaviour) -> None:
    timeouts = Timeouts(first_byte=SHORT, between_bytes=SHORT)

    async def main() -> None:
        assert SECRET not in everything_shown(await error_of(behaviour, timeouts))

    run(main())


@pytest.mark.parametrize("behaviour", [misbehaving.stall_before_head, misbehaving.stall_in_body])
@pytest.mark.parametrize("size", [2, 2**21])
def test_cancellation_shows_no_secret(behaviour: Behaviour, size: int) -> None:
    async def main() -> None:
        async with Server(behaviour) as server, Transport() as transport:
            task = asyncio.create_task(transport.send(post(server.url, b"x" * size)))
            await server.until(lambda: bool(server.requests))
            task.cancel()
            with pytest.raises(asyncio.CancelledError) as caught:
                await task
            assert SECRET not in everything_shown(caught.value)
            await server.until_all_gone()

    run(main())


def test_connection_errors_show_no_secret() -> None:
    async def main() -> None:
        async with Transport(Timeouts(connect=SHORT)) as transport:
            for url in (f"http://127.0.0.1:{port}/", "https://no-such-host.invalid/", "ftp://127.0.0.1/"):
                with pytest.raises((NetworkError, ConfigError)) as caught:
                    await transport.send(post(url))
                assert SECRET not in everything_shown(caught.value)

    with misbehaving.refusing_port() as port:
        run(main())


def everything_shown(error: BaseException) -> str:
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
