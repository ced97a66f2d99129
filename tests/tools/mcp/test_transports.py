"""The limits of both transports, and calls in flight, without a server."""

import asyncio
import json
from typing import Any

import httpx2
import pytest
from mcp.client.streamable_http import MCP_SESSION_ID
from mcp.types import CONNECTION_CLOSED, INTERNAL_ERROR

from midspan._types.context import RunContext
from midspan.tools.mcp import calls, stdio
from midspan.tools.mcp.calls import Calls, _ActiveCall, _optional
from midspan.tools.mcp.http import NOT_SENT, SESSION_LOST, _LimitedTransport
from midspan.tools.mcp.stdio import ServerProcess, StdioTransport


@pytest.fixture(scope="session", autouse=True)
def prefork() -> None:
    """Start no process: these tests need no server."""


MESSAGE = {"accept": "application/json, text/event-stream"}
IN_SESSION = {**MESSAGE, MCP_SESSION_ID: "s"}


def answered(response: Any, *, headers: Any = MESSAGE, method: str = "POST", url: str = "http://x/") -> httpx2.Response:
    """Return what the SDK gets for a response of the server, or for an exception of the HTTP client."""

    async def handle(_request: httpx2.Request) -> httpx2.Response:
        if isinstance(response, Exception):
            raise response
        assert isinstance(response, httpx2.Response)
        return response

    async def main() -> httpx2.Response:
        transport = _LimitedTransport(httpx2.MockTransport(handle), 10)
        got = await transport.handle_async_request(httpx2.Request(method, url, headers=headers))
        await got.aread()
        return got

    return asyncio.run(main())


def response_of(status: int, body: bytes, **headers: str) -> httpx2.Response:
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx2.Response(status, headers=fields, stream=httpx2.ByteStream(body))


def error_of(response: httpx2.Response) -> tuple[int, Any]:
    document = json.loads(response.content)
    assert document["jsonrpc"] == "2.0"
    return document["error"]["code"], document["error"].get("data")


def test_json_up_to_the_limit_is_passed_on() -> None:
    json_type = "Application/JSON; charset=utf-8"
    response = answered(
        response_of(200, b"0123456789", content_type=json_type, x_more="1", transfer_encoding="chunked")
    )
    assert (response.status_code, response.content, response.headers["x-more"]) == (200, b"0123456789", "1")
    assert "transfer-encoding" not in response.headers
    assert response.headers["content-length"] == "10"


def test_json_beyond_the_limit_is_an_error() -> None:
    response = answered(response_of(200, b"0123456789a", content_type="application/json"))
    assert (response.status_code, error_of(response)) == (502, (INTERNAL_ERROR, None))
    assert "more than 10 bytes" in response.text


def test_other_bodies_are_streams_with_limits_of_their_own() -> None:
    stream = response_of(200, b"data: 0123456789\n\n", content_type="text/event-stream")
    assert answered(stream) is stream


@pytest.mark.parametrize(("encoding", "is_refused"), [("gzip", True), ("identity", False)])
def test_compressed_response_is_an_error(encoding: str, is_refused: bool) -> None:
    response = answered(response_of(200, b"{}", content_type="application/json", content_encoding=encoding))
    assert ("which was not asked for" in response.text) == is_refused


@pytest.mark.parametrize(
    ("status", "body", "headers", "method", "data"),
    [
        (500, b"oops", MESSAGE, "POST", None),
        (500, b"x" * 70_000 + b'"jsonrpc"', MESSAGE, "POST", None),
        (404, b"oops", IN_SESSION, "POST", SESSION_LOST),
        (404, b'{"jsonrpc"}', IN_SESSION, "POST", SESSION_LOST),
        (404, b"oops", MESSAGE, "POST", None),
        (400, b"oops", IN_SESSION, "POST", None),
    ],
)
def test_error_status_is_an_error_of_the_request(
    status: int, body: bytes, headers: Any, method: str, data: Any
) -> None:
    response = answered(response_of(status, body, x_more="1"), headers=headers, method=method)
    assert (response.status_code, error_of(response)) == (status, (INTERNAL_ERROR, data))
    assert f"HTTP status {status}" in response.text
    assert response.headers["x-more"] == "1"
    assert response.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("body", "headers", "method"),
    [
        (b'{"jsonrpc": "2.0"}', MESSAGE, "POST"),
        (b"oops", MESSAGE, "GET"),
        (b"oops", {"accept": "application/json"}, "POST"),
    ],
)
def test_error_that_is_a_message_or_answers_none_is_passed_on(body: bytes, headers: Any, method: str) -> None:
    response = answered(response_of(400, body), headers=headers, method=method)
    assert (response.status_code, response.content) == (400, body)


def test_request_that_was_not_sent_is_reported_without_secrets() -> None:
    refused = httpx2.ConnectError("refused")
    refused.__cause__ = ConnectionRefusedError(111, "Connection refused")
    for error in (refused, httpx2.ConnectTimeout("too long")):
        response = answered(error, url="http://user:secret@x/mcp?key=secret")
        assert error_of(response) == (INTERNAL_ERROR, NOT_SENT)
        assert "secret" not in response.text
    assert "cannot connect to http://x/mcp: too long" in response.text
    assert error_of(answered(httpx2.ReadError("reset"))) == (CONNECTION_CLOSED, None)
    assert "the connection was lost: ReadError" in answered(httpx2.ReadError("")).text


# The stdio transport


class Pipe:
    """What a process protocol needs of its transport."""

    def __init__(self) -> None:
        self.is_paused = False
        self.written: list[bytes] = []

    def get_pipe_transport(self, fd: int) -> "Pipe":
        assert fd in (0, 1)
        return self

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def get_pid(self) -> int:
        return 1

    def get_returncode(self) -> int | None:
        return None

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False


async def _process(max_bytes: int) -> tuple[ServerProcess, Pipe]:
    process, pipe = ServerProcess(max_bytes), Pipe()
    process.connection_made(pipe)  # type: ignore[arg-type]  # a fake
    return process, pipe


def test_reading_pauses_while_much_waits_to_be_parsed() -> None:
    async def main() -> None:
        process, pipe = await _process(10)
        lines = process.read_lines()
        process.pipe_data_received(1, b"a\n" * 2**19)
        assert not pipe.is_paused
        process.pipe_data_received(1, b"b\n")
        assert pipe.is_paused
        for _ in range(2**19):
            assert await anext(lines) == b"a"
        assert pipe.is_paused
        assert await anext(lines) == b"b"
        waiting = asyncio.ensure_future(anext(lines))
        await asyncio.sleep(0)
        assert not pipe.is_paused
        process.pipe_data_received(1, b"c\n")
        assert not pipe.is_paused
        assert await waiting == b"c"
        process.pipe_connection_lost(2, None)
        waiting = asyncio.ensure_future(anext(lines))
        await asyncio.sleep(0)
        process.pipe_data_received(1, b"e\n")
        assert await waiting == b"e"
        process.pipe_data_received(1, b"d\n")
        process.pipe_connection_lost(1, None)
        assert [line async for line in lines] == [b"d"]

    asyncio.run(main())


def test_writer_waits_until_the_server_reads_or_closes_its_stdin() -> None:
    async def main() -> None:
        process, pipe = await _process(10)
        await process.write(b"a")
        for release in (process.resume_writing, lambda: process.pipe_connection_lost(0, None)):
            process.pause_writing()
            writing = asyncio.ensure_future(process.write(b"b"))
            await asyncio.sleep(0)
            assert not writing.done()
            release()
            await writing
        assert pipe.written == [b"a", b"b", b"b"]

    asyncio.run(main())


def test_line_that_is_far_too_long_ends_the_connection() -> None:
    async def main() -> None:
        process, _ = await _process(10)
        lines = process.read_lines()
        process.pipe_data_received(1, b"x" * 200)
        process.pipe_data_received(1, b"\nok\n")
        assert [type(await anext(lines)).__name__, await anext(lines)] == ["LongLine", b"ok"]
        waiting = asyncio.ensure_future(anext(lines))
        await asyncio.sleep(0)
        process.pipe_data_received(1, b"open\n")
        assert await waiting == b"open"
        process.pipe_data_received(1, b"x" * 201)
        assert [line async for line in lines] == []

    asyncio.run(main())


def test_end_of_stderr_is_kept() -> None:
    async def main() -> None:
        process, _ = await _process(10)
        transport = StdioTransport(["a"], env={}, cwd=None, max_message_bytes=10)
        assert (transport.error_output, transport.exit_code) == ("", None)
        transport.process = process
        process.pipe_data_received(2, b"x" * 4_000)
        process.pipe_data_received(2, b"end\n")
        assert transport.error_output == "x" * 3_996 + "end"
        assert transport.exit_code is None

    asyncio.run(main())


@pytest.mark.parametrize(
    ("line", "id"),
    [
        (b"", None),
        (b"  ", None),
        (b"hello", None),
        (b'{"jsonrpc":"2.0","id":3,"result":5}', 3),
        (b'{"id":3,"result"', 3),
    ],
)
def test_line_that_is_not_a_message_is_answered_if_it_has_an_id(line: bytes, id: int | None) -> None:
    message = StdioTransport(["a"], env={}, cwd=None, max_message_bytes=10)._parse(line)
    assert (None if message is None else message.message.id) == id  # type: ignore[union-attr]  # an error
    assert stdio._error(None, "x") is None


# Calls in flight


class Host:
    """Gets the progress of a call."""

    def __init__(self) -> None:
        self.reports: list[tuple[float | None, str]] = []

    def report_progress(self, _context: RunContext[Any], fraction: float | None, message: str) -> None:
        self.reports.append((fraction, message))


def test_progress_is_passed_on_at_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(calls, "monotonic", lambda: now[0])
    host = Host()

    async def main() -> _ActiveCall:
        call = _ActiveCall(RunContext(host=host), None)  # type: ignore[arg-type]  # a fake
        async with call.limit():
            await call.report(1, 4, "a")
            await call.report(2, 4, "too soon")
            await call.report(4, 4, "last")
            now[0] += 0.05
            await call.report(5, 4, None)
            now[0] += 1
            await call.report(-1, 4, "x" * 2_000)
            now[0] += 1
            await call.report(1, 0, "no total")
            now[0] += 1
            await call.report(1, None, "none")
        return call

    call = asyncio.run(main())
    assert host.reports == [
        (0.25, "a"),
        (1.0, "last"),
        (1.0, ""),
        (0.0, "x" * 1_000),
        (None, "no total"),
        (None, "none"),
    ]
    assert call.problem is None


def test_server_that_reports_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "_MAX_PROGRESS", 3)

    async def report(call: _ActiveCall) -> None:
        async with call.limit():
            for _ in range(3):
                await call.report(1, None, "")
            assert call.problem is None
            await call.report(1, None, "")
            await asyncio.Event().wait()

    call = _ActiveCall(RunContext(), None)
    with pytest.raises(TimeoutError):
        asyncio.run(report(call))
    assert call.problem == "the server sent more than 3 progress reports"


def test_clock_of_a_call_stops_while_the_user_thinks(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(calls, "monotonic", lambda: now[0])

    async def main() -> None:
        call = _ActiveCall(RunContext(), 60.0)
        async with call.limit() as guard:
            loop = asyncio.get_running_loop()
            now[0] += 10
            with call.pause():
                assert guard.when() is None
                now[0] += 1_000
                with call.pause():
                    pass
                assert guard.when() is None, "another question is open"
            left = guard.when()
            assert left is not None
            assert 49 < left - loop.time() <= 50
            now[0] += 20
            with call.pause():
                pass
            left = guard.when()
            assert left is not None
            assert 29 < left - loop.time() <= 30
        async with (call := _ActiveCall(RunContext(), None)).limit() as guard:
            with call.pause():
                pass
            assert guard.when() is None

    asyncio.run(main())


def test_question_belongs_to_the_only_run_with_calls() -> None:
    async def main() -> None:
        calls = Calls("s")
        first, second = _ActiveCall(RunContext(run_id="r"), None), _ActiveCall(RunContext(run_id="r"), None)
        assert calls._only_run() is None
        calls._active |= {first, second}
        assert calls._only_run() in (first, second)
        calls._active.add(_ActiveCall(RunContext(run_id="other"), None))
        assert calls._only_run() is None

    asyncio.run(main())


def test_fields_with_defaults_may_be_left_out_of_an_answer() -> None:
    properties = {"a": {"type": "string"}, "b": {"type": "string", "default": "x"}}
    schema = {"type": "object", "properties": properties, "required": ["a", "b"]}
    assert _optional(schema) == {"type": ["object", "null"], "properties": properties, "required": ["a"]}
    assert _optional({"type": "object"}) == {"type": ["object", "null"], "required": []}
