"""The Responses API: requests from conversations, and messages from responses."""

import json
from typing import Any

import pytest
from msgspec import Raw

from midspan._types.exchange import (
    CachePolicy,
    FinishReason,
    ModelRequest,
    ModelResponse,
    Output,
    PartDelta,
    PartEnd,
    PartStart,
    RequestConfig,
    Usage,
)
from midspan._types.messages import History, Message
from midspan._types.parts import Blob, Opaque, ProviderData, Text, Thought, ToolCall, ToolResult
from midspan._types.specs import BuiltinTool, ModelSettings, ToolChoice, ToolSpec
from midspan.errors import ProviderError, QuotaExhaustedError, RateLimitError
from midspan.providers.openai_responses.client import OpenAIResponses
from midspan.providers.openai_responses.decode import StreamDecoder, decode_response, response_error

HI = Message.user("Hi")
PLAIN, OTHER = ToolSpec("plain"), ToolSpec("other", "Another one.", {"type": "object"}, strict=True)
ORIGIN = "openai-responses"
SCHEMA = {"type": "object", "properties": {}}


def body_of(*messages: Message, model: str = "gpt-4o", stream: bool = False, **config: Any) -> Any:
    request = ModelRequest(RequestConfig(model, **config), History(messages))
    return json.loads(OpenAIResponses(model, api_key="k").wire_request(request, stream=stream).body)


def items_of(*messages: Message) -> Any:
    return body_of(*messages)["input"]


def sent(document: Any, origin: str = ORIGIN) -> ProviderData:
    return ProviderData(origin, Raw(json.dumps(document).encode()))


# All fields but the input


def test_plain_request_stores_nothing() -> None:
    plain = {"model": "gpt-4o", "store": False, "input": [{"role": "user", "content": "Hi"}]}
    assert body_of(HI) == plain
    assert body_of(HI, stream=True) == {**plain, "stream": True}
    assert body_of(HI, model="o3")["include"] == ["reasoning.encrypted_content"]


@pytest.mark.parametrize(
    ("model", "is_reasoning"),
    [("o3", True), ("gpt-5.5", True), ("openai/gpt-5", True), ("gpt-5-chat-latest", False), ("gpt-4o", False)],
)
def test_reasoning_models_are_known_by_their_names(model: str, is_reasoning: bool) -> None:
    assert ("include" in body_of(HI, model=model)) == is_reasoning


def test_tools_are_declared_with_what_is_known_of_them() -> None:
    body = body_of(HI, tools=(PLAIN, OTHER, BuiltinTool("web_search", {"size": 1})))
    assert body["tools"] == [
        {"type": "function", "name": "plain", "parameters": SCHEMA, "strict": False},
        {
            "type": "function",
            "name": "other",
            "description": "Another one.",
            "parameters": {"type": "object"},
            "strict": True,
        },
        {"type": "web_search", "size": 1},
    ]
    assert "tool_choice" not in body
    assert "tool_choice" not in body_of(HI, tool_choice=ToolChoice("auto"))


@pytest.mark.parametrize(
    ("choice", "encoded"),
    [
        (ToolChoice("auto"), "auto"),
        (ToolChoice("none", ("plain",)), "none"),
        (ToolChoice("required", ("plain",)), {"type": "function", "name": "plain"}),
        (
            ToolChoice("auto", ("plain",)),
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "plain"}]},
        ),
        (
            ToolChoice("required", ("plain", "other")),
            {
                "type": "allowed_tools",
                "mode": "required",
                "tools": [{"type": "function", "name": "plain"}, {"type": "function", "name": "other"}],
            },
        ),
    ],
)
def test_tool_choice(choice: ToolChoice, encoded: Any) -> None:
    assert body_of(HI, tools=(PLAIN, OTHER), tool_choice=choice)["tool_choice"] == encoded


@pytest.mark.parametrize(
    ("output", "system", "text", "instructions"),
    [
        (Output(), "Be brief.", {"format": {"type": "json_object"}}, "Be brief.\n\nAnswer with JSON only."),
        (Output(), None, {"format": {"type": "json_object"}}, "Answer with JSON only."),
        (
            Output(SCHEMA, strict=True),
            "Be brief.",
            {"format": {"type": "json_schema", "name": "answer", "schema": SCHEMA, "strict": True}},
            "Be brief.",
        ),
        (None, None, None, None),
    ],
)
def test_form_of_the_answer(output: Any, system: Any, text: Any, instructions: Any) -> None:
    body = body_of(HI, output=output, system=system)
    assert (body.get("text"), body.get("instructions")) == (text, instructions)


def test_settings() -> None:
    settings = ModelSettings(max_tokens=9, temperature=0.5, top_p=0.9, thinking="high", show_thoughts=True)
    assert body_of(HI, settings=settings, cache=CachePolicy("key")) == {
        "model": "gpt-4o",
        "store": False,
        "reasoning": {"effort": "high", "summary": "auto"},
        "max_output_tokens": 9,
        "temperature": 0.5,
        "top_p": 0.9,
        "prompt_cache_key": "key",
        "input": [{"role": "user", "content": "Hi"}],
    }
    assert "reasoning" not in body_of(HI, settings=ModelSettings(show_thoughts=False))


# Input items


def test_parts_of_the_user() -> None:
    image = Blob("image/png", base64="aW1n")
    encoded = {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,aW1n"}
    message = Message.user(
        Text("And?"),
        ToolResult("a", "f", {"x": 1}),
        ToolResult("b", "f", content=(Text("seen"), image)),
        Opaque("input_special", sent({"type": "input_special"})),
        Opaque("compaction", sent({"type": "compaction"})),
        Opaque("other", sent({}, "anthropic")),
    )
    assert items_of(message) == [
        {"type": "function_call_output", "call_id": "a", "output": '{"x":1}'},
        {"type": "function_call_output", "call_id": "b", "output": [{"type": "input_text", "text": "seen"}, encoded]},
        {"type": "compaction"},
        {"role": "user", "content": [{"type": "input_text", "text": "And?"}, {"type": "input_special"}]},
    ]
    alone = Message.user(Opaque("input_text", sent({"type": "input_text", "text": "b"})))
    assert items_of(alone) == [{"role": "user", "content": [{"type": "input_text", "text": "b"}]}]
    assert items_of(Message.user(image)) == [{"role": "user", "content": [encoded]}]


@pytest.mark.parametrize(
    ("blob", "encoded"),
    [
        (
            Blob("image/png", url="https://x/a"),
            {"type": "input_image", "detail": "auto", "image_url": "https://x/a"},
        ),
        (Blob("image/png", url="file-1"), {"type": "input_image", "detail": "auto", "file_id": "file-1"}),
        (Blob("application/pdf", url="https://x/a"), {"type": "input_file", "file_url": "https://x/a"}),
        (Blob("application/pdf", url="file-1"), {"type": "input_file", "file_id": "file-1"}),
        (
            Blob("Application/PDF; x=1", base64="cGRm"),
            {"type": "input_file", "filename": "file", "file_data": "data:application/pdf;base64,cGRm"},
        ),
        (
            Blob("application/pdf", base64="cGRm", name="a.pdf"),
            {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,cGRm"},
        ),
    ],
)
def test_files_and_images(blob: Blob, encoded: Any) -> None:
    assert items_of(Message.user(blob)) == [{"role": "user", "content": [encoded]}]


REASONING = {"type": "reasoning", "id": "r", "summary": []}
MESSAGE = {"type": "message", "id": "m", "content": [{"type": "output_text", "text": "a"}]}
CALL = {"type": "function_call", "id": "fc", "call_id": "c", "name": "f", "arguments": "{}"}


def test_message_of_the_model_goes_back_as_it_came() -> None:
    parts = (Opaque("reasoning", sent(REASONING)), Text("a"), ToolCall("c", "f"))
    items = [REASONING, MESSAGE, CALL]
    assert items_of(Message("model", parts, sent(items))) == items
    alone = Message("model", (Thought("hm"), Opaque("reasoning", sent(REASONING))), sent([REASONING]))
    assert items_of(HI, alone) == [{"role": "user", "content": "Hi"}]
    other = Message("model", (Opaque("web_search_call", sent({})),), sent([{"type": "web_search_call"}]))
    assert items_of(other) == [{"type": "web_search_call"}]


def test_edited_message_of_the_model_keeps_the_items_of_unchanged_parts() -> None:
    parts = (
        Opaque("reasoning", sent(REASONING)),
        Text("a", sent(MESSAGE)),
        Text("new", sent(MESSAGE)),
        Text(""),
        ToolCall("c", "f", {"x": 1}, provider_data=sent(CALL)),
        ToolCall("d", "f", {"x": 2}, provider_data=sent(CALL)),
        ToolCall("e", "g"),
    )
    assert items_of(Message("model", parts)) == [
        REASONING,
        MESSAGE,
        {"role": "assistant", "content": "new"},
        {**CALL, "arguments": '{"x":1}'},
        {"type": "function_call", "call_id": "d", "name": "f", "arguments": '{"x":2}'},
        {"type": "function_call", "call_id": "e", "name": "g", "arguments": "{}"},
    ]


def test_message_whose_ids_are_not_valid_is_encoded_from_its_parts() -> None:
    id = "c d"
    message = Message("model", (ToolCall(id, "f"),), sent([{**CALL, "call_id": id}]))
    call, result = items_of(message, Message.user(ToolResult(id, "f", 1)))
    assert call["call_id"] == result["call_id"] != id


def test_image_of_another_model_is_sent_as_a_message_of_the_user() -> None:
    image = Blob("image/png", base64="aW1n")
    assert [item["role"] for item in items_of(Message("model", (Text("a"), image)))] == ["assistant", "user"]
    assert [item["type"] for item in items_of(Message("model", (image, ToolCall("c", "f"))))] == ["function_call"]


# Responses


def decoded(*output: Any, status: str = "completed", **fields: Any) -> ModelResponse:
    return decode_response(json.dumps({"object": "response", "status": status, "output": output, **fields}).encode())


@pytest.mark.parametrize(
    ("fields", "finish_reason", "raw"),
    [
        ({"status": "cancelled"}, "interrupted", "cancelled"),
        ({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, "blocked", "content_filter"),
        ({"status": "incomplete", "incomplete_details": None}, "other", None),
        ({"status": "completed", "incomplete_details": {"reason": "content_filter"}}, "end", "completed"),
    ],
)
def test_finish_reason(fields: Any, finish_reason: str, raw: Any) -> None:
    response = decoded(MESSAGE, **fields)
    assert (response.finish_reason, response.raw_finish_reason) == (FinishReason(finish_reason), raw)


def test_usage() -> None:
    usage = {
        "input_tokens": 10,
        "output_tokens": 8,
        "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 2},
        "output_tokens_details": {"reasoning_tokens": 5},
    }
    assert decoded(MESSAGE, usage=usage).usage == Usage(10, 3, 5, 3, cache_write=2)
    usage["output_tokens"] = 1
    assert decoded(MESSAGE, usage=usage).usage.output == 0


def test_output_items_are_parts_that_carry_them() -> None:
    summary = {"type": "reasoning", "summary": [{"text": "a"}, {"text": None}, {"text": "b"}]}
    content = {"type": "reasoning", "summary": [], "content": [{"text": "c"}]}
    several = {
        "type": "message",
        "content": [{"type": "output_text", "text": "x"}, {"type": "refusal", "refusal": "y"}],
    }
    search = {"type": "web_search_call", "id": "w"}
    broken = {**CALL, "arguments": "{"}
    parts = decoded(summary, content, REASONING, MESSAGE, several, search, CALL, broken).message.parts
    assert [type(part) for part in parts] == [Thought, Thought, Opaque, Text, Text, Text, Opaque, ToolCall, ToolCall]
    assert [part.text for part in parts if isinstance(part, Thought | Text)] == ["a\n\n\n\nb", "c", "a", "x", "y"]
    items = (summary, content, REASONING, MESSAGE, None, None, search, CALL, broken)
    for part, item in zip(parts, items, strict=True):
        data = part.provider_data
        assert (None if data is None else json.loads(bytes(data.raw))) == item
    assert [(part.id, part.name) for part in parts if isinstance(part, ToolCall)] == [("c", "f")] * 2
    assert [part.arguments_error is None for part in parts if isinstance(part, ToolCall)] == [True, False]


@pytest.mark.parametrize(("text", "arguments"), [('{"x": 1}', {"x": 1}), ("", {}), (None, {})])
def test_arguments_of_a_call(text: str | None, arguments: dict[str, Any]) -> None:
    [call] = decoded({**CALL, "arguments": text}).message.calls
    assert (call.arguments, call.arguments_error) == (arguments, None)


def test_refusal_is_the_finish_reason_of_a_complete_response() -> None:
    item = {"type": "message", "content": [{"type": "refusal", "refusal": "I cannot."}]}
    response = decoded(item)
    assert (response.finish_reason, response.finish_message) == (FinishReason.REFUSED, "I cannot.")
    assert response.message.text == "I cannot."
    cut = decoded(item, status="incomplete", incomplete_details={"reason": "max_output_tokens"})
    assert cut.finish_reason is FinishReason.LENGTH


def test_last_call_of_a_response_that_was_cut_is_not_complete() -> None:
    cut: dict[str, Any] = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    first, last = decoded(CALL, CALL, **cut).message.calls
    assert (first.arguments_error is None, last.arguments_error is None) == (True, False)
    assert decoded(MESSAGE, **cut).message.text == "a"
    assert decoded(**cut).message.parts == ()


def test_citations_are_located_in_the_whole_text() -> None:
    annotations = [
        {"type": "url_citation", "url": "https://x", "title": "X", "start_index": 1, "end_index": 2},
        {"type": "url_citation", "url": "https://y"},
        {"type": "url_citation", "url": ""},
        {"type": "file_citation", "url": "https://z"},
    ]
    content = [
        {"type": "output_text", "text": "abc"},
        {"type": "output_text", "text": "de", "annotations": annotations},
        {"type": "refusal", "refusal": "f", "annotations": annotations[:1]},
    ]
    response = decoded({"type": "message", "content": content})
    assert [(citation.url, citation.title, citation.start, citation.end) for citation in response.citations] == [
        ("https://x", "X", 4, 5),
        ("https://y", "", None, None),
        ("https://x", "X", 6, 7),
    ]


@pytest.mark.parametrize(
    ("name", "item", "error"),
    [
        ("", {"status": "failed", "error": {"code": "rate_limit_exceeded", "message": "later"}}, RateLimitError),
        (
            "response.failed",
            {"type": "response.failed", "response": {"status": "failed", "error": {"code": "insufficient_quota"}}},
            QuotaExhaustedError,
        ),
        ("", {"status": "failed", "error": None}, ProviderError),
        ("error", {"type": "error", "code": "rate_limit_exceeded", "message": "later"}, ProviderError),
        ("", {"object": "response", "status": "completed", "error": {"message": "x"}}, None),
        ("", {"error": {"code": "rate_limit_exceeded"}}, RateLimitError),
        ("response.created", {"type": "response.created", "response": {"status": "in_progress"}}, None),
        ("", [], None),
    ],
)
def test_errors_in_responses_and_events(name: str, item: Any, error: Any) -> None:
    found = response_error(name, item)
    assert found is None if error is None else isinstance(found, error)


def test_error_of_a_whole_response_is_raised() -> None:
    with pytest.raises(RateLimitError, match="later"):
        decoded(status="failed", error={"code": "rate_limit_exceeded", "message": "later"})


# Streams


def events_of(*items: dict[str, Any]) -> tuple[list[Any], StreamDecoder]:
    decoder = StreamDecoder()
    events = [event for item in items for event in decoder.decode(item)]
    return events + decoder.end(), decoder


def added(index: int, item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def done(index: int, item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def delta(kind: str, index: int, text: str, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}.delta", "output_index": index, "delta": text, **fields}


def summarized(events: list[Any]) -> list[tuple[str, int]]:
    return [(type(event).__name__, event.index) for event in events]


def test_events_of_a_streamed_response() -> None:
    events, decoder = events_of(
        {"type": "response.created", "response": {"id": "r", "model": "gpt", "status": "in_progress"}},
        added(0, {"type": "reasoning"}),
        {"type": "response.reasoning_summary_part.added", "output_index": 0, "summary_index": 0},
        delta("reasoning_summary_text", 0, "one"),
        {"type": "response.reasoning_summary_part.added", "output_index": 0, "summary_index": 1},
        delta("reasoning_summary_text", 0, "two"),
        done(0, {"type": "reasoning", "summary": [{"text": "one"}, {"text": "two"}]}),
        added(1, {"type": "message"}),
        delta("output_text", 1, "He"),
        delta("output_text", 1, "llo"),
        {"type": "response.content_part.done", "output_index": 1},
        done(1, {"type": "message", "content": [{"type": "output_text", "text": "Hello"}]}),
        added(2, {**CALL, "arguments": ""}),
        delta("function_call_arguments", 2, "{}"),
        delta("function_call_arguments", 7, "ignored"),
        done(2, CALL),
        done(3, {"type": "web_search_call"}),
        done(4, MESSAGE),
        {"type": "response.completed", "response": {"status": "completed", "output": [MESSAGE]}},
    )
    assert summarized(events) == [
        *(("PartStart", 0), ("PartDelta", 0), ("PartDelta", 0), ("PartEnd", 0)),
        *(("PartStart", 1), ("PartDelta", 1), ("PartEnd", 1)),
        *(("PartStart", 2), ("PartDelta", 2), ("PartEnd", 2)),
        *(("PartStart", 3), ("PartEnd", 3)),
        *(("PartStart", 4), ("PartEnd", 4)),
    ]
    parts = decoder.accumulator.parts()
    assert [part.text for part in parts if isinstance(part, Thought | Text)] == ["one\n\ntwo", "Hello", "a"]
    assert isinstance(events[7], PartStart)
    assert events[7].part == ToolCall("c", "f")
    assert isinstance(events[8], PartDelta)
    assert isinstance(events[9], PartEnd)
    response = decoder.response()
    assert (response.message.text, response.finish_reason) == ("a", FinishReason.END)


@pytest.mark.parametrize(
    "end",
    [
        {"type": "response.in_progress", "response": {"id": "r", "model": "gpt", "output": []}},
        {"type": "response.completed", "response": {"id": "r", "model": "gpt", "status": "completed"}},
    ],
)
def test_stream_without_the_whole_response_is_cut(end: dict[str, Any]) -> None:
    _, decoder = events_of(added(0, CALL), delta("function_call_arguments", 0, "{}"), end)
    response = decoder.response()
    assert response.finish_reason is FinishReason.CUT
    assert (response.id, response.model) == ("r", "gpt")
    [call] = response.message.calls
    assert call.arguments_error is not None
