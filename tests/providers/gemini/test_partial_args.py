import json
from typing import Any

import pytest

from midspan import Agent
from midspan._types.exchange import FinishReason, ModelResponse
from midspan._types.parts import Part, Text, ToolCall
from midspan.gemini.response import ChunkReader
from midspan.providers.gemini import decode
from midspan.providers.gemini.capabilities import Api
from midspan.providers.gemini.encode import thought_signature
from midspan.providers.gemini.stream import StreamDecoder
from midspan.providers.scripted import ScriptedProvider
from midspan.tools.declared import tool_from_schema
from tests.streaming import pieces_of, plain, raw_of


def chunk(*parts: Any, finish: str | None = None) -> bytes:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}}
    return (
        b"data: %b\r\n\r\n"
        % json.dumps({"candidates": [candidate | ({"finishReason": finish} if finish else {})]}).encode()
    )


def piece(path: str, *, more: bool = True, **value: Any) -> dict[str, Any]:
    return {"functionCall": {"partialArgs": [{"jsonPath": path, **value}], **({"willContinue": True} if more else {})}}


def read(*chunks: bytes) -> tuple[list[Part], ModelResponse]:
    stream = StreamDecoder(make_id=lambda: "midspan_1")
    made = [event for one in chunks for event in stream.feed(one)]
    return plain(*pieces_of([*made, *stream.end()])), stream.response()


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
    piece("$['a.b'][\"c'd\"]", numberValue=1, stringValue=None),
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
    call = ToolCall("midspan_1", "book", ARGUMENTS)
    assert call in parts
    assert plain(*response.message.calls) == [call]
    assert thought_signature(response.message.calls[0]) == "sig"
    assert json.loads(raw_of(response.message))["parts"][0] == {
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
    assert parts == [ToolCall("midspan_1", "book", {"a": "1"}), ToolCall("2", "pay", {"b": 2}), Text("x")]


def test_a_streamed_call_in_one_chunk_is_a_call() -> None:
    parts, response = read(chunk(OPEN, piece("$.a", stringValue="1"), {"functionCall": {}}, finish="STOP"))
    assert parts == [ToolCall("midspan_1", "book", {"a": "1"})]
    assert "willContinue" not in raw_of(response.message).decode()


def test_an_open_call_of_a_cut_stream_is_not_a_call() -> None:
    parts, response = read(chunk(OPEN), chunk(piece("$.city", stringValue="Bos")))
    assert (parts, response.message.calls, response.finish_reason) == ([], (), FinishReason.CUT)
    _, response = read(chunk({"text": "a"}, OPEN))
    assert json.loads(raw_of(response.message))["parts"] == [{"text": "a"}]


def test_a_call_cut_by_the_token_limit_is_not_a_call() -> None:
    cut = piece("$.command", stringValue="rm -rf /tm")
    parts, response = read(chunk({"text": "a"}), chunk(OPEN), chunk(cut, finish="MAX_TOKENS"))
    assert (parts, response.message.calls, response.finish_reason) == ([Text("a")], (), FinishReason.LENGTH)


def test_a_part_in_between_does_not_end_a_call() -> None:
    parts, response = read(
        chunk(OPEN),
        chunk({"text": ""}),
        chunk(piece("$.a", stringValue="x")),
        chunk({"functionCall": {}}, finish="STOP"),
    )
    assert parts == [Text(""), ToolCall("midspan_1", "book", {"a": "x"})]
    assert plain(*response.message.parts) == [parts[1]]


def test_texts_around_a_call_that_was_left_open_are_one() -> None:
    _, response = read(chunk({"text": "a"}), chunk(OPEN), chunk({"text": "b"}))
    assert response.message.parts == (Text("ab"),)


def test_fields_of_later_parts_of_a_call_are_kept() -> None:
    late = {"functionCall": {"id": "late", "odd": 1}, "thoughtSignature": "late", "other": 2}
    _, response = read(chunk({"functionCall": {"name": "f", "willContinue": True}}), chunk(late, finish="STOP"))
    assert json.loads(raw_of(response.message))["parts"] == [
        {"functionCall": {"name": "f", "id": "late", "odd": 1, "args": {}}, "thoughtSignature": "late", "other": 2}
    ]
    assert plain(*response.message.calls) == [ToolCall("late", "f")]
    assert thought_signature(response.message.calls[0]) == "late"


def test_a_repeated_end_of_a_call_adds_no_part() -> None:
    last = piece("$.a", stringValue="x", more=False)
    parts, response = read(chunk(OPEN), chunk(last), chunk({"functionCall": {}}, finish="STOP"))
    assert len(parts) == 1
    assert len(json.loads(raw_of(response.message))["parts"]) == 1


def test_a_long_text_in_small_pieces_is_put_together_in_linear_time() -> None:
    pieces = [{"jsonPath": "$.text", "stringValue": "x" * 100, "willContinue": True}] * 50_000
    parts, _ = read(chunk(OPEN), chunk({"functionCall": {"partialArgs": pieces}}, finish="STOP"))
    assert isinstance(parts[0], ToolCall)
    assert len(parts[0].arguments["text"]) == 5_000_000


def test_a_signature_of_a_wrong_type_is_ignored() -> None:
    odd = {"functionCall": {"name": "f", "willContinue": True}, "thoughtSignature": 5}
    assert read(chunk(odd), chunk({"functionCall": {}}, finish="STOP"))[0] == [ToolCall("midspan_1", "f")]


@pytest.mark.parametrize(
    "path",
    [
        "",
        "city",
        "$",
        "$.",
        "$[",
        "$..x",
        "$.a[99999999999]",
        "$.a[-1]",
        "$[*]",
        "$.a[" + "9" * 5000 + "]",
        "$" + ".a" * 50000,
    ],
)
def test_value_whose_path_cannot_be_followed_is_kept_under_the_path(path: str) -> None:
    parts, _ = read(chunk(OPEN), chunk(piece(path, stringValue="x")), chunk({"functionCall": {}}, finish="STOP"))
    assert isinstance(parts[0], ToolCall)
    assert parts[0].arguments[path[:60]] == "x"
    assert parts[0].arguments_error == f"a value has the path {path[:60]!r}, which cannot be followed"
    assert len(json.dumps(parts[0].arguments)) < 100


WHOLE = {
    "functionCall": {
        "name": "divide",
        "partialArgs": [{"jsonPath": "$.by", "numberValue": 2}, {"jsonPath": "$.what", "numberValue": 100}],
    }
}


def test_an_incomplete_call_in_a_plain_response_is_not_a_call() -> None:
    document = json.dumps({"candidates": [{"content": {"role": "model", "parts": [OPEN]}, "finishReason": "STOP"}]})
    assert decode.response(document.encode()).message.calls == ()


def test_a_chunk_shows_the_calls_that_it_completes_with_all_their_arguments() -> None:
    reader = ChunkReader(Api.VERTEX)
    chunks = [
        shown
        for piece_of_stream in (
            chunk(OPEN),
            chunk(piece("$.city", stringValue="Oslo")),
            chunk({"functionCall": {}}),
            chunk(WHOLE, finish="STOP"),
        )
        for shown in reader.feed(piece_of_stream)
    ]
    shown_calls = [[(call.name, call.args) for call in shown.function_calls] for shown in chunks]
    assert shown_calls == [[], [], [("book", {"city": "Oslo"})], [("divide", {"by": 2, "what": 100})]]
    assert [call.name for call in reader.response().message.calls] == ["book", "divide"]


@pytest.mark.parametrize(
    "call",
    [
        {"name": "book", "willContinue": True},
        {"name": "book", "args": {}, "willContinue": True},
        {"name": "book", "partialArgs": [{"jsonPath": "$.a", "stringValue": "x"}], "willContinue": True},
        {"name": "book", "partialArgs": [{"jsonPath": "$.a", "stringValue": "x", "willContinue": True}]},
    ],
)
def test_call_of_one_chunk_that_continues_is_not_a_call(call: dict[str, Any]) -> None:
    document = {"candidates": [{"content": {"role": "model", "parts": [{"functionCall": call}]}}]}
    assert decode.response(json.dumps(document).encode()).message.calls == ()
    reader = ChunkReader(Api.VERTEX)
    [seen] = reader.feed(chunk({"functionCall": call}))
    assert seen.function_calls == []
    assert list(reader.end()) == []
    assert reader.response().message.calls == ()


def test_string_that_continues_is_completed_by_the_next_chunk() -> None:
    start = {"name": "book", "partialArgs": [{"jsonPath": "$.a", "stringValue": "Bos", "willContinue": True}]}
    parts, _ = read(chunk({"functionCall": start}), chunk(piece("$.a", stringValue="ton", more=False), finish="STOP"))
    assert parts == [ToolCall("midspan_1", "book", {"a": "Boston"})]


def test_last_piece_of_a_string_may_have_no_value() -> None:
    parts, _ = read(chunk(OPEN), chunk(piece("$.a", stringValue="x")), chunk(piece("$.a", more=False), finish="STOP"))
    assert parts == [ToolCall("midspan_1", "book", {"a": "x"})]


def test_path_that_skips_many_items_uses_no_memory() -> None:
    far = piece("$.rows" + "[999999]" * 60, numberValue=1)
    parts, _ = read(
        chunk(OPEN), chunk(far), chunk(piece("$.n", numberValue=3)), chunk({"functionCall": {}}, finish="STOP")
    )
    arguments = {"rows": [], ("$.rows" + "[999999]" * 60)[:60]: 1, "n": 3}
    assert [part.arguments for part in parts if isinstance(part, ToolCall)] == [arguments]


@pytest.mark.parametrize(
    ("paths", "arguments"),
    [
        ({r"$['it\'s']": 1, '$["a\\"b"]': 2}, {"it's": 1, 'a"b': 2}),
        ({r"$['a\\']": 1}, {"a\\": 1}),
        ({"$['']": 1}, {"": 1}),
        ({"$.a[1]": 1, "$.a[0]": 2}, {"a": [2, 1]}),
        ({"$.a[100]": 1}, {"a": [*[None] * 100, 1]}),
        ({"$.a[101]": 1}, {"a": [], "$.a[101]": 1}),
        ({r"$['\u0041\\']": 1}, {"A\\": 1}),
        ({"$.a[0].b": 1, "$.a[0].c": 2, "$.a[0][0]": 3}, {"a": [{"b": 1, "c": 2, "0": 3}]}),
        ({"$.a": 1, "$.a.b": 2}, {"a": {"b": 2}}),
        ({"$.a[0]": 1, "$.a.b": 2}, {"a": [1], "$.a.b": 2}),
    ],
)
def test_values_are_put_where_their_paths_say(paths: dict[str, int], arguments: dict[str, Any]) -> None:
    assert arguments_of(paths) == arguments


def test_path_of_too_many_steps_is_not_followed() -> None:
    assert arguments_of({"$" + ".a" * 64: 1, "$" + ".b" * 65: 2}).keys() == {"a", "$" + ".b" * 29 + "."}


def test_call_with_a_path_that_cannot_be_followed_is_not_run() -> None:
    paid: list[Any] = []
    book = tool_from_schema("book", "Books a trip.", {"type": "object"}, paid.append)
    run = Agent(ScriptedProvider([call_of({"$.amount[*]": 5}), "Done."]), [book]).run_sync("go").tool_calls[0]
    assert "$.amount[*]" in run.result.value
    assert paid == []


def test_pieces_of_a_string_may_spell_its_path_in_two_ways() -> None:
    parts, _ = read(
        chunk(OPEN), *(chunk(piece(path, stringValue="x")) for path in ("$.a", "$['a']")), chunk({"functionCall": {}})
    )
    assert parts == [ToolCall("midspan_1", "book", {"a": "xx"})]


def arguments_of(paths: dict[str, int]) -> dict[str, Any]:
    return call_of(paths).arguments


def call_of(paths: dict[str, int]) -> ToolCall:
    """Return a call whose values are streamed with these paths."""
    pieces = [chunk(piece(path, numberValue=value)) for path, value in paths.items()]
    _, response = read(chunk(OPEN), *pieces, chunk({"functionCall": {}}, finish="STOP"))
    [call] = response.message.calls
    return call
