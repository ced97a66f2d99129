"""The Chat Completions API: requests from conversations, and messages from responses."""

import asyncio
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from midspan import Agent
from midspan._types.exchange import CachePolicy, FinishReason, ModelRequest, ModelResponse, Output, RequestConfig, Usage
from midspan._types.messages import History, Message
from midspan._types.parts import Blob, Opaque, ProviderData, Text, Thought, ToolCall, ToolResult
from midspan._types.specs import BuiltinTool, ModelSettings, ToolChoice, ToolSpec
from midspan.errors import ConfigError, CredentialsError, MalformedResponseError, ServerError
from midspan.providers.openai.client import OpenAI
from midspan.providers.openai.decode import StreamDecoder, decode_response
from midspan.providers.openai.profile import PRESETS
from tests.gemini.recorder import Recorder, recorder

HI = Message.user("Hi")
PLAIN, OTHER = ToolSpec("plain"), ToolSpec("other", "Another one.", {"type": "object"}, strict=True)


def body_of(*messages: Message, model: str = "m", preset: str = "openai", stream: bool = False, **config: Any) -> Any:
    provider = OpenAI(model, preset=preset, api_key="k", base_url="http://127.0.0.1:1")
    request = ModelRequest(RequestConfig(model, **config), History(messages))
    return json.loads(provider.wire_request(request, stream=stream).body)


def messages_of(*messages: Message, preset: str = "openai") -> Any:
    return body_of(*messages, preset=preset)["messages"]


def sent(name: str, document: Any) -> ProviderData:
    return ProviderData(name, Raw(json.dumps(document).encode()))


# All fields but the messages


def test_plain_request_has_nothing_but_model_and_messages() -> None:
    assert body_of(HI) == {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}


def test_streamed_request_asks_for_the_usage() -> None:
    assert body_of(HI, stream=True) == {**body_of(HI), "stream": True, "stream_options": {"include_usage": True}}


def test_tools_are_declared_with_what_is_known_of_them() -> None:
    tools = (PLAIN, OTHER, BuiltinTool("web_search", {"size": 1}))
    assert body_of(HI, tools=tools)["tools"] == [
        {"type": "function", "function": {"name": "plain", "parameters": {"type": "object", "properties": {}}}},
        {
            "type": "function",
            "function": {
                "name": "other",
                "description": "Another one.",
                "parameters": {"type": "object"},
                "strict": True,
            },
        },
        {"type": "web_search", "size": 1},
    ]
    assert "tool_choice" not in body_of(HI, tools=tools)


@pytest.mark.parametrize(
    ("choice", "encoded"),
    [
        (ToolChoice("none", ("plain",)), "none"),
        (ToolChoice("required"), "required"),
        (ToolChoice("required", ("plain",)), {"type": "function", "function": {"name": "plain"}}),
        (
            ToolChoice("auto", ("plain",)),
            {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "plain"}}]},
            },
        ),
    ],
)
def test_tool_choice(choice: ToolChoice, encoded: Any) -> None:
    assert body_of(HI, tools=(PLAIN, OTHER), tool_choice=choice)["tool_choice"] == encoded
    assert "tool_choice" not in body_of(HI, tool_choice=choice)


def test_service_without_lists_of_allowed_tools_gets_only_the_tools_of_the_choice() -> None:
    choice = ToolChoice("required", ("plain", "other"), parallel=False)
    tools = (PLAIN, OTHER, ToolSpec("third"), BuiltinTool("web_search"))
    body = body_of(HI, preset="groq", tools=tools, tool_choice=choice)
    assert [tool.get("function", {}).get("name") for tool in body["tools"]] == ["plain", "other", None]
    assert (body["tool_choice"], body["parallel_tool_calls"]) == ("required", False)
    openai = body_of(HI, tools=tools, tool_choice=choice)
    assert len(openai["tools"]) == 4
    assert len(openai["tool_choice"]["allowed_tools"]["tools"]) == 2


@pytest.mark.parametrize(
    ("preset", "fields"),
    [
        ("openai", {"max_completion_tokens": 9, "seed": 3}),
        ("mistral", {"max_tokens": 9, "random_seed": 3}),
        ("vllm", {"max_tokens": 9, "seed": 3, "top_k": 5}),
    ],
)
def test_settings_have_the_names_of_the_service(
    preset: str, fields: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    settings = ModelSettings(
        max_tokens=9,
        seed=3,
        top_k=5,
        temperature=0.5,
        top_p=0.9,
        stop=("END",),
        presence_penalty=0.1,
        frequency_penalty=0.2,
        extra={"user": "u"},
    )
    with caplog.at_level(logging.WARNING):
        body = body_of(HI, preset=preset, settings=settings, cache=CachePolicy("key"))
    assert body == {
        "model": "m",
        **fields,
        "temperature": 0.5,
        "top_p": 0.9,
        "stop": ["END"],
        "presence_penalty": 0.1,
        "frequency_penalty": 0.2,
        "prompt_cache_key": "key",
        "user": "u",
        "messages": [{"role": "user", "content": "Hi"}],
    }
    assert ("has no setting top_k" in caplog.text) == ("top_k" not in fields)


def test_settings_that_are_accepted_are_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        body_of(HI, settings=ModelSettings(max_tokens=9))
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("thinking", "effort"),
    [
        *((-1, None), (0, "none"), (1, "low"), (2_048, "low"), (2_049, "medium"), (8_192, "medium"), (8_193, "high")),
        *(("medium", "medium"), (None, None)),
    ],
)
def test_number_of_thinking_tokens_becomes_the_nearest_effort(thinking: Any, effort: str | None) -> None:
    assert body_of(HI, settings=ModelSettings(thinking=thinking)).get("reasoning_effort") == effort


SCHEMA = {"type": "object", "properties": {}}


@pytest.mark.parametrize(
    ("preset", "output", "response_format", "system"),
    [
        ("openai", Output(), {"type": "json_object"}, "Be brief.\n\nAnswer with JSON only."),
        (
            "openai",
            Output(SCHEMA),
            {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}},
            "Be brief.",
        ),
        (
            "openai",
            Output({**SCHEMA, "title": "A b"}, strict=True),
            {
                "type": "json_schema",
                "json_schema": {"name": "A_b", "schema": {**SCHEMA, "title": "A b"}, "strict": True},
            },
            "Be brief.",
        ),
        (
            "deepseek",
            Output(SCHEMA),
            {"type": "json_object"},
            'Be brief.\n\nAnswer with JSON only, of this JSON Schema: {"type":"object","properties":{}}',
        ),
    ],
)
def test_form_of_the_answer(preset: str, output: Output, response_format: Any, system: str) -> None:
    body = body_of(HI, preset=preset, output=output, system="Be brief.")
    assert body["response_format"] == response_format
    assert body["messages"][0] == {"role": "system", "content": system}


@pytest.mark.parametrize("title", ["", None, 5])
def test_schema_without_a_title_is_named_answer(title: Any) -> None:
    assert body_of(HI, output=Output({**SCHEMA, "title": title}))["response_format"]["json_schema"]["name"] == "answer"


# Messages


def test_results_are_messages_of_their_own_and_come_before_the_text() -> None:
    image = Blob("image/png", base64="aW1n")
    picture = ToolResult("b", "f", content=(Text("seen"), image))
    message = Message.user(Text("And?"), ToolResult("a", "f", {"x": 1}), picture)
    text, url = (
        {"type": "text", "text": "And?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aW1n"}},
    )
    first = {"role": "tool", "tool_call_id": "a", "content": '{"x":1}'}
    assert messages_of(message) == [
        first,
        {"role": "tool", "tool_call_id": "b", "content": "seen"},
        {"role": "user", "content": [text, url]},
    ]


def test_media_of_results_are_in_the_results_where_the_service_accepts_them() -> None:
    preset = replace(PRESETS["openai"], media_in_results=True)
    image = Blob("image/png", base64="aW1n")
    url = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aW1n"}}
    message = Message.user(
        ToolResult("a", "f", content=(Text("seen"), image)), ToolResult("b", "f", content=(image,)), Text("And?")
    )
    provider = OpenAI("m", preset=preset, api_key="k")
    body = provider.wire_request(ModelRequest(RequestConfig("m"), History([message])), stream=False).body
    assert json.loads(body)["messages"] == [
        {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "seen"}, url]},
        {"role": "tool", "tool_call_id": "b", "content": [url]},
        {"role": "user", "content": "And?"},
    ]


@pytest.mark.parametrize(
    ("blob", "encoded"),
    [
        (Blob("image/png", url="https://x/a.png"), {"type": "image_url", "image_url": {"url": "https://x/a.png"}}),
        (
            Blob("Audio/WAV; rate=8000", base64="c25k"),
            {"type": "input_audio", "input_audio": {"data": "c25k", "format": "wav"}},
        ),
        (Blob("audio/wav", url="file-1"), {"type": "file", "file": {"file_id": "file-1"}}),
        (
            Blob("application/pdf", base64="cGRm"),
            {"type": "file", "file": {"filename": "file", "file_data": "data:application/pdf;base64,cGRm"}},
        ),
        (
            Blob("application/pdf", base64="cGRm", name="a.pdf"),
            {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,cGRm"}},
        ),
    ],
)
def test_files_and_media(blob: Blob, encoded: Any) -> None:
    assert messages_of(Message.user(blob)) == [{"role": "user", "content": [encoded]}]


def test_files_at_urls_are_sent_only_where_the_service_loads_them() -> None:
    file = Message.user(Blob("application/pdf", url="https://x/a.pdf"))
    document = {"type": "document_url", "document_url": "https://x/a.pdf"}
    assert messages_of(file, preset="mistral") == [{"role": "user", "content": [document]}]
    with pytest.raises(ConfigError, match=r"does not load files from URLs; pass the data of https://x/a\.pdf"):
        messages_of(file)


def test_file_of_a_tool_or_of_another_model_at_a_url_that_the_service_does_not_load_is_named() -> None:
    file = Blob("application/pdf", url="https://x/a.pdf")
    result = Message.user(ToolResult("a", "f", content=(file,)))
    text = "[application/pdf at https://x/a.pdf, which this model does not accept]"
    assert messages_of(result)[1:] == [{"role": "user", "content": text}]
    items = [{"type": "text", "text": text}]
    assert messages_of(Message("model", (file,))) == [{"role": "user", "content": items}]
    provider = OpenAI("m", preset=replace(PRESETS["openai"], media_in_results=True), api_key="k")
    body = provider.wire_request(ModelRequest(RequestConfig("m"), History([result])), stream=False).body
    assert json.loads(body)["messages"] == [{"role": "tool", "tool_call_id": "a", "content": items}]


def test_message_in_the_form_of_the_service_is_sent_as_it_is() -> None:
    developer = {"role": "developer", "content": "Be brief."}
    assert messages_of(Message("user", (Text("x"),), sent("openai", developer))) == [developer]
    other = messages_of(Message("user", (Text("x"),), sent("anthropic", developer)))
    assert other == [{"role": "user", "content": "x"}]


def test_opaque_part_of_the_user_is_sent_to_its_own_service_only() -> None:
    item = {"type": "special", "x": 1}
    message = Message.user(Text("a"), Opaque("special", sent("openai", item)))
    assert messages_of(message) == [{"role": "user", "content": [{"type": "text", "text": "a"}, item]}]
    assert messages_of(message, preset="groq") == [{"role": "user", "content": "a"}]
    alone = Message.user(Opaque("text", sent("openai", {"type": "text", "text": "b"})))
    assert messages_of(alone) == [{"role": "user", "content": [{"type": "text", "text": "b"}]}]


def test_message_of_the_model_is_sent_without_fields_that_the_service_only_sends() -> None:
    call = {"id": "a", "function": {"name": "f"}, "index": 0}
    raw = {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "audio": None,
        "annotations": [],
        "reasoning": "hm",
        "tool_calls": [call],
    }
    message = Message("model", (ToolCall("a", "f"),), sent("groq", raw))
    assert messages_of(message, preset="groq") == [
        {
            "role": "assistant",
            "content": None,
            "reasoning": "hm",
            "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        }
    ]


@pytest.mark.parametrize("edited", [False, True])
@pytest.mark.parametrize(
    ("preset", "arguments", "sent_back"),
    [
        ("vllm", '{"a": 1, ', "{}"),
        ("vllm", "", "{}"),
        ("vllm", "[1]", "{}"),
        ("groq", '{"a": "\\ud800"}', "{}"),
        ("llamacpp", '{"a": 1, "a": 2}', '{"a": 1, "a": 2}'),
        ("openai", '{"a": 1, ', '{"a": 1, '),
        ("azure", '{"a": 1, ', '{"a": 1, '),
    ],
)
def test_arguments_that_are_not_json_go_back_only_to_services_that_accept_them(
    preset: str, arguments: str, sent_back: str, edited: bool
) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": arguments}}
    message = decoded({"content": None, "tool_calls": [call]}, preset=preset).message
    if edited:
        message = Message("model", message.parts)
    [as_sent] = messages_of(message, preset=preset)
    assert as_sent["tool_calls"] == [{**call, "function": {"name": "f", "arguments": sent_back}}]


def test_arguments_that_are_json_go_back_as_they_came() -> None:
    arguments = '{ "b" : 1.0,\n"a":"\\u00e9" }'
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": arguments}}
    [as_sent] = messages_of(decoded({"content": None, "tool_calls": [call]}, preset="vllm").message, preset="vllm")
    assert as_sent["tool_calls"] == [call]


@pytest.mark.parametrize("content", [None, ""])
@pytest.mark.parametrize("calls", [None, []])
def test_message_of_the_model_without_content_is_left_out(content: Any, calls: Any) -> None:
    raw = {"role": "assistant", "content": content, "tool_calls": calls}
    assert messages_of(HI, Message("model", (), sent("openai", raw)), HI) == [
        {"role": "user", "content": "Hi"},
        {"role": "user", "content": "Hi"},
    ]
    with_text = {"role": "assistant", "content": "x", "tool_calls": calls}
    assert messages_of(Message("model", (Text("x"),), sent("openai", with_text))) == [
        {"role": "assistant", "content": "x"}
    ]


def test_edited_message_of_the_model_keeps_what_its_parts_carry() -> None:
    item = {"type": "reference", "ids": [1]}
    parts = (
        Thought("hm", sent("groq", {"reasoning": "hm"})),
        Text("a"),
        Opaque("reference", sent("groq", item)),
        ToolCall("c", "f", {"x": 1}, provider_data=sent("groq", {"extra": 1})),
    )
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}}
    assert messages_of(Message("model", parts), preset="groq") == [
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "a"}, item],
            "reasoning": "hm",
            "tool_calls": [{**call, "extra": 1}],
        }
    ]
    assert messages_of(Message("model", parts)) == [{"role": "assistant", "content": "a", "tool_calls": [call]}]
    assert messages_of(Message("model", parts[2:3]), preset="groq") == [{"role": "assistant", "content": [item]}]


def test_audio_of_the_model_is_sent_back_and_reasoning_alone_is_not() -> None:
    audio = Message("model", (Opaque("audio", sent("openai", {"audio": {"id": "x"}})),))
    assert messages_of(audio) == [{"role": "assistant", "content": None, "audio": {"id": "x"}}]
    assert messages_of(Message("model", (Thought("hm", sent("openai", {"reasoning": "hm"})),))) == []


def test_image_of_another_model_is_sent_as_a_message_of_the_user() -> None:
    image = Blob("image/png", base64="aW1n")
    url = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aW1n"}}
    user = {"role": "user", "content": [url]}
    assert messages_of(Message("model", (image,))) == [user]
    assert messages_of(Message("model", (Text("a"), image))) == [{"role": "assistant", "content": "a"}, user]
    assert len(messages_of(Message("model", (image, ToolCall("c", "f"))))) == 1


# Responses


def decoded(message: dict[str, Any], preset: str = "openai", **choice: Any) -> ModelResponse:
    document = {"choices": [{"message": message, "finish_reason": "stop", **choice}]}
    return decode_response(json.dumps(document).encode(), PRESETS[preset])


def streamed(
    *deltas: dict[str, Any], preset: str = "openai", reason: str | None = "stop", **fields: Any
) -> ModelResponse:
    decoder = StreamDecoder(PRESETS[preset])
    for delta in deltas:
        list(decoder.decode({"choices": [{"index": 0, "delta": delta}]}))
    list(decoder.decode({"choices": [{"delta": {}, "finish_reason": reason}], **fields}))
    decoder.end()
    return decoder.response()


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 8,
                "total_tokens": 18,
                "completion_tokens_details": {"reasoning_tokens": 5},
                "prompt_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 2},
            },
            Usage(10, 3, 5, 3, cache_write=2),
        ),
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 8,
                "total_tokens": 23,
                "completion_tokens_details": {"reasoning_tokens": 5},
                "prompt_cache_hit_tokens": 4,
                "cache_creation_input_tokens": 1,
            },
            Usage(10, 8, 5, 4, cache_write=1),
        ),
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 1,
                "total_tokens": 11,
                "completion_tokens_details": {"reasoning_tokens": 1},
            },
            Usage(10, 0, 1),
        ),
        ({"completion_tokens": 3, "completion_tokens_details": {"reasoning_tokens": 5}}, Usage(0, 0, 5)),
        (None, Usage()),
    ],
)
def test_usage(usage: Any, expected: Usage) -> None:
    document = {"choices": [{"message": {"content": "x"}}], "usage": usage}
    assert decode_response(json.dumps(document).encode(), PRESETS["openai"]).usage == expected
    assert streamed({"content": "x"}, usage=usage).usage == expected


@pytest.mark.parametrize(
    ("reason", "finish_reason"),
    [
        ("stop", "end"),
        ("length", "length"),
        ("content_filter", "blocked"),
        ("refusal", "refused"),
        ("abort", "interrupted"),
        ("error", "interrupted"),
        ("insufficient_system_resource", "interrupted"),
        ("new", "other"),
    ],
)
def test_finish_reason(reason: str, finish_reason: str) -> None:
    response = decoded({"content": "x"}, finish_reason=reason)
    assert (response.finish_reason, response.raw_finish_reason) == (FinishReason(finish_reason), reason)
    response = streamed({"content": "x"}, reason=reason)
    assert (response.finish_reason, response.raw_finish_reason) == (FinishReason(finish_reason), reason)


def test_response_without_a_finish_reason_ends_normally_and_a_stream_is_cut() -> None:
    assert decoded({"content": "x"}, finish_reason=None).finish_reason is FinishReason.END
    response = streamed({"content": "x"}, reason=None)
    assert (response.finish_reason, response.raw_finish_reason) == (FinishReason.CUT, None)
    response = streamed({"content": "x"}, reason="")
    assert (response.finish_reason, response.raw_finish_reason) == (FinishReason.END, None)


def test_refusal_is_the_text_and_the_finish_reason() -> None:
    whole = decoded({"content": None, "refusal": "I cannot."})
    pieces = streamed({"refusal": "I "}, {"refusal": "cannot."})
    for response in (whole, pieces):
        assert response.finish_reason is FinishReason.REFUSED
        assert response.finish_message == response.message.text == "I cannot."
    assert decoded({"content": None, "refusal": "I"}, finish_reason="length").finish_reason is FinishReason.LENGTH
    assert decoded({"content": "x", "refusal": ""}).finish_reason is FinishReason.END


def test_content_may_be_a_list_with_thoughts_and_unknown_items() -> None:
    content = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "h"}, {"type": "text", "text": "m"}]},
        {"type": "thinking", "thinking": "so"},
        {"type": "text", "text": "Hi"},
        {"type": "reference", "ids": [1]},
    ]
    response = decoded({"role": "assistant", "content": content}, preset="mistral")
    reference = Opaque("reference", ProviderData("mistral", Raw(b'{"type":"reference","ids":[1]}')))
    assert response.message.parts == (Thought("hm"), Thought("so"), Text("Hi"), reference)
    parts = streamed(*({"content": [item]} for item in content), preset="mistral").message.parts
    assert parts == (Thought("hmso"), Text("Hi"))


@pytest.mark.parametrize(
    ("preset", "sent_back"),
    [
        ("openrouter", {"reasoning": "hm", "reasoning_details": [{"type": "t", "text": "hm"}]}),
        ("groq", {"reasoning": "hm"}),
        ("openai", None),
    ],
)
def test_reasoning_carries_the_fields_that_the_service_wants_back(preset: str, sent_back: Any) -> None:
    message = {"content": "x", "reasoning": "hm", "reasoning_details": [{"type": "t", "text": "hm"}]}
    for response in (
        decoded(message, preset),
        streamed(
            {"reasoning": "h", "reasoning_details": [{"type": "t", "text": "h"}]},
            {"reasoning": "m", "reasoning_details": [{"type": "t", "text": "m"}]},
            {"content": "x"},
            preset=preset,
        ),
    ):
        thought, text = response.message.parts
        assert isinstance(thought, Thought)
        assert (thought.text, text) == ("hm", Text("x"))
        data = thought.provider_data
        assert (None if data is None else json.loads(bytes(data.raw))) == sent_back


def test_reasoning_without_text_is_an_opaque_part() -> None:
    detail = {"type": "reasoning.encrypted", "data": "abc"}
    whole = decoded({"content": "x", "reasoning_details": [detail]}, "openrouter")
    pieces = streamed({"content": "x"}, {"reasoning_details": [detail]}, preset="openrouter")
    for response in (whole, pieces):
        opaque, text = response.message.parts
        assert isinstance(opaque, Opaque)
        assert json.loads(bytes(opaque.provider_data.raw)) == {"reasoning_details": [detail]}
        assert text == Text("x")
    assert decoded({"content": "x", "reasoning_details": [detail]}).message.parts == (Text("x"),)


def test_streamed_reasoning_details_are_joined_by_type_and_index() -> None:
    response = streamed(
        {"reasoning_details": [{"type": "t", "index": 0, "text": "a", "signature": None}]},
        {"reasoning_details": [{"type": "t", "index": 0, "text": "b", "signature": "s"}]},
        {"reasoning_details": [{"type": "t", "index": 0, "text": None, "signature": None}]},
        {"reasoning_details": [{"type": "t", "index": 1, "text": "c"}]},
        {"reasoning_details": [{"type": "u", "index": 1, "summary": "d"}]},
        {"reasoning_details": None, "content": "x"},
        preset="openrouter",
    )
    data = response.message.provider_data
    assert data is not None
    assert json.loads(bytes(data.raw)) == {
        "role": "assistant",
        "content": "x",
        "reasoning_details": [
            {"type": "t", "index": 0, "text": "ab", "signature": "s"},
            {"type": "t", "index": 1, "text": "c"},
            {"type": "u", "index": 1, "summary": "d"},
        ],
    }


def test_streamed_calls_with_one_id_and_two_indexes_are_two_calls() -> None:
    def delta(index: int, arguments: str) -> dict[str, Any]:
        return {"tool_calls": [{"index": index, "id": "a", "function": {"name": "f", "arguments": arguments}}]}

    pieces = delta(0, '{"x":'), delta(0, "1}"), delta(1, '{"x":2}')
    assert [call.arguments for call in streamed(*pieces).message.calls] == [{"x": 1}, {"x": 2}]


def test_arguments_may_be_an_object() -> None:
    call = {"id": "a", "function": {"name": "f", "arguments": {"x": 1}}}
    for response in (decoded({"tool_calls": [call]}), streamed({"tool_calls": [call]}, reason="tool_calls")):
        assert response.message.parts == (ToolCall("a", "f", {"x": 1}),)
    whole = decoded({"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": None}}]})
    assert whole.message.parts == (ToolCall("a", "f"),)
    whole = decoded({"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": '{"x": 1}'}}]})
    assert whole.message.parts == (ToolCall("a", "f", {"x": 1}),)


def test_citations() -> None:
    citation = {"url": "https://x", "title": "X", "start_index": 1, "end_index": 2}
    annotations = [{"type": "url_citation", "url_citation": citation}, {"url_citation": {"url": ""}}, "x", {}]
    [found] = decoded({"content": "abc", "annotations": annotations}).citations
    assert (found.url, found.title, found.start, found.end) == ("https://x", "X", 1, 2)
    [found] = decoded({"content": "a", "annotations": [{"url_citation": {"url": "https://y"}}]}).citations
    assert (found.url, found.title, found.start, found.end) == ("https://y", "", None, None)


def test_streamed_message_is_the_message_of_a_whole_response() -> None:
    response = streamed(
        {"role": "assistant", "content": "He"},
        {"content": "llo", "annotations": [{"url_citation": {"url": "https://x"}}]},
        {"tool_calls": [{"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x"'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": ": 1}"}, "type": None}]},
        reason="tool_calls",
        id="r1",
        model="gpt",
    )
    assert response.message.parts == (Text("Hello"), ToolCall("a", "f", {"x": 1}))
    assert (response.id, response.model) == ("r1", "gpt")
    assert [citation.url for citation in response.citations] == ["https://x"]
    data = response.message.provider_data
    assert data is not None
    assert json.loads(bytes(data.raw)) == {
        "role": "assistant",
        "content": "Hello",
        "annotations": [{"url_citation": {"url": "https://x"}}],
        "tool_calls": [{"type": "function", "id": "a", "function": {"name": "f", "arguments": '{"x": 1}'}}],
    }


def test_fields_of_a_call_may_come_late() -> None:
    call = {"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}
    late = {"index": 0, "id": "", "type": None, "extra_content": {"x": 1}, "function": {"arguments": "{}"}}
    response = streamed({"tool_calls": [call]}, {"tool_calls": [late]}, preset="google-openai", reason="tool_calls")
    data = response.message.provider_data
    assert data is not None
    [raw] = json.loads(bytes(data.raw))["tool_calls"]
    assert (raw["id"], raw["type"], raw["extra_content"]) == ("a", "function", {"x": 1})
    assert raw["function"] == {"name": "f", "arguments": "{}"}


def test_other_choices_of_a_stream_are_ignored() -> None:
    decoder = StreamDecoder(PRESETS["openai"])
    choices = [{"index": 1, "delta": {"content": "no"}}, {"delta": {"content": "yes"}, "finish_reason": "stop"}]
    list(decoder.decode({"choices": choices, "id": "r1"}))
    list(decoder.decode({"id": None}))
    decoder.end()
    assert (decoder.response().message.text, decoder.response().id) == ("yes", "r1")


def test_call_of_a_stream_that_was_cut_is_not_complete() -> None:
    call = {"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}
    [part] = streamed({"tool_calls": [call]}, reason=None).message.parts
    assert isinstance(part, ToolCall)
    assert part.arguments_error is not None


def test_event_that_is_not_an_object_is_malformed() -> None:
    with pytest.raises(MalformedResponseError, match="not an object"):
        list(StreamDecoder(PRESETS["openai"]).decode([1]))


def test_error_in_a_stream_is_raised() -> None:
    decoder = OpenAI("m", api_key="k")._make_decoder()
    with pytest.raises(ServerError, match="OpenAI sent an error: overloaded"):
        list(decoder.feed(b'data: {"error": {"message": "overloaded"}}\n\n'))


# Names and addresses


@pytest.mark.parametrize("model", ["", " ", "a\nb", 5])
def test_model_name_must_be_printable(model: Any) -> None:
    with pytest.raises(ConfigError, match="is not a valid model name"):
        OpenAI(model, api_key="k")


def test_service_without_a_default_model_needs_a_name() -> None:
    with pytest.raises(ConfigError, match="LocalAI has no default model; name one, as localai:model"):
        OpenAI(preset="localai")
    assert OpenAI(preset="ollama").model == "qwen3"


def test_unknown_preset_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown preset 'x'; known: openai, azure"):
        OpenAI("m", preset="x")


@pytest.fixture
def service() -> Iterator[Recorder]:
    with recorder() as service:
        service.answer({"choices": [{"message": {"content": "Hello."}, "finish_reason": "stop"}]})
        yield service


def test_credentials_are_sent_in_the_header_of_the_service(service: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", f" {service.url} ")
    monkeypatch.setenv("OPENAI_API_KEY", "from-env")
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", service.url)
    monkeypatch.delenv("OLLAMA_API_KEY", raising=False)
    for provider, header, value in (
        (OpenAI("m"), "authorization", "Bearer from-env"),
        (OpenAI("m", api_key="k"), "authorization", "Bearer k"),
        (OpenAI("m", token=lambda: "t"), "authorization", "Bearer t"),
        (OpenAI("m", preset="azure", api_key="k"), "api-key", "k"),
        (OpenAI("m", preset="ollama", base_url=service.url), "authorization", None),
        (OpenAI("m", api_key="k", headers={"x-more": "1"}), "x-more", "1"),
    ):
        assert Agent(provider).run_sync("Hi").text == "Hello."
        assert service.last.headers.get(header) == value
    assert service.seen[3].path == "/openai/v1/chat/completions"
    assert "authorization" not in service.seen[3].headers


def test_service_that_needs_a_key_says_which(service: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GROQ_API_KEY", raising=False)
    with pytest.raises(CredentialsError, match="GROQ_API_KEY"):
        Agent(OpenAI("m", preset="groq", base_url=service.url)).run_sync("Hi")
    assert service.seen == []


@pytest.mark.parametrize(
    "page",
    [
        {"data": [{"id": "a"}, {"id": ""}, "x", {"id": "b"}]},
        [{"id": "a"}, {"id": "b"}],  # as Together answers
    ],
)
def test_models_are_listed(service: Recorder, page: Any) -> None:
    service.answers.clear()
    service.answer(page)
    assert asyncio.run(OpenAI("m", api_key="k", base_url=service.url).list_models()) == ["a", "b"]
