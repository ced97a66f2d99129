import asyncio
import threading
import traceback
from typing import Any, Literal
from urllib.parse import unquote

import pytest

from midspan import errors
from midspan._http.retry import RetryPolicy
from midspan._types.messages import Message
from midspan._types.parts import Text, Thought, ToolCall, ToolResult
from midspan.gemini import (
    AsyncClient,
    Client,
    Content,
    FunctionDeclaration,
    GoogleSearch,
    Part,
    Schema,
    Tool,
    UrlContext,
)
from midspan.messages import History
from midspan.tools.execution import execute
from midspan.tools.function import tool
from tests.bounds import BOUND
from tests.gemini.recorder import Recorder


def said(*parts: Any, finish: str = "STOP", **more: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"role": "model", "parts": list(parts)}, "finishReason": finish}], **more}


CALL = {"functionCall": {"id": "7", "name": "add", "args": {"a_b": 1}}, "thoughtSignature": "s"}


@tool
def add(a_b: int, c: int = 0) -> int:
    """Adds."""
    return a_b + c


def test_a_prompt_is_sent_and_the_response_returned(client: Client, server: Recorder) -> None:
    server.answer(said({"text": "Hi."}, usageMetadata={"totalTokenCount": 5}))
    response = client.generate_content("Hello")
    assert (response.text, response.finish_reason, response.usage_metadata.total_token_count) == ("Hi.", "STOP", 5)
    assert server.last.path == "/v1beta/models/gemini-3.8-flash:generateContent"
    assert server.last.headers["x-goog-api-key"] == "k"
    assert server.last.headers["user-agent"].startswith("midspan/")
    assert server.last.body == {"contents": [{"role": "user", "parts": [{"text": "Hello"}]}]}


def test_a_retired_model_logs_a_warning_with_its_successor(caplog: pytest.LogCaptureFixture) -> None:
    Client("gemini-1.5-flash", api_key="k")
    assert "gemini-1.5-flash was shut down; use gemini-3.8-flash" in caplog.text


@pytest.mark.requirement("S1-11")
def test_all_options_of_a_request_reach_the_api(client: Client, server: Recorder) -> None:
    server.answer(said({"text": "x"}))
    client.generate_content(
        [Content.text("a"), Content.text("b", "model"), Content(role="user", parts=[Part.from_text("c")])],
        model="gemini-2.5-pro",
        system_instruction="Be brief.",
        temperature=0,
        max_output_tokens=5,
        stop_sequences=["x"],
        thinking_config={"thinking_budget": -1},
        generation_config={"response_modalities": ["TEXT"]},
        safety_settings=[{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "OFF"}],
        labels={"cost_center": "a_b"},
    )
    assert server.last.path == "/v1beta/models/gemini-2.5-pro:generateContent"
    assert server.last.body == {
        "contents": [
            {"role": "user", "parts": [{"text": "a"}]},
            {"role": "model", "parts": [{"text": "b"}]},
            {"role": "user", "parts": [{"text": "c"}]},
        ],
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "generationConfig": {
            "temperature": 0,
            "maxOutputTokens": 5,
            "stopSequences": ["x"],
            "thinkingConfig": {"thinkingBudget": -1},
            "responseModalities": ["TEXT"],
        },
        "safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "OFF"}],
        "labels": {"cost_center": "a_b"},
    }


@pytest.mark.requirement("S1-12")
@pytest.mark.parametrize("system", ["Be brief.", ["Be brief."], {"parts": [{"text": "Be brief."}]}])
def test_model_without_system_instructions_gets_it_as_the_first_content(
    client: Client, server: Recorder, system: Any
) -> None:
    server.answer(said({"text": "x"}))
    expected = {"contents": [{"role": "user", "parts": [{"text": text}]} for text in ("Be brief.", "hi")]}
    for contents in ("hi", History([Message.user("hi")])):
        client.generate_content(contents, model="gemma-3-27b-it", system_instruction=system)
        assert server.last.body == expected
        list(client.stream_generate_content(contents, model="gemma-3-27b-it", system_instruction=system))
        assert server.last.body == expected
        client.generate_content_with_auto_tools(contents, model="gemma-3-27b-it", system_instruction=system)
        assert server.last.body == expected


def test_an_unknown_setting_is_an_error(client: Client) -> None:
    with pytest.raises(errors.ConfigError, match="unknown setting 'temprature'"):
        client.generate_content("x", temprature=1)


INLINE = {"inlineData": {"mimeType": "image/png", "data": "eA=="}}
ONLY_INLINE = {"role": "user", "parts": [INLINE]}
FILE = {"fileData": {"fileUri": "gs://x", "mimeType": "video/mp4"}}


@pytest.mark.parametrize(
    ("contents", "sent"),
    [
        ("a", [{"role": "user", "parts": [{"text": "a"}]}]),
        (["a", Part.from_bytes(b"x", "image/png")], [{"role": "user", "parts": [{"text": "a"}, INLINE]}]),
        (Part.from_uri("gs://x", "video/mp4"), [{"role": "user", "parts": [FILE]}]),
        ({"role": "user", "parts": [{"inline_data": {"mime_type": "image/png", "data": "eA=="}}]}, [ONLY_INLINE]),
        (
            [Content.text("a"), "b"],
            [{"role": "user", "parts": [{"text": "a"}]}, {"role": "user", "parts": [{"text": "b"}]}],
        ),
        ([Message.user("a", "b")], [{"role": "user", "parts": [{"text": "a"}, {"text": "b"}]}]),
        (History([Message.user("a")]), [{"role": "user", "parts": [{"text": "a"}]}]),
    ],
)
def test_contents_may_have_any_form(client: Client, server: Recorder, contents: Any, sent: Any) -> None:
    server.answer(said({"text": "x"}))
    client.generate_content(contents)
    assert server.last.body["contents"] == sent


@pytest.mark.requirement("S0-01", "S0-08")
def test_functions_are_sent_as_one_tool_after_the_built_in_ones(client: Client, server: Recorder) -> None:
    @tool
    def now() -> str:
        """The time."""
        return "now"

    server.answer(said({"text": "x"}))
    declared = FunctionDeclaration(
        name="f", description="F.", parameters=Schema(type="OBJECT", properties={"x_y": Schema(type="STRING")})
    )
    client.generate_content("x", tools=[add, GoogleSearch(), declared, Tool(url_context=UrlContext()), now])
    search, context, functions = server.last.body["tools"]
    assert (search, context) == ({"googleSearch": {}}, {"urlContext": {}})
    assert [one["name"] for one in functions["functionDeclarations"]] == ["add", "f", "now"]
    assert functions["functionDeclarations"][0]["parametersJsonSchema"]["properties"]["a_b"]["type"] == "integer"
    assert functions["functionDeclarations"][1]["parameters"] == {
        "type": "OBJECT",
        "properties": {"x_y": {"type": "STRING"}},
    }
    assert functions["functionDeclarations"][2] == {"name": "now", "description": "The time."}
    assert server.last.body["toolConfig"] == {
        "includeServerSideToolInvocations": True,
        "functionCallingConfig": {"mode": "VALIDATED"},
    }
    client.generate_content("x", tools=[])
    assert "tools" not in server.last.body


def test_requests_that_older_models_reject_are_an_error_before_they_are_sent(client: Client, server: Recorder) -> None:
    with pytest.raises(errors.ConfigError, match="not both"):
        client.generate_content("x", model="gemini-2.5-flash", tools=[add, GoogleSearch()])
    with pytest.raises(errors.ConfigError, match="two functions are named 'add'"):
        client.generate_content("x", tools=[add, add])
    with pytest.raises(errors.ConfigError, match=r"tools\[0\] cannot be 5"):
        client.generate_content("x", tools=[5])
    assert server.seen == []


@pytest.mark.parametrize(
    ("choice", "mode"),
    [
        ("required", {"mode": "ANY"}),
        ("none", {"mode": "NONE"}),
        ({"type": "required", "tool": "add"}, {"mode": "ANY", "allowedFunctionNames": ["add"]}),
    ],
)
def test_a_tool_choice_is_sent(client: Client, server: Recorder, choice: Any, mode: Any) -> None:
    server.answer(said({"text": "x"}))
    client.generate_content("x", tools=[add], tool_choice=choice)
    assert server.last.body["toolConfig"] == {"functionCallingConfig": mode}
    with pytest.raises(errors.ConfigError, match="names 'sub', but the declared functions are: add"):
        client.generate_content("x", tools=[add], tool_choice={"type": "required", "tool": "sub"})


@pytest.mark.requirement("S0-18")
def test_the_caller_can_execute_the_calls_himself(client: Client, server: Recorder) -> None:
    server.answer(said(CALL))
    server.answer(said({"text": "It is 1."}))
    history = [Content.text("What is 1 + 0?")]
    response = client.generate_content(history, tools=[add])
    [call] = response.function_calls
    assert (call.name, call.args, call.id) == ("add", {"a_b": 1}, "7")
    assert repr(response) == "<response STOP: '', 1 call>"
    result = asyncio.run(execute(add, ToolCall("7", "add", call.args)))
    answer = Content(role="user", parts=[Part.from_function_response("add", {"result": result.value}, id=call.id)])
    final = client.generate_content([*history, response.content, answer], tools=[add])
    assert final.text == "It is 1."
    assert server.last.body["contents"][1:] == [
        {"role": "model", "parts": [CALL]},
        {"role": "user", "parts": [{"functionResponse": {"id": "7", "name": "add", "response": {"result": 1}}}]},
    ]


@pytest.mark.requirement("S0-05")
@pytest.mark.parametrize("call", [{"name": "now"}, {"name": "now", "args": None}])
def test_call_without_arguments_on_the_wire_can_be_executed_wherever_it_is_read(
    client: Client, server: Recorder, call: dict[str, Any]
) -> None:
    @tool
    def now() -> str:
        """The time."""
        return "noon"

    server.answer(said({"functionCall": call}))
    response = client.generate_content("x", tools=[now])
    content = response.candidates[0].content
    assert content is not None
    for parts in (content.parts, response.content.parts, response.parts):
        [part] = parts or []
        assert part.function_call is not None
        assert part.function_call.args == {}
        result = asyncio.run(execute(now, ToolCall("7", "now", part.function_call.args)))
        assert result.value == "noon"


def test_a_history_is_sent_back_byte_for_byte(client: Client, server: Recorder) -> None:
    server.answer(said(CALL, {"brandNew": {"x": 1}}))
    server.answer(said({"text": "x"}))
    history = History([Message.user("x")])
    response = client.generate_content(history)
    [call] = response.message.calls
    client.generate_content(history.append(response.message, Message.user(ToolResult(call.id, call.name, 1))))
    assert server.last.body["contents"][1] == {"role": "model", "parts": [CALL, {"brandNew": {"x": 1}}]}


def test_a_stream_gives_chunks_and_then_the_whole(client: Client, server: Recorder) -> None:
    server.answer_stream(
        said({"text": "It "}, finish=""),
        said({"text": "is 5."}, usageMetadata={"totalTokenCount": 9}),
    )
    stream = client.stream_generate_content("x", temperature=1)
    with pytest.raises(errors.ConfigError, match="has not ended"):
        _ = stream.response
    chunks = list(stream)
    assert [chunk.text for chunk in chunks] == ["It ", "is 5."]
    assert [chunk.parts[0].text for chunk in chunks] == ["It ", "is 5."]
    with pytest.raises(errors.ConfigError, match="can be read only once"):
        list(stream)
    assert (stream.response.text, stream.response.usage_metadata.total_token_count) == ("It is 5.", 9)
    assert server.last.path == "/v1beta/models/gemini-3.8-flash:streamGenerateContent?alt=sse"


def test_chunks_with_thoughts_have_their_own_part_of_the_thought(client: Client, server: Recorder) -> None:
    thoughts = [said({"text": text, "thought": True}, finish="") for text in ("Let me ", "see.")]
    server.answer_stream(*thoughts, said({"text": "5"}))
    stream = client.stream_generate_content("x")
    assert [chunk.message.parts for chunk in stream] == [(Thought("Let me "),), (Thought("see."),), (Text("5"),)]
    assert stream.response.message.parts == (Thought("Let me see."), Text("5"))


def test_a_streamed_call_is_complete_when_the_model_has_stopped(client: Client, server: Recorder) -> None:
    call = {"name": "f", "partialArgs": [{"jsonPath": "$.a", "numberValue": 1}], "willContinue": True}
    server.answer_stream(said({"functionCall": call}))
    stream = client.stream_generate_content("x")
    assert [chunk.function_calls for chunk in stream] == [[]]
    [complete] = stream.response.message.calls
    assert (complete.name, complete.arguments, complete.arguments_error) == ("f", {"a": 1}, None)


def test_a_cache_may_have_no_contents(client: Client, server: Recorder) -> None:
    server.answer({"name": "cachedContents/1"})
    assert client.caches.create(system_instruction="Be brief.").name == "cachedContents/1"
    assert server.last.body["contents"] == []


def test_an_async_stream_can_be_left_early(server: Recorder) -> None:
    server.answer_stream(*[said({"text": str(number)}, finish="") for number in range(50)])

    async def main() -> list[str]:
        async with AsyncClient(api_key="k", base_url=server.url) as client:
            seen = []
            async for chunk in client.stream_generate_content("x"):
                seen.append(chunk.text)
                if len(seen) == 3:
                    break
            return seen

    assert asyncio.run(main()) == ["0", "1", "2"]


def test_structured_output_is_parsed(client: Client, server: Recorder) -> None:
    server.answer(said({"text": '{"sum": 3}'}))
    schema = {"type": "object", "properties": {"sum": {"type": "integer"}}}
    response = client.generate_content("x", response_mime_type="application/json", response_json_schema=schema)
    assert server.last.body["generationConfig"] == {
        "responseMimeType": "application/json",
        "responseJsonSchema": schema,
    }
    assert response.parsed() == {"sum": 3}
    assert response.parsed(dict[str, int]) == {"sum": 3}
    with pytest.raises(errors.MalformedResponseError, match="not the requested JSON"):
        response.parsed(list[int])


def test_sources_of_a_search_are_typed(client: Client, server: Recorder) -> None:
    document = said({"text": "x"})
    document["candidates"][0]["groundingMetadata"] = {"groundingChunks": [{"web": {"uri": "u", "title": "t"}}]}
    server.answer(document)
    found = client.generate_content("x", tools=[GoogleSearch()]).candidates[0].grounding_metadata
    assert [chunk.web.uri for chunk in found.grounding_chunks] == ["u"]


def test_tokens_are_counted(client: Client, server: Recorder) -> None:
    server.answer({"totalTokens": 31})
    assert client.count_tokens("x").total_tokens == 31
    assert server.last.body == {"contents": [{"role": "user", "parts": [{"text": "x"}]}]}
    assert client.count_tokens("x", system_instruction="s").total_tokens == 31
    assert server.last.body == {
        "generateContentRequest": {
            "model": "models/gemini-3.8-flash",
            "contents": [{"role": "user", "parts": [{"text": "x"}]}],
            "systemInstruction": {"parts": [{"text": "s"}]},
        }
    }


def test_models_are_listed_over_all_pages(client: Client, server: Recorder) -> None:
    server.answer({"models": [{"name": "models/a"}], "nextPageToken": "p/2="})
    server.answer({"models": [{"name": "models/b", "inputTokenLimit": 5}]})
    assert [model.name for model in client.list_models()] == ["models/a", "models/b"]
    assert [unquote(seen.path) for seen in server.seen] == ["/v1beta/models", "/v1beta/models?pageToken=p/2="]


def test_caches_are_created_read_listed_extended_and_deleted(client: Client, server: Recorder) -> None:
    server.answer({"name": "cachedContents/1", "expireTime": "t"})
    made = client.caches.create("a long text", ttl_seconds=300, system_instruction="s", tools=[add], display_name="d")
    assert made.name == "cachedContents/1"
    assert (server.last.method, server.last.path) == ("POST", "/v1beta/cachedContents")
    body = server.last.body
    assert (body["model"], body["ttl"], body["displayName"]) == ("models/gemini-3.8-flash", "300s", "d")
    assert body["systemInstruction"] == {"parts": [{"text": "s"}]}
    assert body["tools"][0]["functionDeclarations"][0]["name"] == "add"
    assert client.caches.get("cachedContents/1").name == "cachedContents/1"
    client.caches.update("cachedContents/1", ttl_seconds=60)
    assert (server.last.method, server.last.path, server.last.body) == (
        "PATCH",
        "/v1beta/cachedContents/1?updateMask=ttl",
        {"ttl": "60s"},
    )
    client.caches.delete("cachedContents/1")
    assert (server.last.method, server.last.path) == ("DELETE", "/v1beta/cachedContents/1")
    server.answers[:] = []
    server.answer({"cachedContents": [{"name": "cachedContents/1"}]})
    assert [one.name for one in client.caches.list()] == ["cachedContents/1"]
    with pytest.raises(errors.ConfigError, match="no explicit caches"):
        client.caches.create("x", model="gemini-4-argon")


@pytest.mark.requirement("S3-13")
def test_tools_of_a_cache_are_not_sent_again(client: Client, server: Recorder) -> None:
    server.answer(said({"text": "x"}))
    client.generate_content("x", cached_content="cachedContents/1", tools=[add], temperature=1)
    assert server.last.body.keys() == {"contents", "cachedContent", "generationConfig"}


@pytest.mark.parametrize(
    "option",
    [{"system_instruction": "Be brief."}, {"tool_choice": "none"}, {"tool_config": {"retrievalConfig": {}}}],
    ids=str,
)
def test_what_the_api_takes_from_the_cache_is_an_error_in_a_request(client: Client, option: dict[str, Any]) -> None:
    options: Any = {"cached_content": "cachedContents/1", "tools": [add], **option}
    words = f"{next(iter(option))} cannot be combined with cached_content, because the cache holds it; pass system_inst"
    for method in (client.generate_content, client.stream_generate_content, client.generate_content_with_auto_tools):
        with pytest.raises(errors.ConfigError, match=words):
            method("x", **options)


@pytest.mark.requirement("S1-15", "S1-16")
@pytest.mark.parametrize(
    ("status", "error", "kind"),
    [
        (
            400,
            {"message": "API key not valid.", "details": [{"reason": "API_KEY_INVALID"}]},
            errors.AuthenticationError,
        ),
        (404, {"message": "models/x is not found"}, errors.UnknownModelError),
        (403, {"message": "no"}, errors.PermissionDeniedError),
        (400, {"message": "bad"}, errors.InvalidRequestError),
    ],
)
def test_error_responses_are_errors_of_their_own_types(
    client: Client, server: Recorder, status: int, error: Any, kind: type[errors.ProviderError]
) -> None:
    server.answer({"error": {"code": status, **error}}, status=status)
    with pytest.raises(kind, match=error["message"]) as raised:
        client.generate_content("x")
    assert raised.value.status == status
    with pytest.raises(kind):
        list(client.stream_generate_content("x"))
    assert len(server.seen) == 2


def test_threads_share_a_client(client: Client, server: Recorder) -> None:
    server.answer(said({"text": "x"}))
    texts: list[str] = []

    def ask() -> None:
        texts.extend(client.generate_content(str(number)).text for number in range(5))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND)
    assert texts == ["x"] * 40


def test_plain_calls_work_inside_a_running_loop(client: Client, server: Recorder) -> None:
    server.answer(said({"text": "x"}))

    async def main() -> str:
        return client.generate_content("x").text

    assert asyncio.run(main()) == "x"


def test_one_async_client_serves_several_loops(server: Recorder) -> None:
    server.answer(said({"text": "x"}))
    client = AsyncClient(api_key="k", base_url=server.url)

    async def ask() -> str:
        return (await client.generate_content("x")).text

    assert [asyncio.run(ask()) for _ in range(3)] == ["x", "x", "x"]


@pytest.mark.parametrize("role", ["user", "model"])
def test_a_blocked_prompt_is_an_error(client: Client, server: Recorder, role: Literal["user", "model"]) -> None:
    server.answer({"promptFeedback": {"blockReason": "SAFETY"}})
    with pytest.raises(errors.PromptBlockedError):
        client.generate_content(Content.text("x", role))


def test_changes_between_two_requests_are_sent(client: Client, server: Recorder) -> None:
    server.answer(said({"text": "x"}))
    tools: list[Any] = [add]
    settings: dict[str, Any] = {"thinking_level": "LOW"}
    for _ in range(2):
        client.generate_content("x", tools=tools, thinking_config=settings, temperature=1)
    before = server.last.body
    tools.append(GoogleSearch())
    settings["thinking_level"] = "HIGH"
    client.generate_content("x", tools=tools, thinking_config=settings, temperature=1)
    after = server.last.body
    assert (len(before["tools"]), len(after["tools"])) == (1, 2)
    assert after["generationConfig"]["thinkingConfig"] == {"thinkingLevel": "HIGH"}
    client.generate_content("x", tools=tools, temperature=0)
    assert server.last.body["generationConfig"] == {"temperature": 0}


@pytest.mark.parametrize(
    "contents", [[], (), History([]), None, 5, b"abc", [[]], {"foo": object()}, "a\ud800", Content(parts=[5])]
)
def test_invalid_contents_are_an_error(client: Client, server: Recorder, contents: Any) -> None:
    with pytest.raises(errors.ConfigError):
        client.generate_content(contents)
    assert server.seen == []


def test_texts_among_parts_are_parts(client: Client, server: Recorder) -> None:
    server.answer(said({"text": "x"}))
    typed = Content(role="user", parts=["hi"])  # type: ignore[list-item]
    for contents in ({"role": "user", "parts": ["hi"]}, {"role": "user", "parts": "hi"}, typed):
        client.generate_content(contents, system_instruction={"text": "s"})
        assert server.last.body["contents"] == [{"role": "user", "parts": [{"text": "hi"}]}]
        assert server.last.body["systemInstruction"] == {"parts": [{"text": "s"}]}


@pytest.mark.parametrize(
    "request_",
    [
        {"stop_sequences": "x"},
        {"max_output_tokens": 1.5},
        {"thinking_config": 5},
        {"safety_settings": 5},
        {"tools": [GoogleSearch]},
        {"tools": 5},
        {"tool_choice": "required"},
    ],
)
def test_values_of_wrong_types_are_an_error_before_they_are_sent(
    client: Client, server: Recorder, request_: Any
) -> None:
    with pytest.raises(errors.ConfigError):
        client.generate_content("x", **request_)
    assert server.seen == []


def test_a_tool_may_be_passed_alone_or_as_a_dict(client: Client, server: Recorder) -> None:
    server.answer(said({"text": "x"}))
    for tools in (add, {"name": "add", "description": "Adds."}, [{"name": "add", "description": "Adds."}]):
        client.generate_content("x", tools=tools)
        assert server.last.body["tools"][0]["functionDeclarations"][0]["name"] == "add"
    client.generate_content("x", tools=None)
    assert "tools" not in server.last.body


def test_changes_inside_an_argument_are_sent(client: Client, server: Recorder) -> None:
    server.answer(said({"text": "x"}))
    tool_ = Tool(function_declarations=[FunctionDeclaration(name="a", description="A.")])
    client.generate_content("x", tools=[tool_])
    tool_.function_declarations.append(FunctionDeclaration(name="b", description="B."))
    client.generate_content("x", tools=[tool_])
    assert len(server.last.body["tools"][0]["functionDeclarations"]) == 2
    client.generate_content("x", seed=1)
    with pytest.raises(errors.ConfigError, match=r"seed: Expected `int \| null`, got `bool`"):
        client.generate_content("x", seed=True)


@pytest.mark.parametrize(("seconds", "ttl"), [(12_345_678, "12345678s"), (1.5, "1.5s"), (1e7, "10000000s")])
def test_the_life_of_a_cache_is_written_in_plain_digits(
    client: Client, server: Recorder, seconds: float, ttl: str
) -> None:
    server.answer({"name": "cachedContents/1"})
    client.caches.update("1", ttl_seconds=seconds)
    assert (server.last.body, server.last.path) == ({"ttl": ttl}, "/v1beta/cachedContents/1?updateMask=ttl")


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_an_invalid_cache_ttl_is_an_error(client: Client, seconds: Any) -> None:
    with pytest.raises(errors.ConfigError, match="ttl_seconds"):
        client.caches.update("cachedContents/1", ttl_seconds=seconds)


@pytest.mark.parametrize("name", ["", "/", "..", "models/x", "cachedContents/../x"])
def test_an_invalid_cache_name_is_an_error(client: Client, server: Recorder, name: Any) -> None:
    with pytest.raises(errors.ConfigError, match="is not a valid name in cachedContents"):
        client.caches.get(name)
    assert server.seen == []


def test_a_stream_can_be_left_early(client: Client, server: Recorder) -> None:
    server.answer_stream(said({"text": "a"}, finish=""), said({"text": "b"}))
    stream = client.stream_generate_content("x")
    for _ in stream:
        break
    with pytest.raises(errors.ConfigError, match="has not ended"):
        _ = stream.response
    with client.stream_generate_content("x") as other:
        assert next(iter(other)).text == "a"


def test_a_cut_stream_raises_after_the_chunks_that_arrived(client: Client, server: Recorder) -> None:
    server.answer_stream(said({"text": "a"}, finish=""))
    stream = client.stream_generate_content("x")
    seen = []
    with pytest.raises(errors.IncompleteResponseError):  # noqa: PT012 - what came before is looked at too
        for chunk in stream:
            seen.append(chunk.text)  # noqa: PERF401 - as above
    assert (seen, stream.response.text) == (["a"], "a")


@pytest.mark.parametrize(("status", "kind"), [(302, errors.InvalidRequestError), (204, errors.ProviderError)])
def test_a_response_that_is_not_one_is_an_error(
    server: Recorder, status: int, kind: type[errors.ProviderError]
) -> None:
    server.answer(b"", status=status)
    with Client(api_key="k", base_url=server.url, retry=RetryPolicy(max_attempts=1)) as client:
        with pytest.raises(kind):
            client.generate_content("x")
        with pytest.raises(kind):
            list(client.stream_generate_content("x"))


@pytest.mark.parametrize(
    "arguments",
    [
        {"base_url": "x"},
        {"base_url": "http://user:SECRETPW@h?x=1"},
        {"base_url": "http://h:99999"},
        {"token": "SECRETPW"},
        {"vertex": True, "project": "p", "location": "evil.com/"},
        {"version": "../x"},
        {"model": ""},
    ],
)
def test_invalid_client_arguments_are_an_error_that_shows_no_secret(arguments: dict[str, Any]) -> None:
    with pytest.raises(errors.ConfigError) as raised:
        Client(**{"api_key": "SECRETPW", **arguments})
    shown = str(raised.value)
    for frame in traceback.TracebackException.from_exception(raised.value, capture_locals=True).stack:
        if "/src/midspan/" in frame.filename and "token" not in arguments:
            shown += str(frame.locals)
    assert "SECRETPW" not in shown.replace("user:SECRETPW@h", "")


def test_a_request_that_is_too_large_as_a_whole_is_an_error(client: Client, server: Recorder) -> None:
    part = Part.from_bytes(bytes(26 * 2**20), "video/mp4")
    with pytest.raises(errors.ConfigError, match="Gemini accepts at most 104,857,600"):
        client.generate_content([part, part, part])
    assert server.seen == []


@pytest.mark.requirement("S0-08", "S1-11", "S1-17")
def test_a_streamed_request_is_the_same_as_a_plain_one(server: Recorder) -> None:
    server.answer(said({"text": "x"}))
    request: dict[str, Any] = {
        "system_instruction": "Be brief.",
        "tools": [add],
        "tool_choice": "required",
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 3,
        "max_output_tokens": 9,
    }
    contents = ["see", Part.from_bytes(b"x", "image/png")]
    with Client(api_key="k", base_url=server.url, headers={"x-team": "a"}) as client:
        client.generate_content(contents, **request)
        list(client.stream_generate_content(contents, **request))
    plain, streamed = server.seen
    assert plain.body == streamed.body
    assert plain.headers["x-team"] == streamed.headers["x-team"] == "a"
    assert plain.body["contents"] == [{"role": "user", "parts": [{"text": "see"}, INLINE]}]
    assert plain.body["systemInstruction"] == {"parts": [{"text": "Be brief."}]}
    assert [one["name"] for one in plain.body["tools"][0]["functionDeclarations"]] == ["add"]
    assert plain.body["toolConfig"] == {"functionCallingConfig": {"mode": "ANY"}}
    assert plain.body["generationConfig"] == {"temperature": 0.5, "topP": 0.9, "topK": 3, "maxOutputTokens": 9}


@pytest.mark.requirement("S0-09")
def test_names_that_users_chose_keep_their_casing_both_ways(client: Client, server: Recorder) -> None:
    odd = {"snake_case": 1, "camelCase": {"in_side": [{"deep_er": 2}]}}
    server.answer(said({"functionCall": {"name": "do_it", "args": odd}}))
    response = client.generate_content("x")
    assert response.function_calls[0].args == odd
    assert response.message.calls[0].arguments == odd
    assert response.parts[0].function_call is not None
    assert response.parts[0].function_call.args == odd
    result = Part.from_function_response("do_it", odd)
    client.generate_content(["x", response.content, Content(role="user", parts=[result])], labels={"cost_center": "a"})
    _, model, user = server.last.body["contents"]
    assert model["parts"][0]["functionCall"]["args"] == odd
    assert user["parts"][0]["functionResponse"]["response"] == odd
    assert server.last.body["labels"] == {"cost_center": "a"}
