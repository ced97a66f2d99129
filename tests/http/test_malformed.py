"""Responses that are not valid HTTP."""

import asyncio
import gzip

import pytest

from midspan._http.transport import HttpRequest, Transport
from midspan.errors import IncompleteResponseError, NetworkError
from tests.bounds import BOUND
from tests.http.misbehaving import CHUNKED_HEAD, Behaviour, Exchange, Server, chunk, response
from tests.http.test_errors import PATIENT

OK = b"HTTP/1.1 200 OK\r\n"


def sends(now: bytes, later: bytes = b"") -> Behaviour:
    """Send these bytes; what is `later` only after the test has seen the head."""

    async def behaviour(exchange: Exchange) -> None:
        await exchange.send(now)
        if later:
            await exchange.server.go_on.wait()
            await exchange.send(later)
        await exchange.until_gone()

    return behaviour


async def answer_of(behaviour: Behaviour) -> bytes:
    async with (
        asyncio.timeout(BOUND),
        Server(behaviour) as server,
        Transport(PATIENT) as transport,
        transport.stream(HttpRequest("POST", server.url, {}, b"{}")) as answer,
    ):
        server.go_on.set()
        return await answer.read()


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        (
            sends(response(b"abc", "200 OK", "Content-Encoding: zstd, br")),
            "its Content-Encoding is zstd, br, which was not asked for",
        ),
        (
            sends(response(b"abc", "200 OK", "Content-Encoding: x-gzip")),
            "its Content-Encoding is x-gzip, which was not asked for",
        ),
        (sends(response(b"abc", "200 OK", "Content-Encoding: deflate")), "the body is not valid deflate"),
        (sends(CHUNKED_HEAD + b"zz\r\nwhat\r\n"), "Invalid character in chunk size"),
        (sends(CHUNKED_HEAD + chunk(b"abc") + b"-1\r\n"), "Invalid character in chunk size"),
        (sends(CHUNKED_HEAD + b"3\r\nabcdef\r\n"), "Expected LF after chunk data"),
        (sends(CHUNKED_HEAD + b"f" * 30 + b"\r\n"), "Chunk size overflow"),
        (sends(OK + b"Content-Length: many\r\n\r\nabc"), "Invalid character in Content-Length"),
        (sends(OK + b"Content-Length: -3\r\n\r\nabc"), "Invalid character in Content-Length"),
        (sends(OK + b"Content-Length: 9" + b"9" * 30 + b"\r\n\r\nabc"), "Content-Length overflow"),
        (sends(OK + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc"), "Duplicate Content-Length"),
        (sends(OK + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"), "can't be present with"),
        (sends(OK + b"no header\r\n\r\n"), "Invalid header token"),
        (
            sends(response(b"abc", "200 OK", "Content-Encoding: gzip, gzip")),
            "its Content-Encoding is gzip, gzip, which was not asked for",
        ),
        (sends(OK + b"X: " + b"a" * 2**19), "its head or trailers are too large"),
        (sends(b"HTTP/1.1 20x OK\r\n\r\n"), "Invalid status code"),
        (sends(b"SSH-2.0-OpenSSH\r\n"), "Expected HTTP/"),
    ],
)
def test_error_says_what_is_wrong_with_a_response(behaviour: Behaviour, words: str) -> None:
    with pytest.raises(NetworkError, match=rf"the response of 127\.0\.0\.1:\d+ is not valid HTTP: .*{words}") as caught:
        asyncio.run(answer_of(behaviour))
    assert caught.value.retryable


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        (
            sends(response(b"no gzip", "200 OK", "Content-Encoding: gzip")),
            "the body is not valid gzip",
        ),
        (
            sends(OK + b"Content-Encoding: gzip\r\nContent-Length: 7\r\n\r\n", b"no gzip"),
            "the body is not valid gzip",
        ),
        (sends(CHUNKED_HEAD + chunk(b"abc"), b"zz\r\n"), "Invalid character in chunk size"),
        (sends(CHUNKED_HEAD, b"3\r\nabcdef\r\n"), "Expected LF after chunk data"),
    ],
)
def test_error_inside_a_response_body_is_reported(behaviour: Behaviour, words: str) -> None:
    with pytest.raises(IncompleteResponseError, match=f"is not valid HTTP: .*{words}"):
        asyncio.run(answer_of(behaviour))


def test_brotli_is_an_error() -> None:
    with pytest.raises(NetworkError, match=r"its Content-Encoding is br, which was not asked for"):
        asyncio.run(answer_of(sends(response(b"abc", "200 OK", "Content-Encoding: br"))))


@pytest.mark.parametrize("coding", ["identity", "utf-8", "", "Identity "])
def test_content_encoding_that_is_not_a_compression_is_ignored(coding: str) -> None:
    assert asyncio.run(answer_of(sends(response(b"abc", "200 OK", f"Content-Encoding: {coding}")))) == b"abc"


def test_name_of_the_compression_ignores_case() -> None:
    packed = gzip.compress(b"abc")
    assert asyncio.run(answer_of(sends(response(packed, "200 OK", "Content-Encoding: GZIP")))) == b"abc"


def test_cut_response_is_not_reported_as_malformed() -> None:
    async def behaviour(exchange: Exchange) -> None:
        await exchange.send(CHUNKED_HEAD + chunk(b"abc") + b"40\r\nab")
        exchange.close()

    with pytest.raises(IncompleteResponseError, match="closed the connection in the middle of the response"):
        asyncio.run(answer_of(behaviour))
