"""Tools and results of a server as a run knows them."""

from typing import Any

import pytest
from mcp import types

from midspan._types.parts import Blob, Resource, Text, ToolCall, ToolResult
from midspan._types.specs import Effects
from midspan.errors import SchemaError
from midspan.tools.mcp.conversion import NO_OUTPUT, RemoteTool, describe_invalid, remote_tool, to_tool_result


@pytest.fixture(scope="session", autouse=True)
def prefork() -> None:
    """Start no process: these tests need no server."""


CALL = ToolCall("c", "f")


def converted(**fields: Any) -> RemoteTool:
    return remote_tool(types.Tool.model_validate({"name": "f", "inputSchema": {"type": "object"}, **fields}), "s", {})


def result_of(tool: RemoteTool | None = None, max_chars: int = 1_000, **fields: Any) -> ToolResult:
    result = types.CallToolResult.model_validate({"content": [], **fields})
    return to_tool_result(CALL, result, tool or converted(), max_chars=max_chars)


@pytest.mark.parametrize(
    ("annotations", "effects", "destructive"),
    [
        (None, None, None),
        ({"readOnlyHint": True, "destructiveHint": True}, Effects(reads=("s:*",), idempotent=True), None),
        ({"readOnlyHint": False}, Effects(writes=("s:*",)), None),
        ({"readOnlyHint": False, "idempotentHint": True}, Effects(writes=("s:*",), idempotent=True), None),
        ({"idempotentHint": True}, Effects(idempotent=True), None),
        ({"destructiveHint": True}, None, True),
        ({"destructiveHint": False, "openWorldHint": True}, None, False),
    ],
)
def test_annotations_are_effects(annotations: Any, effects: Effects | None, destructive: bool | None) -> None:
    spec = converted(annotations=annotations).spec
    hints = annotations or {}
    assert (spec.effects, spec.destructive, spec.needs_approval) == (effects, destructive, bool(destructive))
    assert (spec.read_only, spec.open_world) == (hints.get("readOnlyHint"), hints.get("openWorldHint"))


@pytest.mark.parametrize(
    ("fields", "title"),
    [
        ({}, None),
        ({"title": "A\u200b"}, "A"),
        ({"annotations": {"title": "B"}}, "B"),
        ({"title": "A", "annotations": {"title": "B"}}, "A"),
        ({"title": "\u200b"}, None),
    ],
)
def test_title(fields: Any, title: str | None) -> None:
    assert converted(**fields).spec.title == title


def test_definition_has_what_the_server_declares_and_no_icons() -> None:
    tool = converted(description="a\u200bb", icons=[{"src": "https://x"}], _meta={"x": 1})
    assert tool.definition == {"name": "f", "description": "a\u200bb", "inputSchema": {"type": "object"}}
    assert tool.spec.description == "ab"


def test_texts_of_a_schema_have_no_invisible_characters() -> None:
    schema = {
        "type": "object",
        "title": "T\u200b",
        "description": 5,
        "properties": {"a": {"type": "string", "description": "a\u202eb"}},
    }
    visible = {**schema, "title": "T", "properties": {"a": {"type": "string", "description": "ab"}}}
    with pytest.raises(SchemaError):
        converted(inputSchema=schema)
    del schema["description"], visible["description"]
    assert converted(inputSchema=schema).spec.parameters == visible


WRAPPED = {"type": "object", "properties": {"result": {"type": "integer"}}, "required": ["result"]}


@pytest.mark.parametrize(
    ("schema", "response"),
    [
        (WRAPPED, {"type": "integer"}),
        ({**WRAPPED, "title": "R", "$defs": {"x": {}}}, {"type": "integer", "$defs": {"x": {}}}),
        ({**WRAPPED, "description": "an object of its own"}, None),
        ({**WRAPPED, "required": []}, None),
        ({**WRAPPED, "properties": {"result": {"type": "object"}}}, None),
        ({**WRAPPED, "properties": {"result": True}}, None),
        ({**WRAPPED, "properties": {"result": {"type": "integer"}, "page": {}}}, None),
    ],
)
def test_object_around_a_single_value_is_unwrapped(schema: dict[str, Any], response: Any) -> None:
    tool = converted(outputSchema=schema)
    assert tool.is_wrapped == (response is not None)
    assert tool.spec.response == (schema if response is None else response)
    value = 5 if response is not None else {"result": 5}
    if schema["properties"]["result"] == {"type": "integer"} and "page" not in schema["properties"]:
        assert result_of(tool, structuredContent={"result": 5}).value == value


def test_value_must_match_the_output_schema() -> None:
    tool = converted(outputSchema=WRAPPED)
    assert result_of(tool, structuredContent={"result": "x"}).is_error
    missing = result_of(tool, content=[{"type": "text", "text": "5"}])
    assert missing.is_error
    assert "returned no structured content" in missing.value
    null = result_of(tool, structuredContent=None)
    assert null.is_error
    assert "returned no structured content" not in null.value


def test_result_without_anything_is_a_text() -> None:
    assert result_of() == ToolResult("c", "f", NO_OUTPUT)
    assert result_of(content=[{"type": "text", "text": "a"}]).value is None
    assert result_of(structuredContent={"a": 1}).value == {"a": 1}


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_number_that_json_does_not_have_is_an_invalid_response(number: float) -> None:
    result = result_of(structuredContent={"a": number})
    assert result.is_error
    assert result.value.startswith("invalid response: a: JSON has no number for")


def test_error_has_the_texts_of_the_content() -> None:
    image = {"type": "image", "data": "aW1n", "mimeType": "image/png"}
    texts = [{"type": "text", "text": "a"}, image, {"type": "text", "text": ""}, {"type": "text", "text": "b"}]
    failed = result_of(isError=True, content=texts)
    assert (failed.is_error, failed.value) == (True, "a\nb")
    assert result_of(isError=True, content=[image]).value == "f reported an error without a message"


def test_metadata_of_the_protocol_is_left_out() -> None:
    result = result_of(structuredContent={}, _meta={"io.modelcontextprotocol/server": "x", "own": 1})
    assert result.meta == {"own": 1}


def test_long_values_and_texts_are_cut() -> None:
    assert result_of(max_chars=7, structuredContent={"a": 1}).value == {"a": 1}
    cut = result_of(max_chars=6, structuredContent={"a": 1}).value
    assert isinstance(cut, str)
    texts = [{"type": "text", "text": "abcd"}, {"type": "text", "text": "efgh"}, {"type": "text", "text": "ijkl"}]
    whole = result_of(max_chars=12, content=texts)
    assert [part.text for part in whole.content if isinstance(part, Text)] == ["abcd", "efgh", "ijkl"]
    first, second, third = (
        part.text for part in result_of(max_chars=5, content=texts).content if isinstance(part, Text)
    )
    assert (first, second[:1]) == ("abcd", "e")
    assert "fgh" not in second
    assert "i" not in third[:1]


def test_urls_and_names_count_as_text() -> None:
    link = {"type": "resource_link", "uri": "file:///" + "x" * 2_000, "name": "c"}
    image = {"type": "image", "data": "aW1n", "mimeType": "image/png"}
    assert result_of(max_chars=1_000, content=[link, image, link]).content == (
        Blob("image/png", base64="aW1n"),
        Text("[2 parts left out: a result has at most 1,000 characters]"),
    )
    assert result_of(max_chars=3_000, content=[link]).content == (Resource(link["uri"], "c"),)
    named = {**link, "uri": "file:///c", "name": "x" * 2_000}
    assert len(result_of(max_chars=1_000, content=[named]).content[0].text or "") < 100  # type: ignore[union-attr]


def test_many_parts_beyond_the_limit_are_one_note() -> None:
    texts = [{"type": "text", "text": "abc"}] * 1_000
    *parts, note = result_of(max_chars=300, content=texts).content
    assert parts == [Text("abc")] * 100
    assert note == Text("[900 parts left out: a result has at most 300 characters]")


def test_content_of_every_kind() -> None:
    text = {"uri": "file:///a", "mimeType": "text/plain", "text": "a"}
    blob = {"uri": "file:///b", "blob": "YQ=="}
    content = [
        {"type": "audio", "data": "c25k", "mimeType": "audio/wav"},
        {"type": "image", "data": "!", "mimeType": "image/png"},
        {"type": "resource_link", "uri": "file:///c", "name": "c"},
        {"type": "resource", "resource": text},
        {"type": "resource", "resource": blob},
    ]
    audio, broken, *resources = result_of(content=content).content
    assert audio == Blob("audio/wav", base64="c25k")
    assert isinstance(broken, Text)
    assert broken.text.startswith("[image/png that cannot be read")
    assert resources == [
        Resource("file:///c", "c"),
        Resource("file:///a", media_type="text/plain", text="a"),
        Resource("file:///b", base64="YQ=="),
    ]


def test_message_that_is_not_valid_is_described_by_its_first_problems() -> None:
    with pytest.raises(ValueError, match="validation error") as caught:
        types.Tool.model_validate({"name": 1, "title": 2, "description": 3, "inputSchema": 4})
    described = describe_invalid(caught.value)
    assert described.startswith("the server sent a message that is not valid: name: ")
    assert described.count(";") == 2
    assert describe_invalid(ValueError("other")) == "other"
