"""RestClient: URLs and headers, errors of a service, and streams of server-sent events."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from email.utils import formatdate
from typing import Any

import pytest

from midspan._http.messages import HttpResponse
from midspan._http.retry import RetryPolicy
from midspan._http.transport import Transport
from midspan._types.parts import Blob, Text, ToolResult
from midspan.errors import (
    AuthenticationError,
    ConfigError,
    IncompleteResponseError,
    InvalidRequestError,
    MalformedResponseError,
    PermissionDeniedError,
    ProviderError,
    RateLimitError,
    ServerError,
)
from midspan.providers import (
    Anthropic,
    ApiKey,
    Gemini,
    JsonEventReader,
    OpenAI,
    OpenAIResponses,
    RestClient,
    status_error,
)
from midspan.providers.encoding import result_parts, result_text
from midspan.providers.errors import event_error
from midspan.providers.rest import Response
from tests.http.misbehaving import CHUNKED_HEAD, Behaviour, Exchange, Server, chunk, response
from tests.http.test_errors import run
from tests.virtual_clock import VirtualClock


def parse_error(response: Response, body: bytes) -> ProviderError:
    return status_error(response, f"Parrot answered {response.status}: {body.decode()}")


def parse_event_error(name: str, item: Any) -> ProviderError | None:
    if name != "error":
        return None
    return ServerError(item["message"]) if item["type"] == "overloaded" else InvalidRequestError(item["message"])


def client(url: str, *, headers: Mapping[str, str] | None = None, **options: Any) -> RestClient:
    auth = ApiKey("secret-key", header="X-Api-Key")
    return RestClient(url, auth, parse_error, "Parrot", headers=headers, clock=VirtualClock(), **options)


def in_turn(*answers: bytes) -> Behaviour:
    """Send the first answer to the first request, and so on; the last one also to all later requests."""

    async def behaviour(exchange: Exchange) -> None:
        await exchange.send(answers[min(len(exchange.server.requests), len(answers)) - 1])

    return behaviour


JSON_INSTEAD = response(b"{}", "200 OK", "Content-Type: application/json")


def events(*pieces: bytes) -> bytes:
    return CHUNKED_HEAD + b"".join(chunk(piece) for piece in pieces) + b"0\r\n\r\n"


async def streamed(rest: RestClient) -> list[Any]:
    found: list[Any] = []
    try:
        async for _, items in rest.stream("chat", b"{}", lambda: JsonEventReader(parse_event_error)):
            found += items
    except ProviderError as error:
        found.append(error)
    return found


@pytest.mark.parametrize(
    ("base", "path", "target"),
    [
        ("", "chat", "/chat"),
        ("/", "chat", "/chat"),
        ("/openai/v1", "chat?stream=true", "/openai/v1/chat?stream=true"),
        ("/deployments/gpt?api-version=1", "chat", "/deployments/gpt/chat?api-version=1"),
        ("/v1/?api-version=1&x=2", "chat?stream=true", "/v1/chat?stream=true&api-version=1&x=2"),
    ],
)
def test_base_url_can_have_a_path_and_a_query(base: str, path: str, target: str) -> None:
    async def main() -> None:
        async with Server(in_turn(response(b"ok"))) as server:
            rest = client(f"http://127.0.0.1:{server.port}{base}")
            assert await rest.call("POST", path, b"{}") == b"ok"
            assert server.requests[0].head.startswith(f"POST {target} HTTP/1.1\r\n".encode())
            await rest.aclose()

    run(main())


@pytest.mark.parametrize("url", ["nonsense", "ftp://host", "http://"])
@pytest.mark.parametrize("provider", [OpenAI, OpenAIResponses, Anthropic, Gemini])
def test_invalid_base_url_is_reported_when_a_provider_is_created(provider: Any, url: str) -> None:
    with pytest.raises(ConfigError, match=f"^'{url}' is not a valid base URL; use one like https://host"):
        provider("m", base_url=url, api_key="key")


def test_headers_of_client_and_auth_are_sent_once_each() -> None:
    async def main() -> None:
        async with Server(in_turn(response(b"ok"))) as server:
            rest = client(server.url, headers={"Parrot-Version": "2", "X-API-KEY": "other", "User-Agent": "me"})
            await rest.call("POST", "chat", b"{}")
            lines = server.requests[0].head.decode().lower().split("\r\n")
            assert {"parrot-version: 2", "x-api-key: secret-key", "user-agent: me"} <= set(lines)
            names = [line.partition(":")[0] for line in lines[1:] if line]
            assert len(names) == len(set(names))
            await rest.aclose()

    run(main())


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (307, InvalidRequestError),
        (400, InvalidRequestError),
        (401, AuthenticationError),
        (403, PermissionDeniedError),
        (404, InvalidRequestError),
        (408, ServerError),
        (429, RateLimitError),
        (500, ServerError),
        (529, ServerError),
    ],
)
def test_status_determines_the_error_type(status: int, expected: type[ProviderError]) -> None:
    error = status_error(HttpResponse(status, b"", b""), "no")
    assert type(error) is expected
    assert (error.status, error.retry_delay_seconds) == (status, None)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"Retry-After": "7"}, 7),
        ({"Retry-After": "7", "Retry-After-Ms": "1500"}, 1.5),
        ({"retry-after-ms": "soon", "retry-after": "0.5"}, 0.5),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": formatdate(0, usegmt=True)}, 0),
    ],
)
def test_delay_is_read_from_the_headers(headers: dict[str, str], seconds: float | None) -> None:
    head = "\r\n".join(["HTTP/1.1 429 Slow Down", *(f"{name}: {value}" for name, value in headers.items())])
    assert status_error(HttpResponse(429, head.encode(), b""), "slow down").retry_delay_seconds == seconds


def test_date_is_read_as_the_seconds_until_then() -> None:
    date = formatdate(4_000_000_000, usegmt=True).encode()
    response = HttpResponse(503, b"HTTP/1.1 503 Later\r\nretry-after: " + date, b"")
    delay = status_error(response, "later").retry_delay_seconds
    assert delay is not None
    assert delay > 1_000_000


def test_failed_request_is_retried_after_the_delay_of_the_service() -> None:
    async def main() -> None:
        busy = response(b"busy", "429 Too Many Requests", "Retry-After-Ms: 2500")
        async with Server(in_turn(busy, response(b"ok"))) as server:
            rest = client(server.url)
            notified: list[tuple[int, float, str]] = []
            body = await rest.call("POST", "chat", on_retry=lambda *retry: notified.append((*retry[:2], str(retry[2]))))
            assert (body, notified) == (b"ok", [(1, 3.5, "Parrot answered 429: busy")])
            await rest.aclose()

    run(main())


def test_body_above_the_limit_is_not_sent() -> None:
    rest = client("http://127.0.0.1:1", max_request_bytes=1000)
    with pytest.raises(ConfigError, match="the request has 1,001 bytes; Parrot accepts at most 1,000"):
        asyncio.run(rest.call("POST", "chat", b"x" * 1001))


def test_events_are_decoded_as_json_and_other_lines_are_skipped() -> None:
    async def main() -> None:
        body = events(b": hello\n\nevent: start\ndata: [1]\n\n", b"what?\n\ndata: {}\n\ndata: [DONE]\n\n")
        async with Server(in_turn(body)) as server:
            rest = client(server.url)
            assert await streamed(rest) == [[1], {}]
            await rest.aclose()

    run(main())


OVERLOADED = b'event: error\ndata: {"type": "overloaded", "message": "busy"}\n\n'
TOO_LONG = b'event: error\ndata: {"type": "invalid", "message": "too long"}\n\n'


def test_error_event_is_retried_only_before_the_first_item() -> None:
    async def behaviour(exchange: Exchange) -> None:
        if len(exchange.server.requests) == 1:
            await exchange.send(events(OVERLOADED))
            return
        await exchange.send(CHUNKED_HEAD + chunk(b"data: 1\n\n"))
        await exchange.server.go_on.wait()
        await exchange.send(chunk(b"data: 2\n\n" + OVERLOADED))

    async def main() -> None:
        async with Server(behaviour) as server:
            rest, found = client(server.url), list[Any]()
            with pytest.raises(ServerError, match="busy"):  # noqa: PT012 - the items before it count
                async for _, items in rest.stream("chat", b"{}", lambda: JsonEventReader(parse_event_error)):
                    found += items
                    server.go_on.set()
            assert (found, len(server.requests)) == ([1, 2], 2)
            await rest.aclose()

    run(main())


@pytest.mark.parametrize(
    ("body", "expected", "words", "requests"),
    [
        (events(TOO_LONG), InvalidRequestError, "too long", 1),
        (events(b"data: {\n\n"), MalformedResponseError, r"an event of the stream is not JSON: b'\{'", 2),
        (events(b": nothing\n\n"), IncompleteResponseError, "Parrot sent an empty stream", 2),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", IncompleteResponseError, "Parrot sent an empty stream", 2),
        (JSON_INSTEAD, MalformedResponseError, "Parrot answered application/json instead of a stream", 2),
        (response(b"no", "400 Bad Request"), InvalidRequestError, "Parrot answered 400: no", 1),
    ],
)
def test_stream_that_fails_at_once_raises_an_error(
    body: bytes, expected: type[ProviderError], words: str, requests: int
) -> None:
    async def main() -> None:
        async with Server(in_turn(body)) as server:
            rest = client(server.url, retry=RetryPolicy(max_attempts=2))
            with pytest.raises(expected, match=words):
                raise (await streamed(rest))[0]
            assert len(server.requests) == requests
            await rest.aclose()

    run(main())


def test_log_of_a_request_has_no_query_of_the_base_url(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "midspan")

    async def main() -> None:
        async with Server(in_turn(response(b"{}"))) as server:
            rest = client(f"{server.url}?key=SECRET")
            await rest.call("POST", "talk?alt=sse", b"{}")
            await rest.aclose()

    run(main())
    assert "/talk?alt=sse" in caplog.text
    assert "SECRET" not in caplog.text


def test_error_in_the_piece_with_the_first_items_is_retried() -> None:
    async def main() -> None:
        failing = b'data: {"n": 1}\n\nevent: error\ndata: {"type": "overloaded", "message": "later"}\n\n'
        async with Server(in_turn(events(failing), events(b'data: {"n": 2}\n\n'))) as server:
            assert await streamed(client(server.url)) == [{"n": 2}]

    run(main())


@pytest.mark.parametrize(("last", "expected"), [(2, [1, 2, IncompleteResponseError]), (3, [1, 3])])
def test_connection_that_breaks_after_the_end_of_the_response_has_lost_nothing(last: int, expected: list[Any]) -> None:
    class Reader(JsonEventReader):
        def feed(self, piece: bytes) -> Iterator[Any]:
            for item in super().feed(piece):
                self.is_complete = item == 3
                yield item

    async def main() -> None:
        cut = CHUNKED_HEAD + chunk(b"data: 1\n\n") + chunk(b"data: %d\n\n" % last)

        async def send_and_close(exchange: Exchange) -> None:
            await exchange.send(cut)
            exchange.close()

        async with Server(send_and_close) as server:
            found: list[Any] = []
            try:
                async for _, items in client(server.url).stream("chat", b"{}", Reader):
                    found += items
            except ProviderError as error:
                found.append(type(error))
            assert (found, len(server.requests)) == (expected, 1)

    run(main())


def test_end_of_an_unexpected_form_is_a_malformed_response() -> None:
    class Reader(JsonEventReader):
        def end(self) -> list[Any]:
            raise KeyError("choices")

    async def main() -> None:
        async with Server(in_turn(events(b'data: {"n": 1}\n\n'))) as server:
            async for _ in client(server.url).stream("chat", b"{}", Reader):
                pass

    with pytest.raises(MalformedResponseError, match=r"unexpected form: the field 'choices' is missing$"):
        run(main())


@pytest.mark.parametrize(("status", "is_error"), [(200, False), (299, False), (300, True)])
def test_statuses_from_300_on_are_errors(status: int, is_error: bool) -> None:
    async def main() -> None:
        async with Server(in_turn(response(b"{}", f"{status} X"))) as server:
            await client(server.url).call("GET", "models")

    with pytest.raises(InvalidRequestError) if is_error else nullcontext():
        run(main())


@pytest.mark.parametrize(("status", "is_named"), [(299, False), (300, True), (399, True), (400, False)])
def test_only_a_redirect_names_its_target(status: int, is_named: bool) -> None:
    error = status_error(HttpResponse(status, b"HTTP/1.1 300 X\r\nlocation: https://new.example/x", b""), "no")
    assert ("https://new.example/x" in str(error)) is is_named


def test_result_with_media_is_texts_and_media_in_order() -> None:
    image, note = Blob("image/png", "AA=="), Text("a note")
    values = [{"a": 1}, "text", None]
    parts = [list(result_parts(ToolResult("1", "f", value, content=(note, image), hint="hint"))) for value in values]
    assert parts == [
        [Text('{"a":1}'), image, Text("hint")],
        [Text("text"), image, Text("hint")],
        [note, image, Text("hint")],
    ]


def test_closing_a_client_closes_its_transport() -> None:
    closed: list[bool] = []

    class Closing(Transport):
        async def aclose(self) -> None:
            closed.append(True)

    asyncio.run(client("http://host", transport=Closing()).aclose())
    assert closed == [True]


def test_log_of_a_request_shows_headers_without_secrets(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", logger="midspan.providers")

    async def main() -> None:
        async with Server(in_turn(response(b"ok"))) as server:
            rest = client(server.url, headers={"Parrot-Version": "2"})
            await rest.call("POST", "chat", b"my key is secret-key")
            await rest.aclose()

    run(main())
    assert {"parrot-version: 2", "x-api-key: ***", "my key is ***"} <= set(caplog.text.splitlines())


@pytest.mark.parametrize(
    ("item", "expected", "status"),
    [
        ({"type": "error", "message": "down"}, ServerError, 500),
        ({"error": {"code": 400, "message": "bad"}}, InvalidRequestError, 400),
        ({"error": {"code": 599, "message": "down"}}, ServerError, 599),
        ({"error": {"code": 600, "message": "down"}}, ServerError, 500),
    ],
)
def test_event_that_reports_an_error_has_the_status_of_its_code(item: Any, expected: Any, status: int) -> None:
    error = event_error("Parrot", {}, "message", item)
    assert error is not None
    assert (type(error), error.status) == (expected, status)
    assert event_error("Parrot", {}, "message", {"text": "no error"}) is None


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (ToolResult("1", "f", None), ""),
        (ToolResult("1", "f", None, is_error=True), "null"),
        (ToolResult("1", "f", None, is_error=True, content=(Text("bad"),)), "bad"),
        (ToolResult("1", "f", {"a": 1}), '{"a":1}'),
        (ToolResult("1", "f", "x", hint="note"), "x\n\nnote"),
        (ToolResult("1", "f", None, hint="note"), "note"),
    ],
)
def test_result_is_text_for_services_that_accept_only_text(result: ToolResult, text: str) -> None:
    assert result_text(result) == text


@pytest.mark.parametrize("name", ["retry", "transport"])
def test_option_of_the_wrong_type_is_a_config_error(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} must be a .*, got 5"):
        OpenAI(api_key="secret-key", **{name: 5})  # type: ignore[arg-type]
