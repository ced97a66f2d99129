"""The stored form of events, and the public form made from it."""

import json
from typing import Any, get_args

import msgspec
import pytest
from msgspec import Raw, Struct

from midspan._types import events
from midspan._types.codec import from_json, to_json
from midspan._types.events import RunEvent, UnknownEvent, public_event
from midspan._types.exchange import Citation, FinishReason, Usage
from midspan._types.messages import Message
from midspan._types.parts import Blob, Opaque, ProviderData, Resource, Text, Thought, ToolCall, ToolResult
from midspan._types.specs import ToolChoice
from midspan.errors import CodecError

SECRET = "provider-secret"
DATA = ProviderData(SECRET, Raw(b'{"%b": 1}' % SECRET.encode()))
CALL = ToolCall("1", "pay", {"euros": 3}, provider_data=DATA)
UNREADABLE = ToolCall("2", "pay", {}, f'{{"{SECRET}', "the arguments are not valid JSON")
RESULT = ToolResult(
    "1",
    "pay",
    {"paid": True},
    content=(Blob.of(b"\x00", "image/png"), Resource("https://a/b", "b", "text/plain", "c")),
    notes=("note",),
    hint="Do not pay twice.",
    meta={"trace": SECRET},
    provider_data=DATA,
)
TURN = Message("model", (Thought("hm", DATA), Text("hi", DATA), CALL, UNREADABLE, Opaque("x", DATA)), DATA)
EVENTS: list[RunEvent] = [
    events.RunStart("r", "m", (Message.user("hi", RESULT), TURN)),
    events.TurnStart(1, True, ToolChoice("none", ("pay",), True, False), True, "max_tool_calls"),
    events.TextDelta(1, "a"),
    events.ThoughtDelta(1, "a"),
    events.ToolCallDelta(1, 0, '{"eu', "1", "pay"),
    events.TurnEnd(1, TURN, FinishReason.END, Usage(1), (Citation("https://a", "A", 0, 2, "hi"),), 2),
    events.TurnRetry(1, "empty", Message.user("Answer.")),
    events.RequestRetry(1, attempt=2, wait_seconds=0.5, status=503, message="overloaded"),
    events.ToolStart(1, CALL, 2, may_write=False, has_more=True),
    events.ToolProgress(1, "1", 2, 0.5, "half"),
    events.ToolEnd(1, RESULT, 0.5, 2),
    events.SourceUnavailable("files", "connection refused"),
    events.Interrupted("shutdown"),
    events.RunEnd("r", "hi", Usage(), 2, "max_turns", events.ErrorInfo("LimitReachedError", "too many turns")),
]
FUTURE = b'{"midspan":1,"kind":"event","value":{"type":"tool_dream","turn":1, "deep": {"a":[1,2.50]}}}'
PRIVATE = {"provider_data", "origin", "raw", "raw_arguments", "has_more", "meta"}


def test_every_kind_of_event_has_an_example() -> None:
    assert [type(event) for event in EVENTS] == [kind for kind in get_args(RunEvent) if kind is not UnknownEvent]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_events_are_restored_as_they_were_stored(event: RunEvent) -> None:
    assert from_json(to_json(event), "event") == event


def test_unknown_event_is_stored_again_unchanged() -> None:
    event = from_json(FUTURE, "event")
    assert isinstance(event, UnknownEvent)
    assert event.tag == "tool_dream"
    assert to_json(event) == FUTURE


def test_unknown_fields_of_a_known_event_are_ignored() -> None:
    document = b'{"midspan":1,"kind":"event","value":{"type":"text_delta","turn":1,"text":"a","mood":"good"}}'
    assert from_json(document, "event") == events.TextDelta(1, "a")


@pytest.mark.parametrize(
    "value", [b'{"type":"text_delta","turn":"one","text":"a"}', b'{"turn":1}', b"[]", b'{"type":5}', b'{"type":']
)
def test_invalid_event_is_an_error(value: bytes) -> None:
    with pytest.raises(CodecError, match="not a valid"):
        from_json(b'{"midspan":1,"kind":"event","value":%b}' % value, "event")


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_public_form_is_json_without_provider_data(event: RunEvent) -> None:
    text = json.dumps(public_event(event))
    assert SECRET not in text
    assert json.loads(text)["type"] == type(event).__struct_config__.tag


def test_public_form_keeps_public_fields() -> None:
    assert public_event(events.TurnEnd(1, TURN, FinishReason.END, Usage(1)))["message"] == {
        "role": "model",
        "parts": [
            {"type": "thought", "text": "hm"},
            {"type": "text", "text": "hi"},
            {"type": "call", "id": "1", "name": "pay", "arguments": {"euros": 3}, "arguments_error": None},
            {
                "type": "call",
                "id": "2",
                "name": "pay",
                "arguments": {},
                "arguments_error": "the arguments are not valid JSON",
            },
            {"type": "opaque", "name": "x"},
        ],
    }
    assert public_event(events.ToolEnd(1, RESULT, 0.5, 2)) == {
        "type": "tool_end",
        "turn": 1,
        "result": {
            "type": "result",
            "id": "1",
            "name": "pay",
            "value": {"paid": True},
            "is_error": False,
            "content": [
                {"type": "blob", "media_type": "image/png", "base64": "AA==", "url": None, "name": None},
                {
                    "type": "resource",
                    "url": "https://a/b",
                    "name": "b",
                    "media_type": "text/plain",
                    "text": "c",
                    "base64": None,
                },
            ],
            "is_final": False,
            "notes": ["note"],
            "hint": "Do not pay twice.",
        },
        "duration_seconds": 0.5,
        "index": 2,
    }


def test_arguments_and_results_may_use_the_names_of_private_fields() -> None:
    start = public_event(events.ToolStart(1, ToolCall("1", "f", {"raw": 1, "provider_data": {"origin": 2}})))
    assert start["call"]["arguments"] == {"raw": 1, "provider_data": {"origin": 2}}


def test_public_form_of_an_unknown_event_is_its_kind() -> None:
    assert public_event(from_json(FUTURE, "event")) == {"type": "tool_dream"}


def field_names(value: Any) -> set[str]:
    if isinstance(value, Struct):
        inner = (getattr(value, name) for name in value.__struct_fields__)
        return {*value.__struct_fields__}.union(*map(field_names, inner))
    return set().union(*map(field_names, value)) if isinstance(value, tuple) else set()


def shown_names(value: Any) -> set[str]:
    if isinstance(value, dict):
        return {*value}.union(*map(shown_names, value.values()))
    return set().union(*map(shown_names, value)) if isinstance(value, list) else set()


def test_every_field_is_listed_as_public_or_private() -> None:
    public = set().union(*(shown_names(msgspec.to_builtins(public_event(event))) for event in EVENTS))
    assert set().union(*map(field_names, EVENTS)) - public == PRIVATE
