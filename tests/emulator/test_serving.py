"""HTTP as clients really speak it, and as no client should."""

import asyncio
import gzip
import json
import threading
from typing import Any

import pytest

from midspan.emulator import LocalGemini, answer, call
from midspan.emulator.serving.refused import BadRequest
from midspan.emulator.serving.requests import Request, RequestReader
from midspan.errors import ConfigError
from tests.bounds import BOUND
from tests.emulator.asking import DEVELOPER, Reply, ask, events, post, raw, send, stream, user

HI = {"contents": [user("Hi.")]}
V1BETA1 = "/v1beta1/models/gemini-3.8-flash:generateContent"
PATH = DEVELOPER.format("gemini-3.8-flash", "generateContent")


def read(*pieces: bytes) -> list[Request]:
    reader = RequestReader()
    found = [request for piece in pieces for request in reader.feed(piece)]
    if reader.failure is not None:
        raise reader.failure
    return found


def test_requests_are_read_whatever_the_pieces_that_they_come_in() -> None:
    body = json.dumps(HI).encode()
    one = b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    chunked = b'POST /b HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{"a\r\n4;x=y\r\n":1}\r\n0\r\nT: 1\r\n\r\n'
    bare = b"GET /c HTTP/1.0\r\n\r\n"
    data = one + chunked + bare + one
    wanted = [("/a", body), ("/b", b'{"a":1}'), ("/c", b""), ("/a", body)]
    assert [(found.target, found.body) for found in read(data)] == wanted
    assert [(found.target, found.body) for found in read(*(data[at : at + 1] for at in range(len(data))))] == wanted
    assert [found.keep_alive for found in read(data)] == [True, True, False, True]


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"HELLO\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: -5\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffff\r\n", 413),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 100_000, 431),
        (b"POST / HTTP/1.1\r\nContent-Length: " + b"9" * 5_000 + b"\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + b"0" * 5_000, 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1_0\r\n", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabcd\r\n", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: " + b"a" * 100_000, 431),
        (b"GET / ZZZZ\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\n\r\n", 505),
        (b"POST / HTTP/1.1\r\nContent-Encoding: br\r\nContent-Length: 2\r\n\r\n{}", 415),
        (b"POST / HTTP/1.1\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}", 400),
    ],
)
def test_what_is_no_http_is_refused_and_the_connection_closed(data: bytes, status: int, echo: LocalGemini) -> None:
    with pytest.raises(BadRequest) as refused:
        read(data)
    assert refused.value.status == status
    assert raw(echo.url, data).startswith(b"HTTP/1.1 %d " % status)


@pytest.mark.parametrize("header", ["Transfer-Encoding:chunked", "transfer-encoding:  Chunked "])
def test_chunks_are_announced_in_every_legal_way(header: str) -> None:
    (found,) = read(f"\r\nPOST / HTTP/1.1\r\n{header}\r\n\r\n2\r\n{{}}\r\n0\r\n\r\n".encode())
    assert found.body == b"{}"


def test_a_body_of_very_many_chunks_is_read_piece_by_piece() -> None:
    head = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    (found,) = read(head, *[b"1\r\na\r\n"] * 200_000, b"0\r\n\r\n")
    assert found.body == b"a" * 200_000


@pytest.mark.parametrize(
    "begun", [b"GET / HTTP/1.1\r\n", b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"]
)
def test_lines_that_come_byte_by_byte_are_read_when_they_end(begun: bytes) -> None:
    lines = b"X: " + b"\n" * 50_000 + b"\r\n\r\n"
    (found,) = read(begun, *(lines[at : at + 1] for at in range(len(lines))))
    assert found.body == b""


def test_a_compressed_body_is_read_and_one_that_grows_without_end_is_not(echo: LocalGemini) -> None:
    packed = gzip.compress(json.dumps(HI).encode())
    headers = {"x-goog-api-key": "k", "Content-Encoding": "gzip"}
    assert send(echo.url, "POST", PATH, packed, headers).parts[0]["text"] == "You said: Hi."
    bomb = gzip.compress(bytes(65 * 1024 * 1024))
    assert send(echo.url, "POST", PATH, bomb, headers).status == 413


def test_what_is_right_is_answered_before_what_follows_is_refused() -> None:
    with LocalGemini([answer("Slow.", delay_seconds=0.01)]) as slow, LocalGemini(["Quick."]) as quick:
        for server in (slow, quick):
            first = post(PATH, HI).replace(b"Connection: close\r\n", b"")
            received = raw(server.url, first + b"garbage\r\n\r\n")
            assert received.startswith(b"HTTP/1.1 200 OK")
            assert received.index(b"HTTP/1.1 400") > received.index(b'"candidates"')


def test_who_asks_for_the_head_gets_no_body(echo: LocalGemini) -> None:
    received = raw(echo.url, b"HEAD /v1beta/models HTTP/1.1\r\nx-goog-api-key: k\r\nConnection: close\r\n\r\n")
    assert received.startswith(b"HTTP/1.1 404")
    assert received.endswith(b"\r\n\r\n")
    assert received.count(b"\r\n\r\n") == 1


def test_who_knows_no_chunks_gets_a_stream_that_ends_with_the_connection(echo: LocalGemini) -> None:
    path = PATH.replace("generateContent", "streamGenerateContent") + "?alt=sse"
    data = post(path, HI).replace(b"HTTP/1.1", b"HTTP/1.0").replace(b"Connection: close", b"Connection: keep-alive")
    head, _, body = raw(echo.url, data).partition(b"\r\n\r\n")
    assert b"chunked" not in head
    assert body.startswith(b"data: {")
    assert "".join(p["text"] for e in events(Reply(200, body)) for p in e["candidates"][0]["content"]["parts"])


def test_requests_sent_ahead_are_answered_in_their_order() -> None:
    with LocalGemini([answer("Slow.", delay_seconds=0.01)]) as server:
        first = post(PATH, HI).replace(b"Connection: close\r\n", b"")
        received = raw(server.url, first * 3 + post("/v1beta/models/nothing:generateContent", HI))
    assert [received.count(b"HTTP/1.1 200"), received.count(b"HTTP/1.1 404")] == [3, 1]
    assert received.rindex(b"HTTP/1.1 200") < received.index(b"HTTP/1.1 404")


def test_who_waits_for_a_word_before_sending_his_body_gets_it(echo: LocalGemini) -> None:
    data = post(PATH, HI, "Expect: 100-continue")
    head, _, body = data.partition(b"\r\n\r\n")
    reader = RequestReader()
    assert reader.feed(head + b"\r\n\r\n") == []
    assert reader.wants_continue
    assert [found.body for found in reader.feed(body)] == [body]
    assert b"HTTP/1.1 200 OK" in raw(echo.url, data)


def test_a_path_of_nobody_gets_a_page(echo: LocalGemini) -> None:
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


def test_events_end_as_the_real_ones_do(echo: LocalGemini) -> None:
    reply = stream(echo.url, HI)
    assert reply.body.endswith(b"}\r\n\r\n")
    documents = events(reply)
    assert [one["candidates"][0].get("finishReason") for one in documents] == [None] * (len(documents) - 1) + ["STOP"]
    totals = [one["usageMetadata"]["totalTokenCount"] for one in documents]
    assert totals == sorted(totals), "each is a running total"
    assert b"[DONE]" not in reply.body
    last = documents[-1]["candidates"][0]["content"]["parts"][-1]
    assert last["text"] == "", "a signature comes after all text, on a part that says nothing"
    assert last["thoughtSignature"]


def test_without_events_a_stream_is_one_list(echo: LocalGemini) -> None:
    listed = stream(echo.url, HI, query="").json
    assert isinstance(listed, list)
    assert (
        "".join(part["text"] for one in listed for part in one["candidates"][0]["content"]["parts"]) == "You said: Hi."
    )


def test_who_asks_for_numbers_gets_numbers(echo: LocalGemini) -> None:
    reply = send(echo.url, "POST", PATH + "?%24alt=json%3Benum-encoding%3Dint", HI)
    assert reply.json["candidates"][0]["finishReason"] == 1


def test_a_call_comes_in_one_chunk_with_its_reason() -> None:
    with LocalGemini([answer("Let me see.", call("f"), call("g"))]) as server:
        documents = events(stream(server.url, {**HI, "tools": [{"functionDeclarations": [{"name": "f"}]}]}))
    last = documents[-1]["candidates"][0]
    assert [part["functionCall"]["name"] for part in last["content"]["parts"]] == ["f", "g"]
    assert last["finishReason"] == "STOP"
    assert ["thoughtSignature" in part for part in last["content"]["parts"]] == [True, False]


def test_a_slow_reader_of_a_large_answer_gets_all_of_it() -> None:
    text = "word " * 2_000_000
    with LocalGemini([answer(text, chunks=50, gap_seconds=0.0001)]) as server:
        documents = events(stream(server.url, HI))
    assert sum(len(part["text"]) for one in documents for part in one["candidates"][0]["content"]["parts"]) == len(text)


def test_it_is_entered_from_async_code_too() -> None:
    async def main() -> None:
        async with asyncio.timeout(BOUND), LocalGemini(["Hello."]) as server:
            reply = await asyncio.to_thread(ask, server.url, HI)
            assert reply.parts[0]["text"] == "Hello."
        assert server.report().open_connections == 0

    asyncio.run(main())


def test_many_talk_to_it_at_once() -> None:
    with LocalGemini() as server:
        replies: list[bytes] = []

        def talk(number: int) -> None:
            asked = [{"contents": [user(f"{number}-{at}")]} for at in range(20)]
            replies.extend(ask(server.url, one).parts[0]["text"].encode() for one in asked)

        threads = [threading.Thread(target=talk, args=(number,)) for number in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(4 * BOUND)
        assert sorted(replies) == sorted(f"You said: {a}-{b}".encode() for a in range(16) for b in range(20))
        assert server.report().requests == 320
    assert server.report().open_connections == 0


def test_leaving_it_lets_go_of_those_who_wait() -> None:
    with LocalGemini([answer("Never.", delay_seconds=3_600)]) as server:
        waiting = threading.Thread(target=raw, args=(server.url, post(PATH, HI)))
        waiting.start()
        while not server.report().requests:
            waiting.join(0.001)
    waiting.join(BOUND)
    assert not waiting.is_alive()
    assert server.report().open_connections == 0


def test_who_leaves_in_the_middle_is_forgotten() -> None:
    import socket

    with LocalGemini([answer("Never.", delay_seconds=3_600)]) as server:
        place = server.url.removeprefix("http://").split(":")
        connection = socket.create_connection((place[0], int(place[1])), timeout=BOUND)
        connection.sendall(post(PATH, HI))
        waiting = threading.Event()
        while not server.report().requests:
            waiting.wait(0.001)
        connection.close()
        for _ in range(5_000):
            if not server.report().open_connections:
                break
            waiting.wait(0.001)
        assert server.report().open_connections == 0


def test_a_port_that_is_taken_is_told_where_the_server_is_entered() -> None:
    with LocalGemini() as first:
        port = int(first.url.rsplit(":", 1)[1])
        with pytest.raises(ConfigError, match="nothing can listen on"), LocalGemini(port=port):
            pass
    with pytest.raises(ConfigError, match="enter it first"):
        _ = LocalGemini().url


@pytest.mark.parametrize(
    ("option", "wrong", "words"),
    [
        ("port", (99_999, 65_536, -1, "80", 80.0, True, None), "is no port; give a number up to 65535, or 0 for any"),
        ("host", ("", " ", "a b", "\ud800", 5, None), "host is an address of this machine, as '127.0.0.1', not "),
        ("api_key", (5, "", " "), "api_key is the only key that is right, a text, not "),
        ("models", ("gemini-3.8-flash", [5], [""], 5), r"models is a list of names, as \['gemini-3.8-flash'\], not "),
        ("strict_signatures", ("x", 1, None), "strict_signatures is True or False, not "),
        ("least_cache_tokens", ("x", -1, 1.5, None), "least_cache_tokens is a number from 0 on, not "),
    ],
)
def test_an_option_that_cannot_be_is_refused_before_the_server_is_entered(
    option: str, wrong: tuple[Any, ...], words: str
) -> None:
    for value in wrong:
        with pytest.raises(ConfigError, match=words):
            LocalGemini(["x"], **{option: value})


def test_the_name_of_a_plan_is_a_text(echo: LocalGemini) -> None:
    with pytest.raises(ConfigError, match="known by its name, a text, not by 5"):
        echo.url_for(5)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="known by its name, a text, not by 5"):
        echo.plans[5] = "0:status_503"  # type: ignore[index, assignment]


def test_an_address_of_version_6_is_written_in_brackets() -> None:
    assert LocalGemini(host="::1", port=8_080).url == "http://[::1]:8080"


def test_it_reports_what_it_saw() -> None:
    with LocalGemini(["Hello."], faults="1:status_503") as server:
        ask(server.url, HI)
        ask(server.url, HI)
        ask(server.url, {})
        report = server.report()
        assert (report.requests, report.answered, report.refused, report.faults) == (3, 1, {400: 1}, {"status_503": 1})
        assert json.loads(server.requests[0].body) == HI
        assert "contents is not specified" in server.refusals[0].message
        server.clear()
        assert server.report().requests == 0
