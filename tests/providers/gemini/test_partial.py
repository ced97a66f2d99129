import json
from typing import Any

import pytest

from wasat.providers.gemini import decode
from wasat.types.exchange import FinishReason, ModelResponse
from wasat.types.parts import Part, Text, ToolCall


def chunk(*parts: Any, finish: str | None = None) -> bytes:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}}
    return (
        b"data: %b\r\n\r\n"
        % json.dumps({"candidates": [candidate | ({"finishReason": finish} if finish else {})]}).encode()
    )


def piece(path: str, *, more: bool = True, **value: Any) -> dict[str, Any]:
    return {"functionCall": {"partialArgs": [{"jsonPath": path, **value}], **({"willContinue": True} if more else {})}}


def read(*chunks: bytes) -> tuple[list[Part], ModelResponse]:
    stream = decode.ResponseStream(make_id=lambda: "wasat_1")
    parts = [part for one in chunks for part in stream.feed(one)]
    return parts + list(stream.end()), stream.response()


OPEN = {"functionCall": {"name": "book", "willContinue": True}, "thoughtSignature": "sig", "new": {"x": 1}}
ARGUMENTS = {"city": "Boston", "n": 3, "ok": True, "none": None, "ops": [{"name": "a b"}, "x"], "a.b": {"c'd": 1}}
PIECES = [
    piece("$.city", stringValue="Bos", willContinue=True),
    piece("$.city", stringValue="ton", willContinue=True),
    piece("$.city", stringValue=""),
    piece("$.n", numberValue=3),
    piece("$.ok", boolValue=True),
    piece("$.none", nullValue="NULL_VALUE"),
    piece("$.ops[0].name", stringValue="a "),
    piece("$.ops[0].name", stringValue="b"),
    piece("$.ops[1]", stringValue="x"),
    piece("$['a.b'][\"c'd\"]", numberValue=1),
]


@pytest.mark.parametrize(
    "ending",
    [
        pytest.param([{"functionCall": {}}], id="closed"),
        pytest.param([], id="closing part missing"),
        pytest.param([{"text": "done"}], id="another part instead"),
    ],
)
def test_streamed_arguments_are_put_together(ending: list[Any]) -> None:
    parts, response = read(*(chunk(part) for part in [OPEN, *PIECES]), chunk(*ending, finish="STOP"))
    assert parts[0] == ToolCall("wasat_1", "book", ARGUMENTS, "sig")
    assert response.message.calls == (parts[0],)
    assert json.loads(bytes(response.message.raw))["parts"][0] == {
        "functionCall": {"name": "book", "args": ARGUMENTS},
        "thoughtSignature": "sig",
        "new": {"x": 1},
    }


def test_two_streamed_calls_follow_each_other() -> None:
    second = {"functionCall": {"name": "pay", "id": "2", "willContinue": True}}
    parts, _ = read(
        chunk(OPEN),
        chunk(piece("$.a", stringValue="1")),
        chunk(second),
        chunk(piece("$.b", numberValue=2, more=False)),
        chunk({"text": "x"}, finish="STOP"),
    )
    assert parts == [ToolCall("wasat_1", "book", {"a": "1"}, "sig"), ToolCall("2", "pay", {"b": 2}), Text("x")]


def test_a_streamed_call_in_one_chunk_is_a_call() -> None:
    parts, response = read(chunk(OPEN, piece("$.a", stringValue="1"), {"functionCall": {}}, finish="STOP"))
    assert parts == [ToolCall("wasat_1", "book", {"a": "1"}, "sig")]
    assert "willContinue" not in bytes(response.message.raw).decode()


def test_a_call_that_a_cut_stream_left_open_is_no_call() -> None:
    parts, response = read(chunk(OPEN), chunk(piece("$.city", stringValue="Bos")))
    assert (parts, response.message.calls, response.finish) == ([], (), FinishReason.CUT)


@pytest.mark.parametrize("path", ["", "city", "$", "$.", "$[", "$..x", "$.a[99999999999]", "$.a[-1]", "$[*]"])
def test_a_path_that_cannot_be_followed_harms_nothing(path: str) -> None:
    parts, _ = read(chunk(OPEN), chunk(piece(path, stringValue="x")), chunk({"functionCall": {}}, finish="STOP"))
    assert isinstance(parts[0], ToolCall)
    assert len(json.dumps(parts[0].arguments)) < 100
