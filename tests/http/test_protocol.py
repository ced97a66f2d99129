"""What the protocol does with a connection: back-pressure, framing, decompression, upgrades, forks."""

import asyncio
import gc
import gzip
import os
import subprocess
import sys
import textwrap
import zlib
from contextlib import suppress

import pytest

from midspan._http.transport import HttpRequest, Timeouts, Transport
from midspan.errors import IncompleteResponseError, NetworkError
from tests.bounds import BOUND, PATIENT_PROGRAM
from tests.http import misbehaving
from tests.http.misbehaving import CHUNKED_HEAD, Behaviour, Exchange, Server, chunk, response
from tests.http.test_errors import PATIENT, post, run
from tests.http.test_loops import PROLOGUE, url  # noqa: F401 - a fixture

OK = b"HTTP/1.1 200 OK\r\n"


def sends(*pieces: bytes) -> Behaviour:
    async def behaviour(exchange: Exchange) -> None:
        for piece in pieces:
            await exchange.send(piece)

    return behaviour


async def body_of(behaviour: Behaviour, method: str = "POST") -> bytes:
    async with asyncio.timeout(BOUND), Server(behaviour) as server, Transport(PATIENT) as transport:
        return (await transport.send(HttpRequest(method, server.url))).body


def test_slow_reader_stops_the_server_from_sending() -> None:
    sent = 0

    async def flood(exchange: Exchange) -> None:
        nonlocal sent
        await exchange.send(CHUNKED_HEAD)
        for _ in range(1024):
            await exchange.send(chunk(bytes(2**16)))
            sent += 2**16
        await exchange.send(b"0\r\n\r\n")

    async def main() -> None:
        async with Server(flood) as server, Transport(PATIENT) as transport:
            async with transport.stream(post(server.url)) as stream:
                previous = -1
                while sent != previous:
                    previous = sent
                    for _ in range(100):
                        await asyncio.sleep(0)
                assert sent < 2**25, "the rest is held back by the socket buffers"
                assert sum([len(piece) async for piece in stream]) == 2**26
            await transport.send(post(server.url))
            assert server.accepted == 1, "a connection that was paused is reused"

    run(main())


def test_two_tasks_cannot_read_one_response() -> None:
    async def main() -> None:
        async with (
            Server(misbehaving.stall_in_body) as server,
            Transport(PATIENT) as transport,
            transport.stream(post(server.url)) as stream,
        ):
            await anext(stream)
            reading = asyncio.ensure_future(anext(stream))
            await asyncio.sleep(0)
            with pytest.raises(RuntimeError, match="already being read by another task"):
                await anext(stream)
            reading.cancel()

    run(main())


def test_gzip_body_may_have_several_members_but_may_not_end_early() -> None:
    members = gzip.compress(b"one ") + gzip.compress(b"") + gzip.compress(b"two")
    assert asyncio.run(body_of(sends(response(members, "200 OK", "Content-Encoding: gzip")))) == b"one two"
    for packed in (members[:-4], members + b"garbage"):
        with pytest.raises(IncompleteResponseError, match="the body is not valid gzip"):
            asyncio.run(body_of(sends(response(packed, "200 OK", "Content-Encoding: gzip"))))


def test_compressed_body_may_begin_with_a_piece_without_content() -> None:
    packed = gzip.compress(b"abc")

    async def in_two_pieces(exchange: Exchange) -> None:
        await exchange.send(OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%b" % (len(packed), packed[:5]))
        await exchange.server.go_on.wait()
        await exchange.send(packed[5:])

    async def main() -> None:
        async with (
            Server(in_two_pieces) as server,
            Transport(PATIENT) as transport,
            transport.stream(post(server.url)) as stream,
        ):
            reading = asyncio.ensure_future(stream.read())
            await asyncio.sleep(0)
            server.go_on.set()
            assert await reading == b"abc"

    run(main())


@pytest.mark.parametrize("wbits", [15, -15])
def test_deflate_is_read_with_and_without_the_zlib_header(wbits: int) -> None:
    packer = zlib.compressobj(wbits=wbits)
    packed = packer.compress(b"abc" * 1000) + packer.flush()
    assert asyncio.run(body_of(sends(response(packed, "200 OK", "Content-Encoding: deflate")))) == b"abc" * 1000


@pytest.mark.parametrize("framing", [b"gzip", b"gzip, chunked"])
def test_unsupported_framing_is_an_error(framing: bytes) -> None:
    with pytest.raises(NetworkError, match=r"its Transfer-Encoding is gzip.*, which is not supported"):
        asyncio.run(body_of(sends(OK + b"Transfer-Encoding: " + framing + b"\r\n\r\n")))


@pytest.mark.parametrize("filler", [b"X: " + b"a" * 2**16, b"X: y\r\n" * 2**13])
def test_endless_trailers_are_an_error(filler: bytes) -> None:
    async def endless(exchange: Exchange) -> None:
        await exchange.send(CHUNKED_HEAD + chunk(b"abc") + b"0\r\n")
        while True:
            await exchange.send(filler)

    with pytest.raises(IncompleteResponseError, match="trailers are too large"):
        asyncio.run(body_of(endless))


def test_trailers_are_not_headers() -> None:
    async def main() -> None:
        behaviour = sends(CHUNKED_HEAD + chunk(b"abc") + b"0\r\nRetry-After: 5\r\n\r\n")
        async with Server(behaviour) as server, Transport(PATIENT) as transport:
            answer = await transport.send(post(server.url))
            assert (answer.body, answer.header("retry-after")) == (b"abc", None)

    run(main())


def test_headers_are_found_in_any_case_and_repeated_ones_are_joined() -> None:
    async def main() -> None:
        behaviour = sends(response(b"", "200 OK", "X-Name: a", "x-name: b", "Server: caf\xe9"))
        async with Server(behaviour) as server, Transport(PATIENT) as transport:
            answer = await transport.send(post(server.url))
            assert answer.header("X-NAME") == "a, b"
            assert (answer.header("server"), answer.header("x-nam")) == ("caf\u00c3\u00a9", None)

    run(main())


def test_unexpected_upgrade_closes_the_connection() -> None:
    async def main() -> None:
        behaviour = sends(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nhello")
        async with Server(behaviour) as server, Transport(PATIENT) as transport:
            answer = await transport.send(post(server.url))
            assert (answer.status, answer.body) == (101, b"")
            await server.until_all_gone()

    run(main())


@pytest.mark.parametrize("ends_idle", [True, False])
def test_connection_that_the_server_closed_is_freed(ends_idle: bool) -> None:
    async def answer_and_close(exchange: Exchange) -> None:
        if ends_idle:
            await misbehaving.answer(exchange)
        exchange.close()

    def connections() -> int:
        gc.collect()
        return sum(type(value).__name__ == "HttpProtocol" for value in gc.get_objects())

    async def main() -> None:
        before = connections()
        async with Server(answer_and_close) as server, Transport(Timeouts(first_byte=1000)) as transport:
            with suppress(NetworkError):
                await transport.send(post(server.url))
            await server.until_all_gone()
            while connections() > before:  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0)

    run(main())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_forked_child_does_not_use_the_connections_of_its_parent(url: str) -> None:  # noqa: F811 - the fixture
    code = """
        transport = Transport()
        loop = asyncio.new_event_loop()
        loop.run_until_complete(several(transport))
        child = os.fork()
        if child == 0:
            asyncio.run(several(transport))
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        files = open_files()
        loop.run_until_complete(several(transport))
        assert open_files() == files, "the connections are reused"
        loop.run_until_complete(transport.aclose())
        loop.close()
    """
    program = PATIENT_PROGRAM + PROLOGUE + textwrap.dedent(code)
    command = [sys.executable, "-c", program, url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BOUND)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
