"""The Messages API: requests from conversations, and messages from responses."""

import asyncio
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import Raw

from midspan import Agent
from midspan._types.exchange import (
    Budget,
    CachePolicy,
    FinishReason,
    ModelRequest,
    ModelResponse,
    Output,
    PartEnd,
    PartStart,
    RequestConfig,
    Usage,
)
from midspan._types.messages import History, Message
from midspan._types.parts import Blob, Opaque, ProviderData, Text, Thought, ToolCall, ToolResult
from midspan._types.specs import BuiltinTool, ModelSettings, ToolChoice, ToolSpec
from midspan.errors import ConfigError, InvalidRequestError, MalformedResponseError
from midspan.providers import RetryPolicy
from midspan.providers.anthropic.client import Anthropic
from midspan.providers.anthropic.decode import StreamDecoder, decode_response
from midspan.providers.anthropic.profile import ClaudeCapabilities, capabilities_of
from tests.gemini.recorder import Recorder, recorder

HI = Message.user("Hi")
PLAIN, OTHER = ToolSpec("plain"), ToolSpec("other", "Another one.", {"properties": {}}, examples=({},), strict=True)


@pytest.fixture
def service() -> Iterator[Recorder]:
    with recorder() as service:
        yield service


def body_of(*messages: Message, model: str = "claude-sonnet-5-5", stream: bool = False, **config: Any) -> Any:
    request = ModelRequest(RequestConfig(model, **config), History(messages))
    return json.loads(Anthropic(model, api_key="k").wire_request(request, stream=stream).body)


def messages_of(*messages: Message) -> Any:
    return body_of(*messages)["messages"]


def sent(document: Any, origin: str = "anthropic") -> ProviderData:
    return ProviderData(origin, Raw(json.dumps(document).encode()))


# All fields but the messages


def test_plain_request_has_model_messages_and_a_maximum_of_tokens() -> None:
    plain = {
        "model": "claude-sonnet-5-5",
        "max_tokens": 16_000,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
    }
    assert body_of(HI) == plain
    assert body_of(HI, stream=True) == {**plain, "stream": True}


def test_tools_are_declared_with_what_is_known_of_them() -> None:
    tools = (PLAIN, OTHER, BuiltinTool("web_search_1", {"name": "web_search"}))
    body = body_of(HI, tools=tools)
    assert body["tools"] == [
        {"name": "plain", "input_schema": {"type": "object", "properties": {}}},
        {
            "name": "other",
            "description": "Another one.",
            "input_schema": {"type": "object", "properties": {}},
            "input_examples": [{}],
            "strict": True,
        },
        {"type": "web_search_1", "name": "web_search"},
    ]
    assert "tool_choice" not in body


@pytest.mark.parametrize(
    ("choice", "encoded"),
    [
        (ToolChoice("auto"), {"type": "auto"}),
        (ToolChoice("auto", ("plain",)), {"type": "auto"}),
        (ToolChoice("required"), {"type": "any"}),
        (ToolChoice("required", ("plain",)), {"type": "tool", "name": "plain"}),
        (ToolChoice("required", ("plain", "other")), {"type": "any"}),
        (ToolChoice("none", parallel=False), {"type": "none"}),
        (ToolChoice("auto", parallel=False), {"type": "auto", "disable_parallel_tool_use": True}),
    ],
)
def test_tool_choice(choice: ToolChoice, encoded: Any) -> None:
    assert body_of(HI, tools=(PLAIN, OTHER), tool_choice=choice)["tool_choice"] == encoded


def test_form_of_the_answer() -> None:
    assert (
        body_of(HI, output=Output(), system="Be brief.")["system"][0]["text"] == "Be brief.\n\nAnswer with JSON only."
    )
    assert body_of(HI, output=Output())["system"][0]["text"] == "Answer with JSON only."
    body = body_of(HI, output=Output({"type": "object"}), settings=ModelSettings(thinking="low"))
    assert "system" not in body
    assert body["output_config"] == {"effort": "low", "format": {"type": "json_schema", "schema": {"type": "object"}}}


@pytest.mark.parametrize(
    ("model", "settings", "thinking", "effort"),
    [
        ("claude-opus-4-8", ModelSettings(show_thoughts=True), {"type": "adaptive", "display": "summarized"}, None),
        (
            "claude-opus-4-8",
            ModelSettings(thinking="high", show_thoughts=False),
            {"type": "adaptive", "display": "omitted"},
            "high",
        ),
        ("claude-opus-4-8", ModelSettings(thinking="minimal"), {"type": "adaptive"}, "low"),
        ("claude-opus-4-8", ModelSettings(thinking=-1), {"type": "adaptive"}, None),
        ("claude-opus-4-8", ModelSettings(thinking=1), {"type": "adaptive"}, "low"),
        ("claude-opus-4-8", ModelSettings(thinking=2_048), {"type": "adaptive"}, "low"),
        ("claude-opus-4-8", ModelSettings(thinking=8_192), {"type": "adaptive"}, "medium"),
        ("claude-opus-4-8", ModelSettings(thinking=8_193), {"type": "adaptive"}, "high"),
        ("claude-sonnet-4-6", ModelSettings(thinking=3_000), {"type": "enabled", "budget_tokens": 3_000}, None),
        ("claude-sonnet-4-6", ModelSettings(thinking=-1), {"type": "adaptive"}, None),
        ("claude-sonnet-4-6", ModelSettings(thinking="low"), {"type": "adaptive"}, "low"),
        ("claude-haiku-4-5", ModelSettings(show_thoughts=True), {"type": "enabled", "budget_tokens": 8_192}, None),
        ("claude-haiku-4-5", ModelSettings(thinking=-1), {"type": "enabled", "budget_tokens": 8_192}, None),
        ("claude-haiku-4-5", ModelSettings(thinking="low"), {"type": "enabled", "budget_tokens": 2_048}, None),
        (
            "claude-haiku-4-5",
            ModelSettings(thinking=2_000, max_tokens=2_000),
            {"type": "enabled", "budget_tokens": 1_999},
            None,
        ),
        (
            "claude-haiku-4-5",
            ModelSettings(thinking=500, max_tokens=2_000),
            {"type": "enabled", "budget_tokens": 1_024},
            None,
        ),
        (
            "claude-haiku-4-5",
            ModelSettings(thinking=5_000, max_tokens=1_025),
            {"type": "enabled", "budget_tokens": 1_024},
            None,
        ),
        ("claude-haiku-4-5", ModelSettings(thinking=5_000, max_tokens=1_024), None, None),
        ("claude-haiku-3-5", ModelSettings(thinking="low"), None, None),
    ],
)
def test_thinking_of_each_model(model: str, settings: ModelSettings, thinking: Any, effort: str | None) -> None:
    body = body_of(HI, model=model, settings=settings)
    assert body.get("thinking") == thinking
    assert body.get("output_config", {}).get("effort") == effort
    if settings.max_tokens is None and model == "claude-opus-4-8":
        assert body["max_tokens"] == 16_000


@pytest.mark.parametrize(
    ("model", "capabilities"),
    [
        ("claude-3-opus-20240229", ClaudeCapabilities(False, False, 4_096)),
        ("claude-3-5-haiku-latest", ClaudeCapabilities(False, False, 8_192)),
        ("claude-3-7-sonnet", ClaudeCapabilities(True, False, 16_000)),
        ("claude-sonnet-4-20250514", ClaudeCapabilities(True, False, 16_000)),
        ("claude-sonnet-4-6", ClaudeCapabilities(True, True, 16_000)),
        ("claude-opus-4-7", ClaudeCapabilities(False, True, 16_000)),
        ("claude-next", ClaudeCapabilities(False, True, 16_000)),
    ],
)
def test_capabilities_of_a_model_follow_from_its_version(model: str, capabilities: ClaudeCapabilities) -> None:
    assert capabilities_of(model) == capabilities
    assert Anthropic(model, api_key="k")._capabilities == capabilities


def test_given_capabilities_win() -> None:
    claude = Anthropic("claude-next", api_key="k", capabilities=ClaudeCapabilities(True, False, 99))
    body = claude.wire_request(ModelRequest(RequestConfig("claude-next"), History([HI])), stream=False).body
    assert json.loads(body)["max_tokens"] == 99


@pytest.mark.parametrize(("seconds", "ttl"), [(300, "5m"), (301, "1h"), (1, "5m")])
def test_time_to_live_of_a_cached_prefix_is_five_minutes_or_an_hour(seconds: float, ttl: str) -> None:
    assert body_of(HI, cache=CachePolicy(ttl_seconds=seconds))["cache_control"] == {"type": "ephemeral", "ttl": ttl}


def test_settings_that_claude_lacks_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        body = body_of(HI, settings=ModelSettings(temperature=0.5, stop=("END",)))
    assert body["stop_sequences"] == ["END"]
    assert [record.getMessage() for record in caplog.records] == ["Anthropic has no setting temperature; it is ignored"]


CALL = ToolCall("a", "f")
RESULT = Message.user(ToolResult("a", "f", 1))
SIGNED = sent({"type": "thinking", "thinking": "hm", "signature": "s"})
REDACTED = Opaque("redacted_thinking", sent({"type": "redacted_thinking"}))


@pytest.mark.parametrize(
    ("messages", "thinks"),
    [
        ([HI], True),
        ([HI, Message("model", (Text("x"),)), HI], True),
        ([HI, Message("model", (Thought("hm", SIGNED), CALL)), RESULT], True),
        ([HI, Message("model", (REDACTED, CALL)), RESULT], True),
        ([HI, Message("model", (Opaque("other", sent({})), CALL)), RESULT], False),
        ([HI, Message("model", (CALL,)), RESULT], False),
        ([HI, Message("model", (Thought("hm", sent({}, "gemini")), CALL)), RESULT], False),
        ([HI, Message("model", (CALL,)), RESULT, HI], True),
    ],
)
def test_thinking_with_a_budget_is_left_out_of_a_turn_that_began_without_it(
    messages: list[Message], thinks: bool
) -> None:
    body = body_of(*messages, model="claude-haiku-4-5", settings=ModelSettings(thinking=2_000))
    assert ("thinking" in body) == thinks
    assert body["max_tokens"] == (18_000 if thinks else 16_000)
    assert "thinking" in body_of(*messages, settings=ModelSettings(thinking=2_000))  # adaptive


@pytest.mark.parametrize(
    ("tools", "choice", "thinks"),
    [
        ((PLAIN,), ToolChoice("required"), False),
        ((PLAIN,), ToolChoice("auto"), True),
        ((PLAIN,), None, True),
        ((), ToolChoice("required"), True),
    ],
)
def test_thinking_with_a_budget_is_left_out_if_a_call_is_forced(tools: Any, choice: Any, thinks: bool) -> None:
    settings = ModelSettings(thinking=2_000)
    body = body_of(HI, model="claude-haiku-4-5", settings=settings, tools=tools, tool_choice=choice)
    assert ("thinking" in body) == thinks


# Messages


def test_messages_of_one_role_become_one_message() -> None:
    one, two = ({"type": "text", "text": text} for text in "ab")
    assert messages_of(Message.user("a"), Message.user("b")) == [{"role": "user", "content": [one, two]}]
    raw = {"role": "assistant", "content": [one]}
    first = Message("model", (Text("a"),), sent(raw))
    assert messages_of(HI, first, Message("model", (Text("b"),)))[1:] == [{"role": "assistant", "content": [one, two]}]
    assert messages_of(HI, first)[1:] == [raw]
    assert (
        messages_of(HI, Message("model", ()), HI) == [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}] * 2
    )


def test_message_in_the_form_of_the_api_stays_alone() -> None:
    system = {"role": "system", "content": [{"type": "text", "text": "Be brief."}]}
    own = Message("user", (Text("x"),), sent(system))
    hi = {"role": "user", "content": [{"type": "text", "text": "Hi"}]}
    assert messages_of(HI, own, HI) == [hi, system, hi]
    assert messages_of(HI, Message("user", (Text("Hi"),), sent(system, "openai"))) == [
        {"role": "user", "content": [*hi["content"], *hi["content"]]}
    ]


def test_results_come_before_the_text() -> None:
    image = Blob("image/png", base64="aW1n")
    results = (
        ToolResult("a", "f", {"x": 1}, hint="Note."),
        ToolResult("b", "f", "no", is_error=True),
        ToolResult("c", "f", content=(Text("x"), Text("y"))),
        ToolResult("d", "f", content=(image,)),
        ToolResult("e", "f", content=(Text("z"),)),
    )
    source = {"type": "base64", "media_type": "image/png", "data": "aW1n"}
    assert messages_of(Message.user(Text("And?"), *results))[0]["content"] == [
        {"type": "tool_result", "tool_use_id": "a", "content": '{"x":1}\n\nNote.'},
        {"type": "tool_result", "tool_use_id": "b", "content": "no", "is_error": True},
        {
            "type": "tool_result",
            "tool_use_id": "c",
            "content": [{"type": "text", "text": "x"}, {"type": "text", "text": "y"}],
        },
        {"type": "tool_result", "tool_use_id": "d", "content": [{"type": "image", "source": source}]},
        {"type": "tool_result", "tool_use_id": "e", "content": "z"},
        {"type": "text", "text": "And?"},
    ]


@pytest.mark.parametrize(
    ("blob", "encoded"),
    [
        (Blob("image/png", url="https://x/a"), {"type": "image", "source": {"type": "url", "url": "https://x/a"}}),
        (Blob("image/png", url="file_1"), {"type": "image", "source": {"type": "file", "file_id": "file_1"}}),
        (
            Blob("Application/PDF; x=1", base64="cGRm", name="a.pdf"),
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "cGRm"},
                "title": "a.pdf",
            },
        ),
        (
            Blob("text/csv", base64="YSxi"),
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a,b"}},
        ),
    ],
)
def test_files_and_images(blob: Blob, encoded: Any) -> None:
    assert messages_of(Message.user(blob))[0]["content"] == [encoded]


UNREADABLE = [
    (Blob("audio/wav", base64="c25k"), "audio/wav"),
    (Blob("image/bmp", base64="aW1n"), "image/bmp"),
    (Blob("application/zip", base64="emlw"), "application/zip"),
    (Blob("video/mp4", url="https://x/a"), "video/mp4 at https://x/a"),
]


@pytest.mark.parametrize(("blob", "name"), UNREADABLE)
def test_file_of_the_user_that_claude_cannot_read_is_refused(blob: Blob, name: str) -> None:
    with pytest.raises(ConfigError, match=f"Claude accepts JPEG.* text files, not {name.split()[0]}"):
        messages_of(Message.user(blob))


@pytest.mark.parametrize(("blob", "name"), UNREADABLE)
def test_file_of_a_tool_or_of_another_model_that_claude_cannot_read_is_named(blob: Blob, name: str) -> None:
    text = {"type": "text", "text": f"[{name}, which this model does not accept]"}
    [message] = messages_of(Message.user(ToolResult("a", "f", content=(Text("x"), blob))))
    assert message["content"][0]["content"] == [{"type": "text", "text": "x"}, text]
    _, _, user = messages_of(HI, Message("model", (Text("a"), blob)), HI)
    assert user["content"] == [{"type": "text", "text": "Hi"}, text]


def test_image_of_another_model_is_sent_with_the_next_message_of_the_user() -> None:
    image = Blob("image/png", base64="aW1n")
    _, model, user = messages_of(HI, Message("model", (Text("a"), image)), HI)
    assert model == {"role": "assistant", "content": [{"type": "text", "text": "a"}]}
    assert [block["type"] for block in user["content"]] == ["text", "image"]


def test_edited_message_of_claude_keeps_what_its_parts_carry() -> None:
    cited = sent({"type": "text", "text": "old", "citations": [1]})
    parts = (
        Thought("hm", SIGNED),
        Thought("of another model", sent({}, "gemini")),
        REDACTED,
        Opaque("other", sent({}, "gemini")),
        Text("new", cited),
        Text(" "),
        ToolCall("c:d", "f", {"x": 1}),
    )
    thinking, redacted, text, call = messages_of(HI, Message("model", parts))[1]["content"]
    assert thinking == {"type": "thinking", "thinking": "hm", "signature": "s"}
    assert redacted == {"type": "redacted_thinking"}
    assert text == {"type": "text", "text": "new", "citations": [1]}
    assert (call["name"], call["input"]) == ("f", {"x": 1})
    assert call["id"].startswith("call_")
    changed = messages_of(HI, Message("model", (Thought("changed", SIGNED), Text("a"))))[1]
    assert changed["content"] == [{"type": "text", "text": "a"}]


# Responses


def decoded(*blocks: Any, **fields: Any) -> ModelResponse:
    return decode_response(json.dumps({"content": blocks, "stop_reason": "end_turn", **fields}).encode())


def streamed(*blocks: tuple[Any, list[Any]], stop_reason: str | None = "end_turn", **fields: Any) -> ModelResponse:
    decoder = StreamDecoder()
    list(decoder.decode({"type": "message_start", "message": {"id": "m1", "model": "claude", **fields}}))
    for index, (block, deltas) in enumerate(blocks):
        list(decoder.decode({"type": "content_block_start", "index": index, "content_block": block}))
        for delta in deltas:
            list(decoder.decode({"type": "content_block_delta", "index": index, "delta": delta}))
        list(decoder.decode({"type": "content_block_stop", "index": index}))
    delta = {} if stop_reason is None else {"delta": {"stop_reason": stop_reason}}
    list(decoder.decode({"type": "message_delta", **delta, "usage": {"output_tokens": 9, "input_tokens": None}}))
    decoder.end()
    return decoder.response()


def raw_of(response: ModelResponse) -> Any:
    data = response.message.provider_data
    assert data is not None
    return json.loads(bytes(data.raw)) if bytes(data.raw) else None


def test_blocks_with_more_than_our_fields_keep_their_form() -> None:
    blocks = [
        {"type": "text", "text": "a"},
        {"type": "text", "text": "b", "citations": []},
        {"type": "tool_use", "id": "c", "name": "f", "input": {"x": 1}},
        {"type": "tool_use", "id": "d", "name": "f", "input": {}, "caller": {"type": "direct"}},
        {"type": "server_tool_use", "id": "e"},
        {"type": ["odd"]},
    ]
    plain, cited, call, called, opaque, odd = decoded(*blocks).message.parts
    assert plain == Text("a")
    assert call == ToolCall("c", "f", {"x": 1})
    for part, block in ((cited, blocks[1]), (called, blocks[3]), (opaque, blocks[4]), (odd, blocks[5])):
        assert part.provider_data is not None
        assert json.loads(bytes(part.provider_data.raw)) == block
    assert isinstance(opaque, Opaque)
    assert isinstance(odd, Opaque)


def test_blank_texts_do_not_go_back() -> None:
    response = decoded({"type": "text", "text": " "}, {"type": "text", "text": "a"})
    assert response.message.text == " a"
    assert raw_of(response) == {"role": "assistant", "content": [{"type": "text", "text": "a"}]}
    assert raw_of(decoded({"type": "text", "text": ""})) is None
    assert raw_of(decoded({"type": "text", "text": None})) is None
    blocks = [{"type": "text", "text": ""}, {"type": "text", "text": ""}]
    assert raw_of(streamed((blocks[0], []), (blocks[1], [{"type": "text_delta", "text": "a"}]))) == raw_of(response)


def test_streamed_blocks_are_put_together() -> None:
    response = streamed(
        ({"type": "text", "text": "He"}, [{"type": "text_delta", "text": "llo"}]),
        (
            {"type": "text", "text": ""},
            [
                {"type": "citations_delta", "citation": {"url": "https://x", "title": "X", "cited_text": "c"}},
                {"type": "citations_delta", "citation": {"source": "https://y"}},
                {"type": "text_delta", "text": "!"},
            ],
        ),
        (
            {"type": "tool_use", "id": "a", "name": "f", "input": {}},
            [{"type": "input_json_delta", "partial_json": "{}"}],
        ),
        (
            {"type": "server_tool_use", "id": "b", "input": {}},
            [{"type": "input_json_delta", "partial_json": '{"q": 1}'}],
        ),
        usage={"input_tokens": 3, "output_tokens": 1, "cache_read_input_tokens": 2, "cache_creation_input_tokens": 4},
        stop_details={"explanation": "why"},
    )
    citations = [{"url": "https://x", "title": "X", "cited_text": "c"}, {"source": "https://y"}]
    blocks = [
        {"type": "text", "text": "Hello"},
        {"type": "text", "text": "!", "citations": citations},
        {"type": "tool_use", "id": "a", "name": "f", "input": {}},
        {"type": "server_tool_use", "id": "b", "input": {"q": 1}},
    ]
    assert raw_of(response) == {"role": "assistant", "content": blocks}
    assert [type(part) for part in response.message.parts] == [Text, Text, ToolCall, Opaque]
    assert response.usage == Usage(9, 9, 0, 2, cache_write=4)
    assert (response.id, response.model, response.finish_message) == ("m1", "claude", "why")
    first, second = response.citations
    assert (first.url, first.title, first.start, first.end, first.quote) == ("https://x", "X", 5, 6, "c")
    assert (second.url, second.title, second.start, second.end, second.quote) == ("https://y", "", 5, 6, None)


def test_null_at_the_start_of_a_streamed_block_is_empty() -> None:
    response = streamed(
        (
            {"type": "thinking", "thinking": None, "signature": None},
            [{"type": "thinking_delta", "thinking": "hm"}, {"type": "signature_delta", "signature": "s"}],
        ),
        ({"type": "text", "text": None}, [{"type": "text_delta", "text": "a"}]),
        ({"type": "text"}, []),
    )
    blocks = [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "a"}]
    assert raw_of(response) == {"role": "assistant", "content": blocks}
    assert [type(part) for part in response.message.parts] == [Thought, Text, Text]


@pytest.mark.parametrize("fields", [{}, {"input": None}])
def test_call_without_arguments_goes_back_with_empty_ones(fields: Any) -> None:
    response = decoded({"type": "tool_use", "id": "c", "name": "f", **fields})
    assert response.message.calls == (ToolCall("c", "f"),)
    [_, back] = messages_of(HI, response.message)
    assert back["content"] == [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]


def test_citations_of_documents() -> None:
    citations = [{"document_index": 2, "document_title": "Doc"}, "x", {}]
    search = {"type": "web_search_tool_result", "text": "not counted"}
    response = decoded(search, {"type": "text", "text": "ab", "citations": citations})
    assert [(citation.url, citation.title, citation.start, citation.end) for citation in response.citations] == [
        ("document:2", "Doc", 0, 2),
        ("document:0", "", 0, 2),
    ]


@pytest.mark.parametrize(
    ("reason", "finish_reason"),
    [("stop_sequence", "end"), ("refusal", "refused"), ("pause_turn", "continues"), ("new", "other")],
)
def test_finish_reason(reason: str, finish_reason: str) -> None:
    for response in (decoded(stop_reason=reason), streamed(stop_reason=reason)):
        assert (response.finish_reason, response.raw_finish_reason) == (FinishReason(finish_reason), reason)


def test_stream_without_a_stop_reason_is_cut_and_does_not_go_back_as_it_came() -> None:
    response = streamed(({"type": "text", "text": "He"}, []), stop_reason=None)
    assert (response.finish_reason, response.message.text, raw_of(response)) == (FinishReason.CUT, "He", None)
    assert decoded(stop_reason=None).finish_reason is FinishReason.OTHER


def test_call_whose_arguments_are_not_json_does_not_go_back_as_it_came() -> None:
    block = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
    response = streamed((block, [{"type": "input_json_delta", "partial_json": '{"x'}]))
    [call] = response.message.calls
    assert call.arguments_error is not None
    assert raw_of(response) is None


def test_block_of_the_api_whose_input_is_not_json_goes_back_without_it() -> None:
    block = {"type": "server_tool_use", "id": "b", "input": {}}
    response = streamed((block, [{"type": "input_json_delta", "partial_json": '{"x'}]))
    assert raw_of(response)["content"] == [{"type": "server_tool_use", "id": "b", "input": {}}]


@pytest.mark.parametrize(("reason", "is_complete"), [("tool_use", True), ("max_tokens", False)])
def test_call_that_does_not_end_is_complete_only_if_the_response_is(reason: str, is_complete: bool) -> None:
    decoder = StreamDecoder()
    block = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
    list(decoder.decode({"type": "content_block_start", "index": 0, "content_block": block}))
    delta = {"type": "input_json_delta", "partial_json": "{}"}
    list(decoder.decode({"type": "content_block_delta", "index": 0, "delta": delta}))
    list(decoder.decode({"type": "message_delta", "delta": {"stop_reason": reason}}))
    [call] = decoder.response().message.calls
    assert (call.arguments_error is None) == is_complete


def test_output_without_thinking_is_never_negative() -> None:
    usage = {"output_tokens": 1, "output_tokens_details": {"thinking_tokens": 3}}
    assert decoded(usage=usage).usage == Usage(0, 0, 3)


def test_delta_of_a_block_that_has_not_started_is_malformed() -> None:
    event = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "x"}}
    with pytest.raises(MalformedResponseError, match="content block 0, which it has not started"):
        list(StreamDecoder().decode(event))


# Paused responses


def paused(text: str, stop_reason: str = "pause_turn", **fields: Any) -> dict[str, Any]:
    block = {"type": "server_tool_use", "id": text, "name": "web_search", "input": {}}
    content = (
        [{"type": "text", "text": text}, block] if stop_reason == "pause_turn" else [{"type": "text", "text": text}]
    )
    usage = {"input_tokens": 10, "output_tokens": 5}
    return {"id": "m1", "content": content, "stop_reason": stop_reason, "usage": usage, **fields}


def request_with(**budget: Any) -> ModelRequest:
    return ModelRequest(RequestConfig("claude-sonnet-5-5"), History([HI]), Budget(**budget))


def claude_at(url: str) -> Anthropic:
    return Anthropic(api_key="k", base_url=url, retry=RetryPolicy(max_attempts=1))


def events_of_paused(text: str, stop_reason: str) -> list[Any]:
    return [
        {"type": "message_start", "message": {"id": "m1", "usage": {"input_tokens": 10}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": text}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": stop_reason}, "usage": {"output_tokens": 5}},
    ]


def test_paused_response_is_continued_and_joined(service: Recorder) -> None:
    service.answer(paused("a"))
    service.answer(paused("b", "end_turn"))
    response = asyncio.run(claude_at(service.url).generate(request_with()))
    assert response.message.text == "ab"
    assert (response.finish_reason, response.requests, response.usage.total) == (FinishReason.END, 2, 30)
    assert len(response.raw) == 2
    continued = service.last.body["messages"][-1]
    assert continued == {"role": "assistant", "content": paused("a")["content"]}
    blocks = [*paused("a")["content"], *paused("b", "end_turn")["content"]]
    assert raw_of(response) == {"role": "assistant", "content": blocks}


def test_parts_of_a_continued_stream_have_indices_of_their_own(service: Recorder) -> None:
    service.answer_stream(*events_of_paused("a", "pause_turn"))
    service.answer_stream(*events_of_paused("b", "end_turn"))

    async def main() -> list[Any]:
        return [event async for event in claude_at(service.url).stream(request_with())]

    *events, response = asyncio.run(main())
    assert [(type(event), event.index) for event in events] == [
        *((PartStart, 0), (PartEnd, 0)),
        *((PartStart, 1), (PartEnd, 1)),
    ]
    assert (response.message.text, response.requests, response.usage.total) == ("ab", 2, 30)


@pytest.mark.parametrize(
    ("budget", "requests"), [({"max_requests": 1}, 1), ({"max_requests": 3}, 3), ({"max_tokens": 30}, 2), ({}, 100)]
)
def test_paused_response_is_continued_within_the_budget(service: Recorder, budget: Any, requests: int) -> None:
    service.answer(paused("a"))
    response = asyncio.run(claude_at(service.url).generate(request_with(**budget)))
    assert (response.requests, len(service.seen)) == (requests, requests)
    assert response.finish_reason is FinishReason.CONTINUES


def test_paused_response_without_content_is_not_continued(service: Recorder) -> None:
    service.answer({**paused("a"), "content": []})
    assert asyncio.run(claude_at(service.url).generate(request_with())).requests == 1


@pytest.mark.parametrize("streamed", [False, True])
def test_error_in_a_continued_response_carries_what_came_before(service: Recorder, streamed: bool) -> None:
    if streamed:
        service.answer_stream(*events_of_paused("a", "pause_turn"))
    else:
        service.answer(paused("a"))
    service.answer({"error": {"type": "invalid_request_error", "message": "no"}}, status=400)

    async def main() -> None:
        claude = claude_at(service.url)
        if streamed:
            async for _ in claude.stream(request_with()):
                pass
        else:
            await claude.generate(request_with())

    with pytest.raises(InvalidRequestError) as caught:
        asyncio.run(main())
    assert caught.value.partial_response is not None
    assert caught.value.partial_response.message.text == "a"


def test_blank_response_that_is_continued_is_joined_from_its_parts(service: Recorder) -> None:
    service.answer({**paused("a"), "content": [{"type": "text", "text": " "}]})
    service.answer(paused("b", "end_turn"))
    response = asyncio.run(claude_at(service.url).generate(request_with()))
    assert response.message.text == " b"
    assert raw_of(response) is None


# Names, models and addresses


def test_all_pages_of_models_are_listed(service: Recorder) -> None:
    service.answer({"data": [{"id": "a"}, {"id": "b"}], "has_more": True, "last_id": "b"})
    service.answer({"data": [{"id": "c"}], "has_more": False})
    assert asyncio.run(claude_at(service.url).list_models()) == ["a", "b", "c"]
    assert [seen.path for seen in service.seen] == ["/v1/models?limit=1000", "/v1/models?limit=1000&after_id=b"]


@pytest.mark.parametrize("page", [[], {"models": []}])
def test_list_of_models_of_another_form_is_malformed(service: Recorder, page: Any) -> None:
    service.answer(page)
    with pytest.raises(MalformedResponseError, match="did not answer with a list of models"):
        asyncio.run(claude_at(service.url).list_models())


@pytest.mark.parametrize("model", ["", " ", "a\nb", 5])
def test_model_name_must_be_printable(model: Any) -> None:
    with pytest.raises(ConfigError, match="is not a valid model name"):
        Anthropic(model, api_key="k")


def test_credentials_are_sent_in_their_headers(service: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    service.answer(paused("a", "end_turn"))
    monkeypatch.setenv("ANTHROPIC_BASE_URL", service.url)
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "bearer")
    for claude, header, value in (
        (Anthropic(), "authorization", "Bearer bearer"),
        (Anthropic(api_key="k"), "x-api-key", "k"),
        (Anthropic(token=lambda: "t"), "authorization", "Bearer t"),
        (Anthropic(api_key="k", headers={"x-more": "1"}), "x-more", "1"),
    ):
        assert Agent(claude).run_sync("Hi").text == "a"
        assert service.last.headers[header] == value
        assert service.last.headers["anthropic-version"] == "2023-06-01"


def test_vertex_reads_project_and_location_from_the_environment(
    service: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ANTHROPIC_VERTEX_PROJECT_ID", "GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match="Vertex needs a project"):
        Anthropic(vertex=True)
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "p")
    service.answer_stream(*events_of_paused("a", "end_turn"))
    claude = Anthropic("claude-haiku-4-5", vertex=True, token=lambda: "t", base_url=f"{service.url}/")

    async def main() -> None:
        cached = RequestConfig("claude-haiku-4-5", cache=CachePolicy())
        async for _ in claude.stream(ModelRequest(cached, History([HI]))):
            pass

    asyncio.run(main())
    models = "/v1/projects/p/locations/global/publishers/anthropic/models"
    assert service.last.path == f"{models}/claude-haiku-4-5:streamRawPredict"
    assert "cache_control" not in service.last.body
    assert "anthropic-version" not in service.last.headers
