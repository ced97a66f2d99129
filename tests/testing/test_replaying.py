"""Providers that record and replay, and the comparison of requests with recordings."""

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from midspan._types.exchange import (
    DataPartDelta,
    FinishReason,
    ModelRequest,
    ModelResponse,
    PartDelta,
    PartStart,
    RequestConfig,
)
from midspan._types.messages import History, Message
from midspan._types.parts import Opaque, ProviderData, Text, ToolCall, ToolResult, local_id
from midspan.errors import ConfigError, IncompleteResponseError, LimitReachedError
from midspan.providers.gemini.client import Gemini
from midspan.providers.provider import ModelProfile, Provider
from midspan.providers.scripted import ScriptedProvider
from midspan.testing.format import (
    FORMAT,
    LINE_END,
    CallLine,
    ExchangeLine,
    RecordedRequest,
    RunLine,
    decode_line,
    encode,
)
from midspan.testing.masking import SecretMasker
from midspan.testing.recording import Recorder
from midspan.testing.replaying import RecordingLibrary, Replayer, comparable, diff

HISTORY = History((Message.user("go"),))
REQUEST = ModelRequest(RequestConfig("scripted"), HISTORY)
NO_SECRETS = SecretMasker(environment={})


def recorded(provider: Provider, folder: Path) -> Recorder:
    return Recorder(folder, NO_SECRETS, RunLine(FORMAT, "run", HISTORY.messages), provider, ())


def replayed(provider: Provider, folder: Path) -> Replayer:
    return Replayer(RecordingLibrary(folder).take(HISTORY.messages), provider, ())


async def items(provider: Provider, request: ModelRequest = REQUEST, *, whole: bool = False) -> list[Any]:
    return [await provider.generate(request)] if whole else [item async for item in provider.stream(request)]


def test_events_and_response_are_replayed_in_both_modes(tmp_path: Path) -> None:
    async def main() -> None:
        script = [(Text("a"), Text("b"), ToolCall("1", "x"))]
        then = await items(recorded(ScriptedProvider(script), tmp_path))
        nobody = ScriptedProvider([])
        assert await items(replayed(nobody, tmp_path)) == then
        assert await items(replayed(nobody, tmp_path), whole=True) == then[-1:]
        assert nobody.requests == []

    asyncio.run(main())


def test_wrappers_have_the_model_and_profile_of_the_wrapped_provider(tmp_path: Path) -> None:
    gemini = Gemini("gemini-3.8-flash", api_key="k")
    recorder = recorded(gemini, tmp_path)
    asyncio.run(items(recorded(ScriptedProvider(["x"]), tmp_path)))
    for around in (recorder, replayed(gemini, tmp_path)):
        assert isinstance(around, Provider)
        assert around.model == "gemini-3.8-flash"
        assert around.profile is gemini.profile
        assert "Gemini(" in repr(around)


def test_provider_without_requests_creates_no_file(tmp_path: Path) -> None:
    recorded(ScriptedProvider([]), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_third_request_is_reported_if_two_were_recorded(tmp_path: Path) -> None:
    async def main() -> None:
        recorder = recorded(ScriptedProvider(["a", "b"]), tmp_path)
        replayer = None
        for provider in (recorder, None):
            provider = provider or (replayer := replayed(ScriptedProvider([]), tmp_path))
            await items(provider)
            await items(provider)
        assert replayer is not None
        with pytest.raises(ConfigError, match=r"^request 3 was not recorded: '.*' ends after 2$"):
            await items(replayer)

    asyncio.run(main())


def test_request_configs_are_compared(tmp_path: Path) -> None:
    asyncio.run(items(recorded(ScriptedProvider(["a"]), tmp_path)))
    other = replace(REQUEST, config=RequestConfig("scripted", system="s"))
    with pytest.raises(ConfigError, match=r'at config\.system: recorded nothing, now "s"$'):
        asyncio.run(items(replayed(ScriptedProvider([]), tmp_path), other))


class Stranger:
    """A provider whose stream is not a generator and yields things that are not events."""

    model = "scripted"
    profile = ModelProfile()

    def __init__(self, *items: Any) -> None:
        self._items = iter(items)

    def stream(self, request: ModelRequest) -> Any:
        return self

    async def generate(self, request: ModelRequest) -> ModelResponse:
        raise NotImplementedError

    def __aiter__(self) -> "Stranger":
        return self

    async def __anext__(self) -> Any:
        item = next(self._items, StopAsyncIteration())
        if isinstance(item, Exception):
            raise item
        return item

    async def aclose(self) -> None: ...


ANSWER = ModelResponse(Message("model", (Text("a"),)), FinishReason.END)


@pytest.mark.parametrize("ending", [(), (ANSWER,), (IncompleteResponseError("cut"),)], ids=["nothing", "answer", "cut"])
def test_stream_without_response_or_with_an_error_is_replayed(tmp_path: Path, ending: Sequence[Any]) -> None:
    async def heard(provider: Provider) -> list[Any]:
        made: list[Any] = []
        try:
            async for item in provider.stream(REQUEST):
                made.append(item)  # noqa: PERF401 - those before an error count too
        except IncompleteResponseError as error:
            made.append(str(error))
        return made

    async def main() -> None:
        then = await heard(recorded(Stranger(PartStart(0, Text("a")), "no event", *ending), tmp_path))
        now = await heard(replayed(ScriptedProvider([]), tmp_path))
        assert now == [item for item in then if item != "no event"]

    asyncio.run(main())


@pytest.mark.parametrize("ending", [(), (IncompleteResponseError("cut"),)], ids=["nothing", "cut"])
def test_generate_returns_a_cut_response_for_a_recorded_stream_without_one(
    tmp_path: Path, ending: Sequence[Any]
) -> None:
    async def main() -> None:
        recorder = recorded(Stranger(PartStart(0, Text("a")), *ending), tmp_path)
        with suppress(IncompleteResponseError):
            await items(recorder)
        replayer = replayed(ScriptedProvider([]), tmp_path)
        if ending:
            with pytest.raises(IncompleteResponseError) as raised:
                await replayer.generate(REQUEST)
            partial = raised.value.partial_response
        else:
            partial = await replayer.generate(REQUEST)
        assert (partial.message.text, partial.finish_reason) == ("a", FinishReason.CUT)

    asyncio.run(main())


class Odd(Exception): ...


FOREIGN = [KeyError("x"), Odd("strange"), UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"), ExceptionGroup("g", [Odd()])]


@pytest.mark.parametrize("error", FOREIGN, ids=lambda error: type(error).__name__)
def test_other_exceptions_are_replayed_under_their_names(tmp_path: Path, error: Exception) -> None:
    with pytest.raises(type(error)):
        asyncio.run(items(recorded(ScriptedProvider([error]), tmp_path)))
    with pytest.raises(Exception) as raised:  # noqa: PT011 - its name is looked at
        asyncio.run(items(replayed(ScriptedProvider([]), tmp_path)))
    assert (type(raised.value).__name__, str(raised.value)) == (type(error).__name__, str(error))


def test_midspan_errors_are_replayed_with_class_and_attributes(tmp_path: Path) -> None:
    error = LimitReachedError("enough", "max_tokens")
    with pytest.raises(LimitReachedError):
        asyncio.run(items(recorded(ScriptedProvider([error]), tmp_path)))
    with pytest.raises(LimitReachedError, match=r"^enough$") as raised:
        asyncio.run(items(replayed(ScriptedProvider([]), tmp_path)))
    assert (raised.value.limit, raised.value.type) == (error.limit, error.type)


DIFFERENCES: list[tuple[Any, Any, str | None]] = [
    ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 2}]}, None),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}, None),
    ({"a": [1, {"b": 4}]}, {"a": [1, {"b": 5}]}, "a[1].b: recorded 4, now 5"),
    ({"a": 1}, {}, "a: recorded 1, now nothing"),
    ([], [None], "[0]: recorded nothing, now null"),
    ({"odd key": True}, {"odd key": 1}, '["odd key"]: recorded true, now 1'),
    (1, 1.0, "the whole: recorded 1, now 1.0"),
    ({"a": {}}, {"a": []}, "a: recorded {}, now []"),
    ({"a": "x [masked] y"}, {"a": "x anything y"}, None),
    ({"a": "[masked][masked]"}, {"a": "anything"}, None),
    ({"a": "x [masked] y"}, {"a": "x anything z"}, 'a: recorded "x [masked] y", now "x anything z"'),
    ({"a": "ab [masked] ba"}, {"a": "ab ba"}, 'a: recorded "ab [masked] ba", now "ab ba"'),
    ({"a": "1 [masked] 2 [masked] 3"}, {"a": "1 x 3"}, 'a: recorded "1 [masked] 2 [masked] 3", now "1 x 3"'),
]


@pytest.mark.parametrize(("then", "now", "told"), DIFFERENCES)
def test_diff_describes_the_first_difference(then: Any, now: Any, told: str | None) -> None:
    assert diff(then, now) == told


def test_local_ids_are_compared_by_their_order() -> None:
    one, other = local_id(), local_id()
    assert comparable([one, one, other]) == ["local id 1", "local id 1", "local id 2"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(json_values, json_values)
def test_diff_agrees_with_json_equality(one: Any, other: Any) -> None:
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (diff(one, other) is None) == same


@given(
    st.binary(max_size=20).map(lambda data: b'{"a": "%b"}' % data.hex().encode()),
    st.sampled_from([b"\n", b"\r", b" ", b""]),
)
def test_documents_of_a_provider_keep_their_bytes(data: bytes, space: bytes) -> None:
    raw = Raw(data.replace(b" ", space))
    request = RecordedRequest(RequestConfig("m"), ())
    for line in (
        ExchangeLine("m", request, (PartStart(0, Opaque("x", ProviderData("o", raw))),)),
        ExchangeLine("m", request, (PartDelta(0, DataPartDelta(provider_data=ProviderData("o", raw))),)),
        ExchangeLine("m", request, (), ModelResponse(Message("model", ()), FinishReason.END, raw=(raw,))),
        CallLine(ToolCall("1", "x", provider_data=ProviderData("o", raw))),
        RunLine(FORMAT, "r", (Message("model", (), ProviderData("o", raw)),)),
    ):
        assert LINE_END not in encode(line)
        again = decode_line(encode(line))
        assert again == line
        assert bytes(_raw(again)) == bytes(raw)


def _raw(line: Any) -> Raw:
    match line:
        case ExchangeLine(events=(PartStart(part=Opaque(provider_data=ProviderData(raw=raw))),)):
            return raw
        case ExchangeLine(events=(PartDelta(delta=DataPartDelta(provider_data=ProviderData(raw=raw))),)):
            return raw
        case ExchangeLine(response=ModelResponse(raw=(raw,))):
            return raw
        case CallLine(call=ToolCall(provider_data=ProviderData(raw=raw))):
            return raw
        case RunLine(messages=(Message(provider_data=ProviderData(raw=raw)),)):
            return raw
    raise AssertionError(line)


def test_call_line_round_trips() -> None:
    called = CallLine(ToolCall("1", "x", {"a": [1]}), ToolResult("1", "x", 5))
    assert decode_line(encode(called)) == called
