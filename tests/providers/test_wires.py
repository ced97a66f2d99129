"""Every provider against a strict loopback service of its wire: chat, tools, errors, and changes of the model."""

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import msgspec
import pytest

from midspan import Agent, Gemini, tool
from midspan._types.exchange import CachePolicy, FinishReason, ModelRequest, ModelResponse, Output, RequestConfig
from midspan._types.messages import History, Message
from midspan._types.parts import Blob, Text, Thought, ToolCall, ToolResult
from midspan._types.specs import ModelSettings, ToolChoice, ToolSpec
from midspan.emulator import LocalGemini, answer
from midspan.emulator import call as gemini_call
from midspan.errors import (
    AuthenticationError,
    ConfigError,
    IncompleteResponseError,
    InvalidRequestError,
    MalformedResponseError,
    ProviderError,
    QuotaExhaustedError,
    RateLimitError,
    ServerError,
    UnknownModelError,
)
from midspan.providers import RetryPolicy
from midspan.providers.anthropic.client import Anthropic
from midspan.providers.anthropic.decode import StreamDecoder as AnthropicDecoder
from midspan.providers.anthropic.decode import decode_response as decode_anthropic
from midspan.providers.openai.client import OpenAI, service_url
from midspan.providers.openai.decode import decode_response as decode_openai
from midspan.providers.openai.profile import PRESETS
from midspan.providers.openai_responses.client import OpenAIResponses
from midspan.providers.provider import Provider
from tests.gemini.recorder import recorder
from tests.providers.services import (
    AnthropicService,
    ChatService,
    InteractionsService,
    ResponsesService,
    Service,
    Turn,
)

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
WEATHER = ToolSpec(
    "get_weather",
    "The weather in a city.",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
CALLS = (("call_a", "get_weather", '{"city": "Oslo"}'), ("call_b", "get_weather", '{"city": "Rome"}'))
SERVICES: dict[str, tuple[Callable[..., Service], Callable[[str], Provider], str]] = {
    "anthropic": (AnthropicService, lambda url: Anthropic("claude-sonnet-5-5", api_key="k", base_url=url), "x-api-key"),
    "openai": (ChatService, lambda url: OpenAI("gpt-5.5", api_key="k", base_url=url), "authorization"),
    "deepseek": (
        lambda *script: ChatService(*script, extra=("reasoning_content",)),
        lambda url: OpenAI("deepseek-chat", preset="deepseek", api_key="k", base_url=url),
        "authorization",
    ),
    "responses": (ResponsesService, lambda url: OpenAIResponses("gpt-5.5", api_key="k", base_url=url), "authorization"),
    "interactions": (
        InteractionsService,
        lambda url: Gemini("gemini-3.8-flash", api="interactions", api_key="k", base_url=url),
        "x-goog-api-key",
    ),
}


@pytest.fixture(params=SERVICES)
def wire(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Running:
    """A service and a provider that is connected to it."""

    def __init__(self, stack: ExitStack, wire: str, *script: Any) -> None:
        make_service, make_provider, self.key_header = SERVICES[wire]
        self.service: Any = stack.enter_context(recorder(make_service(*script)))
        self.provider = make_provider(self.service.url)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def ask(provider: Provider, *messages: Message, **config: Any) -> ModelResponse:
    return asyncio.run(provider.generate(ModelRequest(RequestConfig(provider.model, **config), History(messages))))


@tool
def get_weather(city: str) -> str:
    """The weather in a city."""
    if city == "Rome":
        raise ValueError("no station")
    return f"{city}: sunny"


@pytest.mark.requirement("S1-16")
def test_basic_chat(wire: str, stack: ExitStack) -> None:
    running = Running(stack, wire, Turn("Hello."))
    response = ask(running.provider, Message.user("Hi"))
    assert response.message.text == "Hello."
    assert response.finish_reason is FinishReason.END
    assert (response.usage.input, response.usage.output, response.usage.cached) == (12, 5, 2)
    assert running.service.refused == []


@pytest.mark.requirement("S1-16", "S1-12")
def test_system_prompt_is_sent(wire: str, stack: ExitStack) -> None:
    running = Running(stack, wire, Turn("Arr."))
    ask(running.provider, Message.user("Hi"), system="Talk like a pirate.")
    assert "Talk like a pirate." in json.dumps(running.service.last.body)
    assert running.service.refused == []


@pytest.mark.requirement("S1-16", "S2-16")
@pytest.mark.parametrize("streamed", [False, True])
def test_agent_calls_tools_in_parallel_and_answers(wire: str, stack: ExitStack, streamed: bool) -> None:
    running = Running(stack, wire, Turn("Looking.", CALLS, "Two cities."), Turn("Oslo is sunny."))
    agent = Agent(running.provider, tools=[get_weather])

    async def main() -> str:
        if not streamed:
            return (await agent.run("Weather in Oslo and Rome?")).text
        async with agent.stream("Weather in Oslo and Rome?") as stream:
            async for _ in stream:
                pass
            return stream.result.text

    assert asyncio.run(main()) == "Oslo is sunny."
    assert running.service.refused == []
    sent = json.dumps(running.service.last.body)
    assert "Oslo: sunny" in sent
    assert "no station" in sent


@pytest.mark.requirement("S1-16")
@pytest.mark.parametrize(
    "choice", [ToolChoice("auto"), ToolChoice("required"), ToolChoice("none"), ToolChoice("required", ("get_weather",))]
)
def test_tool_choices_are_accepted(wire: str, stack: ExitStack, choice: ToolChoice) -> None:
    running = Running(stack, wire, Turn("ok"))
    ask(running.provider, Message.user("Hi"), tools=(WEATHER,), tool_choice=choice)
    body = running.service.last.body
    sent = body.get("tool_choice") or body.get("generation_config", {}).get("tool_choice")
    assert sent is not None
    assert ("get_weather" in json.dumps(sent)) == bool(choice.names)
    assert running.service.refused == []


def test_choice_of_several_tools_is_accepted(wire: str, stack: ExitStack) -> None:
    running = Running(stack, wire, Turn("ok"))
    other, third = (ToolSpec(name, "", WEATHER.parameters) for name in ("other", "third"))
    choice = ToolChoice("required", ("get_weather", "other"), parallel=False)
    ask(running.provider, Message.user("Hi"), tools=(WEATHER, other, third), tool_choice=choice)
    assert running.service.refused == []


@pytest.mark.requirement("S1-16", "S1-15")
def test_wrong_key_and_wrong_model_raise_their_own_errors(wire: str, stack: ExitStack) -> None:
    running = Running(stack, wire, Turn("ok"))
    running.service.required = {running.key_header: "another"}
    with pytest.raises(AuthenticationError):
        ask(running.provider, Message.user("Hi"))
    running.service.required = {}
    config = RequestConfig("unknown")
    with pytest.raises(UnknownModelError):
        asyncio.run(running.provider.generate(ModelRequest(config, History([Message.user("Hi")]))))


@pytest.mark.requirement("S1-15")
def test_errors_within_the_request_are_told_once(wire: str, stack: ExitStack) -> None:
    running = Running(stack, wire, Turn("ok"))
    running.service.answers.append(running.service.error(400, "invalid_request_error", "bad field"))
    with pytest.raises(InvalidRequestError, match="bad field") as caught:
        ask(running.provider, Message.user("Hi"))
    assert caught.value.status == 400
    assert len(running.service.seen) == 1


@pytest.mark.requirement("S1-15")
@pytest.mark.parametrize(("status", "error"), [(429, RateLimitError), (503, ServerError)])
def test_overload_is_retried_after_the_delay_that_the_service_asks_for(
    wire: str, stack: ExitStack, status: int, error: type[Exception]
) -> None:
    running = Running(stack, wire, Turn("ok"))
    _, body, _ = running.service.error(status, "overloaded_error" if status > 500 else "rate_limit_error", "later")
    whole = json.dumps(running.service.whole(Turn("at last"))).encode()
    running.service.answers += [(status, body, {"retry-after": "0"}), (200, whole, {})]
    heard: list[Any] = []
    request = ModelRequest(
        RequestConfig(running.provider.model),
        History([Message.user("Hi")]),
        on_retry=lambda *what: heard.append(what),
    )
    assert asyncio.run(running.provider.generate(request)).message.text == "at last"
    [(_, _, reason)] = heard
    assert isinstance(reason, error)


@pytest.mark.requirement("S1-17")
def test_images_and_settings_are_accepted(wire: str, stack: ExitStack) -> None:
    running = Running(stack, wire, Turn("A pixel."))
    settings = ModelSettings(max_tokens=2000, temperature=0.5, top_p=0.9, stop=("END",), thinking="low")
    message = Message.user("What is this?", Blob("image/png", base64=PIXEL))
    ask(running.provider, message, settings=settings)
    assert running.service.refused == []
    body = json.dumps(running.service.last.body)
    assert PIXEL in body
    assert "2000" in body


def test_typed_answer_is_asked_for(wire: str, stack: ExitStack) -> None:
    running = Running(stack, wire, Turn('{"city": "Oslo"}'))
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    ask(running.provider, Message.user("Where?"), output=Output({**schema, "additionalProperties": False}))
    ask(running.provider, Message.user("Where?"), output=Output())
    assert running.service.refused == []


def test_optional_arguments_may_be_null_where_the_service_demands_all(wire: str, stack: ExitStack) -> None:
    called = []

    @tool
    def book(city: str, nights: int = 2) -> str:
        """Book a room."""
        called.append((city, nights))
        return "booked"

    calls = (("call_a", "book", '{"city": "Oslo", "nights": null}'),)
    running = Running(stack, wire, Turn("", calls), Turn('{"city": "Oslo", "stars": 4}'))
    agent = Agent(running.provider, tools=[book], output=Hotel)
    assert agent.run_sync("A room in Oslo").output == Hotel("Oslo", 4)
    assert called == [("Oslo", 2)]
    assert running.service.refused == []


@dataclass
class Hotel:
    city: str
    stars: int


def test_reasoning_goes_back_as_it_came(wire: str, stack: ExitStack) -> None:
    running = Running(stack, wire, Turn("Looking.", CALLS[:1], "Think hard."), Turn("Sunny."))
    question = Message.user("Weather?")
    first = ask(running.provider, question, tools=(WEATHER,))
    if wire != "openai":  # it has no reasoning to send back
        assert any(isinstance(part, Thought) and part.text == "Think hard." for part in first.message.parts)
    result = Message.user(ToolResult("call_a", "get_weather", "sunny"))
    ask(running.provider, question, first.message, result, tools=(WEATHER,))
    assert running.service.refused == []
    assert ("Think hard." in json.dumps(running.service.last.body)) == (wire != "openai")


def test_arguments_that_are_not_json_are_answered_and_not_executed(wire: str, stack: ExitStack) -> None:
    broken = (("call_a", "get_weather", '{"city": "Os'),)
    running = Running(stack, wire, Turn("", broken), Turn("Sorry."))
    agent = Agent(running.provider, tools=[get_weather])

    async def main() -> str:
        async with agent.stream("Weather?") as stream:
            async for _ in stream:
                pass
            return stream.result.text

    assert asyncio.run(main()) == "Sorry."
    assert "sunny" not in json.dumps(running.service.last.body)
    assert running.service.refused == []


def test_call_of_an_answer_that_was_cut_is_not_executed(wire: str, stack: ExitStack) -> None:
    called = []

    @tool
    def delete(path: str) -> str:
        """Delete a file."""
        called.append(path)
        return "deleted"

    cut = Turn("", (("call_a", "delete", '{"path": "/tmp/a"}'),), is_cut=True)
    running = Running(stack, wire, cut, Turn("Sorry."))
    agent = Agent(running.provider, tools=[delete])
    assert asyncio.run(_run_streamed(agent)) == "Sorry."
    assert called == []
    assert running.service.refused == []


async def _run_streamed(agent: Agent) -> str:
    async with agent.stream("Do it") as stream:
        async for _ in stream:
            pass
        return stream.result.text


def test_names_and_schemas_are_adapted_to_the_service(wire: str, stack: ExitStack) -> None:
    @tool(name="math.add")
    def add(a: int) -> int:
        """Add one."""
        return a + 1

    running = Running(
        stack, wire, Turn("", (("call_a", running_name(wire), '{"a": 1}'),)), Turn('{"city": "Oslo", "stars": 4}')
    )
    agent = Agent(running.provider, tools=[add], output=Hotel)
    assert agent.run_sync("A hotel").output == Hotel("Oslo", 4)
    body = json.dumps(running.service.last.body)
    assert running_name(wire) in body
    if wire in ("anthropic", "openai", "responses"):
        assert '"additionalProperties": false' in body
    assert running.service.refused == []


def running_name(wire: str) -> str:
    return "math.add" if wire == "interactions" else "math_add"


@pytest.mark.parametrize("wire", [name for name in SERVICES if name != "interactions"])
def test_answer_that_is_no_object_is_given_by_a_tool_where_the_api_demands_objects(wire: str, stack: ExitStack) -> None:
    calls = (("call_a", "final_answer", '{"answer": [1, 2]}'),)
    running = Running(stack, wire, Turn("", calls))
    assert Agent(running.provider, output=list[int]).run_sync("Two numbers").output == [1, 2]
    assert running.service.refused == []


def test_settings_that_a_service_does_not_have_are_left_out(wire: str, stack: ExitStack) -> None:
    running = Running(stack, wire, Turn("ok"))
    settings = ModelSettings(top_k=5, seed=3, presence_penalty=0.1, frequency_penalty=0.1, thinking="high")
    ask(running.provider, Message.user("Hi"), settings=settings)
    assert running.service.refused == []


def test_ids_of_other_services_are_replaced_where_they_are_not_valid(wire: str, stack: ExitStack) -> None:
    running = Running(stack, wire, Turn("ok"))
    id = "call:1|" + "x" * 80
    call = Message("model", (ToolCall(id, "get_weather", {"city": "Oslo"}),))
    ask(running.provider, Message.user("Hi"), call, Message.user(ToolResult(id, "get_weather", "sunny")))
    assert running.service.refused == []


def test_mistral_gets_ids_of_nine_characters(stack: ExitStack) -> None:
    service = stack.enter_context(recorder(ChatService(Turn("ok"))))
    mistral = OpenAI("mistral-large-latest", preset="mistral", api_key="k", base_url=service.url)
    call = Message("model", (ToolCall("toolu_01AbCdEf", "get_weather", {"city": "Oslo"}),))
    result = Message.user(ToolResult("toolu_01AbCdEf", "get_weather", "sunny"))
    ask(mistral, Message.user("Hi"), call, result, settings=ModelSettings(max_tokens=9))
    *_, model, answer = service.last.body["messages"]
    assert re.fullmatch("[a-z0-9]{9}", answer["tool_call_id"])
    assert model["tool_calls"][0]["id"] == answer["tool_call_id"]


@pytest.mark.parametrize(
    ("settings", "thinking", "max_tokens"),
    [
        (ModelSettings(thinking="high", max_tokens=4000), {"type": "enabled", "budget_tokens": 3999}, 4000),
        (ModelSettings(thinking=500), {"type": "enabled", "budget_tokens": 1024}, 17_024),
        (ModelSettings(thinking="low", max_tokens=900), None, 900),
        (ModelSettings(show_thoughts=False), None, 16_000),
        (ModelSettings(thinking=0), {"type": "disabled"}, 16_000),
    ],
)
def test_budget_of_thinking_fits_the_maximum_of_tokens(
    settings: ModelSettings, thinking: Any, max_tokens: int, stack: ExitStack
) -> None:
    service = stack.enter_context(recorder(AnthropicService(Turn("ok"))))
    ask(Anthropic("claude-haiku-4-5", api_key="k", base_url=service.url), Message.user("Hi"), settings=settings)
    assert service.last.body.get("thinking") == thinking
    assert service.last.body["max_tokens"] == max_tokens


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("", "http://127.0.0.1:11434/v1"),
        ("0.0.0.0", "http://127.0.0.1:11434/v1"),
        ("localhost", "http://localhost:11434/v1"),
        ("box:9000", "http://box:9000/v1"),
        ("http://box:11434/", "http://box:11434/v1"),
        ("https://ollama.example/api", "https://ollama.example/api"),
    ],
)
def test_ollama_host_may_be_a_host_alone(host: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_HOST", host)
    assert service_url(PRESETS["ollama"]) == url


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("https://openai-prod.openai.azure.com/", "https://openai-prod.openai.azure.com/openai/v1"),
        ("https://x.openai.azure.com?api-version=1", "https://x.openai.azure.com/openai/v1?api-version=1"),
        (
            "https://x.openai.azure.com/openai/deployments/d?api-version=1",
            "https://x.openai.azure.com/openai/deployments/d?api-version=1",
        ),
    ],
)
def test_azure_endpoint_is_completed(endpoint: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", endpoint)
    assert service_url(PRESETS["azure"]) == url
    monkeypatch.delenv("AZURE_OPENAI_ENDPOINT")
    assert service_url(PRESETS["azure"], endpoint) == url
    with pytest.raises(ConfigError, match="Azure OpenAI needs an address"):
        service_url(PRESETS["azure"])


@pytest.mark.parametrize(
    "body",
    [
        b'{"choices":[{"message":null}]}',
        b'{"choices":["x"]}',
        b"[]",
        b"<html>",
        b'{"output":[1]}',
        b'{"content":["x"]}',
    ],
)
def test_response_of_another_form_is_a_malformed_response(wire: str, body: bytes, stack: ExitStack) -> None:
    make_service, _, _ = SERVICES[wire]
    service: Any = stack.enter_context(recorder(make_service(Turn("ok"))))
    service.answers.append((200, body, {}))
    provider = ONE_ATTEMPT[wire](service.url)
    with pytest.raises(MalformedResponseError) as malformed:
        ask(provider, Message.user("Hi"))
    assert "' object " not in str(malformed.value), "not in the words of Python"
    service.answers[0] = (200, b"data: " + body + b"\n\n", {"content-type": "text/event-stream"})
    with pytest.raises((MalformedResponseError, IncompleteResponseError)):
        asyncio.run(_must_end(provider))


async def _must_end(provider: Provider) -> None:
    response = await _streamed(provider)
    if response.finish_reason is FinishReason.CUT:
        raise IncompleteResponseError("the run would ask again")


ONCE = RetryPolicy(max_attempts=1)
ONE_ATTEMPT: dict[str, Callable[[str], Provider]] = {
    "anthropic": lambda url: Anthropic("m", api_key="k", base_url=url, retry=ONCE),
    "openai": lambda url: OpenAI("m", api_key="k", base_url=url, retry=ONCE),
    "deepseek": lambda url: OpenAI("m", preset="deepseek", api_key="k", base_url=url, retry=ONCE),
    "responses": lambda url: OpenAIResponses("m", api_key="k", base_url=url, retry=ONCE),
    "interactions": lambda url: Gemini("m", api="interactions", api_key="k", base_url=url, retry=ONCE),
}


@pytest.mark.parametrize("output", [{}, {"output": None}, {"content": None}])
def test_error_in_a_successful_response_is_raised_as_the_error_that_it_is(
    wire: str, output: dict[str, Any], stack: ExitStack
) -> None:
    service = stack.enter_context(recorder())
    service.answer({"error": {"code": 402, "message": "no credits"}, **output})
    with pytest.raises(QuotaExhaustedError, match="no credits"):
        ask(ONE_ATTEMPT[wire](service.url), Message.user("Hi"))


@pytest.mark.parametrize("odd", ["x", 5, True, [None], {"a": [1]}])
@pytest.mark.parametrize("streamed", [False, True])
def test_fields_beside_the_message_may_be_of_any_type(wire: str, streamed: bool, odd: Any, stack: ExitStack) -> None:
    make_service, _, _ = SERVICES[wire]
    service: Any = stack.enter_context(recorder(make_service(Turn("ok"))))
    fields = {"id", "model", "usage", "stop_details", "annotations", "citations", "refusal"}

    def replaced(value: Any) -> Any:
        if isinstance(value, list):
            return [replaced(item) for item in value]
        if not isinstance(value, dict):
            return value
        return {name: odd if name in fields else replaced(item) for name, item in value.items()}

    provider = ONE_ATTEMPT[wire](service.url)
    if streamed:
        events = [json.loads(event.partition(b"data: ")[2]) for event in service.events(Turn("ok")) if b": {" in event]
        body = b"".join(b"data: %b\n\n" % json.dumps(replaced(event)).encode() for event in events)
        service.answers.append((200, body, {"content-type": "text/event-stream"}))
        response = asyncio.run(_streamed(provider))
    else:
        service.answers.append((200, json.dumps(replaced(service.whole(Turn("ok")))).encode(), {}))
        response = ask(provider, Message.user("Hi"))
    assert response.message.text == "ok"
    assert msgspec.json.decode(msgspec.json.encode(response), type=ModelResponse) == response, "a journal can be read"


def test_unpaired_surrogates_are_replaced(wire: str, stack: ExitStack) -> None:
    make_service, _, _ = SERVICES[wire]
    service: Any = stack.enter_context(recorder(make_service(Turn("ok"))))
    provider = ONE_ATTEMPT[wire](service.url)
    whole, events = json.dumps(service.whole(Turn("ok"))).encode(), b"".join(service.events(Turn("ok")))
    service.answers.append((200, whole.replace(b'"ok"', rb'"\ud83d ok"'), {}))
    assert ask(provider, Message.user("Hi")).message.text == "\ufffd ok"
    service.answers[0] = (200, events.replace(b'"ok"', rb'"\ud83d ok"'), {"content-type": "text/event-stream"})
    assert asyncio.run(_streamed(provider)).message.text == "\ufffd ok"


def test_token_counts_may_be_strings() -> None:
    usage = {"prompt_tokens": "3", "completion_tokens": 4.0, "total_tokens": None, "prompt_tokens_details": "x"}
    body = {"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}], "usage": usage}
    counted = decode_openai(json.dumps(body).encode(), PRESETS["openai"]).usage
    assert (counted.input, counted.output, counted.total) == (3, 4, 7)


@pytest.mark.parametrize("arguments", [[1], 5, 0, "5", True, False])
@pytest.mark.parametrize("wire", ["openai", "responses", "interactions"])
def test_arguments_that_are_not_an_object_are_reported(wire: str, arguments: Any, stack: ExitStack) -> None:
    service = stack.enter_context(recorder())
    function = {"name": "get_weather", "arguments": arguments}
    call = {"id": "call_a", "type": "function", "function": function}
    step = {"type": "function_call", "id": "call_a", "call_id": "call_a", **function}
    bodies = {
        "openai": {
            "choices": [{"message": {"role": "assistant", "tool_calls": [call]}, "finish_reason": "tool_calls"}]
        },
        "responses": {"status": "completed", "output": [step]},
        "interactions": {"status": "requires_action", "steps": [step]},
    }
    service.answer(bodies[wire])
    [decoded] = ask(ONE_ATTEMPT[wire](service.url), Message.user("Hi")).message.calls
    assert (decoded.name, decoded.arguments) == ("get_weather", {})
    assert decoded.arguments_error is not None


@pytest.mark.parametrize("arguments", [None, [], '{"city": "Oslo"}', [1]])
@pytest.mark.parametrize("streamed", [False, True])
def test_arguments_of_claude_that_are_not_an_object_are_read_or_reported(
    arguments: Any, streamed: bool, stack: ExitStack
) -> None:
    service: Any = stack.enter_context(recorder(AnthropicService(Turn("ok"))))
    provider = ONE_ATTEMPT["anthropic"](service.url)
    block = {"type": "tool_use", "id": "a", "name": "get_weather", "input": arguments}
    events = [
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
    ]
    if streamed and not arguments:
        body = b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events)
        service.answers.append((200, body, {"content-type": "text/event-stream"}))
        message = asyncio.run(_streamed(provider)).message
    else:
        service.answers.append((200, json.dumps({"content": [block], "stop_reason": "tool_use"}).encode(), {}))
        message = ask(provider, Message.user("Hi")).message
    [call] = message.calls
    assert call.arguments == ({"city": "Oslo"} if isinstance(arguments, str) else {})
    assert (call.arguments_error is not None) == (arguments == [1])
    service.answers.clear()
    ask(provider, Message.user("Hi"), message, Message.user(ToolResult("a", "get_weather", "sunny")))
    assert service.refused == []


@pytest.mark.parametrize(
    "calls",
    [
        "",
        {},
        0,
        [{"id": "a", "type": "function", "function": None}],
        [{"id": 7, "type": "function", "function": {"name": "get_weather", "arguments": {}}}],
    ],
)
def test_calls_of_another_form_can_be_sent_back(calls: Any, stack: ExitStack) -> None:
    service = stack.enter_context(recorder(ChatService(Turn("ok"))))
    body = {"choices": [{"message": {"role": "assistant", "content": "Hm", "tool_calls": calls}}]}
    message = decode_openai(json.dumps(body).encode(), PRESETS["openai"]).message
    results = [Message.user(ToolResult(call.id, call.name, "sunny")) for call in message.calls]
    ask(OpenAI("gpt-5.5", api_key="k", base_url=service.url), Message.user("Hi"), message, *results)
    assert service.refused == []  # type: ignore[attr-defined]


@pytest.mark.parametrize("content", [5, True, [{"type": "text", "text": 5}]])
def test_text_that_is_no_string_is_a_malformed_response_with_the_transcript(content: Any, stack: ExitStack) -> None:
    paid = []

    @tool
    def pay() -> str:
        """Pay."""
        paid.append(1)
        return "paid"

    service = stack.enter_context(recorder(ChatService(Turn("never"))))
    call = ChatService(Turn("never")).whole(Turn("", (("call_a", "pay", "{}"),)))
    broken = {"choices": [{"message": {"content": content}, "finish_reason": "stop"}]}
    service.answers += [(200, json.dumps(document).encode(), {}) for document in (call, broken)]
    with pytest.raises(MalformedResponseError, match="not a string") as caught:
        Agent(ONE_ATTEMPT["openai"](service.url), tools=[pay]).run_sync("Pay")
    assert paid == [1]
    assert len(caught.value.transcript or ()) == 3


def test_service_that_does_not_stream_says_what_it_sent(wire: str, stack: ExitStack) -> None:
    service = stack.enter_context(recorder())
    service.answer({"choices": []})
    with pytest.raises(ProviderError, match=r"instead of a stream|has no|not an interaction|without a reason"):
        asyncio.run(_must_end(ONE_ATTEMPT[wire](service.url)))


def test_redirect_names_the_new_address(wire: str, stack: ExitStack) -> None:
    service = stack.enter_context(recorder())
    service.answer({}, status=302, location="https://new.example/")
    with pytest.raises(InvalidRequestError, match=r"'https://new\.example/'.*redirects are not followed"):
        ask(ONE_ATTEMPT[wire](service.url), Message.user("Hi"))


def test_list_of_models_of_another_form_is_a_malformed_response(stack: ExitStack) -> None:
    service = stack.enter_context(recorder())
    service.answer({"choices": []})
    for provider in (ONE_ATTEMPT["openai"](service.url), ONE_ATTEMPT["anthropic"](service.url)):
        with pytest.raises(MalformedResponseError, match="did not answer with a list of models"):
            asyncio.run(provider.list_models())  # type: ignore[attr-defined]


def test_name_of_a_call_may_come_after_its_id(stack: ExitStack) -> None:
    chunks = [
        {"tool_calls": [{"index": 0, "id": "call_a", "function": {"arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"name": "get_weather", "arguments": '{"city": '}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '"Oslo"}'}}]},
    ]
    events = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in chunks]
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
    service = stack.enter_context(recorder())
    service.answer_stream(*events, end)
    response = asyncio.run(_streamed(OpenAI("gpt-5.5", api_key="k", base_url=service.url)))
    [call] = response.message.calls
    assert (call.id, call.name, call.arguments) == ("call_a", "get_weather", {"city": "Oslo"})


def _fragment(name: str | None = None, arguments: str = "", **fields: Any) -> dict[str, Any]:
    function = {"arguments": arguments} if name is None else {"name": name, "arguments": arguments}
    return {**fields, "function": function}


A, B = '{"p": 1}', '{"p": 2}'


@pytest.mark.parametrize(
    "fragments",
    [
        [
            _fragment("f", id="a"),
            _fragment("g", id="b"),
            _fragment(arguments=A, id="a"),
            _fragment(arguments=B, id="b"),
        ],
        [
            _fragment("f", id="a", index=0),
            _fragment("g", id="b", index=0),
            _fragment(arguments=A, id="a", index=0),
            _fragment(arguments=B, id="b", index=0),
        ],
        [_fragment("f", index=0), _fragment(arguments=A, id="a", index=0), _fragment("g", B, id="b", index=1)],
        [_fragment("f", A, id="", index=0), _fragment("g", B, id="", index=0)],
        [_fragment("f", A), _fragment("g", B)],
        [
            _fragment("f", id="a", index=0),
            _fragment("g", id="b", index=1),
            _fragment(arguments='{"p"', index=0),
            _fragment(arguments=B, index=1),
            _fragment(arguments=": 1}", index=0),
        ],
    ],
)
def test_fragments_of_parallel_calls_are_put_together(fragments: list[dict[str, Any]], stack: ExitStack) -> None:
    events = [{"choices": [{"index": 0, "delta": {"tool_calls": [item]}, "finish_reason": None}]} for item in fragments]
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
    service = stack.enter_context(recorder())
    service.answer_stream(*events, end)
    response = asyncio.run(_streamed(OpenAI("gpt-5.5", api_key="k", base_url=service.url)))
    calls = response.message.calls
    assert [(call.name, call.arguments) for call in calls] == [("f", {"p": 1}), ("g", {"p": 2})]
    assert len({call.id for call in calls}) == 2


def test_arguments_without_a_call_are_a_malformed_response(stack: ExitStack) -> None:
    service = stack.enter_context(recorder())
    delta = {"tool_calls": [_fragment(arguments=A, id="a")]}
    service.answer_stream({"choices": [{"index": 0, "delta": delta, "finish_reason": "tool_calls"}]})
    with pytest.raises(MalformedResponseError, match="without a name"):
        asyncio.run(_streamed(ONE_ATTEMPT["openai"](service.url)))


def test_thinking_is_left_out_of_a_turn_that_began_with_a_forced_call(stack: ExitStack) -> None:
    service = stack.enter_context(recorder(AnthropicService(Turn("", CALLS[:1]), Turn("Sunny."))))
    claude = Anthropic("claude-sonnet-4-5", api_key="k", base_url=service.url)
    agent = Agent(claude, tools=[get_weather], tool_choice="required", settings={"thinking": 2048})
    assert agent.run_sync("Weather?").text == "Sunny."
    assert all("thinking" not in request.body for request in service.seen)


def test_types_that_a_service_cannot_enforce_are_answered_by_a_tool(stack: ExitStack) -> None:
    calls = (("call_a", "final_answer", '{"answer": {"a": 1}}'),)
    service = stack.enter_context(recorder(AnthropicService(Turn("", calls))))
    claude = Anthropic("claude-sonnet-5-5", api_key="k", base_url=service.url)
    for model in (claude, [claude, claude]):
        assert Agent(model, output=dict[str, int]).run_sync("Numbers").output == {"a": 1}
        assert "output_config" not in service.last.body


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (402, {"error": {"message": "Insufficient Balance", "code": "invalid_request_error"}}, QuotaExhaustedError),
        (404, {"error": {"message": "model 'x' not found", "type": "api_error"}}, UnknownModelError),
        (404, {"object": "error", "message": "The model `x` does not exist.", "code": 404}, UnknownModelError),
        (401, [{"error": {"code": 401, "message": "API key not valid"}}], AuthenticationError),
    ],
)
def test_errors_of_compatible_services_have_their_types(
    status: int, body: Any, error: type[ProviderError], stack: ExitStack
) -> None:
    service = stack.enter_context(recorder())
    service.answer(body, status=status)
    with pytest.raises(error) as caught:
        ask(ONE_ATTEMPT["openai"](service.url), Message.user("Hi"))
    assert "{" not in str(caught.value)


def test_arguments_as_text_are_read_or_reported(stack: ExitStack) -> None:
    service = stack.enter_context(recorder())
    provider = ONE_ATTEMPT["interactions"](service.url)
    for arguments, expected in (('{"city": "Oslo"}', {"city": "Oslo"}), ("[1", {})):
        service.answers = []
        step = {"type": "function_call", "id": "c", "name": "get_weather", "arguments": arguments}
        service.answer({"id": "v1", "status": "requires_action", "steps": [step]})
        [call] = ask(provider, Message.user("Hi")).message.calls
        assert call.arguments == expected
        assert (call.arguments_error is None) == bool(expected)


async def _streamed(provider: Provider) -> ModelResponse:
    request = ModelRequest(RequestConfig(provider.model), History([Message.user("Hi")]))
    *_, response = [event async for event in provider.stream(request)]
    assert isinstance(response, ModelResponse)
    return response


# What only one of them has


def test_claude_is_reached_by_vertex(stack: ExitStack) -> None:
    service = stack.enter_context(recorder())
    whole = AnthropicService(Turn("never")).whole(Turn("Hello."))
    service.answer(whole)
    claude = Anthropic(
        "claude-sonnet-4-5@20250929",
        vertex=True,
        project="p",
        location="us-east5",
        token=lambda: "t",
        base_url=service.url,
    )
    assert ask(claude, Message.user("Hi"), settings=ModelSettings(max_tokens=9)).message.text == "Hello."
    models = "/v1/projects/p/locations/us-east5/publishers/anthropic/models"
    assert service.last.path == f"{models}/claude-sonnet-4-5@20250929:rawPredict"
    assert service.last.headers["authorization"] == "Bearer t"
    assert service.last.body["anthropic_version"] == "vertex-2023-10-16"
    assert "model" not in service.last.body
    with pytest.raises(ConfigError, match="does not list"):
        asyncio.run(claude.list_models())


@pytest.mark.parametrize("streamed", [False, True])
def test_signature_of_geminis_compatible_endpoint_goes_back(streamed: bool, stack: ExitStack) -> None:
    service = stack.enter_context(recorder())
    signature = {"google": {"thought_signature": "c2ln"}}
    call = {"id": "call_a", "type": "function", "extra_content": signature}
    call["function"] = {"name": "get_weather", "arguments": '{"city": "Oslo"}'}
    if streamed:
        delta = {"role": "assistant", "tool_calls": [{"index": 0, **call}]}
        service.answer_stream({"choices": [{"index": 0, "delta": delta, "finish_reason": "tool_calls"}]})
    else:
        service.answer({"choices": [{"message": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]})
    gemini = OpenAI("gemini-3.8-flash", preset="google-openai", api_key="k", base_url=service.url)
    first = asyncio.run(_streamed(gemini)) if streamed else ask(gemini, Message.user("Hi"))
    service.answers.clear()
    service.answer({"choices": [{"message": {"content": "Sunny."}, "finish_reason": "stop"}]})
    result = Message.user(ToolResult("call_a", "get_weather", "sunny"))
    edited = first.message.with_parts(first.message.parts)
    for message in (first.message, edited):
        ask(gemini, Message.user("Hi"), message, result)
        assert service.last.body["messages"][1]["tool_calls"][0]["extra_content"] == signature


def test_signature_in_several_pieces_is_joined() -> None:
    decoder = AnthropicDecoder()
    deltas = [
        {"type": "thinking_delta", "thinking": "Hm."},
        {"type": "signature_delta", "signature": "abc"},
        {"type": "signature_delta", "signature": "def"},
    ]
    for event in (
        {"type": "message_start", "message": {"id": "1"}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
    ):
        list(decoder.decode(event))
    data = decoder.response().message.provider_data
    assert data is not None
    block = {"type": "thinking", "thinking": "Hm.", "signature": "abcdef"}
    assert json.loads(bytes(data.raw)) == {"role": "assistant", "content": [block]}


def test_call_without_id_goes_back_with_the_id_that_its_result_has(stack: ExitStack) -> None:
    service = stack.enter_context(recorder(ChatService(Turn("ok"))))
    call = {"type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
    body = {"choices": [{"message": {"role": "assistant", "content": None, "tool_calls": [call]}}]}
    message = decode_openai(json.dumps(body).encode(), PRESETS["openai"]).message
    result = Message.user(ToolResult(message.calls[0].id, "get_weather", "sunny"))
    ask(OpenAI("gpt-5.5", api_key="k", base_url=service.url), Message.user("Hi"), message, result)
    assert service.refused == []  # type: ignore[attr-defined]
    sent = service.last.body["messages"]
    assert sent[1]["tool_calls"][0]["id"] == sent[2]["tool_call_id"]


def test_thinking_tokens_of_claude_are_not_counted_as_output() -> None:
    usage = {"input_tokens": 3, "output_tokens": 10, "output_tokens_details": {"thinking_tokens": 7}}
    body = {"content": [{"type": "text", "text": "Hi"}], "stop_reason": "end_turn", "usage": usage}
    counted = decode_anthropic(json.dumps(body).encode()).usage
    assert (counted.input, counted.output, counted.thoughts, counted.total) == (3, 3, 7, 13)


def test_cache_policy_marks_tools_system_prompt_and_messages(stack: ExitStack) -> None:
    service = stack.enter_context(recorder(AnthropicService(Turn("ok"))))
    claude = Anthropic("claude-sonnet-5-5", api_key="k", base_url=service.url)
    ask(claude, Message.user("Hi"), system="Be brief.", tools=(WEATHER,), cache=CachePolicy(ttl_seconds=3600))
    mark = {"type": "ephemeral", "ttl": "1h"}
    body = service.last.body
    assert body["tools"][-1]["cache_control"] == body["system"][-1]["cache_control"] == body["cache_control"] == mark
    ask(claude, Message.user("Hi"), system="Be brief.", tools=(WEATHER,), cache=CachePolicy(parts=("system",)))
    assert "cache_control" not in service.last.body
    assert "cache_control" not in service.last.body["tools"][-1]
    assert service.last.body["system"][-1]["cache_control"] == {"type": "ephemeral"}
    assert service.refused == []  # type: ignore[attr-defined]


def test_cache_policy_of_an_agent_or_of_one_run_is_sent(stack: ExitStack) -> None:
    service = stack.enter_context(recorder(AnthropicService(*[Turn("ok")] * 3)))
    claude = Anthropic("claude-sonnet-5-5", api_key="k", base_url=service.url)
    agent = Agent(claude, system="Be brief.", cache=CachePolicy(parts=("system",)))
    agent.run_sync("Hi")
    assert service.last.body["system"][-1]["cache_control"] == {"type": "ephemeral"}
    agent.run_sync("Hi", cache=CachePolicy(ttl_seconds=3600, parts=("system",)))
    assert service.last.body["system"][-1]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
    agent.replace(cache=None).run_sync("Hi")
    assert "cache_control" not in str(service.last.body)


@pytest.mark.parametrize(
    ("model", "effort"),
    [
        *(("gpt-5", "minimal"), ("gpt-5-mini", "minimal"), ("gpt-5-2025-08-07", "minimal")),
        *(("gpt-5.5", "low"), ("o3", "low"), ("gpt-50", "low")),
    ],
)
def test_minimal_thinking_is_low_for_models_that_lack_it(model: str, effort: str, stack: ExitStack) -> None:
    settings = ModelSettings(thinking="minimal")
    chat = stack.enter_context(recorder(ChatService(Turn("ok"))))
    ask(OpenAI(model, api_key="k", base_url=chat.url), Message.user("Hi"), settings=settings)
    assert chat.last.body["reasoning_effort"] == effort
    responses = stack.enter_context(recorder(ResponsesService(Turn("ok"))))
    ask(OpenAIResponses(model, api_key="k", base_url=responses.url), Message.user("Hi"), settings=settings)
    assert responses.last.body["reasoning"] == {"effort": effort}


@pytest.mark.parametrize(("thinking", "level"), [("minimal", "low"), ("high", "high"), (0, None)])
def test_thinking_level_of_the_interactions_api(thinking: Any, level: str | None, stack: ExitStack) -> None:
    running = Running(stack, "interactions", Turn("ok"))
    ask(running.provider, Message.user("Hi"), settings=ModelSettings(thinking=thinking))
    assert running.service.last.body.get("generation_config", {}).get("thinking_level") == level


@pytest.mark.parametrize("media_type", ["application/pdf", "text/plain"])
def test_files_are_accepted(wire: str, media_type: str, stack: ExitStack) -> None:
    running = Running(stack, wire, Turn("A file."))
    ask(running.provider, Message.user("What is this?", Blob.of(b"%PDF-1.4", media_type, name="a.pdf")))
    assert running.service.refused == []
    assert "JVBERi0xLjQ" in json.dumps(running.service.last.body) or "%PDF-1.4" in json.dumps(running.service.last.body)


@pytest.mark.parametrize("wire", ["anthropic", "openai", "responses"])
def test_prompt_mode_works_with_every_provider(wire: str, stack: ExitStack) -> None:
    running = Running(stack, wire, Turn('TOOL_CALL: get_weather({"city": "Oslo"})'), Turn("Sunny."))
    assert Agent(running.provider, tools=[get_weather], prompt_mode=True).run_sync("Weather?").text == "Sunny."
    assert "Oslo: sunny" in json.dumps(running.service.last.body)
    assert running.service.refused == []


# Changing the model in the middle


def gemini(stack: ExitStack) -> tuple[Any, Provider]:
    def script(conversation: Any) -> Any:
        if "no station" in str(conversation.contents):
            return answer("Noted.")
        return answer("Looking.", gemini_call("get_weather", city="Oslo"), gemini_call("get_weather", city="Rome"))

    server = stack.enter_context(LocalGemini(script))
    return server, Gemini("gemini-3.8-flash", api_key="k", base_url=server.url)


def _turns(request: Any) -> Turn:
    is_answered = "no station" in json.dumps(request)
    return Turn("Noted.") if is_answered else Turn("Looking.", CALLS, "Two cities.")


@pytest.mark.requirement("S1-01")
@pytest.mark.parametrize(("first", "second"), [*permutations(["gemini", *SERVICES], 2)])
def test_conversation_goes_to_another_model_and_back(first: str, second: str, stack: ExitStack) -> None:
    providers: dict[str, Provider] = {}
    services: dict[str, Any] = {}
    for name in (first, second):
        if name == "gemini":
            services[name], providers[name] = gemini(stack)
        else:
            running = Running(stack, name, _turns)
            services[name], providers[name] = running.service, running.provider
    one, other = providers[first], providers[second]
    config = {"tools": (WEATHER,), "system": "Be brief."}
    messages = [Message.user("Weather here?", Blob("image/png", base64=PIXEL))]
    messages.append(ask(one, *messages, **config).message)
    calls = messages[-1].calls
    assert [call.arguments["city"] for call in calls] == ["Oslo", "Rome"]
    picture = ToolResult(calls[0].id, calls[0].name, content=(Text("sunny"), Blob("image/png", base64=PIXEL)))
    failed = ToolResult(calls[1].id, calls[1].name, "no station", is_error=True)
    messages.append(Message.user(picture, failed))
    messages.append(ask(other, *messages, **config).message)
    messages.append(Message.user("And tomorrow?"))
    messages.append(ask(other, *messages, **config).message)
    messages.append(Message.user("Thanks."))
    assert ask(one, *messages, **config).message.text == "Noted."
    for name in (first, second):
        assert name == "gemini" or services[name].refused == []
    if first not in ("gemini", "openai"):
        assert "Two cities." in json.dumps(services[first].last.body)  # its reasoning is back
    if second not in ("gemini", "openai"):
        assert "Two cities." not in json.dumps(services[second].last.body)
