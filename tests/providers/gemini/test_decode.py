import json
from cProfile import Profile
from pstats import Stats
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from midspan._types.exchange import FinishReason, ModelResponse, Usage
from midspan._types.messages import Message
from midspan._types.parts import Blob, Opaque, Part, ProviderData, Text, Thought, ToolCall, ToolResult, is_local_id
from midspan.errors import MalformedResponseError, PromptBlockedError, RateLimitError, ServerError
from midspan.providers.gemini import decode
from midspan.providers.gemini.capabilities import Api
from midspan.providers.gemini.encode import thought_signature
from midspan.providers.gemini.stream import StreamDecoder
from tests.streaming import pieces_of, plain, raw_of


def answer(*parts: Any, finish: Any = "STOP", **more: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}}
    return {"candidates": [candidate | ({"finishReason": finish} if finish else {})], **more}


def decoded(document: Any, api: Api = Api.DEVELOPER) -> ModelResponse:
    return decode.response(json.dumps(document, indent=2).encode(), api)


def events(*documents: Any) -> bytes:
    return b"".join(b"data: %b\r\n\r\n" % json.dumps(document).encode() for document in documents)


def streamed(*pieces: bytes) -> tuple[list[Part], ModelResponse]:
    ids = (f"midspan_{number}" for number in range(100))
    stream = StreamDecoder(make_id=lambda: next(ids))
    made = [event for piece in pieces for event in stream.feed(piece)]
    return pieces_of([*made, *stream.end()]), stream.response()


@pytest.mark.requirement("S1-07", "S0-10")
def test_every_kind_of_part_is_decoded() -> None:
    response = decoded(
        answer(
            {"text": "hm", "thought": True, "thoughtSignature": "s1"},
            {"text": "hi"},
            {"functionCall": {"id": "7", "name": "add", "args": {"a_b": 1}}, "thoughtSignature": "s2"},
            {"inlineData": {"mimeType": "image/png", "data": "AAA="}},
            {"fileData": {"mimeType": "video/mp4", "fileUri": "gs://x"}},
            {"executableCode": {"language": "PYTHON", "code": "1"}, "thoughtSignature": "s3"},
            {"brandNew": {"x": 1}},
        )
    )
    assert plain(*response.message.parts[:5]) == [
        Thought("hm"),
        Text("hi"),
        ToolCall("7", "add", {"a_b": 1}),
        Blob("image/png", "AAA="),
        Blob("video/mp4", url="gs://x"),
    ]
    assert [thought_signature(part) for part in response.message.parts[:5]] == ["s1", None, "s2", None, None]
    assert [part.provider_data is None for part in response.message.parts[:5]] == [False, True, False, True, True]
    code, new = response.message.parts[5:]
    assert isinstance(code, Opaque)
    assert (code.name, json.loads(raw_of(code))["thoughtSignature"]) == ("executableCode", "s3")
    assert isinstance(new, Opaque)
    assert (new.name, json.loads(raw_of(new))) == ("brandNew", {"brandNew": {"x": 1}})


@pytest.mark.requirement("S0-10")
def test_the_content_keeps_its_bytes() -> None:
    content = b'{ "parts" : [ {"text":"\\u00e4", "x": 1.10} ],\n "role":"model", "new": null }'
    response = decode.response(b'{"candidates":[{"content":' + content + b',"finishReason":"STOP"}]}')
    assert raw_of(response.message) == content


def test_the_other_fields_of_a_response_are_decoded() -> None:
    document = answer(
        {"text": "x"},
        finish="MALFORMED_FUNCTION_CALL",
        usageMetadata={
            "promptTokenCount": 1,
            "candidatesTokenCount": 2,
            "thoughtsTokenCount": 3,
            "cachedContentTokenCount": 4,
            "toolUsePromptTokenCount": 5,
            "totalTokenCount": 11,
        },
        modelVersion="gemini-3.8-flash",
        responseId="r",
    )
    document["candidates"][0] |= {"finishMessage": "Malformed", "continuationToken": "abc"}
    response = decoded(document)
    assert response.finish_reason is FinishReason.MALFORMED_CALL
    assert (response.raw_finish_reason, response.finish_message) == ("MALFORMED_FUNCTION_CALL", "Malformed")
    assert response.usage == Usage(input=1, output=2, thoughts=3, cached=4, tools=5)
    assert response.usage.total == 11
    assert (response.model, response.id) == ("gemini-3.8-flash", "r")
    assert decode.response_and_token(json.dumps(document).encode(), Api.DEVELOPER)[1] == "abc"
    assert [json.loads(bytes(raw)) for raw in response.raw] == [document]


@pytest.mark.parametrize(
    ("word", "api", "finish", "told"),
    [
        ("STOP", Api.DEVELOPER, FinishReason.END, "STOP"),
        ("MAX_TOKENS", Api.DEVELOPER, FinishReason.LENGTH, "MAX_TOKENS"),
        ("IMAGE_SAFETY", Api.DEVELOPER, FinishReason.BLOCKED, "IMAGE_SAFETY"),
        ("UNEXPECTED_TOOL_CALL", Api.DEVELOPER, FinishReason.UNEXPECTED_CALL, "UNEXPECTED_TOOL_CALL"),
        ("CONTINUATION", Api.DEVELOPER, FinishReason.CONTINUES, "CONTINUATION"),
        ("SOMETHING_NEW", Api.DEVELOPER, FinishReason.OTHER, "SOMETHING_NEW"),
        (1, Api.DEVELOPER, FinishReason.END, "STOP"),
        (10, Api.DEVELOPER, FinishReason.MALFORMED_CALL, "MALFORMED_FUNCTION_CALL"),
        (9, Api.VERTEX, FinishReason.MALFORMED_CALL, "MALFORMED_FUNCTION_CALL"),
        (10, Api.VERTEX, FinishReason.BLOCKED, "MODEL_ARMOR"),
        (999, Api.DEVELOPER, FinishReason.OTHER, "999"),
        (None, Api.DEVELOPER, FinishReason.CUT, None),
        ("FINISH_REASON_UNSPECIFIED", Api.DEVELOPER, FinishReason.CUT, None),
    ],
)
def test_reasons_are_open_and_may_be_numbers(word: Any, api: Api, finish: FinishReason, told: str | None) -> None:
    response = decoded(answer({"text": "x"}, finish=word), api)
    assert (response.finish_reason, response.raw_finish_reason) == (finish, told)


@pytest.mark.requirement("S1-08")
def test_calls_without_an_id_get_unique_local_ids() -> None:
    call = {"functionCall": {"name": "roll", "args": {}}}
    first, second = decoded(answer(call, call)).message.calls
    assert first.id != second.id
    assert is_local_id(first.id)


@pytest.mark.requirement("S0-05")
@pytest.mark.parametrize("call", [{"name": "f"}, {"name": "f", "args": None}, {"name": "f", "args": {}}])
def test_a_call_without_arguments_has_empty_arguments(call: dict[str, Any]) -> None:
    assert decoded(answer({"functionCall": call})).message.calls[0].arguments == {}


@pytest.mark.requirement("S4-04")
def test_only_the_first_candidate_is_decoded() -> None:
    document = answer({"text": "mine"})
    document["candidates"].append(answer({"functionCall": {"name": "f"}})["candidates"][0] | {"index": 1})
    assert decoded(document).message.parts == (Text("mine"),)
    document["candidates"].reverse()
    assert decoded(document).message.parts == (Text("mine"),)


def test_a_call_that_the_server_answered_needs_no_result() -> None:
    response = decoded(
        answer(
            {"functionCall": {"name": "search", "args": {}}},
            {"functionResponse": {"name": "search", "response": {"result": "x"}}},
            {"functionCall": {"name": "add", "args": {}}},
        )
    )
    assert [call.name for call in response.message.calls] == ["add"]


@pytest.mark.parametrize(
    "candidate",
    [
        {"content": {"role": "model"}, "finishReason": "STOP"},
        {"content": {"role": "model", "parts": []}, "finishReason": "STOP"},
        {"content": {}, "finishReason": "STOP"},
        {"content": None, "finishReason": "STOP"},
        {"content": [], "finishReason": "STOP"},
        {"finishReason": "STOP"},
    ],
)
def test_an_empty_success_is_an_empty_message(candidate: dict[str, Any]) -> None:
    document = {"candidates": [candidate]}
    assert decoded(document).message == Message("model", (), ProviderData("gemini"))
    assert decoded(document).finish_reason is FinishReason.END
    assert streamed(events(document))[1].message.parts == ()


def test_a_content_without_a_role_goes_back_as_the_models() -> None:
    document = {"candidates": [{"content": {"parts": [{"text": "x"}], "new": 1}, "finishReason": "STOP"}]}
    for response in (decoded(document), streamed(events(document))[1]):
        assert json.loads(raw_of(response.message)) == {"role": "model", "parts": [{"text": "x"}], "new": 1}


def test_a_blocked_prompt_is_an_error() -> None:
    document = {"promptFeedback": {"blockReason": "SAFETY", "blockReasonMessage": "no"}}
    for read in (decoded, lambda document: streamed(events(document))):
        with pytest.raises(PromptBlockedError, match=r"SAFETY\): no"):
            read(document)


def test_parts_with_fields_of_wrong_types_are_kept_as_opaque() -> None:
    document = answer({"text": "x"}, {"text": 5, "thought": "yes"}, {"functionCall": {"name": "f"}}, None, 7)
    document["candidates"].insert(0, None)
    response = decoded(document)
    assert response.message.parts[0] == Text("x")
    assert [type(part) for part in response.message.parts] == [Text, Opaque, ToolCall, Opaque, Opaque]
    assert json.loads(raw_of(response.message)) == document["candidates"][1]["content"]


@pytest.mark.parametrize("odd", ["many", {"promptTokenCount": "many"}, {"promptTokenCount": None}, [], 5])
@pytest.mark.parametrize("field", ["usageMetadata", "modelVersion", "responseId"])
def test_fields_beside_the_candidates_may_be_malformed(field: str, odd: Any) -> None:
    response = decoded(answer({"text": "x"}, **{field: odd}))
    assert (response.message.text, response.finish_reason, response.usage) == ("x", FinishReason.END, Usage())


def test_content_keeps_its_bytes_beside_malformed_fields() -> None:
    content = b'{"role":"model",  "parts":[{"text":"hi","n":1.50}]}'
    odd = b'{"candidates":[{"content":%b,"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":null}}' % content
    assert raw_of(decode.response(odd).message) == content


def test_token_counts_may_be_strings_or_null() -> None:
    counts = {"promptTokenCount": "3", "candidatesTokenCount": 2, "thoughtsTokenCount": None}
    response = decoded(answer({"text": "Hi"}, usageMetadata=counts, modelVersion="m", responseId=5))
    assert (response.usage.input, response.usage.output, response.usage.thoughts) == (3, 2, 0)
    assert (response.model, response.id) == ("m", None)


def test_arguments_that_are_the_json_text_of_an_object_are_read() -> None:
    call = decoded(answer({"functionCall": {"name": "f", "args": '{"id": 1}'}})).message.calls[0]
    assert (call.arguments, call.arguments_error) == ({"id": 1}, None)


@pytest.mark.parametrize(("args", "text"), [([1], "[1]"), ("odd", "odd"), (5, "5"), ("[1]", "[1]")])
def test_call_whose_arguments_are_not_an_object_has_an_error_and_not_empty_arguments(args: Any, text: str) -> None:
    call = decoded(answer({"functionCall": {"name": "delete_all", "args": args}})).message.calls[0]
    assert call.raw_arguments == text
    assert call.arguments_error is not None
    assert "JSON" in call.arguments_error


def test_a_call_beside_text_is_a_call() -> None:
    assert decoded(answer({"text": "", "functionCall": {"name": "f"}})).message.calls[0].name == "f"


def test_call_keeps_the_mark_of_a_thought() -> None:
    part = {"functionCall": {"name": "f"}, "thought": True}
    assert json.loads(raw_of(decoded(answer(part)).message.calls[0])) == part


def test_contents_in_snake_case_are_understood() -> None:
    model, user = decode.conversation(
        [
            b'{"role":"model","parts":[{"function_call":{"name":"f","args":{"a_b":1}},"thought_signature":"s"}]}',
            b'{"role":"function","parts":[{"function_response":{"name":"f","response":{"x_y":1}}}]}',
        ]
    )
    assert model.calls[0].arguments == {"a_b": 1}
    assert plain(*user.results) == [ToolResult(model.calls[0].id, "f", {"x_y": 1})]
    assert json.loads(raw_of(model))["parts"][0]["thoughtSignature"] == "s"


def test_results_over_two_contents_find_their_calls() -> None:
    contents = [
        b'{"role":"model","parts":[{"functionCall":{"name":"f"}},{"functionCall":{"name":"f"}}]}',
        b'{"role":"user","parts":[{"functionResponse":{"name":"f","response":{"result":1}}}]}',
        b'{"role":"user","parts":[{"functionResponse":{"name":"f","response":{"result":2}}}]}',
    ]
    model, one, two = decode.conversation(contents)
    assert [one.results[0].id, two.results[0].id] == [call.id for call in model.calls]


def test_an_error_in_a_list_of_one_is_an_error_in_a_plain_body_too() -> None:
    with pytest.raises(RateLimitError):
        decode.response(b'[{"error":{"code":429,"message":"slow down"}}]')


@pytest.mark.parametrize("prefix", [b"\xef\xbb\xbf", b" \r\n", b"\xef\xbb\xbf "])
def test_a_byte_order_mark_is_ignored(prefix: bytes) -> None:
    document = json.dumps(answer({"text": "x"})).encode()
    assert decode.response(prefix + document).message.text == "x"
    for frame in (b"data: " + document + b"\n\n", b"[" + document + b"]", document):
        whole, cut = streamed(prefix + frame), streamed(*(bytes([byte]) for byte in prefix + frame))
        assert whole[1].message.text == cut[1].message.text == "x"


@pytest.mark.parametrize("text", [b"OK", b"<html><h1>Bad gateway</h1></html>", b"Service Unavailable: try later"])
def test_text_that_is_not_a_stream_is_no_response_in_any_chunking(text: bytes) -> None:
    for pieces in ([text], [bytes([byte]) for byte in text]):
        decoder = StreamDecoder()
        assert [*(event for piece in pieces for event in decoder.feed(piece)), *decoder.end()] == []
        assert decoder.is_empty  # which the client reports


def test_an_empty_event_is_ignored() -> None:
    assert streamed(b"data:\n\n" + events(answer({"text": "x"})) + b"data: [DONE] \n\n")[1].message.text == "x"


@pytest.mark.parametrize("half", [b'"\\ud83d"', b'"a\xff"'])
def test_half_a_character_does_not_end_a_run(half: bytes) -> None:
    body = b'{"candidates":[{"content":{"role":"model","parts":[{"text":' + half + b'}]},"finishReason":"STOP"}]}'
    response = decode.response(body)
    assert response.finish_reason is FinishReason.END
    assert len(response.message.text) in (1, 2)
    json.loads(raw_of(response.message))


@pytest.mark.parametrize("body", [b"", b"{", b"<html><body>oops</body></html>", b"[]", b"5", b'{"candidates":[{"con'])
def test_a_document_that_is_not_a_response_is_an_error(body: bytes) -> None:
    with pytest.raises(MalformedResponseError):
        decode.response(body)


@pytest.mark.parametrize("content", ["x", 5, [1], {"role": 5, "parts": [{"text": "x"}]}, {"parts": {"text": "x"}}])
def test_a_content_of_another_form_is_a_malformed_response(content: Any) -> None:
    document = {"candidates": [{"content": content, "finishReason": "STOP"}]}
    with pytest.raises(MalformedResponseError):
        decoded(document)
    with pytest.raises(MalformedResponseError):
        streamed(events(document))


def test_an_error_with_status_200_is_raised() -> None:
    with pytest.raises(RateLimitError, match="too fast"):
        decoded({"error": {"code": 429, "message": "too fast", "status": "RESOURCE_EXHAUSTED"}})
    assert decoded(answer({"text": "x"}) | {"error": None}).message.text == "x"


# Streams


def test_deltas_come_as_they_are_and_are_one_text_in_the_end() -> None:
    parts, response = streamed(
        events(
            answer({"text": "hm ", "thought": True}, finish=None),
            answer({"text": "hm", "thought": True}, finish=None),
            answer({"text": "It "}, finish=None, usageMetadata={"totalTokenCount": 1}),
            answer({"text": "is "}, {"text": "5"}, finish=None, usageMetadata={"totalTokenCount": 2}),
            answer({"text": ""}, usageMetadata={"totalTokenCount": 3}, modelVersion="m"),
        )
    )
    assert parts == [Thought("hm "), Thought("hm"), Text("It "), Text("is "), Text("5"), Text("")]
    assert response.message.parts == (Thought("hm hm"), Text("It is 5"))
    assert json.loads(raw_of(response.message)) == {
        "role": "model",
        "parts": [{"text": "hm hm", "thought": True}, {"text": "It is 5"}],
    }
    assert (response.finish_reason, response.usage.total, response.model) == (FinishReason.END, 3, "m")
    assert len(response.raw) == 5


def test_signed_parts_and_parts_with_more_than_text_stay_apart() -> None:
    _, response = streamed(
        events(
            answer({"text": "a"}, finish=None),
            answer({"text": "b", "thoughtSignature": "s1"}, finish=None),
            answer({"text": "c"}, finish=None),
            answer({"text": "d", "partMetadata": {"x": 1}}, finish=None),
            answer({"text": "", "thoughtSignature": "s2"}),
        )
    )
    assert plain(*response.message.parts) == [Text("a"), Text("b"), Text("c"), Text("d"), Text("")]
    assert [thought_signature(part) for part in response.message.parts] == [None, "s1", None, None, "s2"]
    assert json.loads(raw_of(response.message))["parts"] == [
        {"text": "a"},
        {"text": "b", "thoughtSignature": "s1"},
        {"text": "c"},
        {"text": "d", "partMetadata": {"x": 1}},
        {"text": "", "thoughtSignature": "s2"},
    ]


def test_texts_in_a_single_chunk_stay_two_parts() -> None:
    _, response = streamed(events(answer({"text": "a"}, {"text": "b"})))
    assert response.message.parts == (Text("a"), Text("b"))


def test_text_in_a_single_chunk_goes_back_in_the_bytes_that_it_came_in() -> None:
    text = b'{ "text" :"\\u00e4" }'
    call = b'{"functionCall":{"id":"7","name":"f","args":{}}}'
    document = b'{"candidates":[{"content":{"parts":[%b], "role":"model"}}]}'
    _, alone = streamed(b"data: %b\n\n" % (document % text))
    assert raw_of(alone.message) == b'{"parts":[%b], "role":"model"}' % text
    other = call.replace(b'"7"', b'"8"')
    _, between = streamed(*(b"data: %b\n\n" % (document % part) for part in (call, text, other)))
    assert raw_of(between.message) == b'{"parts":[%b],"role":"model"}' % b",".join((call, text, other))
    assert between.message.parts[1] == Text("ä")


@pytest.mark.parametrize(
    "part",
    [
        {"text": "b"},
        {"text": "b", "thought": False},
        {"text": "b", "thoughtSignature": ""},
        {"text": "b", "thoughtSignature": "s"},
        {"text": "b", "new": {"x": 1}},
    ],
)
@pytest.mark.parametrize("around", [{}, {"index": 0}, {"index": "0"}, {"citationMetadata": {"x": 1}}, {"index": None}])
def test_delta_with_unexpected_fields_is_still_read(part: dict[str, Any], around: dict[str, Any]) -> None:
    document = answer(part, finish=None)
    document["candidates"][0] |= around
    parts, response = streamed(events(answer({"text": "a"}, finish=None), document, answer({"text": "c"})))
    assert [one.text for one in parts if isinstance(one, Text)] == ["a", "b", "c"]
    assert (response.message.text, response.finish_reason) == ("abc", FinishReason.END)
    assert [bytes(raw) for raw in response.raw][1] == json.dumps(document).encode()
    kept = json.loads(raw_of(response.message))["parts"]
    is_plain = part.keys() <= {"text", "thought"}
    assert kept == ([{"text": "abc"}] if is_plain else [{"text": "a"}, part, {"text": "c"}])


def test_fields_of_any_chunk_are_in_the_response() -> None:
    first = answer({"text": "a"}, finish=None, modelVersion="m", responseId="r", usageMetadata={"promptTokenCount": 3})
    _, response = streamed(events(first, answer({"text": "b"}), answer({"text": "c"}, finish=None)))
    assert (response.model, response.id) == ("m", "r")
    assert (response.usage.input, response.finish_reason) == (3, FinishReason.END)


def test_call_that_comes_twice_in_one_chunk_is_one_call_and_goes_back_once() -> None:
    call = {"functionCall": {"name": "f", "args": {"x": 1}, "id": "1"}}
    document = {"candidates": [{"content": {"role": "model", "parts": [call, call]}, "finishReason": "STOP"}]}
    stream = StreamDecoder()
    stream.add(json.dumps(document).encode())
    message = stream.response().message
    assert len(message.calls) == 1
    assert message.provider_data is not None
    assert json.loads(bytes(message.provider_data.raw))["parts"] == [call]


def test_parallel_calls_spread_over_chunks_are_one_turn() -> None:
    first = {"functionCall": {"id": "1", "name": "f", "args": {"x": 1}}, "thoughtSignature": "s"}
    second = {"functionCall": {"id": "2", "name": "f", "args": {"x": 2}}}
    _, response = streamed(events(answer(first, finish=None), answer(second, finish=None), answer({"text": ""})))
    assert [call.id for call in response.message.calls] == ["1", "2"]
    assert json.loads(raw_of(response.message))["parts"] == [first, second]


def test_fields_beside_the_parts_of_a_stream_survive() -> None:
    one, two = answer({"text": "a"}, finish=None), answer({"text": "b"})
    one["candidates"][0]["content"]["newA"] = {"x": 1}
    two["candidates"][0]["content"]["newB"] = [2]
    _, response = streamed(events(one, two))
    content = json.loads(raw_of(response.message))
    assert (content["newA"], content["newB"]) == ({"x": 1}, [2])


def test_fields_beside_an_empty_last_part_of_a_stream_survive() -> None:
    last = answer({"text": ""})
    last["candidates"][0]["content"]["newB"] = [2]
    _, response = streamed(events(answer({"text": "a"}, finish=None), last))
    assert json.loads(raw_of(response.message)) == {"role": "model", "parts": [{"text": "a"}], "newB": [2]}


@pytest.mark.parametrize("indent", [None, 2])
def test_a_stream_may_be_one_json_array(indent: int | None) -> None:
    documents = [answer({"text": "a"}, finish=None), answer({"text": "]},{"})]
    parts, response = streamed(json.dumps(documents, indent=indent).encode())
    assert parts == [Text("a"), Text("]},{")]
    assert response.message.text == "a]},{"


def test_stream_without_finish_reason_is_cut_and_keeps_its_parts() -> None:
    whole = events(answer({"text": "a"}, finish=None), answer({"text": "b"}, finish=None), answer({"text": "c"}))
    for size in range(len(whole)):
        parts, response = streamed(whole[:size])
        done = response.finish_reason is FinishReason.END
        assert done or response.finish_reason is FinishReason.CUT
        assert done == (response.message.text == "abc")
        assert "abc".startswith(response.message.text)
        assert "".join(part.text for part in parts if isinstance(part, Text)) == response.message.text


def test_last_event_without_a_blank_line_counts_and_its_unpaired_surrogate_is_replaced() -> None:
    document = json.dumps(answer({"text": "a\ud800"})).encode()
    for end in (b"", b"\n", b"\n\n"):
        _, response = streamed(b"data: " + document + end)
        assert (response.message.text, response.finish_reason) == ("a\ufffd", FinishReason.END)


@pytest.mark.parametrize(
    "error",
    [
        b'data: {"error":{"code":503,"message":"overloaded","status":"UNAVAILABLE"}}\r\n\r\n',
        b'{\n  "error": {\n    "code": 503,\n    "message": "overloaded"\n  }\n}\n',
        b'[{"error":{"code":503,"message":"overloaded"}}]',
    ],
)
def test_an_error_within_a_stream_is_raised_after_the_parts_before_it(error: bytes) -> None:
    if error.startswith(b"["):
        stream_bytes = b"[" + json.dumps(answer({"text": "a"}, finish=None)).encode() + b"," + error[1:]
    else:
        stream_bytes = events(answer({"text": "a"}, finish=None)) + error
    for pieces in ([stream_bytes], [bytes([byte]) for byte in stream_bytes]):
        stream, parts = StreamDecoder(), []
        with pytest.raises(ServerError, match="overloaded") as raised:  # noqa: PT012 - it may come from either
            for piece in pieces:
                parts.extend(stream.feed(piece))
            parts.extend(stream.end())
        assert raised.value.status == 503
        assert pieces_of(parts) == [Text("a")]


def test_an_error_instead_of_a_stream_is_raised() -> None:
    for body in (b'{"error":{"code":429,"message":"slow down"}}', b'[{"error":{"code":429,"message":"slow down"}}]'):
        with pytest.raises(RateLimitError, match="slow down"):
            streamed(body)


def test_invalid_json_within_a_stream_is_an_error() -> None:
    with pytest.raises(MalformedResponseError):
        streamed(b"data: nonsense\r\n\r\n" + events(answer({"text": "a"})))


def test_other_lines_between_events_are_ignored() -> None:
    parts, _ = streamed(b"x-unknown: 1\r\n" + events(answer({"text": "a"})) + b"data: [DONE]\r\n\r\n")
    assert parts == [Text("a")]


DOCUMENTS = [
    answer({"text": 'grüße 🙂 \\ " ]}'}, finish=None),
    answer({"functionCall": {"name": "f", "args": {"q": "ä\n"}}, "thoughtSignature": "s"}, finish=None),
    answer({"text": "🙂"}, {"brandNew": {"x": "]"}}),
]


@pytest.mark.parametrize("stream", [events(*DOCUMENTS), json.dumps(DOCUMENTS, indent=1, ensure_ascii=False).encode()])
def test_splitting_a_stream_at_every_byte_changes_nothing(stream: bytes) -> None:
    parts, response = streamed(stream)
    expected = (msgspec.json.encode(parts), msgspec.json.encode(response))
    for cut in range(len(stream) + 1):
        parts, response = streamed(stream[:cut], stream[cut:])
        assert (msgspec.json.encode(parts), msgspec.json.encode(response)) == expected


part_documents = st.one_of(
    st.builds(lambda text: {"text": text}, st.text(max_size=5)),
    st.builds(lambda text: {"text": text, "thought": True}, st.text(max_size=5)),
    st.builds(lambda text, sign: {"text": text, "thoughtSignature": sign}, st.text(max_size=5), st.text(max_size=5)),
    st.builds(lambda name: {"functionCall": {"name": name or "f", "args": {}}}, st.text(max_size=5)),
    st.just({"unknown": {"x": [1, "]"]}}),
)


@settings(max_examples=60)
@given(st.lists(st.lists(part_documents, max_size=3), min_size=1, max_size=5), st.data())
def test_any_stream_means_the_same_in_any_frame_and_any_pieces(chunks: list[list[Any]], data: st.DataObject) -> None:
    documents = [answer(*parts, finish=None) for parts in chunks[:-1]] + [answer(*chunks[-1])]
    seen = set()
    for frame in (events(*documents), json.dumps(documents).encode()):
        cuts = sorted(data.draw(st.lists(st.integers(0, len(frame)), max_size=5)))
        pieces = [frame[start:end] for start, end in zip([0, *cuts], [*cuts, len(frame)], strict=True)]
        parts, response = streamed(*pieces)
        seen.add((msgspec.json.encode(parts), msgspec.json.encode(response.message)))
        sent = [part for chunk in chunks for part in chunk]
        signed = [part for part in sent if "thoughtSignature" in part or "text" not in part]
        back = json.loads(raw_of(response.message))["parts"] if raw_of(response.message) else []
        assert [part for part in back if "thoughtSignature" in part or "text" not in part] == signed
    assert len(seen) == 1


# Contents of a conversation


@pytest.mark.requirement("S1-05")
@pytest.mark.parametrize(
    ("role", "ours"),
    [
        ("user", "user"),
        ("model", "model"),
        ("assistant", "model"),
        ("function", "user"),
        ("tool", "user"),
        ("king", "user"),
    ],
)
def test_roles_of_older_clients_are_understood(role: str, ours: str) -> None:
    message = decode.message(json.dumps({"role": role, "parts": [{"text": "x"}], "new": 1}).encode())
    assert (message.role, message.parts) == (ours, (Text("x"),))
    assert json.loads(raw_of(message)) == {"role": ours, "parts": [{"text": "x"}], "new": 1}


@pytest.mark.parametrize(
    ("response", "value", "is_error"),
    [
        ({"result": 5}, 5, False),
        ({"content": "x"}, "x", False),
        ({"output": [1]}, [1], False),
        ({"error": "no"}, "no", True),
        ({"a": 1, "b": 2}, {"a": 1, "b": 2}, False),
        ({"a": 1}, {"a": 1}, False),
        ({}, {}, False),
    ],
)
def test_results_are_read_out_of_every_envelope(response: Any, value: Any, is_error: bool) -> None:
    content = {"role": "user", "parts": [{"functionResponse": {"id": "1", "name": "f", "response": response}}]}
    results = decode.message(json.dumps(content).encode()).results
    assert plain(*results) == [ToolResult("1", "f", value, is_error)]


def test_results_without_ids_find_their_calls() -> None:
    contents = [
        {"role": "user", "parts": [{"text": "x"}]},
        {"role": "model", "parts": [{"functionCall": {"name": "f"}}, {"functionCall": {"name": "g"}}]},
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "g", "response": {"result": 2}}},
                {"functionResponse": {"name": "f", "response": {"result": 1}}},
            ],
        },
    ]
    messages = decode.conversation(json.dumps(content).encode() for content in contents)
    f, g = messages[1].calls
    assert plain(*messages[2].results) == [ToolResult(g.id, "g", 2), ToolResult(f.id, "f", 1)]


def test_media_of_a_result_is_read() -> None:
    part = {
        "functionResponse": {
            "name": "f",
            "response": {"result": "see"},
            "parts": [{"inlineData": {"mimeType": "image/png", "data": "AA=="}}],
        }
    }
    message = decode.message(json.dumps({"role": "user", "parts": [part]}).encode())
    assert message.results[0].media == (Blob("image/png", "AA=="),)


def test_a_message_keeps_the_given_bytes() -> None:
    content = b'{"role":"user","parts":[{"text":"x"}]}'
    assert decode.message(content) == Message("user", (Text("x"),), ProviderData("gemini", Raw(content)))


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"fileData": {"file_uri": "gs://x", "mime_type": "image/png"}}, Blob("image/png", url="gs://x")),
        ({"inline_data": {"mimeType": "image/png", "data": "AA=="}}, Blob("image/png", "AA==")),
    ],
)
def test_media_in_snake_case_is_read(part: dict[str, Any], expected: Blob) -> None:
    message = decode.message(json.dumps({"role": "user", "parts": [part]}).encode())
    assert plain(*message.parts) == [expected]


@pytest.mark.parametrize("part", [{"fileData": {"mimeType": "image/png"}}, {"functionCall": {"name": "f", "id": 5}}])
def test_file_without_a_uri_and_call_with_a_malformed_field_are_kept_as_opaque(part: dict[str, Any]) -> None:
    (kept,) = decoded(answer(part)).message.parts
    assert isinstance(kept, Opaque)
    assert json.loads(raw_of(kept)) == part


def test_streamed_calls_with_one_id_are_not_compared_with_each_other() -> None:
    calls = [{"functionCall": {"id": "1", "name": "f", "args": {"n": number}}} for number in range(1_000)]
    decoder = StreamDecoder()
    with Profile() as profile:
        for call in [*calls, calls[7]]:
            document = {"candidates": [{"content": {"role": "model", "parts": [call]}}]}
            decoder.add(json.dumps(document).encode())
        response = decoder.response()
    assert Stats(profile).total_calls < 200_000  # there are 500,000 pairs of calls
    assert [call.arguments["n"] for call in response.message.calls] == list(range(1_000))


def test_repeated_call_goes_back_with_the_signature_that_only_one_of_them_has() -> None:
    call = {"functionCall": {"id": "1", "name": "f", "args": {"x": 1}}}
    signed = {**call, "thoughtSignature": "s"}
    _, response = streamed(events(answer(call, finish=None), answer(signed)))
    assert json.loads(raw_of(response.message))["parts"] == [signed]


def test_call_that_was_streamed_in_pieces_and_comes_again_whole_is_one_call() -> None:
    pieces = [{"jsonPath": "$.x", "numberValue": 1}]
    first = {"functionCall": {"id": "1", "name": "f", "partialArgs": pieces}}
    again = {"functionCall": {"id": "1", "name": "f", "args": {"x": 1}}}
    _, response = streamed(events(answer(first, finish=None), answer(again)))
    assert [call.arguments for call in response.message.calls] == [{"x": 1}]


def test_results_without_ids_get_those_of_the_calls_that_nothing_else_answers() -> None:
    calls = [{"functionCall": {"id": id, "name": name}} for id, name in (("1", "f"), ("2", "f"), ("3", "g"))]
    answers = [
        {"functionResponse": {"name": "f", "response": {"result": "b"}}},
        {"functionResponse": {"id": "1", "name": "f", "response": {"result": "a"}}},
        {"functionResponse": {"name": "other", "response": {"result": "x"}}},
    ]
    contents = [
        {"role": "model", "parts": calls},
        {"role": "user", "parts": answers},
        {"role": "user", "parts": [{"functionResponse": {"name": "g", "response": {"result": "c"}}}]},
    ]
    _, results, last = decode.conversation(json.dumps(content).encode() for content in contents)
    assert [(result.id, result.value) for result in results.results[:2]] == [("2", "b"), ("1", "a")]
    assert is_local_id(results.results[2].id)
    assert [result.id for result in last.results] == ["3"]


@pytest.mark.parametrize(
    ("number", "api", "name"),
    [
        (1, Api.DEVELOPER, "STOP"),
        (6, Api.DEVELOPER, "LANGUAGE"),
        (6, Api.VERTEX, "BLOCKLIST"),
        (17, Api.DEVELOPER, "IMAGE_RECITATION"),
        (17, Api.VERTEX, "17"),
        (-1, Api.DEVELOPER, "-1"),
        (0, Api.DEVELOPER, None),
    ],
)
def test_number_of_a_finish_reason_is_read_as_its_name(number: int, api: Api, name: str | None) -> None:
    assert decoded(answer({"text": "x"}, finish=number), api).raw_finish_reason == name


def test_latest_message_of_the_end_is_kept() -> None:
    first, second = answer({"text": "a"}, finish="OTHER"), answer({"text": "b"}, finish=None)
    first["candidates"][0]["finishMessage"] = "why"
    _, response = streamed(events(first, second))
    assert (response.raw_finish_reason, response.finish_message) == ("OTHER", "why")
    assert response.message.text == "ab"


def test_end_of_a_call_that_never_began_stays_a_part_if_it_has_a_signature() -> None:
    signed = {"functionCall": {}, "thoughtSignature": "s"}
    _, response = streamed(events(answer({"functionCall": {}}, signed, {"text": "x"})))
    assert json.loads(raw_of(response.message))["parts"] == [signed, {"text": "x"}]


@pytest.mark.parametrize(
    ("counts", "thoughts"),
    [
        ({"totalTokenCount": 10}, 3),
        ({"totalTokenCount": 10, "thoughtsTokenCount": 1}, 3),
        ({"totalTokenCount": 7, "thoughtsTokenCount": 1}, 1),
        ({"thoughtsTokenCount": 2}, 2),
    ],
)
def test_tokens_that_only_the_total_counts_are_thoughts(counts: dict[str, int], thoughts: int) -> None:
    usage = {"promptTokenCount": 4, "candidatesTokenCount": 2, "toolUsePromptTokenCount": 1, **counts}
    assert decoded(answer({"text": "x"}, usageMetadata=usage)).usage == Usage(4, 2, thoughts, 0, 1)


def test_document_with_a_number_that_is_not_json_is_malformed() -> None:
    with pytest.raises(MalformedResponseError, match="is not the JSON of a response"):
        decode.response(b'{"candidates": [], "new": NaN}')


@pytest.mark.parametrize(
    ("response", "value", "is_error"),
    [
        ({"result": 5}, 5, False),
        ({"output": [1]}, [1], False),
        ({"content": "x"}, "x", False),
        ({"other": 1}, {"other": 1}, False),
        ({"result": 5, "unit": "m"}, {"result": 5, "unit": "m"}, False),
        ({"error": "bad"}, "bad", True),
        ({"error": ""}, "", True),
        ({"error": None}, {"error": None}, False),
        ({"error": "bad", "code": 1}, {"error": "bad", "code": 1}, True),
        ({"error": "", "code": 0}, {"error": "", "code": 0}, False),
        ({}, {}, False),
    ],
)
def test_result_is_read_out_of_its_object(response: dict[str, Any], value: Any, is_error: bool) -> None:
    part = {"functionResponse": {"id": "1", "name": "f", "response": response}}
    [result] = decode.message(json.dumps({"role": "user", "parts": [part]}).encode()).results
    assert (result.value, result.is_error) == (value, is_error)


def test_first_part_of_a_stream_has_the_index_zero() -> None:
    stream = StreamDecoder()
    assert next(stream.feed(events(answer({"text": "a"})))).index == 0
