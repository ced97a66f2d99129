"""Runs whose system prompt and declarations are in a context cache."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from midspan import Agent, Limits, tool
from midspan._types.exchange import ModelEvent, ModelRequest, PartStart, RequestConfig
from midspan._types.messages import History, Message
from midspan._types.parts import Text
from midspan.errors import ConfigError, InvalidRequestError
from midspan.providers.gemini.cached import Cached
from midspan.providers.gemini.client import Gemini
from tests.gemini.recorder import Recorder, recorder
from tests.virtual_clock import VirtualClock

LONG = "Be kind and brief. " * 400


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


class Server(Recorder):
    """Makes caches, refuses what the API refuses beside one, and answers a call or a text."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[Any] = []
        self.gone: set[str] = set()
        self.refuses = False
        self.refuses_cached = self.refuses_all = self.refuses_refresh = False
        self.on_refresh: Callable[[], object] = lambda: None

    def next(self) -> tuple[int, bytes, dict[str, str]]:
        status, document = self.answered()
        return status, json.dumps(document).encode(), {}

    def answered(self) -> tuple[int, Any]:
        seen = self.last
        if "/cachedContents" in seen.path:
            if seen.method == "POST":
                if self.refuses:
                    return 400, {"error": {"code": 400, "message": "Cached content is too small.", "status": "x"}}
                self.made.append(seen.body)
                return 200, {"name": f"cachedContents/{len(self.made)}"}
            if seen.method == "PATCH":
                self.on_refresh()
            if seen.method == "PATCH" and self.refuses_refresh:
                return 400, {"error": {"code": 400, "message": "Invalid.", "status": "INVALID_ARGUMENT"}}
            gone = seen.path.split("?")[0].rsplit("/", 1)[-1] in self.gone
            return (404, {"error": {"code": 404, "message": "gone"}}) if gone else (200, {})
        cache = seen.body.get("cachedContent")
        if self.refuses_all or (cache is not None and self.refuses_cached):
            return 400, {"error": {"code": 400, "message": "Invalid.", "status": "INVALID_ARGUMENT"}}
        if cache is not None:
            if cache.rsplit("/")[-1] in self.gone:
                return 403, {
                    "error": {"code": 403, "message": "CachedContent not found", "status": "PERMISSION_DENIED"}
                }
            if {"tools", "toolConfig", "systemInstruction"} & seen.body.keys():
                return 400, {"error": {"code": 400, "message": "CachedContent can not be used with tools"}}
        rounds = sum("functionResponse" in json.dumps(one) for one in seen.body["contents"])
        call = {"functionCall": {"name": "add", "args": {"a": rounds, "b": 1}}}
        forbidden = "NONE" in json.dumps(seen.body.get("toolConfig", {}))
        part = {"text": "done"} if rounds >= 3 or forbidden else call
        return 200, {"candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}]}

    def asked(self) -> list[Any]:
        return [one.body for one in self.seen if "generateContent" in one.path]

    def methods(self) -> list[str]:
        return [one.method for one in self.seen if "/cachedContents" in one.path]


@pytest.fixture
def server() -> Iterator[Server]:
    with recorder(Server()) as record:
        assert isinstance(record, Server)
        yield record


def agent(server: Server, system: str | None = LONG, clock: Any = None, model: str = "gemini-3.8-flash") -> Agent:
    gemini = Gemini(model, api_key="k", base_url=server.url)
    return Agent(Cached(gemini, ttl_seconds=100, clock=clock), tools=[add], system=system)


@pytest.mark.requirement("S3-13")
def test_declarations_live_in_the_cache_and_tools_still_run(server: Server) -> None:
    asker = agent(server)
    result = asker.run_sync("go")
    assert [run.value for run in result.tool_calls] == [1, 2, 3]
    assert len(server.made) == 1
    assert server.made[0]["ttl"] == "100s"
    assert server.made[0]["tools"][0]["functionDeclarations"][0]["name"] == "add"
    assert server.made[0]["systemInstruction"]["parts"] == [{"text": LONG}]
    for body in server.asked():
        assert body["cachedContent"] == "cachedContents/1"
        assert not {"tools", "systemInstruction", "toolConfig"} & body.keys()
    asker.run_sync("again", settings={"temperature": 0.1})
    assert len(server.made) == 1
    assert server.asked()[-1]["generationConfig"] == {"temperature": 0.1}


@pytest.mark.requirement("S3-15")
@pytest.mark.parametrize(("system", "model"), [("short", "gemini-3.8-flash"), (LONG, "gemini-4-argon")])
def test_nothing_is_cached_where_it_is_too_small_or_cannot_be(server: Server, system: str, model: str) -> None:
    assert agent(server, system, model=model).run_sync("go").text == "done"
    assert server.methods() == []
    assert "tools" in server.asked()[0]


def test_a_server_that_finds_it_too_small_is_asked_without_a_cache(server: Server) -> None:
    server.refuses = True
    assert agent(server).run_sync("go").text == "done"
    assert server.methods() == ["POST"]
    assert all("tools" in body for body in server.asked())


@pytest.mark.requirement("S3-15")
def test_a_cache_is_refreshed_at_half_its_ttl_and_recreated_after_it(server: Server) -> None:
    clock = VirtualClock()
    asker = agent(server, clock=clock)

    async def main() -> None:
        await asker.run("go")
        await clock.sleep(49)
        await asker.run("go")
        assert server.methods() == ["POST"]
        await clock.sleep(1)
        await asker.run("go")
        assert server.methods() == ["POST", "PATCH"]
        assert server.seen[-5].path.endswith("/cachedContents/1?updateMask=ttl")
        await clock.sleep(100)
        await asker.run("go")
        assert server.methods() == ["POST", "PATCH", "POST"]

    asyncio.run(main())


def test_a_missing_cache_is_skipped_and_recreated(server: Server) -> None:
    asker = agent(server)
    asker.run_sync("go")
    server.gone.add("1")
    assert asker.run_sync("go").text == "done"
    assert len(server.made) == 2
    assert server.asked()[-1]["cachedContent"] == "cachedContents/2"


@pytest.mark.parametrize("stream", [False, True])
def test_cache_with_which_requests_are_rejected_is_deleted(server: Server, stream: bool) -> None:
    asker = agent(server)
    server.refuses_cached = True

    async def main() -> str:
        if not stream:
            return (await asker.run("go")).text
        async with asker.stream("go") as events:
            async for _ in events:
                pass
            return events.result.text

    assert asyncio.run(main()) == "done"
    assert server.methods()[:2] == ["POST", "DELETE"]
    assert next(one.path.rsplit("/")[-1] for one in server.seen if one.method == "DELETE") == "1"


def test_cache_stays_if_requests_are_rejected_without_it_as_well(server: Server) -> None:
    asker = agent(server)
    asker.run_sync("go")
    server.refuses_all = True
    with pytest.raises(InvalidRequestError):
        asker.run_sync("go")
    assert "cachedContent" not in server.asked()[-1]
    server.refuses_all = False
    assert asker.run_sync("go").text == "done"
    assert server.methods() == ["POST"]
    assert server.asked()[-1]["cachedContent"] == "cachedContents/1"


class BreaksAfterText(Gemini):
    """Streams some text, and then the server rejects the request."""

    requests = 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        self.requests += 1
        yield PartStart(0, Text("Hel"))
        raise InvalidRequestError("Gemini answered 400: Invalid.", status=400)


def test_stream_that_is_rejected_after_its_first_event_is_not_repeated_without_the_cache(server: Server) -> None:
    async def main() -> None:
        gemini = BreaksAfterText(api_key="k", base_url=server.url)
        request = ModelRequest(RequestConfig("gemini-3.8-flash", LONG), History([Message.user("go")]))
        events = []
        with pytest.raises(InvalidRequestError):  # noqa: PT012 - the events before the error are looked at too
            async for event in Cached(gemini).stream(request):
                events.append(event)  # noqa: PERF401 - as above
        assert events == [PartStart(0, Text("Hel"))]
        assert gemini.requests == 1

    asyncio.run(main())
    assert server.methods() == ["POST"]


def test_cache_of_a_stream_that_succeeds_stays(server: Server) -> None:
    async def main() -> None:
        gemini = Cached(Gemini(api_key="k", base_url=server.url))
        request = ModelRequest(RequestConfig("gemini-3.8-flash", LONG), History([Message.user("go")]))
        for _ in range(2):
            [event async for event in gemini.stream(request)]

    asyncio.run(main())
    assert server.methods() == ["POST"]
    requests = [seen.body for seen in server.seen if "streamGenerateContent" in seen.path]
    assert [body["cachedContent"] for body in requests] == ["cachedContents/1"] * 2


def test_cache_that_cannot_be_refreshed_is_deleted_and_replaced(server: Server) -> None:
    clock = VirtualClock()
    asker = agent(server, clock=clock)
    server.refuses_refresh = True

    async def main() -> None:
        await asker.run("go")
        await clock.sleep(51)
        await asker.run("go")

    asyncio.run(main())
    assert server.methods() == ["POST", "PATCH", "DELETE", "POST"]
    assert server.asked()[-1]["cachedContent"] == "cachedContents/2"


def test_cache_that_is_discarded_during_its_refresh_is_deleted_and_not_used(server: Server) -> None:
    clock = VirtualClock()
    provider = Cached(Gemini("gemini-3.8-flash", api_key="k", base_url=server.url), ttl_seconds=100, clock=clock)
    request = ModelRequest(RequestConfig("gemini-3.8-flash", system=LONG), History([Message.user("go")]))

    async def main() -> None:
        loop = asyncio.get_running_loop()
        await provider.generate(request)
        await clock.sleep(60)
        server.refuses_cached = True
        server.on_refresh = lambda: asyncio.run_coroutine_threadsafe(provider.generate(request), loop).result(10)
        await provider.generate(request)

    asyncio.run(main())
    assert server.methods() == ["POST", "PATCH", "DELETE", "DELETE"]
    assert ["cachedContent" in body for body in server.asked()] == [True, True, False, False]


def test_the_last_question_without_tools_goes_past_the_cache(server: Server) -> None:
    asker = agent(server)
    result = asker.run_sync("go", limits=Limits(max_turns=1, on_limit="answer"))
    assert result.text == "done"
    assert "cachedContent" not in server.asked()[-1]
    assert server.asked()[-1]["toolConfig"] == {"functionCallingConfig": {"mode": "NONE"}}


def test_many_at_once_make_one_cache_and_closing_deletes_it(server: Server) -> None:
    async def main() -> None:
        provider = Cached(Gemini(api_key="k", base_url=server.url))
        asker = Agent(provider, tools=[add], system=LONG)
        results = await asyncio.gather(*(asker.run("go") for _ in range(20)))
        assert {result.text for result in results} == {"done"}
        assert len(server.made) == 1
        await provider.aclose()

    asyncio.run(main())
    assert server.methods() == ["POST", "DELETE"]


def test_an_invalid_ttl_is_an_error() -> None:
    with pytest.raises(ConfigError, match="ttl_seconds"):
        Cached(Gemini(api_key="k"), ttl_seconds=0)


def test_a_long_ttl_is_sent_without_an_exponent(server: Server) -> None:
    with Agent(
        Cached(Gemini(api_key="k", base_url=server.url), ttl_seconds=2_000_000), tools=[add], system=LONG
    ) as asker:
        asker.run_sync("hi")
    assert server.made[0]["ttl"] == "2000000s"


def test_ttl_may_be_a_fraction_of_a_second(server: Server) -> None:
    with Agent(Cached(Gemini(api_key="k", base_url=server.url), ttl_seconds=0.5), tools=[add], system=LONG) as asker:
        asker.run_sync("hi")
    assert server.made[0]["ttl"] == "0.5s"


def test_number_of_caches_is_limited_and_expired_ones_do_not_count(server: Server) -> None:
    clock = VirtualClock()

    async def main() -> None:
        async with Cached(Gemini(api_key="k", base_url=server.url), ttl_seconds=100, clock=clock) as provider:

            async def ask(number: int) -> str | None:
                config = RequestConfig("gemini-3.8-flash", f"{number} {LONG}")
                await provider.generate(ModelRequest(config, History([Message.user("go")])))
                return server.asked()[-1].get("cachedContent")

            names = [await ask(number) for number in range(33)]
            assert names == [*(f"cachedContents/{number}" for number in range(1, 33)), None]
            await clock.sleep(100)
            assert await ask(32) == "cachedContents/33"

    asyncio.run(main())
    assert server.methods() == ["POST"] * 33 + ["DELETE"]
