"""The provider against servers on loopback, well-behaved and not."""

import asyncio
import io
import json
import logging
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from midspan import errors
from midspan._http.retry import RetryPolicy
from midspan._http.transport import Transport
from midspan._types.exchange import Budget, FinishReason, ModelRequest, ModelResponse, RequestConfig
from midspan._types.messages import History, Message
from midspan._types.parts import Part, Text
from midspan._types.specs import BuiltinTool, ToolChoice, ToolSpec
from midspan.providers.gemini.client import Gemini
from midspan.providers.provider import Provider
from midspan.providers.stream import StreamAccumulator
from tests.bounds import BOUND
from tests.gemini.recorder import Recorder, recorder
from tests.http import misbehaving
from tests.http.misbehaving import Server
from tests.listening import listening
from tests.streaming import listen, pieces_of
from tests.virtual_clock import VirtualClock

SECRET = "AIzaSy-this-is-a-secret"
REQUEST = ModelRequest(RequestConfig("gemini-3.8-flash"), History([Message.user("hi")]))


def said(text: str, finish: str | None = "STOP") -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": [{"text": text}]}}
    return {"candidates": [candidate | ({"finishReason": finish} if finish else {})]}


def event(text: str, finish: str | None = None) -> bytes:
    return b"data: %b\r\n\r\n" % json.dumps(said(text, finish), ensure_ascii=False).encode()


def test_it_is_a_provider() -> None:
    assert isinstance(Gemini(api_key="k"), Provider)


@pytest.mark.requirement("S1-17")
def test_parts_come_as_they_are_sent_then_the_answer() -> None:
    with recorder() as server:
        server.answer_stream(said("a", None), said("b"))

        async def main() -> tuple[list[Part], ModelResponse]:
            async with Gemini(api_key="k", base_url=server.url) as gemini:
                return await listen(gemini, REQUEST)

        parts, response = asyncio.run(main())
    assert parts == [Text("a"), Text("b")]
    assert response.message.text == "ab"
    assert server.last.path == "/v1beta/models/gemini-3.8-flash:streamGenerateContent?alt=sse"


def test_generate_requests_the_whole_response() -> None:
    with recorder() as server:
        server.answer(said("ab"))

        async def main() -> tuple[list[Part], ModelResponse]:
            async with Gemini(api_key="k", base_url=server.url) as gemini:
                return await listen(gemini, REQUEST, whole=True)

        parts, response = asyncio.run(main())
    assert (parts, response.message.text) == ([], "ab")
    assert server.last.path.endswith(":generateContent")


def test_vertex_is_asked_with_a_token_at_its_own_path() -> None:
    with recorder() as server:
        server.answer(said("x"))

        async def main() -> ModelResponse:
            async with Gemini(
                token=lambda: "t", project="p", location="l", base_url=server.url, headers={"x-mine": "1"}
            ) as gemini:
                return await gemini.generate(REQUEST)

        asyncio.run(main())
    assert (
        server.last.path == "/v1beta1/projects/p/locations/l/publishers/google/models/gemini-3.8-flash:generateContent"
    )
    assert (server.last.headers["authorization"], server.last.headers["x-mine"]) == ("Bearer t", "1")


@pytest.mark.requirement("S1-02")
def test_a_retired_model_logs_a_warning_with_its_successor(caplog: pytest.LogCaptureFixture) -> None:
    Gemini("gemini-1.5-flash", api_key="k")
    assert "gemini-1.5-flash was shut down; use gemini-3.8-flash" in caplog.text


def refused(status: int, **more: Any) -> tuple[dict[str, Any], int]:
    return {"error": {"code": status, "message": "words", **more}}, status


RETRY_INFO = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7s"}]
PER_DAY = [{"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": "RequestsPerDay"}]}]


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(
    ("document", "status", "kind", "waits"),
    [
        (*refused(503), errors.ServerError, 4),
        (*refused(429), errors.RateLimitError, 4),
        (*refused(429, details=RETRY_INFO), errors.RateLimitError, 4),
        (*refused(429, details=PER_DAY), errors.QuotaExhaustedError, 0),
        (*refused(400), errors.InvalidRequestError, 0),
        ([refused(500)[0]], 500, errors.ServerError, 4),
        (b"<html><h1>Bad gateway</h1></html>", 502, errors.ServerError, 4),
    ],
)
def test_refusals_are_tried_again_where_that_helps(
    document: Any, status: int, kind: type[errors.ProviderError], waits: int, whole: bool
) -> None:
    clock = VirtualClock([1.0])
    with recorder() as server:
        server.answer(document, status=status)

        async def main() -> None:
            async with Gemini(api_key="k", base_url=server.url, clock=clock) as gemini:
                with pytest.raises(kind):
                    await listen(gemini, REQUEST, whole=whole)

        asyncio.run(main())
    assert len(server.seen) == waits + 1
    assert len(clock.slept) == waits
    if document == refused(429, details=RETRY_INFO)[0]:
        assert min(clock.slept) >= 7


@pytest.mark.parametrize("whole", [True, False])
def test_a_request_that_succeeds_on_retry_raises_no_error(whole: bool) -> None:
    with recorder() as server:
        server.answer({"error": {"code": 503, "message": "overloaded"}}, status=503)
        if whole:
            server.answer(said("ab"))
        else:
            server.answer_stream({"error": {"code": 503, "message": "overloaded, said within the stream"}})
            server.answer_stream(said("ab"))

        async def main() -> ModelResponse:
            async with Gemini(api_key="k", base_url=server.url, clock=VirtualClock()) as gemini:
                return (await listen(gemini, REQUEST, whole=whole))[1]

        assert asyncio.run(main()).message.text == "ab"


class Connections:
    """The connections of a server: how many there were, and whether one is open."""

    def __init__(self) -> None:
        self.accepted = self.open = 0
        self._changed = asyncio.Condition()

    async def change(self, by: int) -> None:
        self.open += by
        self.accepted += max(by, 0)
        async with self._changed:
            self._changed.notify_all()

    async def all_closed(self) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: not self.open)


@asynccontextmanager
async def raw_server(behave: Callable[[asyncio.StreamWriter], Any]) -> AsyncIterator[tuple[str, Connections]]:
    """A server that answers every request with the same bytes, however wrong."""
    connections = Connections()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await connections.change(+1)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
            )
            await reader.readexactly(length)
            await behave(writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            await connections.change(-1)

    async with listening(serve) as port:
        yield f"http://127.0.0.1:{port}", connections


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def chunked(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


FIRST, SECOND = event("grüße 🙂"), event("x🙂y")


def sends(*pieces: bytes) -> Callable[[asyncio.StreamWriter], Any]:
    async def behave(writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()

    return behave


def breaks_after(*pieces: bytes, received: asyncio.Event | None = None) -> Callable[[asyncio.StreamWriter], Any]:
    """Send the pieces, wait until the client has `received` something, and reset the connection."""

    async def behave(writer: asyncio.StreamWriter) -> None:
        await sends(*pieces)(writer)
        if received is not None:
            await received.wait()
        writer.transport.abort()

    return behave


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([HEAD, chunked(FIRST)], id="after an event"),
        pytest.param([HEAD, chunked(FIRST + SECOND[:40])], id="in an event"),
        pytest.param([HEAD, chunked(FIRST + SECOND[: SECOND.index("🙂".encode()) + 2])], id="in a character"),
        pytest.param([HEAD, chunked(FIRST), b"5\r\nab"], id="in a chunk"),
    ],
)
def test_broken_stream_yields_what_arrived_and_then_raises(pieces: list[bytes]) -> None:
    async def main() -> tuple[list[Any], int]:
        received = asyncio.Event()
        async with raw_server(breaks_after(*pieces, received=received)) as (url, connections):
            seen: list[Any] = []
            async with Gemini(api_key="k", base_url=url, clock=VirtualClock()) as gemini:
                with pytest.raises(errors.NetworkError):  # noqa: PT012 - what came before the error is looked at too
                    async for item in gemini.stream(REQUEST):
                        seen.append(item)
                        received.set()
            await connections.all_closed()
            return seen, connections.accepted

    seen, accepted = asyncio.run(asyncio.wait_for(main(), BOUND))
    assert pieces_of(seen) == [Text("grüße 🙂")]
    assert accepted == 1


def test_a_stream_that_just_ends_is_an_answer_that_was_cut() -> None:
    async def main() -> ModelResponse:
        whole = sends(HEAD, chunked(FIRST), b"0\r\n\r\n")
        async with raw_server(whole) as (url, _), Gemini(api_key="k", base_url=url) as gemini:
            return (await listen(gemini, REQUEST))[1]

    assert asyncio.run(asyncio.wait_for(main(), BOUND)).finish_reason == "cut"


@pytest.mark.parametrize("whole", [True, False])
def test_a_connection_reset_before_the_headers_is_retried_and_then_raised(whole: bool) -> None:
    async def main() -> int:
        async with raw_server(breaks_after()) as (url, connections):
            async with Gemini(
                api_key="k", base_url=url, clock=VirtualClock(), retry=RetryPolicy(max_attempts=3)
            ) as gemini:
                with pytest.raises(errors.NetworkError):
                    await listen(gemini, REQUEST, whole=whole)
            return connections.accepted

    assert asyncio.run(asyncio.wait_for(main(), BOUND)) == 3


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(
    "document", [{"error": {"code": 501, "message": "no"}}, {"error": {"status": "UNIMPLEMENTED"}}]
)
def test_unimplemented_request_is_not_retried(document: Any, whole: bool) -> None:
    with recorder() as server:
        server.answer(document, status=501)

        async def main() -> None:
            async with Gemini(api_key="k", base_url=server.url, clock=VirtualClock()) as gemini:
                with pytest.raises(errors.ServerError) as told:
                    await listen(gemini, REQUEST, whole=whole)
                assert (told.value.status, told.value.retryable) == (501, False)

        asyncio.run(main())
    assert len(server.seen) == 1


@pytest.mark.parametrize("begin", [b'data: {"a":"', b'[{"a":"', b'{"a":"', FIRST + b'data: {"a":"'])
def test_a_stream_of_one_endless_event_ends_at_the_limit_of_the_transport(begin: bytes) -> None:
    async def main() -> None:
        async with (
            Server(misbehaving.endless(begin)) as server,
            Transport(max_body_bytes=2**20) as transport,
            Gemini(
                api_key="k", base_url=f"http://127.0.0.1:{server.port}", clock=VirtualClock(), transport=transport
            ) as gemini,
        ):
            with pytest.raises(errors.MalformedResponseError, match="larger than 1,048,576 bytes"):
                await listen(gemini, REQUEST)
            await server.until_all_gone()
            assert server.accepted == 1, "it was not asked again"

    asyncio.run(asyncio.wait_for(main(), BOUND))


def test_leaving_a_stream_early_closes_its_connection() -> None:
    started = asyncio.Event()

    async def forever(writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD)
        while True:
            writer.write(chunked(FIRST))
            await writer.drain()
            started.set()
            await asyncio.sleep(0)

    async def main() -> None:
        async with raw_server(forever) as (url, connections), Gemini(api_key="k", base_url=url) as gemini:
            stream = gemini.stream(REQUEST)
            async for _ in stream:
                break
            await stream.aclose()  # type: ignore[attr-defined]
            await connections.all_closed()

            started.clear()
            task = asyncio.create_task(listen(gemini, REQUEST))
            await started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await connections.all_closed()
            assert connections.accepted == 2

    asyncio.run(asyncio.wait_for(main(), BOUND))


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("status", [400, 503, None])
def test_secrets_are_in_no_error_log_repr_or_local_variable(
    caplog: pytest.LogCaptureFixture, status: int | None, whole: bool
) -> None:
    shown = io.StringIO()

    async def main(url: str) -> None:
        gemini = Gemini(api_key=SECRET, base_url=url, retry=RetryPolicy(max_attempts=1))
        shown.write(repr(gemini) + repr(gemini.api) + str(vars(gemini)))
        with pytest.raises(errors.ProviderError) as raised:
            await listen(gemini, REQUEST, whole=whole)
        shown.write(f"{raised.value.details}")
        error: BaseException | None = raised.value
        while error is not None:
            shown.write(f"{error!r} {error} {error.args} {getattr(error, '__notes__', '')}")
            for frame in traceback.TracebackException.from_exception(error, capture_locals=True).stack:
                if "midspan" in frame.filename:
                    shown.write(f"{frame.locals}")
            error = error.__cause__
        await gemini.aclose()

    with caplog.at_level(logging.DEBUG), recorder() as server:
        if status is None:
            asyncio.run(main("http://127.0.0.1:9"))
        else:
            server.answer({"error": {"code": status, "message": "no"}}, status=status)
            asyncio.run(main(server.url))
    assert SECRET not in shown.getvalue()
    assert SECRET not in caplog.text


def test_the_recorder_itself_sees_the_key() -> None:
    with recorder() as server:
        server.answer(said("x"))

        async def main() -> None:
            async with Gemini(api_key=SECRET, base_url=server.url) as gemini:
                await gemini.generate(REQUEST)

        asyncio.run(main())
        assert isinstance(server, Recorder)
        assert server.last.headers["x-goog-api-key"] == SECRET


INVALID = {"error": {"code": 400, "message": "Request contains an invalid argument.", "status": "INVALID_ARGUMENT"}}
VALIDATED = ModelRequest(
    RequestConfig("gemini-3.8-flash", tools=(ToolSpec("f"),), tool_choice=ToolChoice("auto", strict=True)),
    History([Message.user("hi")]),
)


@pytest.mark.requirement("P-05")
def test_an_error_in_a_validated_stream_after_output_is_raised_and_nothing_is_asked_again() -> None:
    async def main() -> None:
        heard: list[Any] = []
        is_heard = asyncio.Event()

        async def behave(writer: asyncio.StreamWriter) -> None:
            writer.write(HEAD + chunked(event("Hello ")))
            await is_heard.wait()
            writer.write(chunked(b"data: %b\r\n\r\n" % json.dumps(INVALID).encode()) + b"0\r\n\r\n")
            await writer.drain()

        async with raw_server(behave) as (url, connections), Gemini(api_key="k", base_url=url) as gemini:
            with pytest.raises(errors.InvalidRequestError):  # noqa: PT012 - what came before the error is looked at too
                async for item in gemini.stream(VALIDATED):
                    heard.append(item)
                    is_heard.set()
            assert pieces_of(heard) == [Text("Hello ")]
            assert connections.accepted == 1, "it was asked once"

    asyncio.run(asyncio.wait_for(main(), BOUND))


def test_an_error_in_a_validated_stream_before_output_is_asked_for_again_without_validation() -> None:
    with recorder() as server:
        server.answer_stream(INVALID)
        server.answer_stream(said("Hello ", None), said("world"))

        async def main() -> tuple[list[Part], ModelResponse]:
            async with Gemini(api_key="k", base_url=server.url) as gemini:
                return await listen(gemini, VALIDATED)

        heard, _ = asyncio.run(main())
    assert heard == [Text("Hello "), Text("world")]
    modes = [seen.body["toolConfig"]["functionCallingConfig"]["mode"] for seen in server.seen]
    assert modes == ["VALIDATED", "AUTO"]


def test_the_parts_of_a_response_that_takes_two_requests_have_indices_of_their_own() -> None:
    paused = said("one ", "CONTINUATION")
    paused["candidates"][0]["continuationToken"] = "t1"
    with recorder() as server:
        server.answer_stream(paused)
        server.answer_stream(said("two"))

        async def main() -> list[Any]:
            async with Gemini(api_key="k", base_url=server.url) as gemini:
                return [event async for event in gemini.stream(REQUEST)]

        *events, response = asyncio.run(main())
    assert [event.index for event in events] == [0, 0, 1, 1]
    accumulator = StreamAccumulator()
    for event in events:
        accumulator.add(event)
    assert accumulator.parts() == response.message.parts == (Text("one "), Text("two"))
    assert response.requests == 2


@pytest.mark.parametrize("whole", [True, False])
def test_continuation_token_that_comes_again_ends_the_response(whole: bool) -> None:
    paused = said("one ", "CONTINUATION")
    paused["candidates"][0]["continuationToken"] = "t1"
    with recorder() as server:
        server.answer(paused)

        async def main() -> ModelResponse:
            async with Gemini(api_key="k", base_url=server.url) as gemini:
                return (await listen(gemini, REQUEST, whole=whole))[1]

        response = asyncio.run(asyncio.wait_for(main(), BOUND))
    assert [seen.body.get("continuationToken") for seen in server.seen] == [None, "t1"]
    assert (response.requests, response.message.text) == (2, "one one ")
    assert response.finish_reason is FinishReason.CONTINUES


@pytest.mark.parametrize("whole", [True, False])
def test_each_source_is_cited_once_in_the_order_of_its_first_mention(whole: bool) -> None:
    document = said("x")
    chunks = [{"web": {"uri": uri, "title": title}} for uri, title in (("u1", "A"), ("u2", "B"), ("u1", "C"))]
    document["candidates"][0]["groundingMetadata"] = {"groundingChunks": chunks}
    pages = [{"retrievedUrl": url} for url in ("u2", 5, "u3")]
    document["candidates"][0]["urlContextMetadata"] = {"urlMetadata": pages}
    config = RequestConfig("gemini-3.8-flash", tools=(BuiltinTool("googleSearch"),))
    with recorder() as server:
        server.answer(document)

        async def main() -> ModelResponse:
            async with Gemini(api_key="k", base_url=server.url) as gemini:
                return (await listen(gemini, ModelRequest(config, History([Message.user("hi")])), whole=whole))[1]

        response = asyncio.run(main())
    assert [(citation.url, citation.title) for citation in response.citations] == [("u1", "A"), ("u2", "B"), ("u3", "")]


def paused(text: str, token: str) -> dict[str, Any]:
    document = said(text, "CONTINUATION")
    document["candidates"][0]["continuationToken"] = token
    return document


def continued(request: ModelRequest, *documents: Any, whole: bool) -> tuple[ModelResponse, list[Any]]:
    """Return the response to a request, and the tokens that were sent."""
    with recorder() as server:
        for document in documents:
            server.answer_stream(document) if not whole else server.answer(document)

        async def main() -> ModelResponse:
            async with Gemini(api_key="k", base_url=server.url, retry=RetryPolicy(max_attempts=1)) as gemini:
                return (await listen(gemini, request, whole=whole))[1]

        response = asyncio.run(asyncio.wait_for(main(), BOUND))
    return response, [seen.body.get("continuationToken") for seen in server.seen]


@pytest.mark.parametrize("whole", [True, False])
def test_paused_response_is_continued_until_it_ends(whole: bool) -> None:
    response, tokens = continued(REQUEST, paused("a", "t1"), paused("b", "t2"), said("c"), whole=whole)
    assert tokens == [None, "t1", "t2"]
    assert (response.message.text, response.requests, len(response.raw)) == ("abc", 3, 3)
    assert response.finish_reason is FinishReason.END


@pytest.mark.parametrize("whole", [True, False])
def test_continuation_without_parts_is_a_response_that_was_cut(whole: bool) -> None:
    empty = {"candidates": [{"finishReason": "STOP"}]}
    response, _ = continued(REQUEST, paused("a", "t1"), empty, whole=whole)
    assert (response.message.text, response.finish_reason) == ("a", FinishReason.CUT)


@pytest.mark.parametrize(
    ("budget", "requests"), [(Budget(max_requests=1), 1), (Budget(max_requests=2), 2), (Budget(max_tokens=20), 2)]
)
def test_response_is_continued_only_within_its_budget(budget: Budget, requests: int) -> None:
    documents = [paused(str(number), f"t{number}") for number in range(4)]
    for document in documents:
        document["usageMetadata"] = {"promptTokenCount": 8, "candidatesTokenCount": 2, "totalTokenCount": 10}
    response, tokens = continued(replace(REQUEST, budget=budget), *documents, whole=True)
    assert (response.requests, len(tokens), response.usage.total) == (requests, requests, 10 * requests)
    assert response.finish_reason is FinishReason.CONTINUES


@pytest.mark.parametrize("whole", [True, False])
def test_error_of_a_continuation_carries_what_arrived_before(whole: bool) -> None:
    with pytest.raises(errors.InvalidRequestError) as raised:
        continued(REQUEST, paused("a", "t1"), INVALID, whole=whole)
    assert raised.value.partial_response is not None
    assert raised.value.partial_response.message.text == "a"


class Closing(Transport):
    """Counts how often it is closed."""

    closed = 0

    async def aclose(self) -> None:
        self.closed += 1
        await super().aclose()


def test_closing_a_model_closes_its_transport() -> None:
    async def main() -> None:
        transport = Closing()
        async with Gemini(api_key="k", transport=transport):
            assert transport.closed == 0
        assert transport.closed == 1

    asyncio.run(main())
