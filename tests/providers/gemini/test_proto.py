import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midspan.errors import MalformedResponseError
from midspan.providers.gemini import wire
from midspan.providers.gemini.proto import Proto, dump, from_plain, has_extra, load

REQUEST: dict[str, Any] = {
    "contents": [
        {"role": "user", "parts": [{"text": "hi"}, {"inlineData": {"mimeType": "image/png", "data": "AAA="}}]},
        {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {"my_key": 3.0}}, "thoughtSignature": "s"}]},
    ],
    "tools": [
        {"googleSearch": {}},
        {"functionDeclarations": [{"name": "f", "parameters": {"type": "OBJECT", "properties": {"my_key": {}}}}]},
    ],
    "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["f"]}},
    "generationConfig": {"temperature": 0, "thinkingConfig": {"thinkingBudget": -1}},
}


def again(form: type[Proto], document: Any) -> Any:
    return json.loads(dump(load(form, json.dumps(document).encode())))


@pytest.mark.requirement("S1-18", "S0-09")
def test_a_request_is_read_into_types_and_written_as_it_was() -> None:
    request = load(wire.GenerateContentRequest, json.dumps(REQUEST).encode())
    assert request.contents is not None
    assert request.contents[1].parts == [
        wire.Part(function_call=wire.FunctionCall(name="f", args={"my_key": 3.0}), thought_signature="s")
    ]
    assert json.loads(dump(request)) == REQUEST


@pytest.mark.requirement("S0-09")
def test_snake_case_is_read_and_written_in_camel_case_but_names_of_users_stay() -> None:
    snake = {
        "system_instruction": {"parts": [{"text": "x"}]},
        "contents": [{"parts": [{"function_call": {"name": "f", "args": {"blueprint_id": {"inner_key": 1}}}}]}],
        "tools": [{"function_declarations": [{"name": "f", "parameters": {"any_of": [{"properties": {"a_b": {}}}]}}]}],
        "labels": {"cost_center": "x_y"},
    }
    assert again(wire.GenerateContentRequest, snake) == {
        "systemInstruction": {"parts": [{"text": "x"}]},
        "contents": [{"parts": [{"functionCall": {"name": "f", "args": {"blueprint_id": {"inner_key": 1}}}}]}],
        "tools": [{"functionDeclarations": [{"name": "f", "parameters": {"anyOf": [{"properties": {"a_b": {}}}]}}]}],
        "labels": {"cost_center": "x_y"},
    }


@pytest.mark.requirement("S0-03")
def test_schema_fields_that_are_not_set_are_not_sent() -> None:
    schema = wire.Schema(type="OBJECT", properties={"a": wire.Schema(type="STRING", enum=["x"])})
    assert json.loads(dump(schema)) == {"type": "OBJECT", "properties": {"a": {"type": "STRING", "enum": ["x"]}}}


def test_a_default_of_null_differs_from_no_default() -> None:
    assert again(wire.Schema, {"default": None}) == {"default": None}
    assert again(wire.Schema, {}) == {}


@pytest.mark.requirement("S0-02")
def test_google_search_is_a_marker() -> None:
    assert dump(wire.Tool(google_search=wire.GoogleSearch())) == b'{"googleSearch":{}}'


@pytest.mark.requirement("S0-19")
def test_an_unknown_kind_of_tool_is_kept_and_sent() -> None:
    tool = {"telepathy": {"distance_km": 3}}
    assert again(wire.Tool, tool) == tool


@pytest.mark.parametrize(
    ("form", "document"),
    [
        (wire.Part, {"text": ""}),
        (wire.Part, {"text": 5}),
        (wire.Part, {"functionCall": "odd"}),
        (wire.Content, {"parts": ["odd", {"text": "x"}]}),
        (wire.Content, {"parts": []}),
        (wire.Candidate, {"finishReason": 1, "index": 0}),
        (wire.Candidate, {"finishReason": "SOMETHING_NEW"}),
        (wire.GenerateContentResponse, {"usageMetadata": {"promptTokenCount": "12"}}),
        (wire.GenerateContentResponse, {"candidates": [{"content": {"parts": [{"brandNew": {"x": [1]}}]}}]}),
        (wire.Schema, {"type": "STRING", "enum": [1, 2], "$ref": "#/x", "const": 3}),
        (wire.GenerateContentRequest, {"contents": {"role": "user"}, "model_": 1}),
        (wire.Part, {"@extra": {"text": "x"}}),
    ],
)
def test_values_of_other_types_survive_a_round_trip(form: type[Proto], document: Any) -> None:
    assert again(form, document) == document


def test_the_same_field_in_both_casings_loses_neither() -> None:
    assert again(wire.FileData, {"fileUri": "a", "file_uri": "b"}) == {"fileUri": "a", "file_uri": "b"}


def test_null_is_the_same_as_absent() -> None:
    assert again(wire.Part, {"text": None, "thought": True}) == {"thought": True}


@pytest.mark.parametrize("text", [b"", b"{", b"<html>", b"[]", b'"x"', b"{" * 100_000, b'{"text":"\xff"}'])
def test_a_document_that_is_not_a_json_object_is_an_error(text: bytes) -> None:
    with pytest.raises(MalformedResponseError, match="Part"):
        load(wire.Part, text)


@pytest.mark.requirement("S1-18")
def test_plain_values_are_read_too() -> None:
    assert from_plain(wire.Part, {"inline_data": {"mime_type": "a/b"}}) == wire.Part(
        inline_data=wire.Blob(mime_type="a/b")
    )


json_objects = st.dictionaries(
    st.text(),
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**64)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=6,
    ),
    max_size=3,
)


def places(document: Any) -> list[dict[str, Any]]:
    """Every object in a document whose names are the API's."""
    if isinstance(document, list):
        return [place for item in document for place in places(item)]
    if not isinstance(document, dict):
        return []
    inner = [place for name, item in document.items() if name not in ("args", "response") for place in places(item)]
    return [document, *inner]


@given(json_objects, st.text(min_size=1), st.integers(0, 50))
def test_any_object_anywhere_in_a_response_survives(unknown: dict[str, Any], name: str, place: int) -> None:
    response: dict[str, Any] = {
        "candidates": [
            {
                "content": {"role": "model", "parts": [{"text": "a"}, {"functionCall": {"name": "f", "args": {}}}]},
                "safetyRatings": [{"category": "X"}],
                "groundingMetadata": {"groundingChunks": [{"web": {"uri": "u"}}]},
            }
        ],
        "usageMetadata": {"promptTokensDetails": [{"modality": "TEXT"}]},
    }
    targets = places(response)
    targets[place % len(targets)].setdefault(f"new {name}", unknown)
    assert again(wire.GenerateContentResponse, response) == response


def test_a_tool_of_google_becomes_a_builtin_tool() -> None:
    tool = wire.GoogleSearch(time_range_filter={"startTime": "2026-01-01T00:00:00Z"}).as_builtin()
    assert (tool.name, tool.config) == ("googleSearch", {"timeRangeFilter": {"startTime": "2026-01-01T00:00:00Z"}})


def test_unknown_fields_are_found_at_any_depth() -> None:
    assert not has_extra(from_plain(wire.Content, {"parts": [{"text": "x"}]}))
    assert has_extra(from_plain(wire.Content, {"new": 1}))
    assert has_extra(from_plain(wire.Content, {"parts": [{"new": 1}]}))
