"""Promises of requirements.toml that span several layers, shown through the public API."""

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from midspan import Agent, BackgroundRuns, Chat, Gemini, ModelSettings, RunContext, Toolbox
from midspan.errors import ConfigError, UnknownSession
from midspan.gemini import (
    Client,
    Content,
    GoogleSearch,
    Part,
    Tool,
    ToolRegistry,
    new_function_declaration,
)
from midspan.messages import Blob, Message, Text, ToolCall, ToolResult
from midspan.testing import ScriptedProvider
from midspan.tools import tool_from_schema
from tests.bounds import BOUND
from tests.gemini.recorder import Recorder, recorder

Ask = Callable[[Client, str, list[Any]], Any]


@pytest.fixture
def server() -> Iterator[Recorder]:
    with recorder() as record:
        yield record


@pytest.fixture
def client(server: Recorder) -> Iterator[Client]:
    with Client(api_key="k", base_url=server.url) as client:
        yield client


def response(*parts: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"role": "model", "parts": list(parts)}, "finishReason": "STOP"}]}


def add(first_number: int, second_number: int = 0) -> dict[str, int]:
    """Add two numbers."""
    return {"the_sum": first_number + second_number}


def ask_in_background(client: Client, prompt: str, tools: list[Any]) -> None:
    list(client.subscribe_stream(client.stream_generate_with_auto_tools(prompt, tools=tools)))


def ask_in_stream_with_execution(client: Client, prompt: str, tools: list[Any]) -> None:
    list(client.stream_generate_content(prompt, tools=tools, auto_execute_tools=True))


def agent_of(client: Client, tools: list[Any]) -> Agent[str]:
    return Agent(Gemini(api_key="k", base_url=client.aio.api.endpoint.base_url), tools)


async def ask_agent_in_stream(client: Client, prompt: str, tools: list[Any]) -> None:
    async for _ in agent_of(client, tools).stream(prompt):
        pass


WAYS_TO_GENERATE: dict[str, Ask] = {
    "generate_content": lambda client, prompt, tools: client.generate_content(prompt, tools=tools),
    "stream_generate_content": lambda client, prompt, tools: list(client.stream_generate_content(prompt, tools=tools)),
    "stream_with_execution": ask_in_stream_with_execution,
    "automatic": lambda client, prompt, tools: client.generate_content_with_auto_tools(prompt, tools=tools),
    "background": ask_in_background,
    "agent": lambda client, prompt, tools: agent_of(client, tools).run_sync(prompt),
    "agent_stream": lambda client, prompt, tools: asyncio.run(ask_agent_in_stream(client, prompt, tools)),
}


@pytest.mark.requirement("S0-08")
@pytest.mark.parametrize("way", WAYS_TO_GENERATE)
def test_every_way_to_generate_sends_tools_and_no_empty_list(client: Client, server: Recorder, way: str) -> None:
    server.answer(response({"text": "Done."}))
    WAYS_TO_GENERATE[way](client, "Hello", [add])
    assert [tool["name"] for tool in server.last.body["tools"][0]["functionDeclarations"]] == ["add"]
    WAYS_TO_GENERATE[way](client, "Hello", [])
    assert server.last.body == {"contents": [{"role": "user", "parts": [{"text": "Hello"}]}]}


@pytest.mark.requirement("S0-08")
def test_tokens_are_counted_with_the_tools(client: Client, server: Recorder) -> None:
    server.answer({"totalTokens": 5})
    client.count_tokens("Hello", tools=[add])
    tools = server.last.body["generateContentRequest"]["tools"]
    assert tools[0]["functionDeclarations"][0]["name"] == "add"


@pytest.mark.requirement("S0-09")
def test_names_that_users_chose_keep_their_casing_in_a_run(client: Client, server: Recorder) -> None:
    server.answer(response({"functionCall": {"name": "add", "args": {"first_number": 1, "second_number": 2}}}))
    server.answer(response({"text": "3"}))
    result = agent_of(client, [add]).run_sync("1 + 2?")
    assert [(run.arguments, run.value) for run in result.tool_calls] == [
        ({"first_number": 1, "second_number": 2}, {"the_sum": 3})
    ]
    [declaration] = server.last.body["tools"][0]["functionDeclarations"]
    assert list(declaration["parametersJsonSchema"]["properties"]) == ["first_number", "second_number"]
    assert server.last.body["contents"][-1]["parts"] == [
        {"functionResponse": {"name": "add", "response": {"the_sum": 3}}}
    ]


@pytest.mark.requirement("S0-09")
def test_names_that_users_chose_keep_their_casing_in_messages_of_other_models(client: Client, server: Recorder) -> None:
    names = {"snake_case": 1, "camelCase": {"in_side": 2}}
    server.answer(response({"text": "x"}))
    messages = [
        Message.user("x"),
        Message("model", (ToolCall("1", "do_it", names),)),
        Message.user(ToolResult("1", "do_it", names)),
    ]
    agent_of(client, []).run_sync(messages=messages)
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
    Agent(gemini, [add], system="Be brief.", settings=settings, tool_choice="required_any").run_sync("1 + 0?")
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


@pytest.mark.requirement("S1-17")
def test_images_and_files_reach_the_api(client: Client, server: Recorder) -> None:
    server.answer(response({"text": "A cat."}))
    blobs = [Blob.of(b"x", "image/png"), Blob("video/mp4", url="gs://bucket/film")]
    agent_of(client, []).run_sync(["What is this?", *blobs])
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
    answer = client.generate_content_with_auto_tools("1 + 0?", tools=[add], cached_content="cachedContents/7")
    assert [run.value for run in answer.result.tool_calls] == [{"the_sum": 1}]
    for request in server.seen:
        assert request.body.keys() == {"contents", "cachedContent"}
        assert request.body["cachedContent"] == "cachedContents/7"


@pytest.mark.requirement("S4-07", "S3-09")
def test_registered_functions_run_at_the_same_time() -> None:
    tools, both_run = ToolRegistry(), threading.Barrier(2)
    for name in ("left", "right"):
        tools.register(new_function_declaration(name, "Waits for the other."), lambda _: both_run.wait(BOUND) >= 0)
    results = tools.execute_calls([ToolCall("1", "left"), ToolCall("2", "right")])
    assert [(result.id, result.value) for result in results] == [("1", True), ("2", True)]


@pytest.mark.requirement("S4-07", "S3-16")
def test_a_function_has_thirty_seconds() -> None:
    deadlines: list[float | None] = []

    def look(context: RunContext[Any]) -> None:
        """Look."""
        deadlines.append(context.deadline)

    start = time.monotonic()
    Agent(ScriptedProvider([ToolCall("1", "look"), "Done."]), [look]).run_sync("Look.")
    [deadline] = deadlines
    assert deadline is not None
    assert start + 30 <= deadline <= time.monotonic() + 30


@pytest.mark.requirement("S4-08")
@pytest.mark.parametrize(
    "wrong",
    [
        {"parameters": {"type": "objekt"}},
        {"parameters": {"properties": {"a": {"anyOf": [{"type": "x"}]}}}},
        {"response": {"type": "objekt"}},
        {"parameters_json_schema": {"type": "objekt"}},
        {"description": "\n\t"},
        {"foo": 1},
    ],
)
def test_a_declaration_that_an_api_would_reject_is_an_error(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        new_function_declaration(**{"name": "add", "description": "Adds.", **wrong})
    assert new_function_declaration("a" * 64, "Adds.", {"type": "OBJECT"}).name == "a" * 64


class Payload:
    """Something large that a caller passes to a run."""


@pytest.mark.requirement("S4-16")
def test_what_a_run_used_is_freed_when_the_run_has_ended() -> None:
    async def main() -> None:
        model = ScriptedProvider(lambda _: "Done.")
        async with BackgroundRuns(Agent(model)) as runs, asyncio.timeout(BOUND):
            payload = Payload()
            reference = weakref.ref(payload)
            id = runs.start("go", context=payload)
            del payload
            assert [event.text async for _, event in runs.subscribe(id, view="final")] == ["Done."]
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            await asyncio.gather(*tasks, return_exceptions=True)  # until the run has ended
            del tasks
            await asyncio.sleep(0)  # until the callbacks of its tasks were called
            model.requests.clear()
            gc.collect()
            assert reference() is None
            assert (await runs.status(id)).ended, "it can still be read"

    asyncio.run(main())


@pytest.mark.requirement("S4-16")
def test_a_run_leaves_no_reference_cycles() -> None:
    payload = Payload()
    reference = weakref.ref(payload)
    agent = Agent(ScriptedProvider([ToolCall("1", "add", {"first_number": 1}), "1"]), [add])

    async def main() -> None:
        nonlocal payload
        result = await agent.run("1 + 0?", context=payload)
        assert result.text == "1"
        del payload, result

    gc.collect()
    gc.disable()
    try:
        asyncio.run(main())
        assert reference() is None
    finally:
        gc.enable()


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


STRICT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "code": {"type": "string", "minLength": 2, "maxLength": 4, "pattern": "^[A-Z]+$"},
        "size": {"enum": ["small", "large"]},
        "tags": {"type": "array", "minItems": 1, "uniqueItems": True},
    },
    "additionalProperties": False,
}


@pytest.mark.requirement("S3-04", "S3-03")
@pytest.mark.parametrize(
    "wrong",
    [
        {"code": "A"},
        {"code": "ABCDE"},
        {"code": "abc"},
        {"size": "medium"},
        {"tags": []},
        {"tags": ["a", "a"]},
        {"other": 1},
    ],
)
def test_a_tool_runs_only_with_arguments_that_match_every_keyword(wrong: dict[str, Any]) -> None:
    calls: list[dict[str, Any]] = []
    order = tool_from_schema("order", "Order.", STRICT_SCHEMA, lambda arguments: calls.append(arguments))
    right = {"code": "ABC", "size": "small", "tags": ["a"]}
    script = [[ToolCall("1", "order", {**right, **wrong}), ToolCall("2", "order", right)], "Done."]
    rejected, executed = Agent(ScriptedProvider(script), [order]).run_sync("Order it.").tool_calls
    assert rejected.is_error
    assert str(rejected.value).startswith("invalid parameters: ")
    assert not executed.is_error
    assert calls == [right]


@pytest.mark.requirement("S0-07", "S0-18", "S1-08", "S3-08")
def test_a_caller_can_execute_calls_and_continue_by_hand(client: Client, server: Recorder) -> None:
    with_id = {"functionCall": {"id": "7", "name": "add", "args": {"first_number": 1}}}
    without_id = {"functionCall": {"name": "add", "args": {"first_number": 2}}}
    server.answer(response(with_id, without_id))
    answer = client.generate_content("Add.", tools=[add])
    assert [(call.name, call.args, call.id) for call in answer.function_calls] == [
        ("add", {"first_number": 1}, "7"),
        ("add", {"first_number": 2}, None),
    ]
    [declaration] = server.last.body["tools"][0]["functionDeclarations"]
    assert declaration["parametersJsonSchema"]["required"] == ["first_number"]
    results = [
        Part.from_function_response(call.name or "", add(**call.args), id=call.id) for call in answer.function_calls
    ]
    client.generate_content([Content.text("Add."), answer.content, Content(role="user", parts=results)], tools=[add])
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


@pytest.mark.requirement("S0-16", "S0-12")
def test_a_session_that_was_never_opened_is_an_error() -> None:
    box = Toolbox()
    box.register(add, session="user_123")
    assert [spec.name for spec in box.list_tools("user_123")] == ["add"]
    for use in (box.list_tools, box.source, box.tools):
        with pytest.raises(UnknownSession, match="user_456"):
            use("user_456")


@pytest.mark.requirement("S1-03")
def test_results_in_messages_of_their_own_are_sent_as_one_content(client: Client, server: Recorder) -> None:
    server.answer(response({"text": "x"}))
    calls = ToolCall("1", "add", {"first_number": 1}), ToolCall("2", "add", {"first_number": 2})
    messages = [Message.user("x"), Message("model", calls), *(Message.user(ToolResult(id, "add", 1)) for id in "12")]
    agent_of(client, [add]).run_sync(messages=messages)
    assert [len(content["parts"]) for content in server.last.body["contents"]] == [1, 2, 2]


@pytest.mark.requirement("S3-16")
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "thread"])
def test_a_function_sees_that_its_run_was_cancelled(is_async: bool) -> None:
    contexts: list[RunContext[Any]] = []
    started, seen = threading.Event(), threading.Event()

    async def wait_in_loop(context: RunContext[Any]) -> None:
        """Wait."""
        contexts.append(context)
        started.set()
        await asyncio.Event().wait()

    def wait_in_thread(context: RunContext[Any]) -> None:
        """Wait."""
        contexts.append(context)
        started.set()
        while not context.cancelled:
            seen.wait(0.01)
        seen.set()

    async def main() -> None:
        function = wait_in_loop if is_async else wait_in_thread
        model = ScriptedProvider([ToolCall("1", function.__name__)])
        async with BackgroundRuns(Agent(model, [function])) as runs, asyncio.timeout(BOUND):
            id = runs.start("Wait.")
            await asyncio.to_thread(started.wait, BOUND)
            assert not contexts[0].cancelled
            await runs.cancel(id)

    asyncio.run(main())
    assert contexts[0].cancelled
    assert is_async or seen.wait(BOUND)


@pytest.mark.requirement("S4-05")
def test_a_turn_of_a_chat_has_the_role_it_was_added_with() -> None:
    chat = Chat(Agent(ScriptedProvider([])))
    for role, expected in (("assistant", "model"), ("model", "model"), ("user", "user"), ("tool", "user")):
        for content in ("Hello", Message("user", (Text("Hello"),))):
            assert chat.add_turn(role, content).messages[0] == Message(expected, (Text("Hello"),))
    assert len(chat.messages) == 0
