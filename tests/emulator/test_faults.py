"""Every fault on the wire, and how our own client handles it."""

import asyncio
import json
import re
import time
from typing import Any

import pytest

from midspan._http.retry import RetryPolicy
from midspan.emulator import Fault, FaultPlan, LocalGemini, ScaledClock, Script, answer, call, shrink
from midspan.emulator.gemini.faults import KINDS, RequestFaults
from midspan.emulator.http import Wait
from midspan.errors import ProviderError
from midspan.gemini import AsyncClient
from tests.bounds import BOUND
from tests.emulator.plain_client import DEVELOPER, ask, events, post, raw, stream, tools, user
from tests.virtual_clock import VirtualClock

MODEL = "gemini-3.8-flash"
STREAM = DEVELOPER.format(MODEL, "streamGenerateContent") + "?alt=sse"
WHOLE = DEVELOPER.format(MODEL, "generateContent")
HI: dict[str, Any] = {"contents": [user("Hi.")]}
TEXT = "Grüße aus Köln, für 5 €."


def received(plan: str, path: str = STREAM, script: Any = TEXT) -> bytes:
    """Return the bytes that a request under a plan receives."""
    with LocalGemini([script], faults=plan, clock=VirtualClock()) as server:
        response = raw(server.url, post(path, HI))
        assert [item.kind for item in server.injected] == [item.kind for item in FaultPlan.parse(plan).faults]
    return response


def whole_text(data: bytes) -> str:
    return "".join(re.findall(r'"text":"([^"]*)"', data.decode()))


@pytest.mark.parametrize(
    ("kind", "status", "words"),
    [
        ("rate_limit(seconds=38)", 429, '"retryDelay": "38s"'),
        ("rate_limit_bare", 429, "Resource exhausted"),
        ("daily_quota", 429, "PerDay"),
        ("status_500", 500, "INTERNAL"),
        ("status_502", 502, "UNAVAILABLE"),
        ("status_503", 503, "overloaded"),
        ("status_504", 504, "DEADLINE_EXCEEDED"),
        ("html_page", 502, "<!DOCTYPE html>"),
        ("error_list", 503, '[{\n  "error"'),
    ],
)
def test_error_responses_replace_the_answer(kind: str, status: int, words: str) -> None:
    for path in (STREAM, WHOLE):
        response = received(f"0:{kind}", path)
        assert response.startswith(b"HTTP/1.1 %d " % status)
        assert words in response.decode()
        assert b"retryDelay" not in response or "rate_limit(" in kind


def test_an_error_in_a_stream_is_an_event_or_bare_json() -> None:
    response = received("0:error_event(chunk=1)")
    assert response.startswith(b"HTTP/1.1 200 OK")
    assert whole_text(response)
    assert b'data: {  "error"' in response
    bare = received("0:error_bare(chunk=1)")
    assert b"data: {\r\n" not in bare
    assert b'{\r\n  "error": {\r\n' in bare
    for kind in ("error_event", "error_bare"):
        with LocalGemini([TEXT], faults=f"0:{kind}(chunk=1)") as server:
            listed = stream(server.url, HI, query="").json
            assert "candidates" in listed[0]
            assert listed[1]["error"]["code"] == 503


def test_connections_are_reset_where_the_plan_says() -> None:
    assert received("0:reset_before_headers") == b"<reset>"
    response = received("0:reset_in_event(chunk=1)")
    assert response.endswith(b"<reset>")
    assert response.count(b"data: ") == 2
    assert response.count(b"\r\n\r\n\r\n") == 1, "the second event is incomplete"
    with pytest.raises(UnicodeDecodeError):
        received("0:reset_in_character(chunk=0)").removesuffix(b"<reset>").decode()
    with pytest.raises(UnicodeDecodeError):
        received("0:reset_in_character", script="plain").removesuffix(b"<reset>").decode()
    for kind in ("reset_in_event", "reset_in_character"):
        assert received(f"0:{kind}", WHOLE).endswith(b"<reset>")


def test_a_stream_can_end_without_a_finish_reason() -> None:
    response = received("0:no_finish")
    assert whole_text(response) == TEXT
    assert b"finishReason" not in response
    assert response.endswith(b"0\r\n\r\n"), "the chunked body is complete"


def test_stalls_and_slow_first_bytes_use_the_clock() -> None:
    for path in (STREAM, WHOLE):
        clock = VirtualClock()
        with LocalGemini(
            [TEXT], faults="0:stall(chunk=1,seconds=90) 0:slow_first_byte(seconds=7)", clock=clock
        ) as server:
            assert whole_text(raw(server.url, post(path, HI))) == TEXT
        assert clock.slept == [7.0, 90.0]


def test_a_scaled_clock_shortens_sleeps_but_not_time_limits() -> None:
    clock = ScaledClock(1e9)
    assert time.monotonic() <= clock.monotonic() <= time.monotonic()
    asyncio.run(asyncio.wait_for(clock.sleep(31_536_000), BOUND))


def test_an_event_can_be_huge_doubled_or_malformed() -> None:
    response = received("0:huge_event(chunk=1,size=300000)")
    assert len(response) > 300_000
    assert whole_text(response) == TEXT
    doubled = received("0:doubled_chunk(chunk=0)")
    assert whole_text(doubled) == TEXT[: len(TEXT) // 3] + TEXT
    with (
        LocalGemini([TEXT], faults="0:malformed_json(chunk=1)") as server,
        pytest.raises(ValueError, match="delimiter"),
    ):
        events(stream(server.url, HI))
    with LocalGemini([TEXT], faults="0:malformed_json") as server, pytest.raises(ValueError, match="delimiter"):
        _ = ask(server.url, HI).json


@pytest.mark.parametrize(
    ("kind", "finish", "words"),
    [
        ("malformed_function_call", "MALFORMED_FUNCTION_CALL", "default_api.f("),
        ("unexpected_tool_call", "UNEXPECTED_TOOL_CALL", "Unexpected tool call"),
        ("empty_stop", "STOP", ""),
    ],
)
def test_the_model_can_end_with_an_error(kind: str, finish: str, words: str) -> None:
    with LocalGemini([call("f")], faults=f"0:{kind}") as server:
        response = ask(server.url, {**HI, "tools": tools("f")}).json["candidates"][0]
        assert (response["content"], response["finishReason"]) == ({"role": "model"}, finish)
        assert words in response.get("finishMessage", "")
        assert ask(server.url, {**HI, "tools": tools("f")}).parts, "the next request has no fault"


def test_an_answer_continues_with_its_token() -> None:
    with LocalGemini([answer(TEXT, call("f"))], faults="0:continuation 1:continuation") as server:
        request: dict[str, Any] = {**HI, "tools": tools("f")}
        text = ""
        for _ in range(3):
            response = ask(server.url, request).json["candidates"][0]
            text += "".join(part.get("text", "") for part in response["content"]["parts"])
            request["continuationToken"] = response.get("continuationToken")
        assert (text, response["finishReason"]) == (TEXT, "STOP")
        assert response["content"]["parts"][-1]["functionCall"]["name"] == "f"
    with LocalGemini([call("f")], faults="0:continuation") as server:
        response = ask(server.url, {**HI, "tools": tools("f")}).json["candidates"][0]
        assert (response["finishReason"], response["content"]) == ("CONTINUATION", {"role": "model"})


def test_an_error_in_a_stream_replaces_the_answer_without_streaming() -> None:
    for kind in ("error_event", "error_bare"):
        with LocalGemini([TEXT], faults=f"0:{kind}(chunk=1)") as server:
            assert ask(server.url, HI).status == 503
            assert ask(server.url, HI).parts[0]["text"] == TEXT
            assert [item.kind for item in server.injected] == [kind]


def test_the_first_chunk_of_a_stream_is_sent_before_a_stall() -> None:
    stall = Fault(0, "stall", chunk=0, seconds=5)
    faults = RequestFaults((stall,), is_streaming=True)
    assert faults.change_frames([b"a", b"b", b"c"]) == [b"a", Wait(5), b"b", b"c"]
    assert faults.change_frames([b"a"]) == [Wait(5), b"a"]


def test_several_stalls_of_one_answer_lose_nothing() -> None:
    plan = "0:stall 0:stall 0:stall(chunk=2)"
    assert whole_text(received(plan, WHOLE)) == whole_text(received(plan)) == TEXT


def test_a_doubled_chunk_changes_streams_only() -> None:
    with LocalGemini([TEXT], faults="0:doubled_chunk 1:doubled_chunk(chunk=1)") as server:
        assert ask(server.url, HI).parts[0]["text"] == TEXT
        assert len(events(stream(server.url, HI))) == len(events(stream(server.url, HI))) + 1


def test_a_plan_counts_requests() -> None:
    with LocalGemini([TEXT], faults="0:status_500 2:status_503") as server:
        assert [ask(server.url, HI).status for _ in range(4)] == [500, 200, 503, 200]


async def conversation(url: str, clock: ScaledClock, *, streamed: bool) -> str:
    """One question with our own client, which retries."""
    async with AsyncClient(api_key="k", base_url=url, clock=clock, retry=RetryPolicy(max_attempts=3)) as api:
        if not streamed:
            return (await api.generate_content("Hi.", model=MODEL)).text or ""
        return "".join([chunk.text or "" async for chunk in api.stream_generate_content("Hi.", model=MODEL)])


def run_seeds(seeds: range, *, streamed: bool) -> dict[str, int]:
    """How conversations under random plans ended: with the answer, with a part of it, or with an error."""
    ends: dict[str, int] = {}

    async def main() -> None:
        clock = ScaledClock(2_000)
        for seed in seeds:
            plan = FaultPlan.random(seed, requests=3, chance=0.7)
            async with LocalGemini([TEXT], faults=plan, clock=clock) as server:
                try:
                    async with asyncio.timeout(BOUND):
                        text = await conversation(server.url, clock, streamed=streamed)
                    end = "answered" if text == TEXT else "short"
                except ProviderError as error:
                    end = type(error).__name__
                except TimeoutError:
                    pytest.fail(f"seed {seed} hangs under {plan}")
                ends[end] = ends.get(end, 0) + 1
            assert server.open_connections == 0

    asyncio.run(main())
    return ends


@pytest.mark.parametrize("streamed", [False, True])
def test_under_random_plans_our_client_ends_with_an_answer_or_a_provider_error(streamed: bool) -> None:
    ends = run_seeds(range(120), streamed=streamed)
    assert ends["answered"] > 40, ends


def test_a_failing_plan_is_shrunk_to_the_smallest_one_that_still_fails() -> None:
    """A client that does not notice a cut stream, and the only fault of a long plan that shows it."""

    def fails(plan: FaultPlan) -> bool:
        with LocalGemini(Script([TEXT]), faults=plan, clock=VirtualClock()) as server:
            return not whole_text(raw(server.url, post(STREAM, HI))).endswith(TEXT)

    long = FaultPlan.parse(
        "0:slow_first_byte 0:huge_event(chunk=1,size=4000) 0:error_bare(chunk=2) 1:status_503 2:stall"
    )
    assert str(shrink(long, fails)) == "0:error_bare(chunk=2)"


@pytest.mark.parametrize("path", [STREAM, STREAM.removesuffix("?alt=sse"), WHOLE])
def test_every_kind_can_be_combined_with_every_other(path: str) -> None:
    pairs = [(first, second) for first in KINDS for second in KINDS]
    faults = [f"{at}:{kind}{_small(kind)}" for at, pair in enumerate(pairs) for kind in pair]
    with LocalGemini([TEXT], faults=" ".join(faults), clock=VirtualClock()) as server:
        for pair in pairs:
            assert raw(server.url, post(path, HI)), pair
        assert not server.errors


def _small(kind: str) -> str:
    return "(size=100)" if kind == "huge_event" else ""


def test_a_huge_event_is_valid_json() -> None:
    with LocalGemini([TEXT], faults="0:huge_event") as server:
        assert json.loads(ask(server.url, HI).body)["modelStatus"]["modelStage"] == "STABLE"
