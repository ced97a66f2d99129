"""The behaviour that all providers share."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, aclosing
from pathlib import Path
from typing import Any, TypeVar

import pytest

from midspan import Gemini
from midspan._types.codec import from_json, to_json
from midspan._types.exchange import (
    FinishReason,
    ModelRequest,
    ModelResponse,
    PartDelta,
    PartEnd,
    PartEvent,
    PartStart,
    RequestConfig,
)
from midspan._types.messages import History, Message
from midspan._types.parts import Text, ToolCall, ToolResult
from midspan._types.specs import ToolSpec
from midspan.emulator import LocalGemini, answer
from midspan.emulator import call as gemini_call
from midspan.providers.anthropic.client import Anthropic
from midspan.providers.openai.client import OpenAI
from midspan.providers.openai_responses.client import OpenAIResponses
from midspan.providers.prompted.client import PromptedTools
from midspan.providers.provider import ModelProfile, Provider, WrapperProvider, ensure_aclose
from midspan.providers.scripted import ScriptedProvider
from midspan.providers.stream import StreamAccumulator, collect
from midspan.testing.format import FORMAT, RunLine
from midspan.testing.masking import SecretMasker
from midspan.testing.recording import Recorder
from midspan.testing.replaying import RecordingLibrary, Replayer
from tests.bounds import BOUND
from tests.gemini.recorder import recorder
from tests.providers import parrot, services
from tests.streaming import plain

T = TypeVar("T")
ADD = ToolSpec("add", "Add two numbers.", {"type": "object", "properties": {"a": {"type": "integer"}}})
CONFIG = RequestConfig("gemini-3.8-flash", "Be brief.", (ADD,))
REQUEST = ModelRequest(CONFIG, History([Message.user("1 + 2?")]))
TALK = "Let me add these two numbers."
"""Every model first says this and makes a call, and whenever it has a result says so."""
DONE = "It is 3."


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(BOUND):
            return await coroutine

    return asyncio.run(bounded())


def scripted(_: ExitStack, __: Path) -> Provider:
    call = ToolCall("c1", "add", {"a": 1})
    return ScriptedProvider(
        lambda request: DONE if request.history[-1].results else [Text(TALK[:9]), Text(TALK[9:]), call]
    )


def prompted(_: ExitStack, __: Path) -> Provider:
    def write(request: ModelRequest) -> Any:
        is_answered = "TOOL_RESULT" in request.history[-1].text
        return DONE if is_answered else [Text(TALK[:9]), Text(f'{TALK[9:]}TOOL_CALL: add({{"a"'), Text(": 1})")]

    return PromptedTools(ScriptedProvider(write))


def gemini(stack: ExitStack, _: Path) -> Provider:
    def script(conversation: Any) -> Any:
        return answer(DONE) if conversation.results else answer(TALK, gemini_call("add", a=1))

    server = stack.enter_context(LocalGemini(script))
    return Gemini("gemini-3.8-flash", api_key="k", base_url=server.url)


def outside(stack: ExitStack, folder: Path) -> Provider:
    def script(body: Any) -> Any:
        if body["turns"][-1]["parts"][0]["type"] == "result":
            return [*parrot.text(DONE), parrot.done()]
        return [*parrot.text(TALK[:9], TALK[9:]), *parrot.call("add", '{"a"', ": 1}", at=1), parrot.done()]

    service = stack.enter_context(recorder(parrot.Service(script)))
    patch = stack.enter_context(pytest.MonkeyPatch.context())
    patch.setenv("PARROT_URL", service.url)
    made: Provider = stack.enter_context(parrot.installed(folder)).FAMILY.make("parrot-green")
    return made


def _script(request: dict[str, Any]) -> services.Turn:
    is_answered = json.dumps(request).count("call_0") > 1
    return services.Turn(DONE) if is_answered else services.Turn(TALK, (("call_0", "add", '{"a": 1}'),), "Add them.")


def anthropic(stack: ExitStack, _: Path) -> Provider:
    service = stack.enter_context(recorder(services.AnthropicService(_script)))
    return Anthropic("claude-sonnet-5-5", api_key="k", base_url=service.url)


def openai(stack: ExitStack, _: Path) -> Provider:
    service = stack.enter_context(recorder(services.ChatService(_script)))
    return OpenAI("gpt-5.5", api_key="k", base_url=service.url)


def openai_responses(stack: ExitStack, _: Path) -> Provider:
    service = stack.enter_context(recorder(services.ResponsesService(_script)))
    return OpenAIResponses("gpt-5.5", api_key="k", base_url=service.url)


def interactions(stack: ExitStack, _: Path) -> Provider:
    service = stack.enter_context(recorder(services.InteractionsService(_script)))
    return Gemini("gemini-3.8-flash", api="interactions", api_key="k", base_url=service.url)


def wrapped(stack: ExitStack, folder: Path) -> Provider:
    return WrapperProvider(scripted(stack, folder))


def recorded(stack: ExitStack, folder: Path) -> Provider:
    run = RunLine(FORMAT, "run", REQUEST.history.messages)
    return Recorder(folder, SecretMasker(environment={}), run, scripted(stack, folder), ())


PROVIDERS: dict[str, Callable[[ExitStack, Path], Provider]] = {
    "gemini": gemini,
    "interactions": interactions,
    "anthropic": anthropic,
    "openai": openai,
    "openai_responses": openai_responses,
    "scripted": scripted,
    "prompted": prompted,
    "outside": outside,
    "wrapped": wrapped,
    "recorded": recorded,
}


@pytest.fixture(params=PROVIDERS)
def provider(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Provider]:
    with ExitStack() as stack:
        yield PROVIDERS[request.param](stack, tmp_path)


async def events_of(provider: Provider, request: ModelRequest = REQUEST) -> tuple[list[PartEvent], ModelResponse]:
    *events, response = [event async for event in provider.stream(request)]
    assert isinstance(response, ModelResponse)
    assert all(isinstance(event, PartEvent) for event in events)
    return events, response  # type: ignore[return-value]  # by the line above


def check_events(events: list[PartEvent], response: ModelResponse) -> None:
    """Each part has one start, deltas and an end, and together they are the message."""
    started: set[int] = set()
    ended: set[int] = set()
    accumulator = StreamAccumulator()
    for event in events:
        match event:
            case PartStart(index):
                assert index not in started
                started.add(index)
            case PartDelta(index):
                assert index in started - ended
            case PartEnd(index):
                assert index in started - ended
                ended.add(index)
        accumulator.add(event)
    assert started == ended
    assert plain(*accumulator.parts()) == plain(*response.message.parts)


def test_provider_has_every_member_of_the_protocol(provider: Provider) -> None:
    assert isinstance(provider, Provider)
    assert isinstance(provider.model, str)
    assert isinstance(provider.profile, ModelProfile)
    assert "<" not in repr(provider) or "object at" in repr(provider)


def test_stream_yields_parts_with_start_and_end_and_the_response_last(provider: Provider) -> None:
    events, response = run(events_of(provider))
    check_events(events, response)
    assert response.message.role == "model"
    assert response.message.text == TALK
    assert response.finish_reason is FinishReason.END


def test_text_streams_in_pieces_and_a_call_ends_with_its_arguments(provider: Provider) -> None:
    events, response = run(events_of(provider))
    assert sum(isinstance(event, PartDelta) for event in events) >= 1
    [call] = response.message.calls
    assert (call.name, call.arguments, call.arguments_error, bool(call.id)) == ("add", {"a": 1}, None, True)


@pytest.mark.requirement("P-02")
def test_generate_returns_what_stream_yields(provider: Provider) -> None:
    async def main() -> tuple[ModelResponse, ModelResponse, ModelResponse]:
        _, streamed = await events_of(provider)
        return streamed, await provider.generate(REQUEST), await collect(provider.stream(REQUEST))

    for response in (responses := run(main())):
        assert response.message.text == TALK
        assert [(call.name, call.arguments) for call in response.message.calls] == [("add", {"a": 1})]
        assert response.finish_reason is responses[0].finish_reason
        assert response.requests == 1


def test_conversation_continues_with_the_message_also_after_saving_it(provider: Provider) -> None:
    async def main() -> None:
        first = (await provider.generate(REQUEST)).message
        for message in (first, *from_json(to_json([first]), "messages")):
            results = Message.user(*(ToolResult(call.id, call.name, 3) for call in message.calls))
            history = REQUEST.history.append(message, results)
            events, response = await events_of(provider, ModelRequest(CONFIG, history))
            check_events(events, response)
            assert response.message.text == DONE
            assert (await provider.generate(ModelRequest(CONFIG, history))).message.text == DONE

    run(main())


def test_leaving_a_stream_leaves_the_provider_usable(provider: Provider) -> None:
    async def main() -> str:
        async with aclosing(ensure_aclose(provider.stream(REQUEST))) as events:
            async for _ in events:
                break
        return (await provider.generate(REQUEST)).message.text

    assert run(main()) == TALK


def test_concurrent_requests_are_independent(provider: Provider) -> None:
    async def main() -> list[Any]:
        return await asyncio.gather(*(events_of(provider) for _ in range(5)), *(provider.generate(REQUEST),))

    *streams, whole = run(main())
    for events, response in streams:
        check_events(events, response)
        assert response.message.text == whole.message.text == TALK


def test_sending_does_not_change_the_request(provider: Provider) -> None:
    before = REQUEST.history.messages
    run(provider.generate(REQUEST))
    assert REQUEST.history.messages is before


def test_provider_can_be_closed_twice(provider: Provider) -> None:
    async def main() -> None:
        await provider.generate(REQUEST)
        await provider.aclose()
        await provider.aclose()

    run(main())


@pytest.mark.parametrize("kind", [*PROVIDERS][:-2])
@pytest.mark.parametrize("streamed", [True, False])
def test_recording_of_either_mode_replays_the_response(kind: str, streamed: bool, tmp_path: Path) -> None:
    masker, messages = SecretMasker(environment={}), REQUEST.history.messages

    async def main(provider: Provider) -> None:
        run_line = RunLine(FORMAT, "run", messages)
        recorder = Recorder(tmp_path, masker, run_line, provider, ())
        then = await events_of(recorder) if streamed else ([], await recorder.generate(REQUEST))

        def replayed() -> Provider:
            return Replayer(RecordingLibrary(tmp_path).take(messages), provider, ())

        events, response = await events_of(replayed())
        check_events(events, response)
        assert response == then[1] == await replayed().generate(REQUEST)
        assert not streamed or events == then[0]

    with ExitStack() as stack:
        run(main(PROVIDERS[kind](stack, tmp_path)))
