import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from midspan._types import codec, events
from midspan._types.exchange import FinishReason, Usage
from midspan._types.messages import History, Message
from midspan._types.parts import Blob, Opaque, Part, ProviderData, Text, Thought, ToolCall, ToolResult
from midspan.errors import CodecError
from midspan.providers.gemini import decode
from tests.streaming import raw_of

DATA = ProviderData("gemini", Raw(b'{ "parts" : [ ] }'))
CALL = ToolCall("1", "add", {"a": 1, "b": [2.0, None, {"ü": "x"}]}, provider_data=DATA)
RESULT = ToolResult("1", "add", {"sum": 3}, is_error=False, content=(Blob.of(b"\x00", "image/png"),))
MODEL_TURN = Message("model", (Thought("hm", DATA), Text("hi"), CALL), DATA)
USER_TURN = Message.user(
    "hi", RESULT, Blob("image/png", url="gs://a"), Opaque("x", ProviderData("y", Raw(b'{"x": 1}')))
)

VALUES: list[tuple[str, Any]] = [
    ("messages", (MODEL_TURN, USER_TURN)),
    ("messages", ()),
    ("event", events.RunStart("r", "m", (USER_TURN,))),
    ("event", events.TurnStart(1)),
    ("event", events.TextDelta(1, "a")),
    ("event", events.ThoughtDelta(1, "a")),
    ("event", events.TurnEnd(1, MODEL_TURN, FinishReason.END, Usage(1))),
    ("event", events.ToolStart(1, CALL)),
    ("event", events.ToolEnd(1, RESULT, 0.5)),
    ("event", events.RunEnd("r", "hi", Usage(), 2)),
]


@pytest.mark.parametrize(("kind", "value"), VALUES)
def test_values_are_restored_from_json(kind: str, value: Any) -> None:
    document = codec.to_json(value)
    assert json.loads(document)["midspan"] == codec.VERSION
    assert codec.from_json(document, kind) == value


def test_provider_bytes_are_saved_unchanged() -> None:
    [saved] = codec.from_json(codec.to_json([MODEL_TURN]), "messages")
    assert raw_of(saved) == b'{ "parts" : [ ] }'


def test_empty_turn_of_a_model_can_be_saved() -> None:
    body = b'{"candidates":[{"content":{"role":"model"},"finishReason":"STOP"}]}'
    message = decode.response(body).message
    assert codec.from_json(codec.to_json([message]), "messages") == (message,)


def test_history_and_list_are_saved_as_messages() -> None:
    for messages in (History([MODEL_TURN]), [MODEL_TURN]):
        assert codec.from_json(codec.to_json(messages), "messages") == (MODEL_TURN,)


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (
            b'{"midspan": 2, "kind": "messages", "value": []}',
            "format version 2, but this release reads up to version 1; install a newer Midspan",
        ),
        (b'{"midspan": 1, "kind": "event", "value": {}}', "contains 'event', not 'messages'"),
        (b'{"midspan": 1, "kind": "messages", "value": [{"role": "king", "parts": []}]}', r"Invalid enum value 'king'"),
        (b'{"kind": "messages"}', "as to_json writes it: Object missing required field"),
        (b"[]", "as to_json writes it: Expected `object`"),
        (b"nonsense", "not a valid document"),
        (b"\xff", "not a valid document"),
    ],
)
def test_invalid_document_is_an_error(document: bytes, words: str) -> None:
    with pytest.raises(CodecError, match=words):
        codec.from_json(document, "messages")


def test_value_that_is_not_json_serializable_is_an_error() -> None:
    with pytest.raises(CodecError, match="not JSON serializable"):
        codec.to_json([Message.user(ToolResult("1", "f", object()))])
    with pytest.raises(CodecError, match="Message is not JSON serializable"):
        codec.to_json(MODEL_TURN)  # type: ignore[arg-type]
    with pytest.raises(CodecError, match="expected messages, or an event of a run"):
        codec.to_json(["hello"])  # type: ignore[list-item]
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(CodecError):
        codec.to_json([Message.user(ToolResult("1", "f", deep))])
    with pytest.raises(CodecError):
        codec.from_json(b'{"midspan":1,"kind":"event","value":' + b"[" * 100_000, "event")


@pytest.mark.parametrize(
    "part",
    [ToolCall(3, "add", {}), ToolResult(None, "add", 5)],  # type: ignore[arg-type]
)
def test_id_that_could_not_be_read_again_is_not_saved(part: Part) -> None:
    message = Message("model", (Text("hi"), part))
    end = events.TurnEnd(1, message, FinishReason.END, Usage())
    for value in ((message,), History([message]), end, events.RunStart("r", "m", (message,))):
        with pytest.raises(CodecError, match=r"the id of a Tool(Call|Result) of 'add' must be a string, got (3|None)$"):
            codec.to_json(value)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
part_values: st.SearchStrategy[Part] = st.one_of(
    st.builds(Text, st.text(), st.none() | st.just(DATA)),
    st.builds(Thought, st.text(), st.none() | st.just(DATA)),
    st.builds(ToolCall, st.text(), st.text(), st.dictionaries(st.text(), json_values, max_size=3)),
    st.builds(ToolResult, st.text(), st.text(), json_values, st.booleans()),
)


@given(st.lists(st.builds(Message, st.sampled_from(["user", "model"]), st.lists(part_values, max_size=4).map(tuple))))
def test_random_conversations_are_restored_from_json(messages: list[Message]) -> None:
    assert codec.from_json(codec.to_json(messages), "messages") == tuple(messages)


@pytest.mark.parametrize("nothing", [None, 5, [], b"", "", "\ud800"])
def test_document_that_is_not_json_is_an_error(nothing: Any) -> None:
    with pytest.raises(CodecError):
        codec.from_json(nothing, "messages")
