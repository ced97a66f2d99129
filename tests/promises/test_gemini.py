"""Promises about the Gemini API that span several layers, shown by the requests that reach a server."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from midspan import Agent, Chat, Gemini, ModelSettings, Toolbox
from midspan.compat import ToolRegistry
from midspan.emulator import LocalGemini, answer, call
from midspan.errors import AuthenticationError, SchemaError, UnknownModelError
from midspan.gemini import Client, Content, GoogleSearch, Part, Tool
from midspan.messages import Blob, Message, ToolCall, ToolResult
from midspan.tools import spec_from_parameters, tool_from_spec
from tests.gemini.recorder import Recorder

Ask = Callable[[Client, Recorder, list[Any]], Any]


def response(*parts: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"role": "model", "parts": list(parts)}, "finishReason": "STOP"}]}


def add(first_number: int, second_number: int = 0) -> dict[str, int]:
    """Add two numbers."""
    return {"the_sum": first_number + second_number}


def agent_of(server: Recorder, tools: list[Any]) -> Agent[str]:
    return Agent(Gemini(api_key="k", base_url=server.url), tools)


def ask_in_background(client: Client, _: Recorder, tools: list[Any]) -> None:
    list(client.subscribe_stream(client.stream_generate_with_auto_tools("Hello", tools=tools)))


async def ask_agent_in_stream(server: Recorder, tools: list[Any]) -> None:
    async for _ in agent_of(server, tools).stream("Hello"):
        pass


WAYS_TO_GENERATE: dict[str, Ask] = {
    "generate_content": lambda client, _, tools: client.generate_content("Hello", tools=tools),
    "stream_generate_content": lambda client, _, tools: list(client.stream_generate_content("Hello", tools=tools)),
    "stream_with_execution": lambda client, _, tools: list(
        client.stream_generate_content("Hello", tools=tools, auto_execute_tools=True)
    ),
    "automatic": lambda client, _, tools: client.generate_content_with_auto_tools("Hello", tools=tools),
    "background": ask_in_background,
    "agent": lambda _, server, tools: agent_of(server, tools).run_sync("Hello"),
    "agent_stream": lambda _, server, tools: asyncio.run(ask_agent_in_stream(server, tools)),
}


@pytest.mark.requirement("S0-08")
@pytest.mark.parametrize("way", WAYS_TO_GENERATE)
def test_every_way_to_generate_sends_tools_and_no_empty_list(client: Client, server: Recorder, way: str) -> None:
    server.answer(response({"text": "Done."}))
    WAYS_TO_GENERATE[way](client, server, [add])
    assert [tool["name"] for tool in server.last.body["tools"][0]["functionDeclarations"]] == ["add"]
    WAYS_TO_GENERATE[way](client, server, [])
    assert server.last.body == {"contents": [{"role": "user", "parts": [{"text": "Hello"}]}]}


@pytest.mark.requirement("S0-08")
def test_tokens_are_counted_with_the_tools(client: Client, server: Recorder) -> None:
    server.answer({"totalTokens": 5})
    client.count_tokens("Hello", tools=[add])
    tools = server.last.body["generateContentRequest"]["tools"]
    assert tools[0]["functionDeclarations"][0]["name"] == "add"


@pytest.mark.requirement("S0-09")
def test_names_that_users_chose_keep_their_casing_in_a_run(server: Recorder) -> None:
    server.answer(response({"functionCall": {"name": "add", "args": {"first_number": 1, "second_number": 2}}}))
    server.answer(response({"text": "3"}))
    result = agent_of(server, [add]).run_sync("1 + 2?")
    assert [(run.arguments, run.value) for run in result.tool_calls] == [
        ({"first_number": 1, "second_number": 2}, {"the_sum": 3})
    ]
    [declaration] = server.last.body["tools"][0]["functionDeclarations"]
    assert list(declaration["parametersJsonSchema"]["properties"]) == ["first_number", "second_number"]
    assert server.last.body["contents"][-1]["parts"] == [
        {"functionResponse": {"name": "add", "response": {"the_sum": 3}}}
    ]


@pytest.mark.requirement("S0-09")
def test_names_that_users_chose_keep_their_casing_in_messages_of_other_models(server: Recorder) -> None:
    names = {"snake_case": 1, "camelCase": {"in_side": 2}}
    server.answer(response({"text": "x"}))
    messages = [
        Message.user("x"),
        Message("model", (ToolCall("1", "do_it", names),)),
        Message.user(ToolResult("1", "do_it", names)),
    ]
    agent_of(server, []).run_sync(messages=messages)
    _, call, result = server.last.body["contents"]
    assert call["parts"][0]["functionCall"]["args"] == names
    assert result["parts"][0]["functionResponse"]["response"] == names


@pytest.mark.requirement("S0-09", "S0-19")
def test_names_that_users_chose_keep_their_casing_beside_fields_of_a_newer_api(
    client: Client, server: Recorder
) -> None:
    server.answer(response({"text": "x"}))
    schema = {"type": "object", "properties": {"blueprint_id": {"type": "string"}}}
    declaration = {"name": "f", "description": "F.", "parametersJsonSchema": schema, "brandNew": {"a_b": 1}}
    client.generate_content("x", tools=[{"function_declarations": [declaration]}], labels={"cost_center": "a"})
    assert server.last.body["tools"] == [{"functionDeclarations": [declaration]}]
    assert server.last.body["labels"] == {"cost_center": "a"}


@pytest.mark.requirement("S1-11", "S1-17")
def test_all_settings_of_an_agent_reach_the_api(server: Recorder) -> None:
    server.answer(response({"functionCall": {"name": "add", "args": {"first_number": 1}}}))
    server.answer(response({"text": "1"}))
    settings = ModelSettings(
        max_tokens=9,
        temperature=0.5,
        top_p=0.9,
        top_k=3,
        stop=("x",),
        seed=7,
        presence_penalty=0.1,
        frequency_penalty=0.2,
    )
    gemini = Gemini("gemini-2.5-pro", api_key="k", base_url=server.url, headers={"x-team": "a"})
    Agent(gemini, [add], system="Be brief.", settings=settings, tool_choice="required").run_sync("1 + 0?")
    first, second = server.seen
    assert first.body["systemInstruction"] == {"parts": [{"text": "Be brief."}]}
    assert first.body["generationConfig"] == {
        "maxOutputTokens": 9,
        "temperature": 0.5,
        "topP": 0.9,
        "topK": 3,
        "stopSequences": ["x"],
        "seed": 7,
        "presencePenalty": 0.1,
        "frequencyPenalty": 0.2,
    }
    assert first.body["toolConfig"] == {"functionCallingConfig": {"mode": "ANY"}}
    assert first.headers["x-team"] == second.headers["x-team"] == "a"
    assert second.body["generationConfig"] == first.body["generationConfig"]
    assert "toolConfig" not in second.body, "after the call that was required, the model may answer"


@pytest.mark.requirement("S1-17", "S0-20")
def test_images_and_files_reach_the_api(server: Recorder) -> None:
    server.answer(response({"text": "A cat."}))
    blobs = [Blob.of(b"x", "image/png"), Blob("video/mp4", url="gs://bucket/film")]
    agent_of(server, []).run_sync(["What is this?", *blobs])
    assert server.last.body["contents"][0]["parts"] == [
        {"text": "What is this?"},
        {"inlineData": {"mimeType": "image/png", "data": "eA=="}},
        {"fileData": {"fileUri": "gs://bucket/film", "mimeType": "video/mp4"}},
    ]


@pytest.mark.requirement("S1-05")
@pytest.mark.parametrize(("role", "sent"), [("assistant", "model"), ("tool", "user"), ("function", "user")])
def test_roles_of_other_apis_are_sent_as_those_of_gemini(
    client: Client, server: Recorder, role: str, sent: str
) -> None:
    server.answer(response({"text": "x"}))
    for content in (Content.text("Hello", role), {"role": role, "parts": ["Hello"]}):
        client.generate_content(["x", content])
        assert server.last.body["contents"][1] == {"role": sent, "parts": [{"text": "Hello"}]}


@pytest.mark.requirement("S3-13")
def test_tools_run_although_only_the_cache_declares_them(client: Client, server: Recorder) -> None:
    server.answer(response({"functionCall": {"name": "add", "args": {"first_number": 1}}}))
    server.answer(response({"text": "1"}))
    final = client.generate_content_with_auto_tools("1 + 0?", tools=[add], cached_content="cachedContents/7")
    assert [run.value for run in final.result.tool_calls] == [{"the_sum": 1}]
    for request in server.seen:
        assert request.body.keys() == {"contents", "cachedContent"}
        assert request.body["cachedContent"] == "cachedContents/7"


@pytest.mark.requirement("S2-16", "S1-12")
def test_model_without_functions_gets_tools_in_its_prompt(server: Recorder) -> None:
    server.answer(response({"text": 'TOOL_CALL: add({"first_number": 1})'}))
    server.answer(response({"text": "1"}))
    gemma = Gemini("gemma-3-27b-it", api_key="k", base_url=server.url)
    result = Agent(gemma, [add], system="Be brief.").run_sync("1 + 0?")
    assert (result.text, [run.value for run in result.tool_calls]) == ("1", [{"the_sum": 1}])
    for request in server.seen:
        assert request.body.keys() == {"contents"}
        prompt = request.body["contents"][0]["parts"][0]["text"]
        assert prompt.startswith("Be brief.\n\nAvailable tools:\n- add: Add two numbers.")


@pytest.mark.requirement("S2-16", "S4-17")
def test_model_without_functions_and_without_tools_gets_only_the_prompt(server: Recorder) -> None:
    server.answer(response({"text": 'TOOL_CALL: add({"first_number": 1})'}))
    gemma = Gemini("gemma-3-27b-it", api_key="k", base_url=server.url)
    assert Agent(gemma).run_sync("How is a tool called?").text == 'TOOL_CALL: add({"first_number": 1})'
    assert server.last.body == {"contents": [{"role": "user", "parts": [{"text": "How is a tool called?"}]}]}


@pytest.mark.requirement("S0-05")
@pytest.mark.parametrize("call", [{"name": "now"}, {"name": "now", "args": None}, {"name": "now", "args": {}}])
def test_call_without_arguments_is_executed(server: Recorder, call: dict[str, Any]) -> None:
    calls: list[bool] = []

    def now() -> str:
        """The time."""
        calls.append(True)
        return "noon"

    server.answer(response({"functionCall": call}))
    server.answer(response({"text": "It is noon."}))
    gemini = Gemini(api_key="k", base_url=server.url)
    result = Agent(gemini, [now]).run_sync("What time is it?")
    assert [(run.arguments, run.value) for run in result.tool_calls] == [({}, "noon")]
    assert ToolRegistry().execute_calls([call])[0].value.startswith("unknown tool: now"), "it is a call"
    assert calls == [True]


@pytest.mark.requirement("S0-02")
def test_google_search_is_sent_as_an_empty_object(client: Client, server: Recorder) -> None:
    server.answer(response({"text": "x"}))
    for tools in ([GoogleSearch()], [Tool(google_search=GoogleSearch())], [{"google_search": {}}]):
        client.generate_content("x", tools=tools)
        assert server.last.body["tools"] == [{"googleSearch": {}}]


@pytest.mark.requirement("S0-07", "S0-18", "S1-08", "S3-08")
def test_a_caller_can_execute_calls_and_continue_by_hand(client: Client, server: Recorder) -> None:
    with_id = {"functionCall": {"id": "7", "name": "add", "args": {"first_number": 1}}}
    without_id = {"functionCall": {"name": "add", "args": {"first_number": 2}}}
    server.answer(response(with_id, without_id))
    first = client.generate_content("Add.", tools=[add])
    assert [(call.name, call.args, call.id) for call in first.function_calls] == [
        ("add", {"first_number": 1}, "7"),
        ("add", {"first_number": 2}, None),
    ]
    [declaration] = server.last.body["tools"][0]["functionDeclarations"]
    assert declaration["parametersJsonSchema"]["required"] == ["first_number"]
    results = [
        Part.from_function_response(call.name or "", add(**call.args), id=call.id) for call in first.function_calls
    ]
    client.generate_content([Content.text("Add."), first.content, Content(role="user", parts=results)], tools=[add])
    assert server.last.body["contents"] == [
        {"role": "user", "parts": [{"text": "Add."}]},
        {"role": "model", "parts": [with_id, without_id]},
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "add", "response": {"the_sum": 1}, "id": "7"}},
                {"functionResponse": {"name": "add", "response": {"the_sum": 2}}},
            ],
        },
    ]
    assert Content.text("Yes.", "model") == Content(role="model", parts=[Part.from_text("Yes.")])


@pytest.mark.requirement("S0-10", "P-04")
def test_parts_of_unknown_kinds_go_back_also_in_a_message_that_was_edited(client: Client, server: Recorder) -> None:
    hologram = {"hologram": {"data": "eA=="}, "thoughtSignature": "s"}
    server.answer(response({"text": "Look:"}, hologram, {"text": "Nice."}))
    message = client.generate_content("Draw.").message
    for edited in (message, message.with_parts(message.parts[1:])):
        client.generate_content([Message.user("Draw."), edited, Message.user("Again.")])
        assert hologram in server.last.body["contents"][1]["parts"]


@pytest.mark.requirement("S1-03")
def test_results_in_messages_of_their_own_are_sent_as_one_content(client: Client, server: Recorder) -> None:
    server.answer(response({"text": "x"}))
    calls = ToolCall("1", "add", {"first_number": 1}), ToolCall("2", "add", {"first_number": 2})
    messages = [Message.user("x"), Message("model", calls), *(Message.user(ToolResult(id, "add", 1)) for id in "12")]
    agent_of(server, [add]).run_sync(messages=messages)
    assert [len(content["parts"]) for content in server.last.body["contents"]] == [1, 2, 2]
    client.generate_content(messages)
    assert [len(content["parts"]) for content in server.last.body["contents"]] == [1, 2, 2]


PARAMETERS = [
    {"name": "title", "type": "string", "description": "The title.", "required": True},
    {"name": "pages", "type": "Integer", "validation_json": '{"minimum": 1}'},
    {"name": "tags", "type": "list", "items": {"type": "str"}},
]


@pytest.mark.requirement("S0-13", "S1-04")
def test_a_tool_described_by_a_list_of_parameters_is_declared_and_called(server: Recorder) -> None:
    server.answer(response({"functionCall": {"name": "order_book", "args": {"title": "Emma"}}}))
    server.answer(response({"text": "Ordered."}))
    book = tool_from_spec(spec_from_parameters("order_book", "Order a book.", PARAMETERS), lambda arguments: arguments)
    result = agent_of(server, [book]).run_sync("Order Emma.")
    assert [run.value for run in result.tool_calls] == [{"title": "Emma"}]
    [declaration] = server.last.body["tools"][0]["functionDeclarations"]
    assert declaration == {
        "name": "order_book",
        "description": "Order a book.",
        "parametersJsonSchema": {
            "type": "object",
            "properties": {
                "title": {"type": "string", "description": "The title."},
                "pages": {"type": "integer", "minimum": 1},
                "tags": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["title"],
        },
    }
    with pytest.raises(SchemaError, match=r"order_book.*'title'.*unknown type 'strng'"):
        spec_from_parameters("order_book", "Order a book.", [{"name": "title", "type": "strng"}])


@pytest.mark.requirement("S0-12", "S0-16")
def test_tools_of_a_session_are_gemini_tools_in_that_session_only(client: Client, server: Recorder) -> None:
    server.answer(response({"text": "x"}))
    box = Toolbox()
    box.register(add, session="user_123")
    box.open_session("user_456")
    client.generate_content("x", tools=[*box.tools("user_123").values()])
    assert [tool["name"] for tool in server.last.body["tools"][0]["functionDeclarations"]] == ["add"]
    client.generate_content("x", tools=[*box.tools("user_456").values()])
    assert "tools" not in server.last.body
    executed = asyncio.run(box.execute_in_session("user_123", "add", {"first_number": 1}))
    assert (executed.is_error, executed.value) == (False, {"the_sum": 1})
    assert asyncio.run(box.execute_in_session("user_456", "add", {"first_number": 1})).is_error


CALLS = answer(call("add", first_number=1), call("add", first_number=2))


@pytest.fixture
def local() -> Iterator[LocalGemini]:
    with LocalGemini([CALLS, "Done."], api_key="right") as server:
        yield server


@pytest.mark.requirement("S1-16")
@pytest.mark.parametrize("model", ["gemini-3.8-flash", "gemini-2.5-flash"])
def test_chats_calls_choices_and_errors_with_a_strict_server(local: LocalGemini, model: str) -> None:
    gemini = Gemini(model, api_key="right", base_url=local.url)
    with LocalGemini() as echo:
        talk = Chat(Agent(Gemini(model, api_key="k", base_url=echo.url), system="Be brief."))
        assert talk.ask_sync("Hello").ask_sync("Bye").text == "You said: Bye"
    for choice in (None, "optional", "required", {"type": "required", "tool": "add"}):
        result = Agent(gemini, [add], tool_choice=choice).run_sync("1 and 2?")
        assert [run.value for run in result.tool_calls] == [{"the_sum": 1}, {"the_sum": 2}]
        assert result.text == "Done."
    assert Agent(gemini, [add], tool_choice="none").run_sync("1 and 2?").tool_calls == ()
    with pytest.raises(AuthenticationError):
        Agent(Gemini(model, api_key="wrong", base_url=local.url)).run_sync("Hello")
    with pytest.raises(UnknownModelError):
        Agent(Gemini("gemini-0.1-nothing", api_key="right", base_url=local.url)).run_sync("Hello")
    assert local.errors
