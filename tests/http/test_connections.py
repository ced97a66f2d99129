"""Which connections are reused, which requests are sent again, and what closing a transport ends."""

import asyncio
import socket
import time
from contextlib import suppress
from threading import Event, Thread

import pytest

from midspan._http.transport import HttpRequest, Timeouts, Transport
from midspan.errors import IncompleteResponseError, NetworkError
from tests.bounds import BOUND, time_passes
from tests.http import misbehaving
from tests.http.misbehaving import Behaviour, Exchange, Server
from tests.http.test_errors import PATIENT, SECRET, everything_shown, post, run

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n%b"
STRANGE = ANSWER % b"evil"


async def answer_twice(exchange: Exchange) -> None:
    """The rest of the answer comes with another one behind it."""
    whole = ANSWER % b"good"
    await exchange.send(whole[:-2])
    await asyncio.sleep(0.01)
    await exchange.send(whole[-2:] + STRANGE)
    exchange.server.go_on.set()


async def answer_the_idle(exchange: Exchange) -> None:
    await exchange.send(ANSWER % b"good")
    await asyncio.sleep(0.01)
    await exchange.send(STRANGE)
    exchange.server.go_on.set()


@pytest.mark.parametrize("behaviour", [answer_twice, answer_the_idle])
def test_unexpected_response_is_discarded_with_its_connection(behaviour: Behaviour) -> None:
    async def main() -> None:
        async with Server(behaviour) as server, Transport(PATIENT) as transport:
            for _ in range(4):
                assert (await transport.send(post(server.url))).body == b"good"
                await server.go_on.wait()
                server.go_on.clear()
                await asyncio.sleep(0.01)

    run(main())


def test_connection_on_which_more_than_the_response_arrives_is_closed() -> None:
    async def answer_and_more(exchange: Exchange) -> None:
        await exchange.send(ANSWER % b"good" + STRANGE)

    async def main() -> None:
        async with Server(answer_and_more) as server, Transport(PATIENT) as transport:
            assert (await transport.send(post(server.url))).body == b"good"
            await server.until_all_gone()

    run(main())


def test_idle_connection_on_which_the_server_sends_something_is_closed() -> None:
    async def answer_and_more_later(exchange: Exchange) -> None:
        await misbehaving.answer(exchange)
        await exchange.server.go_on.wait()
        await exchange.send(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")

    async def main() -> None:
        async with Server(answer_and_more_later) as server, Transport(PATIENT) as transport:
            assert (await transport.send(post(server.url))).status == 200
            server.go_on.set()
            await server.until_all_gone()

    run(main())


@pytest.mark.parametrize("more", [STRANGE, b""])
def test_data_that_arrived_while_the_loop_was_blocked_is_not_the_next_response(more: bytes) -> None:
    go_on, said, asked = Event(), Event(), list[bytes]()

    def answer_and_more(listener: socket.socket) -> None:
        for _ in range(2):
            connection, _ = listener.accept()
            with connection:
                asked.append(connection.recv(2**16))
                connection.sendall(ANSWER % b"good")
                if len(asked) == 1:
                    go_on.wait(BOUND)
                    connection.sendall(more)
                    connection.shutdown(socket.SHUT_WR)
                    said.set()
                with suppress(ConnectionError):  # it is closed with all that it had sent unread
                    asked.append(connection.recv(2**16))

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            server = Thread(target=answer_and_more, args=(listener,))
            server.start()
            async with Transport(PATIENT) as transport:
                url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
                assert (await transport.send(post(url))).body == b"good"
                go_on.set()
                assert said.wait(BOUND)
                assert (await transport.send(post(url))).body == b"good"
            server.join(BOUND)
        assert len([one for one in asked if one]) == 2, "each question went out once"

    run(main())


async def reset_without_length(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhel")
    await exchange.server.go_on.wait()
    exchange.reset()


def test_reset_connection_does_not_complete_a_body_without_length() -> None:
    async def main() -> None:
        async with Server(reset_without_length) as server, Transport(PATIENT) as transport:
            async with transport.stream(post(server.url)) as answer:
                assert await anext(answer) == b"hel"
                server.go_on.set()
                with pytest.raises(IncompleteResponseError):
                    await anext(answer)
            with pytest.raises(IncompleteResponseError):
                await transport.send(post(server.url))

    run(main())


async def begin_then_close(exchange: Exchange) -> None:
    """The second request on a connection is taken up, and never answered."""
    if exchange.number == 1:
        await misbehaving.answer(exchange)
    else:
        await exchange.send(b"HTTP/1.1 102 Processing\r\n\r\n")
        exchange.close()


def test_request_is_not_sent_again_after_an_interim_response() -> None:
    async def main() -> None:
        async with Server(begin_then_close) as server, Transport(PATIENT) as transport:
            await transport.send(post(server.url))
            with pytest.raises(NetworkError):
                await transport.send(post(server.url))
            assert len(server.requests) == 2

    run(main())


@pytest.mark.parametrize(("seconds", "sent"), [(0, 3), (1.1, 2)])
def test_request_is_sent_again_only_if_the_connection_closes_at_once(seconds: float, sent: int) -> None:
    async def die_at_the_second(exchange: Exchange) -> None:
        if exchange.number == 1:
            await misbehaving.answer(exchange)
        else:
            await asyncio.sleep(seconds)  # it is at work on the request
            exchange.close()

    async def main() -> None:
        async with Server(die_at_the_second) as server, Transport(PATIENT) as transport:
            await transport.send(post(server.url))
            with suppress(NetworkError):
                await transport.send(post(server.url))
            assert len(server.requests) == sent

    run(main())


@pytest.mark.parametrize("behaviour", [misbehaving.stall_before_head, misbehaving.stall_in_body])
def test_closing_the_transport_ends_pending_requests_with_an_error_that_is_not_retryable(behaviour: Behaviour) -> None:
    async def main() -> None:
        async with Server(behaviour) as server:
            transport = Transport(PATIENT)
            request = asyncio.create_task(transport.send(post(server.url)))
            await server.until(lambda: bool(server.requests))
            await asyncio.sleep(0.01)
            await transport.aclose()
            with pytest.raises(NetworkError, match="the client was closed while waiting for") as caught:
                await request
            assert not caught.value.retryable
            await server.until_all_gone()

    run(main())


def drip_from_a_thread(listener: socket.socket, sent: Event) -> None:
    """A server that goes on while the loop of the test stands still."""
    connection, _ = listener.accept()
    with connection, suppress(OSError):
        connection.recv(2**16)  # a response that comes before its request is not accepted
        connection.sendall(misbehaving.CHUNKED_HEAD)
        for _ in range(200):
            connection.sendall(misbehaving.chunk(b"."))
            sent.set()
            time.sleep(0.01)


def test_blocked_loop_does_not_time_out_a_stream_whose_data_has_arrived() -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            sent = Event()
            server = Thread(target=drip_from_a_thread, args=(listener, sent))
            server.start()
            url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
            timeouts = Timeouts(between_bytes=BOUND / 6)
            async with Transport(timeouts) as transport, transport.stream(post(url)) as answer:
                for _ in range(3):
                    reading = asyncio.ensure_future(anext(answer))
                    await asyncio.sleep(0)
                    for _ in range(2):  # lets the loop stand still; the first may be of what was sent before
                        sent.clear()
                        assert sent.wait(BOUND)
                    time_passes(BOUND / 4)
                    await reading
            server.join()

    run(main())


def test_framing_headers_of_the_caller_are_ignored() -> None:
    async def main() -> None:
        headers = {"Transfer-Encoding": "chunked", "content-length": "7"}
        async with Server(misbehaving.echo) as server, Transport(PATIENT) as transport:
            answer = await transport.send(HttpRequest("POST", server.url, headers, b"body"))
            assert answer.body == b"body"
            assert b"transfer-encoding" not in server.requests[0].head.lower()

    run(main())


def test_cancellation_while_connecting_to_a_proxy_shows_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with Server(misbehaving.stall_before_head) as proxy, Transport(PATIENT) as transport:
            monkeypatch.setenv("HTTPS_PROXY", f"http://user:{SECRET}@127.0.0.1:{proxy.port}")
            request = asyncio.create_task(transport.send(HttpRequest("GET", "https://example.invalid/")))
            await proxy.until(lambda: bool(proxy.requests))
            request.cancel()
            with pytest.raises(asyncio.CancelledError) as caught:
                await request
            assert SECRET not in everything_shown(caught.value)

    run(main())


def test_closing_the_transport_ends_a_pending_connection() -> None:
    async def main() -> None:
        async with Server(misbehaving.answer, on_connection=misbehaving.stall_before_head) as server:
            transport = Transport(Timeouts(connect=BOUND))
            request = asyncio.create_task(transport.send(post(server.url.replace("http:", "https:"))))
            await server.until(lambda: server.accepted == 1)
            await transport.aclose()
            with pytest.raises(NetworkError, match="the client was closed"):
                await request

    run(main())


def test_a_transport_can_be_closed_in_the_moment_in_which_a_connect_timeout_expires() -> None:
    async def main() -> None:
        async with Server(misbehaving.answer, on_connection=misbehaving.stall_before_head) as server:
            transport = Transport(Timeouts(connect=BOUND / 4))
            request = asyncio.create_task(transport.send(post(server.url.replace("http:", "https:"))))
            await server.until(lambda: server.accepted == 1)
            time_passes(BOUND / 4)
            await asyncio.sleep(0)  # timers run after the tasks that are ready
            await asyncio.sleep(0)
            assert not request.done()
            await transport.aclose()
            with pytest.raises(NetworkError, match="the client was closed"):
                await request

    run(main())


def test_closing_the_transport_ends_requests_that_wait_for_a_connection_slot() -> None:
    async def main() -> None:
        async with Server(misbehaving.stall_before_head) as server:
            transport = Transport(PATIENT, max_connections=1)
            requests = [asyncio.create_task(transport.send(post(server.url))) for _ in range(4)]
            await server.until(lambda: bool(server.requests))
            await transport.aclose()
            ended = await asyncio.gather(*requests, return_exceptions=True)
            assert all(isinstance(error, NetworkError) and "the client was closed" in str(error) for error in ended)
            assert len(server.requests) == 1

    run(main())
