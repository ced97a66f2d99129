"""The HTTP server: valid and invalid requests, streams, connections, and starting and stopping."""

import asyncio
import gc
import json
import re
import socket
import subprocess
import sys
import threading
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from midspan.emulator import LocalGemini, answer, call, http
from midspan.errors import ConfigError
from tests.bounds import BOUND
from tests.emulator.plain_client import DEVELOPER, ask, events, post, raw, send, stream, user

HI = {"contents": [user("Hi.")]}
V1BETA1 = "/v1beta1/models/gemini-3.8-flash:generateContent"
PATH = DEVELOPER.format("gemini-3.8-flash", "generateContent")


def test_the_http_server_does_not_import_the_gemini_part() -> None:
    source = Path(http.__file__).read_text()
    assert not re.search(r"^(from|import) .*(gemini|providers)", source, re.MULTILINE)


def test_requests_are_parsed_however_their_bytes_are_split() -> None:
    body = json.dumps(HI).encode()
    sized = b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    chunked = (
        b'\r\nPOST /b HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n3\r\n{"a\r\n4;x=y\r\n":1}\r\n0\r\nT: 1\r\n\r\n'
    )
    bare = b"GET /c HTTP/1.1\r\nConnection: close\r\n\r\n"
    data = sized + chunked + sized + bare
    expected = [("/a", body), ("/b", b'{"a":1}'), ("/a", body), ("/c", b"")]
    for size in (len(data), 1):
        with LocalGemini() as server:
            raw(server.url, *(data[at : at + size] for at in range(0, len(data), size)))
            assert [(request.target, request.body) for request in server.requests] == expected
            assert [request.keep_alive for request in server.requests] == [True, True, True, False]


@pytest.mark.parametrize(
    "data",
    [
        b"HELLO\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: " + b"9" * 5_000 + b"\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        b"POST / HTTP/1.1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1_0\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabcd\r\n",
        b"GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
        b"POST / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\n{}",
        b"GET / ZZZZ\r\n\r\n",
    ],
)
def test_an_invalid_request_is_rejected_and_the_connection_closed(data: bytes, echo: LocalGemini) -> None:
    assert raw(echo.url, data).startswith(b"HTTP/1.1 400 ")


def test_pipelined_requests_are_answered_in_order() -> None:
    with LocalGemini([answer("Slow.", delay_seconds=0.01)]) as server:
        first = post(PATH, HI).replace(b"Connection: close\r\n", b"")
        received = raw(server.url, first * 3 + post("/v1beta/models/nothing:generateContent", HI))
    assert [received.count(b"HTTP/1.1 200"), received.count(b"HTTP/1.1 404")] == [3, 1]
    assert received.rindex(b"HTTP/1.1 200") < received.index(b"HTTP/1.1 404")


def test_an_unknown_path_is_answered_with_a_404_page(echo: LocalGemini) -> None:
    for method, path in (
        ("GET", "/"),
        ("GET", PATH),
        ("PUT", "/v1beta/cachedContents"),
        ("POST", "/v2/models/x:y"),
        ("POST", V1BETA1),
    ):
        reply = send(echo.url, method, path)
        assert (reply.status, reply.body[:9]) == (404, b"<!DOCTYPE"), path
    assert send(echo.url, "POST", DEVELOPER.format("gemini-3.8-flash", "embedContent"), {}).status == 400


def test_a_stream_ends_with_its_finish_reason_and_signature(echo: LocalGemini) -> None:
    reply = stream(echo.url, HI)
    assert reply.body.endswith(b"}\r\n\r\n")
    documents = events(reply)
    assert [document["candidates"][0].get("finishReason") for document in documents] == [None] * (
        len(documents) - 1
    ) + ["STOP"]
    totals = [document["usageMetadata"]["totalTokenCount"] for document in documents]
    assert totals == sorted(totals), "each chunk has the running total"
    assert b"[DONE]" not in reply.body
    last = documents[-1]["candidates"][0]["content"]["parts"][-1]
    assert last["text"] == "", "the signature comes after all text, on an empty part"
    assert last["thoughtSignature"]


def test_a_stream_without_alt_sse_is_a_json_array(echo: LocalGemini) -> None:
    listed = stream(echo.url, HI, query="").json
    assert isinstance(listed, list)
    assert (
        "".join(part["text"] for document in listed for part in document["candidates"][0]["content"]["parts"])
        == "You said: Hi."
    )


def test_calls_come_in_one_chunk_with_the_finish_reason() -> None:
    with LocalGemini([answer("Let me see.", call("f"), call("g"))]) as server:
        documents = events(stream(server.url, {**HI, "tools": [{"functionDeclarations": [{"name": "f"}]}]}))
    last = documents[-1]["candidates"][0]
    assert [part["functionCall"]["name"] for part in last["content"]["parts"]] == ["f", "g"]
    assert last["finishReason"] == "STOP"
    assert ["thoughtSignature" in part for part in last["content"]["parts"]] == [True, False]


def test_a_large_answer_arrives_completely() -> None:
    text = "word " * 2_000_000
    with LocalGemini([answer(text, chunks=50, gap_seconds=0.0001)]) as server:
        documents = events(stream(server.url, HI))
    assert sum(
        len(part["text"]) for document in documents for part in document["candidates"][0]["content"]["parts"]
    ) == len(text)


def test_the_server_runs_in_the_running_event_loop() -> None:
    async def main() -> None:
        async with asyncio.timeout(BOUND), LocalGemini(["Hello."]) as server:
            reply = await asyncio.to_thread(ask, server.url, HI)
            assert reply.parts[0]["text"] == "Hello."
        assert server.open_connections == 0

    asyncio.run(main())


def test_a_script_of_one_server_can_call_another_server() -> None:
    with LocalGemini(["inner"]) as inner, LocalGemini(lambda _: ask(inner.url, HI).parts[0]) as outer:
        assert ask(outer.url, HI).parts[0]["text"] == "inner"


def test_many_clients_are_answered_at_the_same_time() -> None:
    with LocalGemini() as server:
        replies: list[bytes] = []

        def talk(number: int) -> None:
            requests = [{"contents": [user(f"{number}-{at}")]} for at in range(20)]
            replies.extend(ask(server.url, request).parts[0]["text"].encode() for request in requests)

        threads = [threading.Thread(target=talk, args=(number,)) for number in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(4 * BOUND)
        assert sorted(replies) == sorted(f"You said: {a}-{b}".encode() for a in range(16) for b in range(20))
        assert len(server.requests) == 256, "the last ones"
    assert server.open_connections == 0


def test_stopping_the_server_closes_connections_that_wait() -> None:
    with LocalGemini([answer("Never.", delay_seconds=3_600)]) as server:
        waiting = threading.Thread(target=raw, args=(server.url, post(PATH, HI)))
        waiting.start()
        while not len(server.requests):
            waiting.join(0.001)
    waiting.join(BOUND)
    assert not waiting.is_alive()
    assert server.open_connections == 0


@pytest.mark.parametrize("steps", range(6))
def test_a_connection_that_is_accepted_while_the_server_stops_is_closed(steps: int) -> None:
    async def main() -> None:
        async with LocalGemini() as server:
            host, port = server.url.removeprefix("http://").split(":")
            client = socket.create_connection((host, int(port)), timeout=BOUND)
            for _ in range(steps):  # of the event loop, which accepts the connection in one of them
                await asyncio.sleep(0)
        with client, suppress(ConnectionResetError):
            assert client.recv(1) == b""

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        asyncio.run(main())
        gc.collect()
    assert not caught


def test_stopping_the_server_closes_a_connection_whose_answer_is_not_read() -> None:
    async def main() -> None:
        async with asyncio.timeout(BOUND):
            async with LocalGemini(["x" * 20_000_000]) as server:
                reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
                body = json.dumps(HI).encode()
                head = f"POST {PATH} HTTP/1.1\r\nx-goog-api-key: k\r\nConnection: close\r\nContent-Length: {len(body)}"
                writer.write(f"{head}\r\n\r\n".encode() + body)
                await reader.readline()
                assert server.open_connections == 1
            assert server.open_connections == 0
            with suppress(ConnectionError):
                assert len(await reader.read()) < 20_000_000
            writer.close()

    asyncio.run(main())


def test_a_connection_that_the_client_closes_is_removed() -> None:
    with LocalGemini([answer("Never.", delay_seconds=3_600)]) as server:
        place = server.url.removeprefix("http://").split(":")
        connection = socket.create_connection((place[0], int(place[1])), timeout=BOUND)
        connection.sendall(post(PATH, HI))
        waiting = threading.Event()
        while not len(server.requests):
            waiting.wait(0.001)
        connection.close()
        for _ in range(int(BOUND / 0.001)):
            if not server.open_connections:
                break
            waiting.wait(0.001)
        assert server.open_connections == 0


def test_a_port_in_use_is_reported_where_the_server_is_entered() -> None:
    with LocalGemini() as first:
        port = int(first.url.rsplit(":", 1)[1])
        problem = f"^cannot listen on 127.0.0.1:{port}: address already in use$"
        with pytest.raises(ConfigError, match=problem), LocalGemini(port=port):
            pass
    with pytest.raises(ConfigError, match="the server is not running yet"):
        _ = LocalGemini().url


@pytest.mark.parametrize("options", [{"port": 99_999}, {"port": -1}, {"host": "a b"}, {"host": "\ud800"}])
def test_an_address_that_cannot_be_used_is_reported_where_the_server_is_entered(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"cannot (listen on|resolve)"), LocalGemini(**options):
        pass


def test_any_error_of_the_start_is_raised_where_the_server_is_entered() -> None:
    ran = subprocess.run([sys.executable, "-c", NO_MORE_FILES], stdout=subprocess.PIPE, text=True, timeout=BOUND)
    assert ran.stdout == "Too many open files\n"


NO_MORE_FILES = """
import os
import resource

from midspan.emulator import LocalGemini

with open(os.devnull) as file:
    next_free = file.fileno()
resource.setrlimit(resource.RLIMIT_NOFILE, (next_free, next_free))
try:
    with LocalGemini():
        pass
except OSError as error:
    print(error.strerror)
"""


def test_the_url_of_an_ipv6_address_has_brackets() -> None:
    assert LocalGemini(host="::1", port=8_080).url == "http://[::1]:8080"


def test_requests_are_logged_without_their_query(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "midspan.emulator")
    with LocalGemini(["Hello."], faults="0:status_503") as server:
        send(server.url, "POST", f"{PATH}?key=sesame", b'{"contents": {"parts": {"text": "Hi."}}}', {})
    assert caplog.messages == [f"POST {PATH}, 40 bytes", "injected status_503"]


def test_the_server_has_its_last_requests_errors_and_faults() -> None:
    with LocalGemini(["Hello."], faults="1:status_503") as server:
        ask(server.url, HI)
        ask(server.url, HI)
        ask(server.url, {})
        assert json.loads(server.requests[0].body) == HI
        assert ["contents is not specified" in error.message for error in server.errors] == [True]
        assert list(map(str, server.injected)) == ["1:status_503"]


def test_the_server_keeps_requests_up_to_a_total_size() -> None:
    with LocalGemini() as server:
        for number in range(4):
            send(server.url, "POST", f"/{number}", b"x" * 30_000_000)
        assert [request.target for request in server.requests] == ["/2", "/3"]
        send(server.url, "POST", "/4", b"x" * 70_000_000)
        assert not server.requests
