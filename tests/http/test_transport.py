import asyncio
import gc
import os
import socket
import subprocess
import sys
import tracemalloc
from contextlib import suppress
from typing import Any

import pytest
from rich.pretty import pretty_repr

from midspan._http.messages import check_base_url, host_and_port
from midspan._http.transport import HttpRequest, HttpResponse, Timeouts, Transport
from midspan.errors import (
    ConfigError,
    MalformedResponseError,
    NetworkError,
    RequestTimeoutError,
)
from tests.bounds import BOUND, time_passes
from tests.http import misbehaving
from tests.http.misbehaving import Exchange, Server
from tests.http.test_errors import PATIENT, run

SECRET = "sesame-42"


def post(url: str, body: bytes = b"{}") -> HttpRequest:
    return HttpRequest("POST", url, {"x-goog-api-key": SECRET, "content-type": "application/json"}, body)


def test_importing_the_transport_does_not_load_httptools() -> None:
    modules = "{'httptools', 'midspan._http.pool'} & set(sys.modules)"
    code = f"import sys, midspan._http.transport, midspan._http.retry; print({modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_request_and_response_are_transferred_unchanged() -> None:
    async def main() -> None:
        async with Server(misbehaving.answer) as server, Transport() as transport:
            answer = await transport.send(post(server.url, b'{"a": 1}'))
            assert (answer.status, answer.body) == (200, b'{"ok": true}')
            assert answer.header("content-length") == answer.header("CONTENT-LENGTH") == "12"
            assert answer.header("retry-after") is None
            sent = server.requests[0]
            assert sent.head.startswith(b"POST /v1/models/m:generateContent HTTP/1.1\r\n")
            assert f"x-goog-api-key: {SECRET}\r\n".encode() in sent.head
            assert sent.body == b'{"a": 1}'

    run(main())


def test_request_without_a_body_sends_none() -> None:
    async def main() -> None:
        async with Server(misbehaving.answer) as server, Transport() as transport:
            assert (await transport.send(HttpRequest("GET", server.url))).status == 200
            assert (await transport.send(HttpRequest("DELETE", server.url))).status == 200
            assert [sent.body for sent in server.requests] == [b"", b""]

    run(main())


def test_headers_of_the_caller_replace_the_defaults() -> None:
    async def main() -> None:
        async with Server(misbehaving.answer) as server, Transport() as transport:
            await transport.send(HttpRequest("POST", server.url, {"USER-agent": "me", "accept": "text/plain"}, b"{}"))
            lines = server.requests[0].head.decode().lower().split("\r\n")
            assert {"user-agent: me", "accept: text/plain", "content-length: 2"} <= set(lines)
            names = [line.partition(":")[0] for line in lines[1:] if line]
            assert len(names) == len(set(names))

    run(main())


def test_interim_responses_are_skipped() -> None:
    async def hesitate(exchange: Exchange) -> None:
        interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
        await exchange.send(interim + misbehaving.response(b'{"ok": true}'))

    async def main() -> None:
        async with Server(hesitate) as server, Transport() as transport:
            for _ in range(2):
                answer = await transport.send(post(server.url))
                assert (answer.status, answer.body) == (200, b'{"ok": true}')
                assert answer.head.startswith(b"HTTP/1.1 200 OK")
            assert server.accepted == 1

    run(main())


def test_connection_is_reused_after_a_response_without_body() -> None:
    async def answer_nothing(exchange: Exchange) -> None:
        is_delete = exchange.head.startswith(b"DELETE")
        status = b"204 No Content" if is_delete else b"200 OK\r\nContent-Length: 0"
        await exchange.send(b"HTTP/1.1 %b\r\n\r\n" % status)

    async def main() -> None:
        async with Server(answer_nothing) as server, Transport() as transport:
            for method, status in (("GET", 200), ("DELETE", 204), ("GET", 200)):
                answer = await transport.send(HttpRequest(method, server.url))
                assert (answer.status, answer.body) == (status, b"")
            assert server.accepted == 1

    run(main())


def test_number_of_urls_is_not_limited() -> None:
    async def main() -> None:
        async with Server(misbehaving.answer) as server, Transport() as transport:
            for number in range(600):
                await transport.send(HttpRequest("GET", f"{server.url}?page={number}"))
            assert server.requests[-1].head.startswith(b"GET /v1/models/m:generateContent?page=599 HTTP/1.1\r\n")
            assert server.accepted == 1

    run(main())


@pytest.mark.parametrize("size", [2**10, 2**20, 2**20 + 1, 2**23])
def test_bodies_of_any_size_are_transferred(size: int) -> None:
    body = os.urandom(size)

    async def main() -> None:
        async with Server(misbehaving.echo) as server, Transport() as transport:
            assert (await transport.send(post(server.url, body))).body == body

    run(main())


def test_every_status_is_a_response_and_redirects_are_not_followed() -> None:
    async def refuse(exchange: Exchange) -> None:
        await exchange.send(misbehaving.response(b"<html>busy</html>", "503 Unavailable", "Retry-After: 7"))

    async def main() -> None:
        async with Server(refuse) as server, Transport() as transport:
            answer = await transport.send(post(server.url))
            assert (answer.status, answer.header("retry-after"), answer.body) == (503, "7", b"<html>busy</html>")
        async with Server(misbehaving.redirect) as server, Transport() as transport:
            answer = await transport.send(post(server.url))
            assert (answer.status, answer.body) == (307, b"elsewhere")

    run(main())


def test_compressed_bodies_and_bodies_without_length_are_read_to_the_end() -> None:
    async def main() -> None:
        async with Server(misbehaving.answer_compressed) as server, Transport() as transport:
            assert (await transport.send(post(server.url))).body == b"the same text " * 1000
            assert b"gzip" in server.requests[0].head
        async with Server(misbehaving.answer_without_length) as server, Transport() as transport:
            assert (await transport.send(post(server.url))).body == b"until the end"

    run(main())


def test_pieces_are_yielded_as_they_arrive() -> None:
    async def in_steps(exchange: Exchange) -> None:
        await exchange.send(misbehaving.CHUNKED_HEAD)
        for number in range(3):
            await steps.get()
            await exchange.send(misbehaving.chunk(b"data: %d\r\n\r\n" % number))
        await exchange.send(b"0\r\n\r\n")

    async def main() -> None:
        async with (
            Server(in_steps) as server,
            Transport() as transport,
            transport.stream(post(server.url)) as answer,
        ):
            assert answer.status == 200
            assert answer.header("content-type") == "text/event-stream"
            steps.put_nowait(None)
            pieces = []
            async for piece in answer:
                pieces.append(piece)
                steps.put_nowait(None)
            assert pieces == [b"data: 0\r\n\r\n", b"data: 1\r\n\r\n", b"data: 2\r\n\r\n"]
            assert await answer.read() == b""

    steps = asyncio.Queue[None]()
    run(main())


def test_read_returns_what_was_not_iterated_over() -> None:
    async def in_two(exchange: Exchange) -> None:
        await exchange.send(misbehaving.CHUNKED_HEAD + misbehaving.chunk(b"one"))
        await exchange.server.go_on.wait()
        await exchange.send(misbehaving.chunk(b"two") + misbehaving.chunk(b"three") + b"0\r\n\r\n")

    async def main() -> None:
        async with Server(in_two) as server, Transport() as transport, transport.stream(post(server.url)) as answer:
            assert await anext(answer) == b"one"
            server.go_on.set()
            assert await answer.read() == b"twothree"

    run(main())


def test_leaving_a_stream_closes_its_connection_only_before_the_end() -> None:
    async def main() -> None:
        async with Server(misbehaving.drip) as server, Transport() as transport:
            async with transport.stream(post(server.url)) as answer:
                await anext(answer)
            await server.until_all_gone()
        async with Server(misbehaving.answer) as server, Transport() as transport:
            async with transport.stream(post(server.url)) as answer:
                await answer.read()
            await transport.send(post(server.url))
            assert (server.accepted, server.open) == (1, 1)

    run(main())


def test_early_response_stops_the_upload() -> None:
    async def answer_at_once(exchange: Exchange) -> None:
        await exchange.send(misbehaving.response(b"too large", "413 Content Too Large"))
        await misbehaving.never_read(exchange)

    async def main() -> None:
        async with Server(misbehaving.answer, on_connection=answer_at_once) as server, Transport() as transport:
            answer = await transport.send(post(server.url, b"x" * 30_000_000))
            assert answer.status == 413
            server.go_on.set()
            await server.until_all_gone()
            assert server.received < 30_000_000

    run(main())


@pytest.mark.parametrize("end", [misbehaving.close_before_head, misbehaving.reset_before_head])
def test_request_is_sent_again_if_its_idle_connection_was_closed(end: misbehaving.Behaviour) -> None:
    async def once(exchange: Exchange) -> None:
        await (misbehaving.answer(exchange) if exchange.number == 1 else end(exchange))

    async def main() -> None:
        async with Server(once) as server, Transport() as transport:
            for _ in range(4):
                assert (await transport.send(post(server.url, b"again"))).status == 200
                assert {sent.body for sent in server.requests} == {b"again"}
            assert server.accepted == 4

    run(main())


def test_request_is_not_sent_again_after_the_response_has_started() -> None:
    async def begin(exchange: Exchange) -> None:
        await (misbehaving.answer(exchange) if exchange.number == 1 else misbehaving.close_within_head(exchange))

    async def main() -> None:
        async with Server(begin) as server, Transport() as transport:
            await transport.send(post(server.url))
            with pytest.raises(NetworkError) as caught:
                await transport.send(post(server.url))
            assert len(server.requests) == 2
            assert caught.value.__cause__ is None, "the response head that was half read is not shown"

    run(main())


def test_closed_idle_connection_is_not_reused() -> None:
    async def then_close(exchange: Exchange) -> None:
        await misbehaving.answer(exchange)
        exchange.close()

    async def main() -> None:
        async with Server(then_close) as server, Transport() as transport:
            for _ in range(3):
                assert (await transport.send(post(server.url))).status == 200
                await server.until_all_gone()
            assert len(server.requests) == 3

    run(main())


def test_idle_connection_is_closed_after_a_while() -> None:
    async def main() -> None:
        async with Server(misbehaving.answer) as server, Transport() as transport:
            for elapsed in (60, 61):
                await transport.send(post(server.url))
                time_passes(elapsed)
            assert server.accepted == 1
            await transport.send(post(server.url))
            time_passes(91)
            await server.until_all_gone()

    # Not `run`: the clock of the loop is moved past its limit. uvloop has a clock of its own.
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        runner.run(main())


def test_idle_time_starts_again_with_each_request() -> None:
    async def main() -> None:
        async with Server(misbehaving.answer) as server, Transport() as transport:
            await transport.send(post(server.url))
            time_passes(60)
            await transport.send(post(server.url))
            time_passes(20)
            for _ in range(10):
                await asyncio.sleep(0)  # the end of the first idle time
            assert server.open == 1
            time_passes(60)
            await server.until_all_gone()

    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:  # as above
        runner.run(main())


def test_request_is_sent_again_only_once_and_only_on_a_reused_connection() -> None:
    async def first_only(exchange: Exchange) -> None:
        await (misbehaving.answer(exchange) if len(server.requests) == 1 else misbehaving.close_before_head(exchange))

    async def main() -> None:
        nonlocal server
        async with Server(first_only) as server, Transport() as transport:
            await transport.send(post(server.url))
            with pytest.raises(NetworkError, match="closed the connection without a response"):
                await transport.send(post(server.url))
            assert len(server.requests) == 3
            with pytest.raises(NetworkError):
                await transport.send(post(server.url))
            assert len(server.requests) == 4
            await server.until_all_gone()

    server: Server
    run(main())


def test_a_thousand_concurrent_requests_do_not_wait_for_each_other() -> None:
    async def when_all_are_here(exchange: Exchange) -> None:
        if len(exchange.server.requests) == 1000:
            exchange.server.go_on.set()
        await exchange.server.go_on.wait()
        await misbehaving.answer(exchange)

    async def main() -> None:
        async with Server(when_all_are_here) as server, Transport(Timeouts(connect=BOUND)) as transport:
            answers = await asyncio.gather(*(transport.send(post(server.url)) for _ in range(1000)))
            assert {answer.status for answer in answers} == {200}
            assert server.accepted == 1000
            await transport.aclose()
            await server.until_all_gone()

    run(main())


def test_thousands_of_requests_leave_no_file_open() -> None:
    async def main() -> None:
        async with Server(misbehaving.answer) as server, Transport() as transport:
            await transport.send(post(server.url))
            before = open_files()
            for _ in range(3000):
                await transport.send(post(server.url))
            assert open_files() == before
            assert server.accepted == 1

    run(main())


def test_errors_and_streams_left_early_leave_no_file_open() -> None:
    async def main() -> None:
        hurried, patient = Transport(Timeouts(total=0.02)), Transport()
        async with Server(misbehaving.drip) as server, hurried, patient:
            before = open_files()
            for _ in range(30):
                with pytest.raises(NetworkError):
                    await hurried.send(post(server.url))
                async with patient.stream(post(server.url)) as answer:
                    await anext(answer)
            await server.until_all_gone()
            gc.collect()
            assert open_files() == before

    run(main())


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a count, not paths


def test_repr_of_requests_and_responses_shows_no_secret() -> None:
    request = HttpRequest("POST", f"https://user:{SECRET}@host/path?key={SECRET}", {"x-key": SECRET}, SECRET.encode())
    assert repr(request) == "HttpRequest('POST', to='host:443', headers=['x-key'], bytes=9)"
    response = HttpResponse(200, f"HTTP/1.1 200 OK\r\nset-cookie: {SECRET}".encode(), SECRET.encode())
    assert repr(response) == "HttpResponse(200, headers=1, bytes=9)"
    assert SECRET not in pretty_repr(request) + pretty_repr(response)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), "1"])
def test_timeout_must_be_a_positive_number(seconds: Any) -> None:
    with pytest.raises(ConfigError, match=r"timeout 'first_byte' must be a positive number of seconds or None, got "):
        Timeouts(first_byte=seconds)


def test_origin_of_a_url_with_an_unpaired_surrogate_can_be_printed() -> None:
    assert host_and_port("http://a\ud800b:80/").encode() == b"a\\ud800b:80"
    repr(HttpRequest("POST", "http://\udcff/")).encode()


@pytest.mark.parametrize(
    "behaviour", [misbehaving.gzip_bomb, misbehaving.endless(b"{")], ids=["gzip bomb", "endless body"]
)
def test_body_above_the_limit_is_not_read_further(behaviour: misbehaving.Behaviour) -> None:
    limit = 2**22

    async def main() -> None:
        async with Server(behaviour) as server, Transport(max_body_bytes=limit) as transport:
            tracemalloc.start()
            with pytest.raises(
                MalformedResponseError, match=r"larger than 4,194,304 bytes.*Transport\(max_body_bytes=…\)"
            ) as told:
                await transport.send(post(server.url))
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert not told.value.retryable
            assert peak < 2 * limit
            await server.until_all_gone()

    run(main())


def test_stream_above_the_limit_ends_with_an_error_after_the_pieces_within_it() -> None:
    async def main() -> None:
        async with Server(misbehaving.endless(b"data: ")) as server, Transport(max_body_bytes=2**20) as transport:
            received = 0
            async with transport.stream(post(server.url)) as answer:
                with pytest.raises(MalformedResponseError, match="max_body_bytes"):  # noqa: PT012 - what came before counts
                    async for piece in answer:
                        received += len(piece)
                await server.until_all_gone()
                with pytest.raises(MalformedResponseError):
                    await anext(answer)
            assert 0 < received <= 2**20

    run(main())


def test_body_up_to_the_limit_is_read() -> None:
    async def main() -> None:
        async with Server(misbehaving.answer_compressed) as server, Transport(max_body_bytes=14_000) as transport:
            assert len((await transport.send(post(server.url))).body) == 14_000
        async with Server(misbehaving.answer_compressed) as server, Transport(max_body_bytes=13_999) as transport:
            with pytest.raises(MalformedResponseError):
                await transport.send(post(server.url))

    run(main())


async def flood(exchange: Exchange) -> None:
    """Send a body that never ends, as fast as the connection takes it."""
    await exchange.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    with suppress(ConnectionError):
        while True:
            await exchange.send(b"1000\r\n" + b"x" * 0x1000 + b"\r\n")


def test_total_timeout_ends_a_stream_whose_reader_never_has_to_wait() -> None:
    async def main() -> None:
        async with (
            Server(flood) as server,
            Transport(Timeouts(total=0.3)) as transport,
            transport.stream(post(server.url)) as answer,
        ):
            async for _ in answer:
                await asyncio.sleep(0.01)  # longer than the next piece takes to arrive

    with pytest.raises(RequestTimeoutError, match="total"):
        run(main())


def test_unread_body_of_a_stream_is_not_part_of_the_next_response() -> None:
    async def main() -> None:
        async with Server(misbehaving.echo) as server, Transport() as transport:
            async with transport.stream(post(server.url, b"first")) as answer:
                assert answer.status == 200
            assert (await transport.send(post(server.url, b"second"))).body == b"second"
            assert server.accepted == 1

    run(main())


def test_connections_have_keep_alive_probes() -> None:
    async def main() -> None:
        async with (
            Server(misbehaving.answer) as server,
            Transport() as transport,
            transport.stream(post(server.url)) as answer,
        ):
            sock = answer.connection.transport.get_extra_info("socket")
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            if hasattr(socket, "TCP_KEEPIDLE"):
                assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30

    run(main())


def test_transport_that_is_garbage_collected_closes_its_connections() -> None:
    async def main() -> None:
        async with Server(misbehaving.answer) as server:
            transport = Transport()
            await transport.send(post(server.url))
            assert server.open == 1
            del transport
            gc.collect()
            await server.until_all_gone()

    run(main())


@pytest.mark.parametrize("url", ["http://127.0.0.1:8080", " https://host/v1/ ", "http://[::1]:1"])
def test_base_url_is_returned_without_spaces_and_the_last_slash(url: str) -> None:
    assert check_base_url(url) == url.strip().removesuffix("/")


@pytest.mark.parametrize(
    "url", ["host", "ftp://host", "http://", "http://host:0", "http://host:x", "http://a b", "http://host/\0", "//host"]
)
def test_invalid_base_url_is_rejected(url: str) -> None:
    with pytest.raises(ConfigError, match="is not a valid base URL"):
        check_base_url(url)


@pytest.mark.parametrize("url", [f"http://user:{SECRET}@host/?key={SECRET}", f"http://user:{SECRET}@host/#part"])
def test_base_url_with_a_query_or_fragment_is_rejected_without_its_secrets(url: str) -> None:
    with pytest.raises(ConfigError, match=r"^'host/.*' is not a valid base URL") as caught:
        check_base_url(url)
    assert SECRET not in str(caught.value)


def test_requests_that_wait_for_a_connection_slot_do_not_time_out() -> None:
    async def slowly(exchange: Exchange) -> None:
        nonlocal peak
        peak = max(peak, exchange.server.open)
        time_passes(BOUND / 50)
        await misbehaving.answer(exchange)

    async def main() -> None:
        short = Timeouts(connect=BOUND / 4, first_byte=BOUND / 4, total=BOUND / 4)
        async with Server(slowly) as server, Transport(short, max_connections=2) as transport:
            answers = await asyncio.gather(*(transport.send(post(server.url)) for _ in range(40)))
            assert len(answers) == 40

    peak = 0
    run(main())
    assert peak == 2


def test_connection_slot_is_released_after_errors_cancellation_and_early_exit() -> None:
    async def main() -> None:
        async with Server(misbehaving.drip) as server, Transport(Timeouts(total=0.2), max_connections=1) as transport:
            for _ in range(3):
                with pytest.raises(NetworkError):
                    await transport.send(post(f"http://127.0.0.1:{port}/"))
                with pytest.raises(NetworkError):
                    await transport.send(post(server.url))
                task = asyncio.create_task(transport.send(post(server.url)))
                await asyncio.sleep(0.01)
                task.cancel()
                async with transport.stream(post(server.url), PATIENT) as answer:
                    await anext(answer)

    with misbehaving.refusing_port() as port:
        run(main())


def test_body_above_the_limit_releases_its_connection_slot() -> None:
    async def main() -> None:
        async with (
            Server(misbehaving.endless(b"{")) as server,
            Transport(max_connections=1, max_body_bytes=2**16) as transport,
        ):
            for _ in range(3):
                with pytest.raises(MalformedResponseError):
                    await transport.send(post(server.url))

    run(main())


def test_transport_without_connections_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match=r"^max_connections must be at least 1, got 0$"):
        Transport(max_connections=0)
