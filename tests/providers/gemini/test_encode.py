import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from midspan._types.exchange import ModelRequest, RequestConfig
from midspan._types.messages import History, Message
from midspan._types.parts import Blob, Opaque, Part, ProviderData, Text, Thought, ToolCall, ToolResult, local_id
from midspan.errors import ConfigError
from midspan.providers.gemini import decode
from midspan.providers.gemini.capabilities import Api, Capabilities, capabilities_of
from midspan.providers.gemini.encode import SKIP_SIGNATURE, encode_message, request_body
from midspan.providers.gemini.stream import StreamDecoder

NEWEST = capabilities_of("gemini-3.8-flash")
LEGACY = capabilities_of("gemini-2.5-flash")
VERTEX_V1 = capabilities_of("gemini-3.8-flash", Api.VERTEX, "v1")


def written(message: Message, capabilities: Capabilities = NEWEST) -> Any:
    data = bytes(encode_message(message, capabilities))
    return json.loads(data) if data else None


def body(history: History, setup: RequestConfig | None = None, capabilities: Capabilities = NEWEST) -> Any:
    return json.loads(request_body(ModelRequest(setup or RequestConfig("m"), history), capabilities))


def results(*given: ToolResult, capabilities: Capabilities = NEWEST) -> Any:
    return [part["functionResponse"] for part in written(Message.user(*given), capabilities)["parts"]]


@pytest.mark.requirement("S1-05")
def test_messages_of_the_user_become_contents() -> None:
    message = Message.user("hi", Blob("image/png", "AA=="), Blob("video/mp4", url="gs://x"))
    assert written(message) == {
        "role": "user",
        "parts": [
            {"text": "hi"},
            {"inlineData": {"mimeType": "image/png", "data": "AA=="}},
            {"fileData": {"fileUri": "gs://x", "mimeType": "video/mp4"}},
        ],
    }


@pytest.mark.requirement("S0-10")
def test_messages_of_gemini_are_sent_back_byte_for_byte() -> None:
    call = b'{"functionCall":{"name":"f","args":{"x":1.0}},"thoughtSignature":"s"}'
    content = b'{ "parts":[ ' + call + b',{"new":1e2} ],"role":"model"}'
    message = decode.message(content)
    assert encode_message(message, NEWEST) is message.provider_data.raw
    assert content in request_body(ModelRequest(RequestConfig("m"), History([message])), NEWEST)


@pytest.mark.requirement("S1-03", "S4-06", "S1-14", "S1-06")
def test_all_results_of_a_turn_are_one_content_of_the_user() -> None:
    message = Message.user(ToolResult("1", "add", {"sum": 3}), ToolResult("2", "add", {"sum": 5}))
    assert written(message) == {
        "role": "user",
        "parts": [
            {"functionResponse": {"id": "1", "name": "add", "response": {"sum": 3}}},
            {"functionResponse": {"id": "2", "name": "add", "response": {"sum": 5}}},
        ],
    }


@pytest.mark.requirement("S1-06")
@pytest.mark.parametrize(
    ("value", "is_error", "response"),
    [
        ({"a_b": 1}, False, {"a_b": 1}),
        (5, False, {"result": 5}),
        ("x", False, {"result": "x"}),
        ([1], False, {"result": [1]}),
        (None, False, {"result": None}),
        ("no such file", True, {"error": "no such file"}),
        ({"error": "no", "hint": "x"}, True, {"error": "no", "hint": "x"}),
        ({"code": 5}, True, {"error": {"code": 5}}),
    ],
)
def test_a_result_is_wrapped_in_an_object(value: Any, is_error: bool, response: Any) -> None:
    assert results(ToolResult("1", "f", value, is_error))[0]["response"] == response


@pytest.mark.parametrize(
    ("value", "is_error", "response"),
    [
        (5, False, {"result": 5, "note": "Hint."}),
        ({"a": 1}, False, {"a": 1, "note": "Hint."}),
        ({"note": "own"}, False, {"result": {"note": "own"}, "note": "Hint."}),
        ({"error": "no", "note": "own"}, True, {"error": {"error": "no", "note": "own"}, "note": "Hint."}),
    ],
)
def test_a_hint_does_not_replace_the_note_of_a_tool(value: Any, is_error: bool, response: Any) -> None:
    assert results(ToolResult("1", "f", value, is_error, hint="Hint."))[0]["response"] == response


def test_the_key_of_a_result_can_be_another() -> None:
    other = replace(NEWEST, result_key="output")
    assert results(ToolResult("1", "f", 5), capabilities=other)[0]["response"] == {"output": 5}


@pytest.mark.requirement("S1-08")
def test_an_id_goes_back_only_where_the_server_gave_it() -> None:
    assert "id" not in results(ToolResult(local_id(), "f", 1))[0]
    assert results(ToolResult("server's", "f", 1))[0]["id"] == "server's"
    call = Message("model", (ToolCall(local_id(), "f"),))
    assert "id" not in written(call)["parts"][0]["functionCall"]


def test_an_api_that_rejects_ids_gets_none() -> None:
    content = (
        b'{"role":"model","parts":[{"functionCall":{"id":"1","name":"f","args":{"id":7}},"thoughtSignature":"s"}]}'
    )
    call = written(decode.message(content), VERTEX_V1)["parts"][0]
    assert call == {"functionCall": {"name": "f", "args": {"id": 7}}, "thoughtSignature": "s"}
    assert "id" not in results(ToolResult("1", "f", 1), capabilities=VERTEX_V1)[0]
    answer = b'{"role":"user","parts":[{"functionResponse":{"id":"1","name":"f","response":{}}}]}'
    assert "id" not in written(decode.message(answer), VERTEX_V1)["parts"][0]["functionResponse"]


def test_only_the_first_call_of_a_foreign_turn_is_marked_unsigned() -> None:
    turn = Message("model", (Text("x"), ToolCall("1", "f"), ToolCall("2", "g")), ProviderData("anthropic", Raw(b"{}")))
    signatures = [part.get("thoughtSignature") for part in written(turn)["parts"]]
    assert signatures == [None, SKIP_SIGNATURE, None]
    assert "thoughtSignature" not in written(turn, LEGACY)["parts"][1]


def test_an_unsigned_call_of_an_older_model_is_marked_for_a_newer_one() -> None:
    content = b'{"role":"model","parts":[{"functionCall":{"name":"f"}},{"functionCall":{"name":"g"}}]}'
    message = decode.message(content)
    assert [part.get("thoughtSignature") for part in written(message)["parts"]] == [SKIP_SIGNATURE, None]
    assert encode_message(message, LEGACY) is message.provider_data.raw


def test_signed_thought_of_an_edited_turn_stays_a_thought() -> None:
    thought = {"text": "hm", "thought": True, "thoughtSignature": "s"}
    message = decode.message(json.dumps({"role": "model", "parts": [thought, {"text": "Yes."}]}).encode())
    assert written(message.with_parts(message.parts[:1]))["parts"] == [thought]


@pytest.mark.parametrize(
    "part",
    [
        {"functionCall": {"name": "f", "args": {"thoughtSignature": "x"}}},
        {"functionCall": {"name": "f"}, "thoughtSignature": None},
    ],
)
def test_a_signature_counts_only_where_it_belongs(part: Any) -> None:
    content = {"role": "model", "parts": [{"text": "x", "thoughtSignature": "other"}, part]}
    sent = written(decode.message(json.dumps(content).encode()))["parts"]
    assert sent[1]["thoughtSignature"] == SKIP_SIGNATURE


def test_calls_that_the_server_made_itself_are_not_shown_to_vertex() -> None:
    content = b'{"role":"model","parts":[{"toolCall":{"id":"1"}},{"toolResponse":{"id":"1"}},{"text":"x"}]}'
    message = decode.message(content)
    assert encode_message(message, NEWEST) is message.provider_data.raw
    vertex = capabilities_of("gemini-3.8-flash", Api.VERTEX, "v1beta1")
    assert written(message, vertex)["parts"] == [{"text": "x"}]


@pytest.mark.parametrize("odd", ["a\ud800", object()])
def test_a_message_that_is_not_json_serializable_is_an_error(odd: Any) -> None:
    with pytest.raises(ConfigError, match="a message of the user is not JSON serializable"):
        written(Message.user(ToolResult("1", "f", odd)))


THEIRS = ProviderData("anthropic", Raw(b'{"odd":1}'))


def test_thoughts_signatures_and_unknown_parts_of_another_provider_stay_with_it() -> None:
    parts: tuple[Part, ...] = (Thought("hm", THEIRS), Text("x", THEIRS), Opaque("odd", THEIRS))
    assert written(Message("model", parts, THEIRS))["parts"] == [{"text": "x"}]


def test_an_edited_turn_keeps_the_signatures_of_the_parts_that_stay() -> None:
    content = (
        b'{"role":"model","parts":[{"text":"hm","thought":true},{"text":"a","thoughtSignature":"s1"},'
        b'{"functionCall":{"name":"f"},"thoughtSignature":"s2"},{"odd":1},{"text":"","thoughtSignature":"s3"},'
        b'{"inlineData":{"mimeType":"image/png","data":"AA=="},"thoughtSignature":"s4"}]}'
    )
    message = decode.message(content)
    parts = written(message.with_parts(message.parts[1:]))["parts"]
    assert [part.get("thoughtSignature") for part in parts] == ["s1", "s2", None, "s3", "s4"]
    assert parts[2] == {"odd": 1}


@pytest.mark.requirement("P-04")
def test_an_edited_turn_keeps_the_bytes_of_parts_with_provider_data() -> None:
    odd = b'{ "functionCall" :{"args":{"x":1.0},"name":"f","new":1e2}, "thoughtSignature":"s"}'
    content = b'{"role":"model","parts":[{"text":"a"},%b,{"functionCall":{"name":"g","id":"2"}}]}' % odd
    message = decode.message(content)
    edited = message.with_parts(message.parts[1:])
    assert bytes(encode_message(edited, NEWEST)) == (
        b'{"role":"model","parts":[%b,{"functionCall":{"id":"2","name":"g","args":{}}}]}' % odd
    )


def test_a_changed_part_keeps_its_signature() -> None:
    parts = [{"text": "a", "thoughtSignature": "s1"}, {"functionCall": {"name": "f"}, "thoughtSignature": "s2"}]
    message = decode.message(json.dumps({"role": "model", "parts": parts}).encode())
    text, call = message.parts
    assert isinstance(call, ToolCall)
    changed = (replace(text, text="b"), replace(call, arguments={"x": 1}))
    assert written(message.with_parts(changed))["parts"] == [
        {"text": "b", "thoughtSignature": "s1"},
        {"functionCall": {"name": "f", "args": {"x": 1}}, "thoughtSignature": "s2"},
    ]


def test_an_edited_turn_for_an_api_without_ids_or_for_an_older_model_is_written_for_it() -> None:
    call = {"functionCall": {"id": "1", "name": "f", "args": {}, "new": 1}}
    message = decode.message(json.dumps({"role": "model", "parts": [{"text": "a"}, call]}).encode())
    edited = message.with_parts(message.parts[1:])
    assert written(edited)["parts"] == [{**call, "thoughtSignature": SKIP_SIGNATURE}]
    assert "id" not in written(edited, VERTEX_V1)["parts"][0]["functionCall"]


def test_a_message_that_holds_nothing_is_left_out() -> None:
    nothing = [
        Message.user(""),
        Message("model", ()),
        Message("model", (Text(""),)),
        Message("model", (), ProviderData("gemini", Raw(b"{}"))),
    ]
    history = History([Message.user("a"), *nothing, Message.user("b")])
    assert [content["parts"] for content in body(history)["contents"]] == [[{"text": "a"}], [{"text": "b"}]]
    assert body(History(nothing))["contents"] == []


def test_media_of_results_goes_where_the_model_looks_for_it() -> None:
    result = ToolResult("1", "see", "a cat", content=(Blob("image/png", "AA==", name="cat.png"),))
    blob = {"inlineData": {"mimeType": "image/png", "data": "AA=="}}
    assert written(Message.user(result))["parts"][0]["functionResponse"]["parts"] == [blob]
    legacy = written(Message.user(result), LEGACY)["parts"]
    assert "parts" not in legacy[0]["functionResponse"]
    assert legacy[1] == blob


def test_a_history_is_written_once() -> None:
    history = History([Message.user("a")])
    first = request_body(ModelRequest(RequestConfig("m"), history), NEWEST)
    again = request_body(ModelRequest(RequestConfig("m"), history), NEWEST)
    grown = history.append(Message("model", (Text("b"),)), Message.user("c"))
    assert first == again
    assert [content["parts"][0]["text"] for content in body(grown)["contents"]] == ["a", "b", "c"]
    assert [content["parts"][0]["text"] for content in body(history)["contents"]] == ["a"]


def test_one_history_is_encoded_for_each_api() -> None:
    history = History([Message.user(ToolResult("1", "f", 1))])
    for capabilities, has_id in ((NEWEST, True), (VERTEX_V1, False), (NEWEST, True)):
        response = body(history, capabilities=capabilities)["contents"][0]["parts"][0]["functionResponse"]
        assert ("id" in response) == has_id


def test_an_answer_is_continued_with_its_token() -> None:
    request = ModelRequest(RequestConfig("m"), History([Message.user("a")]))
    assert json.loads(request_body(request, NEWEST, "abc="))["continuationToken"] == "abc="


json_objects = st.dictionaries(
    st.text(max_size=6),
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**53), 2**53)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
        max_leaves=6,
    ),
    max_size=3,
)


@given(json_objects, st.text(max_size=6), st.integers(0, 5), st.booleans())
def test_any_object_anywhere_in_a_content_goes_back_with_it(
    unknown: dict[str, Any], name: str, place: int, streamed: bool
) -> None:
    call = {"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "s"}
    content: dict[str, Any] = {"role": "model", "parts": [{"text": "a"}, call, {"new": {}}]}
    places = [content, *content["parts"], call["functionCall"], content["parts"][2]["new"]]
    places[place][f"new {name}"] = unknown
    document = json.dumps(
        {"candidates": [{"content": content, "finishReason": "STOP", "odd": unknown}], "more": unknown}
    ).encode()
    if streamed:
        stream = StreamDecoder()
        assert [*stream.feed(b"data: " + document + b"\r\n\r\n"), *stream.end()]
        response = stream.response()
    else:
        response = decode.response(document)
    assert body(History([Message.user("x"), response.message]))["contents"][1] == content
    assert [json.loads(bytes(raw)) for raw in response.raw] == [json.loads(document)]


texts = st.text(max_size=8)
any_messages = st.builds(
    Message,
    st.sampled_from(["user", "model"]),
    st.lists(
        st.builds(Text, texts)
        | st.builds(ToolCall, texts, st.just("f"), st.dictionaries(texts, texts, max_size=2))
        | st.builds(ToolResult, texts, st.just("f"), texts, st.booleans()),
        max_size=3,
    ).map(tuple),
)


@given(st.lists(any_messages, max_size=6), st.integers(0, 6))
def test_growing_a_history_gives_the_same_body_as_writing_it_whole(messages: list[Message], cut: int) -> None:
    grown = History(messages[:cut])
    body(grown)
    for message in messages[cut:]:
        grown = grown.append(message)
        body(grown)
    assert body(grown) == body(History(messages))
    assert len(body(grown)["contents"]) <= len(messages)


def sent(*contents: Message, capabilities: Capabilities = NEWEST) -> list[Any]:
    """Return the contents of a request, which are the same if the history grows message by message."""
    whole = body(History(contents), capabilities=capabilities)["contents"]
    history = History()
    for message in contents:
        history = history.append(message)
        grown = body(history, capabilities=capabilities)["contents"]
    assert grown == whole
    return whole  # type: ignore[no-any-return]


CALL, OTHER_CALL = ToolCall("1", "add", {"a": 1}), ToolCall("2", "pay", {"b": 2})


@pytest.mark.requirement("S1-05")
def test_adjacent_messages_of_another_model_are_one_content() -> None:
    messages = [Message("model", (part,)) for part in (Text("I look."), Thought("hm"), CALL, OTHER_CALL)]
    assert sent(Message.user("hi"), *messages)[1:] == [
        {
            "role": "model",
            "parts": [
                {"text": "I look."},
                {"functionCall": {"id": "1", "name": "add", "args": {"a": 1}}, "thoughtSignature": SKIP_SIGNATURE},
                {"functionCall": {"id": "2", "name": "pay", "args": {"b": 2}}},
            ],
        }
    ]


def test_adjacent_results_are_one_content_and_other_user_messages_are_not_joined() -> None:
    results_of_two = [Message.user(ToolResult("1", "add", 3)), Message.user(ToolResult("2", "pay", 4))]
    contents = sent(Message.user("hi"), Message("model", (CALL, OTHER_CALL)), *results_of_two, Message.user("more"))
    assert [len(content["parts"]) for content in contents] == [1, 2, 2, 1]
    assert [len(content["parts"]) for content in sent(Message.user("a"), Message.user("b"))] == [1, 1]


def test_contents_that_gemini_sent_are_never_joined_with_each_other() -> None:
    raw = b'{ "parts":[ {"functionCall":{"name":"f","args":{"x":1.0}},"thoughtSignature":"s"} ],"role":"model"}'
    message = decode.message(raw)
    written = request_body(ModelRequest(RequestConfig("m"), History([Message.user("hi"), message, message])), NEWEST)
    assert written.count(raw) == 2


def test_parts_of_gemini_keep_their_bytes_beside_text_of_another_model() -> None:
    thought = b'{"text":"hm","thought":true}'
    call = b'%b,{ "functionCall":{"name":"f","args":{"x":1.0}},"thoughtSignature":"s"},{ "new":1}' % thought
    message = decode.message(b'{"parts":[%b],"role":"model"}' % call)
    history = History([Message.user("hi"), Message("model", (Text("I look."),)), message])
    written = request_body(ModelRequest(RequestConfig("m"), history), NEWEST)
    assert b'"parts":[{"text":"I look."},%b]' % call in written


@pytest.mark.parametrize("contents", [[], [Message.user()]])
def test_request_of_a_system_prompt_alone_is_valid_for_models_that_read_it_as_a_content(
    contents: list[Message],
) -> None:
    capabilities = capabilities_of("gemma-3-27b-it")
    history, config = History(contents), RequestConfig("gemma-3-27b-it", system="Be brief.")
    expected = {"contents": [{"role": "user", "parts": [{"text": "Be brief."}]}]}
    assert body(history, config, capabilities) == expected
    assert body(history, config, capabilities) == expected  # the second time from what was derived


def test_two_continuations_of_one_history_keep_their_own_contents() -> None:
    start = History([Message.user("a")])
    body(start)
    first, second = (start.append(Message("model", (Text(text),)), Message.user(text)) for text in ("b", "longer"))
    for history in (first, second):
        assert body(history)["contents"] == [written(message) for message in history]
    for history in (first, second, first.append(Message("model", (Text("c"),))), start):
        assert body(history)["contents"] == [written(message) for message in history]


def test_kept_histories_of_a_conversation_share_the_bytes_of_one_request() -> None:
    image = Blob("image/png", "A" * 2_000_000)
    history = History([Message.user("look", image)])
    tracemalloc.start()
    try:
        kept = []
        for number in range(9):
            body(history)
            kept.append(history)
            history = history.append(Message("model", (Text(f"answer {number}"),)), Message.user("and now?"))
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used < 2 * 2_000_000, "nine histories hold the image once, in the longest request"
    assert [len(body(history)["contents"]) for history in kept] == [2 * number + 1 for number in range(9)]


def test_histories_that_continue_one_another_in_different_ways_are_encoded_independently() -> None:
    start = History([Message.user("hi")])
    body(start)
    branches = [start.append(Message("model", (Text(text),))) for text in ("yes", "no, certainly not", "y")]
    for _ in range(2):
        answers = [body(branch.append(Message.user("why?")))["contents"][1] for branch in branches]
        assert [answer["parts"][0]["text"] for answer in answers] == ["yes", "no, certainly not", "y"]
    assert len(body(start)["contents"]) == 1


def test_thoughts_of_gemini_go_back_with_a_call_that_needs_a_signature() -> None:
    parts = [{"text": "hm", "thought": True}, {"functionCall": {"name": "f", "args": {}}}]
    message = decode.message(json.dumps({"role": "model", "parts": parts}).encode())
    assert written(message)["parts"] == [parts[0], {**parts[1], "thoughtSignature": SKIP_SIGNATURE}]


def test_media_of_a_result_follow_it_where_results_cannot_have_media() -> None:
    media = {"inlineData": {"mimeType": "image/png", "data": "AA=="}}
    result = {"name": "f", "response": {"result": 1}, "parts": [media]}
    message = decode.message(json.dumps({"role": "user", "parts": [{"functionResponse": result}]}).encode())
    edited = message.with_parts((*message.parts, Text("see above")))
    assert written(edited)["parts"][0] == {"functionResponse": result}
    plain = {"functionResponse": {"name": "f", "response": {"result": 1}}}
    assert written(edited, LEGACY)["parts"] == [plain, {"text": "see above"}, media]


def test_parts_of_other_kinds_stay_where_calls_of_the_server_are_left_out() -> None:
    parts = [{"toolCall": {"id": "1"}}, {"toolResponse": {"id": "1"}}, {"executableCode": {"code": "1"}}]
    message = decode.message(json.dumps({"role": "model", "parts": parts}).encode())
    assert written(message)["parts"] == parts
    assert written(message, capabilities_of("gemini-3.8-flash", Api.VERTEX))["parts"] == parts[2:]
