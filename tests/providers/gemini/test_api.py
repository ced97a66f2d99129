"""The connection of a provider: invalid arguments are an error before anything is sent."""

import asyncio
import traceback
from typing import Any

import pytest

from midspan import Agent, errors
from midspan._types.exchange import ModelRequest, RequestConfig
from midspan._types.messages import History, Message
from midspan._types.parts import Blob, Text
from midspan.gemini import AsyncClient, Client
from midspan.providers import RetryPolicy, Timeouts, Transport
from midspan.providers.gemini.cached import Cached
from midspan.providers.gemini.client import Gemini
from tests.bounds import BOUND
from tests.gemini.recorder import recorder
from tests.http import misbehaving
from tests.http.misbehaving import Server
from tests.streaming import listen
from tests.virtual_clock import VirtualClock

REQUEST = ModelRequest(RequestConfig("gemini-3.8-flash"), History([Message.user("hi")]))


@pytest.mark.parametrize("make", [Gemini, Client, AsyncClient])
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"base_url": ""}, "'' is not a valid base URL; use one like https://host"),
        ({"base_url": "  "}, "'  ' is not a valid base URL"),
        ({"base_url": "http://\ud800"}, r"'http://\ud800' is not a valid base URL"),
        ({"base_url": "http://a\nb"}, r"'http://a\nb' is not a valid base URL"),
        ({"base_url": "http://a b"}, "'http://a b' is not a valid base URL"),
        ({"base_url": 5}, "5 is not a valid base URL"),
        ({"version": ""}, "'' is not a valid version"),
        ({"vertex": True, "project": ""}, "'' is not a valid project"),
        ({"vertex": True, "project": "p", "location": ""}, "'' is not a valid location"),
        ({"model": "\ud800"}, r"'\ud800' is not a valid model name"),
        ({"model": "gemini-3\n"}, r"'gemini-3\n' is not a valid model name"),
        ({"model": " / "}, "' / ' is not a valid model name"),
        ({"model": None}, "None is not a valid model name"),
    ],
)
def test_invalid_connection_arguments_are_an_error(make: Any, arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(errors.ConfigError) as raised:
        make(**{"api_key": "k", **arguments})
    told = str(raised.value)
    assert words in told
    told.encode()
    assert "\n" not in told


@pytest.mark.parametrize("make", [Gemini, Client, AsyncClient])
def test_unknown_argument_of_a_connection_is_named_and_shows_no_key(make: Any) -> None:
    with pytest.raises(errors.ConfigError, match=r"^unknown argument 'timeout'; known .* api_key") as raised:
        make(api_key="SECRET-KEY", timeout=1)
    ours = raised.value.__traceback__.tb_next  # type: ignore[union-attr]  # after the frame of this test
    frames = traceback.StackSummary.extract(traceback.walk_tb(ours), capture_locals=True).format()
    assert "values hidden" in "".join(frames)
    assert "SECRET-KEY" not in "".join(frames)


@pytest.mark.parametrize("more", [{"ttl_seconds": -1}, {"ttl_seconds": 0}])
def test_invalid_cache_arguments_are_an_error(more: dict[str, Any]) -> None:
    with pytest.raises(errors.ConfigError):
        Cached(Gemini(api_key="k"), **more)


def test_an_internationalized_url_is_accepted() -> None:
    assert "münchen.example" in Gemini(api_key="k", base_url="https://münchen.example").api.base_url
    Gemini(api_key="k", headers={"X-Mine_2!": "grüße\t🙂"})


def test_an_empty_environment_variable_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GOOGLE_GEMINI_BASE_URL", "GOOGLE_GENAI_API_VERSION"):
        monkeypatch.setenv(name, "")
    endpoint = Gemini(api_key="k").api.endpoint
    assert (endpoint.base_url, endpoint.version) == ("https://generativelanguage.googleapis.com", "v1beta")


def test_a_request_that_is_too_large_is_an_error_before_it_is_sent() -> None:
    blob = Blob.of(bytes(38 * 2**20), "video/mp4")
    request = ModelRequest(RequestConfig("gemini-3.8-flash"), History([Message.user(blob, blob)]))
    with recorder() as server:

        async def main() -> None:
            async with Gemini(api_key="k", base_url=server.url) as gemini:
                for asked in (gemini.generate(request), anext(aiter(gemini.stream(request)))):
                    with pytest.raises(errors.ConfigError, match="Gemini accepts at most 104,857,600"):
                        await asked

        asyncio.run(main())
        with pytest.raises(errors.ConfigError, match="Gemini accepts at most 104,857,600"):
            Agent(Gemini(api_key="k", base_url=server.url)).run_sync([Text("what is this?"), blob, blob])
        with Client(api_key="k", base_url=server.url) as client:
            history = History([Message.user(blob, blob)])
            for ask in (
                client.count_tokens,
                client.caches.create,
                lambda one: list(client.stream_generate_content(one)),
            ):
                with pytest.raises(errors.ConfigError, match="accepts at most"):
                    ask(history)
        assert server.seen == []


@pytest.mark.parametrize("whole", [True, False])
def test_redirect_error_names_the_target_and_the_fix(whole: bool) -> None:
    with recorder() as server:
        server.answer(b"", status=301, location="https://user:pw@new.example/v1beta/models/m?key=SECRET#x")

        async def main() -> None:
            async with Gemini(api_key="k", base_url=server.url, clock=VirtualClock()) as gemini:
                with pytest.raises(errors.InvalidRequestError) as raised:
                    await listen(gemini, REQUEST, whole=whole)
                assert str(raised.value) == (
                    "Gemini answered 301: moved to 'https://new.example/v1beta/models/m'; "
                    "redirects are not followed, pass the right base_url=…"
                )

        asyncio.run(main())
    assert len(server.seen) == 1


@pytest.mark.parametrize("whole", [True, False])
def test_a_timeout_between_two_attempts_names_the_last_error(whole: bool) -> None:
    class Standing(VirtualClock):
        async def sleep(self, seconds: float) -> None:
            waits.set()
            await asyncio.get_running_loop().create_future()

    waits = asyncio.Event()

    async def main() -> None:
        async with Server(misbehaving.close_before_head) as server:
            gemini = Gemini(api_key="k", base_url=f"http://127.0.0.1:{server.port}", clock=Standing())
            cancelled = await cancelled_when(waits, gemini, whole=whole)
            assert isinstance(cancelled.__cause__, errors.NetworkError)
            assert "closed the connection without a response" in str(cancelled.__cause__)
            await gemini.aclose()

    asyncio.run(asyncio.wait_for(main(), BOUND))


@pytest.mark.parametrize("whole", [True, False])
def test_a_timeout_in_a_later_attempt_names_the_last_error(whole: bool) -> None:
    stalls = asyncio.Event()

    async def fail_then_stall(exchange: misbehaving.Exchange) -> None:
        if len(exchange.server.requests) == 1:
            await exchange.send(misbehaving.response(b"busy", "503 Busy"))
        else:
            stalls.set()
            await exchange.until_gone()

    async def main() -> None:
        async with Server(fail_then_stall) as server:
            gemini = Gemini(api_key="k", base_url=f"http://127.0.0.1:{server.port}", clock=VirtualClock())
            cancelled = await cancelled_when(stalls, gemini, whole=whole)
            assert str(cancelled.__cause__) == "Gemini answered 503: busy"
            await gemini.aclose()

    asyncio.run(asyncio.wait_for(main(), BOUND))


async def cancelled_when(happened: asyncio.Event, gemini: Gemini, *, whole: bool) -> asyncio.CancelledError:
    async def ask() -> None:
        await listen(gemini, REQUEST, whole=whole)

    task = asyncio.create_task(ask())
    await happened.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as raised:
        await task
    return raised.value


def test_timeouts_are_applied() -> None:
    async def main() -> None:
        transport = Transport(Timeouts(total=0.05))
        async with (
            Server(misbehaving.stall_in_body) as server,
            Gemini(
                api_key="k",
                base_url=f"http://127.0.0.1:{server.port}",
                transport=transport,
                retry=RetryPolicy(max_attempts=1),
            ) as gemini,
        ):
            with pytest.raises(errors.RequestTimeoutError, match=r"timeout 'total' of 0\.05 s"):
                await gemini.generate(REQUEST)

    asyncio.run(asyncio.wait_for(main(), BOUND))
