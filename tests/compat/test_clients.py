"""Clients with conversations by id and messages as dicts, against strict services."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from midspan.compat import AnthropicClient, Client, GeminiClient, OpenAIClient
from midspan.compat.clients import parse_if_json
from midspan.emulator import LocalGemini, answer
from midspan.emulator import call as gemini_call
from midspan.errors import (
    AuthenticationError,
    ConfigError,
    DuplicateToolError,
    InvalidRequestError,
    LimitReachedError,
    UnknownModelError,
)
from tests.gemini.recorder import recorder
from tests.providers.services import AnthropicService, ChatService, Turn

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CALLS = (("call_a", "get_weather", '{"city": "Oslo"}'), ("call_b", "get_weather", '{"city": "Rome"}'))


def get_weather(city: str, user: str = "") -> dict[str, Any]:
    if city == "Rome":
        return {"success": False, "message": "no station", "data": None}
    return {"success": True, "message": "", "data": {"city": city, "user": user}}


WEATHER = {
    "name": "get_weather",
    "description": "The weather in a city.",
    "parameters": PARAMETERS,
    "function": get_weather,
}


def _script(request: Any) -> Turn:
    return Turn("It is sunny.") if "no station" in json.dumps(request) else Turn("Looking.", CALLS)


def _gemini_script(conversation: Any) -> Any:
    if "no station" in str(conversation.contents):
        return answer("It is sunny.")
    return answer("Looking.", gemini_call("get_weather", city="Oslo"), gemini_call("get_weather", city="Rome"))


def gemini(stack: ExitStack) -> Client:
    return GeminiClient("k", base_url=stack.enter_context(LocalGemini(_gemini_script)).url)


def openai(stack: ExitStack) -> Client:
    return OpenAIClient("k", base_url=stack.enter_context(recorder(ChatService(_script))).url)


def anthropic(stack: ExitStack) -> Client:
    return AnthropicClient("k", base_url=stack.enter_context(recorder(AnthropicService(_script))).url)


CLIENTS: list[Callable[[ExitStack], Client]] = [gemini, openai, anthropic]


@pytest.fixture(params=CLIENTS, ids=lambda make: make.__name__)
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    with ExitStack() as stack:
        client = request.param(stack)
        client.register_tool(WEATHER)
        yield client
        client.close()


@pytest.mark.requirement("S1-05", "S1-07", "S1-13")
def test_message_has_the_calls_and_results_continue_the_conversation(client: Client) -> None:
    conversation = client.create_conversation("Be brief.")
    message = client.send_message("Weather in Oslo and Rome?", conversation)
    text, *calls = message["content"]
    assert (message["role"], text) == ("assistant", {"type": "text", "text": "Looking."})
    assert [call["tool_call"]["arguments"] for call in calls] == [{"city": "Oslo"}, {"city": "Rome"}]
    assert len({call["tool_call"]["id"] for call in calls}) == 2
    last = client.handle_tool_response(message, {"user": "ada"})
    assert last["content"] == [{"type": "text", "text": "It is sunny."}]
    results = [item for item in client.get_messages(conversation) if item["role"] == "tool"]
    assert len(results) == (2 if client._should_split_tool_responses() else 1)
    responses = [block["tool_response"] for item in results for block in item["content"]]
    assert [response["name"] for response in responses] == ["get_weather", "get_weather"]
    assert json.loads(responses[0]["content"])["data"] == {"city": "Oslo", "user": "ada"}


def test_final_tool_that_succeeds_ends_the_conversation(client: Client) -> None:
    client.register_tool({**WEATHER, "final_tool": True}, override=True)
    last = client.handle_tool_response(client.send_message("Weather?"))
    assert last["role"] == "tool"


def test_turns_are_limited(client: Client) -> None:
    client.max_iterations = 2
    client.register_tool({**WEATHER, "function": lambda city: "again"}, override=True)
    with pytest.raises(LimitReachedError):
        client.handle_tool_response(client.send_message("Weather?"))


@pytest.mark.requirement("S1-19")
def test_tools_are_registered_from_a_folder(client: Client, tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "definitions.py").write_text(
        "def buy(item, count=1):\n    return {'success': True, 'message': f'{count} {item}', 'data': None}\n"
        "DEFINITIONS = {'buy': {'description': 'Buy.', 'function': buy, 'final_tool': True,\n"
        "    'parameters': {'type': 'object', 'properties': {'item': {'type': 'string'}}}, 'required': ['item']}}\n"
    )
    assert client.register_tools(tmp_path) == ["buy"]
    with pytest.raises(DuplicateToolError):
        client.register_tools(tmp_path)
    assert client.register_tools(tmp_path, override=True) == ["buy"]
    bought = client.execute_tool({"name": "buy", "arguments": {"item": "lamp"}}, {"count": 2})
    assert bought == {"success": True, "message": "2 lamp", "data": None}
    assert not client.execute_tool({"name": "buy", "arguments": {}})["success"]
    assert client.execute_tool({"name": "sell"})["message"] == "unknown tool: sell"
    with pytest.raises(ConfigError, match=r"no definitions\.py"):
        client.register_tools(tmp_path / "empty")


def test_conversation_has_its_own_tools(client: Client) -> None:
    with pytest.raises(ConfigError, match="unknown tools: buy"):
        client.create_conversation(available_tools=["buy"])
    conversation = client.create_conversation(available_tools=["get_weather"])
    assert client.send_message("Hi", conversation, tool_choice="required", max_tokens=99)["content"]
    with pytest.raises(ConfigError, match="unknown conversation"):
        client.send_message("Hi", "nowhere")


@pytest.mark.requirement("S1-04", "S1-10")
def test_forms_of_the_api(client: Client) -> None:
    declared = client._convert_tool_to_api_format(WEATHER)
    assert "get_weather" in json.dumps(declared)
    assert "The weather in a city." in json.dumps(declared)
    required = client._convert_tool_choice_to_api_format({"type": "required", "tool": "get_weather"})
    assert "get_weather" in json.dumps(required)
    assert client._convert_tool_choice_to_api_format("none") != required
    said = client._convert_message_to_api_format({"role": "assistant", "content": [{"type": "text", "text": "Hi"}]})
    assert said["role"] in ("model", "assistant")
    response = client._make_api_call([{"role": "user", "content": "Hi"}], "Be brief.", 99, [WEATHER], "optional")
    assert client._convert_api_response_to_message(response)["content"][0] == {"type": "text", "text": "Looking."}


@pytest.mark.requirement("S1-13")
def test_result_is_formatted_from_three_values_or_from_one_text(client: Client) -> None:
    three = client._format_tool_response("1", '{"a": 1}', "f")
    one = client._format_tool_response('{"tool_call_id": "1", "name": "f", "response": "{\\"a\\": 1}"}')
    assert three == one
    assert three["content"][0]["tool_response"] == {"tool_call_id": "1", "name": "f", "content": '{"a": 1}'}
    with pytest.raises(ConfigError):
        client._format_tool_response("1")


@pytest.mark.requirement("S1-11")
def test_headers_of_one_message_are_sent() -> None:
    with recorder(AnthropicService(Turn("Hi"))) as service:
        client = AnthropicClient("k", base_url=service.url)
        client.send_message("Hi", extra_headers={"x-trace": "7"})
        assert service.last.headers["x-trace"] == "7"
        client.send_message("Hi")
        assert "x-trace" not in service.last.headers


def _wiper(wiped: list[str]) -> dict[str, Any]:
    def wipe(path: str = "/") -> str:
        wiped.append(path)
        return "wiped"

    parameters = {"type": "object", "properties": {"path": {"type": "string"}}}
    return {"name": "wipe", "description": "Wipe.", "parameters": parameters, "function": wipe}


@pytest.mark.parametrize(
    ("arguments", "is_cut"), [('{"path": "/tm', False), ("[1]", False), ('{"path": "/tmp"}', True)]
)
def test_call_that_cannot_be_read_or_was_cut_is_not_executed(arguments: str, is_cut: bool) -> None:
    wiped: list[str] = []
    turns = Turn("", (("call_a", "wipe", arguments),), is_cut=is_cut), Turn("Sorry.")
    with recorder(ChatService(*turns)) as service:
        client = OpenAIClient("k", base_url=service.url)
        client.register_tool(_wiper(wiped))
        last = client.handle_tool_response(client.send_message("Wipe /tmp"))
    assert last["content"] == [{"type": "text", "text": "Sorry."}]
    assert wiped == []


def test_tool_of_another_conversation_is_not_executed() -> None:
    wiped: list[str] = []
    with recorder(ChatService(Turn("", (("call_a", "wipe", "{}"),)), Turn("Sorry."))) as service:
        client = OpenAIClient("k", base_url=service.url)
        client.register_tool(_wiper(wiped))
        message = client.send_message("Wipe", client.create_conversation(available_tools=[]))
        client.handle_tool_response(message)
    assert wiped == []


def test_results_of_any_kind_are_outcomes_and_async_functions_are_awaited() -> None:
    async def later() -> str:
        return "later"

    client = OpenAIClient("k")
    for name, function in (("big", lambda: "x" * 400_000), ("odd", object), ("later", later)):
        client.register_tool({"name": name, "description": name, "function": function})
        assert client.execute_tool({"name": name, "arguments": "{}"})["success"]
    assert client.execute_tool({"name": "later"})["data"] == "later"
    assert client.execute_tool({"name": "later", "arguments": "[1]"}) == {
        "success": False,
        "message": "the arguments of a call must be a dict, got [1]",
        "data": None,
    }
    for incomplete in ({"name": "f"}, {"function": later}, {"name": "f", "function": "later"}):
        with pytest.raises(ConfigError, match="a tool needs a name and a function, got "):
            client.register_tool(incomplete)
    with pytest.raises(ConfigError, match="does not accept the tool name"):
        client.register_tool({"name": "my.tool", "function": later})


def test_message_that_failed_can_be_sent_again() -> None:
    with recorder(ChatService(Turn("Hi"))) as service:
        client = OpenAIClient("k", base_url=service.url)
        conversation = client.create_conversation()
        service.answers.append(service.error(400, "invalid_request_error", "no"))  # type: ignore[attr-defined]
        with pytest.raises(InvalidRequestError):
            client.send_message("Hi", conversation)
        service.answers.clear()
        client.send_message("Hi", conversation)
        assert [message["role"] for message in service.last.body["messages"]] == ["user"]


def test_errors_have_their_types() -> None:
    with recorder(ChatService(Turn("Hi"))) as service:
        service.required = {"authorization": "Bearer right"}  # type: ignore[attr-defined]
        with pytest.raises(AuthenticationError):
            OpenAIClient("wrong", base_url=service.url).send_message("Hi")
        with pytest.raises(UnknownModelError):
            OpenAIClient("right", "unknown", base_url=service.url).send_message("Hi")


def test_names_and_defaults() -> None:
    clients = [GeminiClient("k"), OpenAIClient("k"), AnthropicClient("k")]
    assert [client._get_api_name() for client in clients] == ["Gemini", "OpenAI", "Anthropic"]
    assert all(client.model == client._get_default_model() for client in clients)
    with pytest.raises(ConfigError, match="unknown block"):
        clients[0]._convert_message_to_api_format({"role": "user", "content": [{"type": "video"}]})


def test_tool_gets_the_names_of_its_own_schema() -> None:
    parameters = {"type": "object", "properties": {"größe in cm": {"type": "integer"}}, "required": ["größe in cm"]}
    with recorder(AnthropicService(Turn("Hi"))) as service:
        client = AnthropicClient("k", base_url=service.url)
        client.register_tool({"name": "measure", "description": "Measure.", "parameters": parameters, "function": dict})
        client.send_message("Hi")
        [declared] = service.last.body["tools"]
    [name] = declared["input_schema"]["properties"]
    assert name.isascii()
    assert client.execute_tool({"name": "measure", "arguments": {name: 5}})["data"] == {"größe in cm": 5}


def test_incomplete_calls_and_messages_are_reported(client: Client) -> None:
    assert client.execute_tool({})["message"] == "a call needs a name, got {}"
    assert parse_if_json("\ud800") == "\ud800"
    message = {"role": "assistant", "content": "Hi.", "conversation_id": client.create_conversation()}
    assert client.handle_tool_response(message) == message
    with pytest.raises(ConfigError, match="the message has no conversation_id; pass one that send_message returned"):
        client.handle_tool_response({"role": "assistant", "content": "Hi."})
