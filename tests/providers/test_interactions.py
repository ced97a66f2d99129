"""The Interactions API: requests from conversations, and messages from responses."""

import json
from typing import Any

import pytest
from msgspec import Raw

from midspan import Gemini
from midspan._types.exchange import FinishReason, ModelRequest, ModelResponse, Output, RequestConfig, Usage
from midspan._types.messages import History, Message
from midspan._types.parts import Blob, Opaque, ProviderData, Text, Thought, ToolCall, ToolResult
from midspan._types.specs import BuiltinTool, ModelSettings, ToolChoice, ToolSpec
from midspan.errors import MalformedResponseError, RateLimitError, ServerError
from midspan.providers.interactions.decode import StreamDecoder, decode_response

HI = Message.user("Hi")
PLAIN, OTHER = ToolSpec("plain"), ToolSpec("other", "Another one.", {"type": "object"})
MODEL = "gemini-3.8-flash"
IMAGE = Blob("image/png", base64="aW1n")


def body_of(*messages: Message, stream: bool = False, **config: Any) -> Any:
    request = ModelRequest(RequestConfig(MODEL, **config), History(messages))
    return json.loads(Gemini(MODEL, api="interactions", api_key="k").wire_request(request, stream=stream).body)


def steps_of(*messages: Message) -> Any:
    return body_of(*messages)["input"]


def sent(document: Any, origin: str = "gemini-interactions") -> ProviderData:
    return ProviderData(origin, Raw(json.dumps(document).encode()))


# All fields but the input


def test_plain_request_stores_nothing() -> None:
    hi = {"type": "user_input", "content": [{"type": "text", "text": "Hi"}]}
    plain = {"model": MODEL, "store": False, "input": [hi]}
    assert body_of(HI) == plain
    assert body_of(HI, stream=True) == {**plain, "stream": True}
    assert body_of(HI, system="Be brief.")["system_instruction"] == "Be brief."


def test_tools_are_declared_with_what_is_known_of_them() -> None:
    body = body_of(HI, tools=(PLAIN, OTHER, BuiltinTool("googleSearch", {"x": 1})))
    assert body["tools"] == [
        {"type": "function", "name": "plain"},
        {"type": "function", "name": "other", "description": "Another one.", "parameters": {"type": "object"}},
        {"type": "google_search", "x": 1},
    ]
    assert "generation_config" not in body


@pytest.mark.parametrize(
    ("choice", "encoded"),
    [
        (ToolChoice("required"), "any"),
        (ToolChoice("auto", strict=True), "validated"),
        (ToolChoice("required", strict=True), "any"),
        (ToolChoice("none"), "none"),
        (ToolChoice("auto", ("plain",)), {"allowed_tools": {"mode": "auto", "tools": ["plain"]}}),
    ],
)
def test_tool_choice(choice: ToolChoice, encoded: Any) -> None:
    assert body_of(HI, tools=(PLAIN,), tool_choice=choice)["generation_config"] == {"tool_choice": encoded}
    assert "generation_config" not in body_of(HI, tool_choice=choice)


def test_settings() -> None:
    settings = ModelSettings(
        max_tokens=9, seed=3, stop=("END",), temperature=0.5, top_p=0.9, thinking="high", show_thoughts=True
    )
    assert body_of(HI, settings=settings)["generation_config"] == {
        "max_output_tokens": 9,
        "seed": 3,
        "stop_sequences": ["END"],
        "temperature": 0.5,
        "top_p": 0.9,
        "thinking_level": "high",
        "thinking_summaries": "auto",
    }
    hidden = body_of(HI, settings=ModelSettings(show_thoughts=False))
    assert hidden["generation_config"] == {"thinking_summaries": "none"}


def test_form_of_the_answer() -> None:
    json_only = {"type": "text", "mime_type": "application/json"}
    assert body_of(HI, output=Output())["response_format"] == json_only
    assert body_of(HI, output=Output({"type": "object"}))["response_format"] == {
        **json_only,
        "schema": {"type": "object"},
    }


# Steps


def test_parts_are_steps() -> None:
    results = (
        ToolResult("a", "f", {"x": 1}),
        ToolResult("b", "f", {"x": 1}, hint="Note."),
        ToolResult("c", "f", "no", is_error=True),
        ToolResult("d", "f", content=(Text("seen"), IMAGE)),
    )
    image = {"type": "image", "mime_type": "image/png", "data": "aW1n"}
    fields = {"type": "function_result", "name": "f"}
    assert steps_of(Message.user(*results, Text("And?"))) == [
        {**fields, "call_id": "a", "result": {"x": 1}},
        {**fields, "call_id": "b", "result": '{"x":1}\n\nNote.'},
        {**fields, "call_id": "c", "result": "no", "is_error": True},
        {**fields, "call_id": "d", "result": [{"type": "text", "text": "seen"}, image]},
        {"type": "user_input", "content": [{"type": "text", "text": "And?"}]},
    ]


@pytest.mark.parametrize(
    ("blob", "encoded"),
    [
        (Blob("audio/wav", base64="c25k"), {"type": "audio", "mime_type": "audio/wav", "data": "c25k"}),
        (Blob("video/mp4", url="https://x"), {"type": "video", "mime_type": "video/mp4", "uri": "https://x"}),
        (
            Blob("application/pdf", base64="cGRm"),
            {"type": "document", "mime_type": "application/pdf", "data": "cGRm"},
        ),
    ],
)
def test_files_and_media(blob: Blob, encoded: Any) -> None:
    assert steps_of(Message.user(blob)) == [{"type": "user_input", "content": [encoded]}]


def test_message_of_the_model() -> None:
    thought = {"type": "thought", "signature": "s"}
    parts = (
        Thought("hm", sent(thought)),
        Thought("of another model"),
        Opaque("other", sent({}, "anthropic")),
        Text("a"),
        Text(""),
        ToolCall("c", "f", {"x": 1}),
        Text("b"),
    )
    assert steps_of(Message("model", parts)) == [
        thought,
        {"type": "model_output", "content": [{"type": "text", "text": "a"}]},
        {"type": "function_call", "id": "c", "name": "f", "arguments": {"x": 1}},
        {"type": "model_output", "content": [{"type": "text", "text": "b"}]},
    ]
    assert steps_of(Message("model", parts, sent([thought]))) == [thought]
    assert steps_of(Message("model", parts[5:6])) == [
        {"type": "function_call", "id": "c", "name": "f", "arguments": {"x": 1}}
    ]


# Responses


def decoded(*steps: Any, **fields: Any) -> ModelResponse:
    return decode_response(json.dumps({"id": "v1", "status": "completed", "steps": steps, **fields}).encode())


def test_steps_are_parts() -> None:
    thought = {"type": "thought", "summary": [{"text": "h"}, {"text": "m"}], "signature": "s"}
    contents = [
        {"type": "text", "text": "a"},
        {"type": "image", "data": "aW1n", "mime_type": "image/png"},
        {"type": "audio", "uri": "https://x"},
        {"type": "new"},
    ]
    search = {"type": "google_search_call", "id": "g"}
    response = decoded(
        thought,
        {"type": "thought", "signature": "s"},
        {"type": "model_output", "content": contents},
        {"type": "model_output"},
        {"type": "function_call", "id": "c", "name": "f", "arguments": {"x": 1}},
        {"type": "function_call", "id": "d", "name": "f", "arguments": None},
        search,
        usage={
            "total_input_tokens": 1,
            "total_output_tokens": 2,
            "total_thought_tokens": 3,
            "total_cached_tokens": 4,
            "total_tool_use_tokens": 5,
        },
        model="gemini",
    )
    shown, hidden, text, image, audio, unknown, call, other, opaque = response.message.parts
    assert isinstance(shown, Thought)
    assert shown.text == "hm"
    assert shown.provider_data is not None
    assert json.loads(bytes(shown.provider_data.raw)) == thought
    assert isinstance(hidden, Opaque)
    assert (text, image, audio) == (Text("a"), Blob("image/png", base64="aW1n"), Blob("audio/*", url="https://x"))
    assert isinstance(unknown, Opaque)
    assert json.loads(bytes(unknown.provider_data.raw)) == {"type": "model_output", "content": [{"type": "new"}]}
    assert (call, other) == (ToolCall("c", "f", {"x": 1}), ToolCall("d", "f"))
    assert isinstance(opaque, Opaque)
    assert json.loads(bytes(opaque.provider_data.raw)) == search
    assert response.usage == Usage(1, 2, 3, 4, 5)
    assert (response.id, response.model) == ("v1", "gemini")


@pytest.mark.parametrize(
    ("status", "finish_reason"),
    [
        ("requires_action", "end"),
        ("incomplete", "length"),
        ("cancelled", "interrupted"),
        ("new", "other"),
        ("", "other"),
    ],
)
def test_finish_reason(status: str, finish_reason: str) -> None:
    response = decoded(status=status)
    assert (response.finish_reason, response.raw_finish_reason) == (FinishReason(finish_reason), status)


def test_interaction_without_steps_is_empty() -> None:
    assert decode_response(b'{"status": "completed", "id": ""}').message.parts == ()
    assert decode_response(b'{"status": "completed", "id": ""}').id is None
    with pytest.raises(MalformedResponseError, match="it has no status"):
        decode_response(b"{}")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"errors": [{"message": "first"}]}, "first"),
        ({"error": {"message": "only"}}, "only"),
        ({}, "the interaction failed"),
    ],
)
def test_failed_interaction_raises_its_error(fields: Any, message: str) -> None:
    with pytest.raises(ServerError, match=f"Gemini: {message}"):
        decoded(status="failed", **fields)


def test_citations() -> None:
    annotations = [{"url": "https://x", "title": "X"}, {"source": "https://y"}, {"title": "no url"}]
    content = [{"type": "text", "text": "a", "annotations": annotations}]
    other = [{"type": "text", "annotations": [{"url": "https://other"}]}]
    response = decoded({"type": "model_output", "content": content}, {"type": "other", "content": other})
    assert [(citation.url, citation.title) for citation in response.citations] == [
        ("https://x", "X"),
        ("https://y", ""),
    ]


# Streams


def streamed(*items: dict[str, Any], status: str | None = "completed") -> tuple[list[Any], ModelResponse]:
    decoder = StreamDecoder()
    created = {"event_type": "interaction.created", "interaction": {"id": "v1", "status": "in_progress", "model": "g"}}
    events = [event for item in (created, *items) for event in decoder.decode(item)]
    if status is not None:
        list(decoder.decode({"event_type": "interaction.completed", "interaction": {"id": "", "status": status}}))
    events += decoder.end()
    return events, decoder.response()


def start(index: int, **step: Any) -> dict[str, Any]:
    return {"event_type": "step.start", "index": index, "step": step}


def delta(index: int, **fields: Any) -> dict[str, Any]:
    return {"event_type": "step.delta", "index": index, "delta": fields}


def stop(index: int) -> dict[str, Any]:
    return {"event_type": "step.stop", "index": index}


def summarized(events: list[Any]) -> list[tuple[str, int]]:
    return [(type(event).__name__, event.index) for event in events]


def raw_of(response: ModelResponse) -> Any:
    data = response.message.provider_data
    assert data is not None
    return json.loads(bytes(data.raw))


def test_streamed_steps_are_put_together() -> None:
    image = {"type": "image", "data": "aW1n", "mime_type": "image/png"}
    annotation = {"url": "https://x"}
    events, response = streamed(
        start(0, type="thought"),
        delta(0, type="thought_summary", content={"type": "text", "text": "h"}),
        delta(0, type="thought_summary", content={"type": "text", "text": "m"}),
        delta(0, type="thought_signature", signature="ab"),
        delta(0, type="thought_signature", signature="cd"),
        stop(0),
        start(1, type="model_output"),
        delta(1, type="text_annotation_delta", annotations=["too early"]),
        delta(1, type="text", text="a"),
        delta(1, type="text", text="b"),
        delta(1, type="text_annotation_delta", annotations=[annotation]),
        delta(1, **image),
        delta(1, type="text", text="c"),
        stop(1),
        start(2, type="function_call", id="c", name="f"),
        delta(2, type="arguments_delta", arguments='{"x"'),
        delta(2, type="arguments_delta", arguments=": 1}"),
        stop(2),
        start(3, type="google_search_call"),
        delta(3, type="google_search_call", arguments={"q": "x"}),
        stop(3),
        delta(9, type="text", text="ignored"),
        stop(9),
    )
    assert summarized(events) == [
        *(("PartStart", 0), ("PartDelta", 0), ("PartEnd", 0)),
        *(("PartStart", 1), ("PartDelta", 1), ("PartEnd", 1)),
        *(("PartStart", 2), ("PartEnd", 2)),
        *(("PartStart", 3), ("PartEnd", 3)),
        *(("PartStart", 4), ("PartDelta", 4), ("PartDelta", 4), ("PartEnd", 4)),
        *(("PartStart", 5), ("PartEnd", 5)),
    ]
    assert events[2].part == response.message.parts[0]
    assert events[10].part == ToolCall("c", "f")
    summary = [{"type": "text", "text": "h"}, {"type": "text", "text": "m"}]
    texts = [{"type": "text", "text": "ab", "annotations": [annotation]}, image, {"type": "text", "text": "c"}]
    assert raw_of(response) == [
        {"type": "thought", "summary": summary, "signature": "abcd"},
        {"type": "model_output", "annotations": ["too early"], "content": texts},
        {"type": "function_call", "id": "c", "name": "f", "arguments": {"x": 1}},
        {"type": "google_search_call", "arguments": {"q": "x"}},
    ]
    assert [type(part) for part in response.message.parts] == [Thought, Text, Blob, Text, ToolCall, Opaque]
    assert (response.id, response.model) == ("v1", "g")


def test_content_that_only_the_api_understands_is_not_streamed_as_a_step() -> None:
    events, response = streamed(start(0, type="model_output", content=[{"type": "new"}]), stop(0))
    assert events == []
    assert isinstance(response.message.parts[0], Opaque)


def test_thought_without_a_summary_is_an_opaque_part() -> None:
    events, response = streamed(start(0, type="thought"), delta(0, type="thought_signature", signature="s"), stop(0))
    assert summarized(events) == [("PartStart", 0), ("PartEnd", 0)]
    assert isinstance(response.message.parts[0], Opaque)


def test_thought_that_arrives_whole_is_a_part() -> None:
    events, response = streamed(start(0, type="thought", summary=[{"text": "hm"}]), stop(0))
    [thought] = response.message.parts
    assert isinstance(thought, Thought)
    assert [event.part for event in events] == [thought, thought]


@pytest.mark.parametrize(("status", "is_complete"), [("requires_action", True), ("incomplete", False)])
def test_call_that_does_not_end_is_complete_only_if_the_response_is(status: str, is_complete: bool) -> None:
    call = start(0, type="function_call", id="c", name="f")
    _, response = streamed(call, delta(0, type="arguments_delta", arguments="{}"), status=status)
    assert (response.message.calls[0].arguments_error is None) == is_complete


def test_call_whose_arguments_are_not_json_is_not_sent_back_as_it_came() -> None:
    call = start(0, type="function_call", id="c", name="f")
    _, response = streamed(call, delta(0, type="arguments_delta", arguments='{"x'), stop(0))
    [part] = response.message.calls
    assert part.arguments_error is not None
    assert response.message.provider_data is None


def test_call_keeps_the_arguments_of_its_start_if_those_of_another_call_are_not_json() -> None:
    call = start(0, type="function_call", id="c", name="f", arguments={"x": 1})
    other = start(1, type="function_call", id="d", name="g")
    for end in ((stop(0),), ()):
        _, response = streamed(call, *end, other, delta(1, type="arguments_delta", arguments='{"x'), stop(1))
        first, second = response.message.calls
        assert (first.arguments, first.arguments_error) == ({"x": 1}, None)
        assert second.arguments_error is not None


@pytest.mark.parametrize("status", [None, "in_progress"])
def test_stream_that_does_not_end_is_cut(status: str | None) -> None:
    call = start(0, type="function_call", id="c", name="f")
    _, response = streamed(call, delta(0, type="arguments_delta", arguments="{}"), status=status)
    assert response.finish_reason is FinishReason.CUT
    assert (response.id, response.model) == ("v1", "g")
    assert response.message.calls[0].arguments_error is not None


def test_status_of_an_interaction_may_come_alone() -> None:
    _, response = streamed({"event_type": "interaction.status_update", "status": "incomplete"}, status=None)
    assert response.finish_reason is FinishReason.LENGTH


def test_error_in_a_stream_is_raised() -> None:
    with pytest.raises(RateLimitError, match="Gemini sent an error: later"):
        list(StreamDecoder().feed(b'data: {"error": {"code": "rate_limit_exceeded", "message": "later"}}\n\n'))
