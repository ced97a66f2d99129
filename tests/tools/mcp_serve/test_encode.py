"""Tools, results and questions as MCP writes them."""

from typing import Any

import mcp_types
import pytest

from midspan._types.parts import Blob, Resource, Text, ToolCall, ToolResult
from midspan._types.specs import ToolSpec
from midspan.errors import ToolError
from midspan.tools.mcp.serve.encode import ServedTool
from midspan.tools.mcp.serve.questions import QuestionForm, can_ask


def encoded(*content: Text | Blob | Resource, tool: ToolSpec | None = None, **fields: Any) -> dict[str, Any]:
    served = ServedTool(tool or ToolSpec("f"), validates=False)
    result = served.encode(ToolResult("c", "f", content=content, **fields))
    return result.model_dump(mode="json", by_alias=True, exclude_none=True, include={"content", "structured_content"})


def text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


@pytest.mark.parametrize(
    ("parameters", "schema"),
    [
        (None, {"type": "object", "properties": {}}),
        ({"properties": {"a": {}}}, {"type": "object", "properties": {"a": {}}}),
        ({"type": "object"}, {"type": "object"}),
    ],
)
def test_parameters_are_always_an_object(parameters: Any, schema: Any) -> None:
    assert ServedTool(ToolSpec("f", parameters=parameters), validates=True).declaration.input_schema == schema


BLOB = {"type": "object", "properties": {"type": {"enum": ["blob"]}}}


@pytest.mark.parametrize(
    ("response", "schema"),
    [
        (None, None),
        ({"type": "object"}, {"type": "object"}),
        (
            {"type": "integer", "$defs": {"x": {}}},
            {
                "$defs": {"x": {}},
                "type": "object",
                "properties": {"result": {"type": "integer"}},
                "required": ["result"],
            },
        ),
        ({"type": "array", "items": {}}, None),
        ({"type": "array"}, None),
        ({"anyOf": [{"type": "string"}, BLOB]}, None),
        (
            {"type": "array", "prefixItems": [{"type": "string"}]},
            {
                "type": "object",
                "properties": {"result": {"type": "array", "prefixItems": [{"type": "string"}]}},
                "required": ["result"],
            },
        ),
        (
            {"type": "object", "properties": {"type": {"enum": ["other"]}}},
            {"type": "object", "properties": {"type": {"enum": ["other"]}}},
        ),
    ],
)
def test_output_schema_is_declared_unless_values_may_be_content(response: Any, schema: Any) -> None:
    assert ServedTool(ToolSpec("f", response=response), validates=False).declaration.output_schema == schema


def test_value_is_structured_content() -> None:
    assert encoded(value={"a": 1}) == {"content": [text('{"a":1}')], "structuredContent": {"a": 1}}
    assert encoded(value=5) == {"content": [text("5")]}
    assert encoded(value="x") == {"content": [text("x")]}
    tool = ToolSpec("f", response={"type": "integer"})
    assert encoded(value=5, tool=tool) == {"content": [text("5")], "structuredContent": {"result": 5}}
    assert encoded() == {"content": []}
    assert encoded(value=5, hint="Note.") == {"content": [text("5"), text("Note.")]}


def test_value_is_a_text_unless_the_content_has_one() -> None:
    image = Blob("image/png", base64="aW1n")
    encoded_image = {"type": "image", "data": "aW1n", "mimeType": "image/png"}
    assert encoded(image, value=5)["content"] == [text("5"), encoded_image]
    assert encoded(Text("a"), image, value=5)["content"] == [text("a"), encoded_image]


@pytest.mark.parametrize(
    ("part", "block"),
    [
        (Blob("audio/wav", base64="c25k"), {"type": "audio", "data": "c25k", "mimeType": "audio/wav"}),
        (
            Blob("image/png", url="https://x/a"),
            {"type": "resource_link", "uri": "https://x/a", "name": "https://x/a", "mimeType": "image/png"},
        ),
        (
            Blob("image/png", url="https://x/a", name="a.png"),
            {"type": "resource_link", "uri": "https://x/a", "name": "a.png", "mimeType": "image/png"},
        ),
        (
            Blob("application/pdf", base64="cGRm"),
            {
                "type": "resource",
                "resource": {"uri": "attachment:0", "mimeType": "application/pdf", "blob": "cGRm"},
            },
        ),
        (
            Blob("application/pdf", base64="cGRm", name="a.pdf"),
            {
                "type": "resource",
                "resource": {"uri": "attachment:a.pdf", "mimeType": "application/pdf", "blob": "cGRm"},
            },
        ),
        (Resource("x:a", text=""), {"type": "resource", "resource": {"uri": "x:a", "text": ""}}),
        (Resource("x:a", base64="YQ=="), {"type": "resource", "resource": {"uri": "x:a", "blob": "YQ=="}}),
        (Resource("x:a"), {"type": "resource_link", "uri": "x:a", "name": "x:a"}),
        (Resource("x:a", name="A"), {"type": "resource_link", "uri": "x:a", "name": "A"}),
    ],
)
def test_content(part: Any, block: dict[str, Any]) -> None:
    assert encoded(part)["content"] == [block]


def test_tool_whose_source_validates_gets_the_arguments_as_they_are() -> None:
    spec = ToolSpec("f", parameters={"type": "object", "properties": {"a": {"type": "integer"}}})
    call = ToolCall("c", "f", {"a": "5"})
    assert ServedTool(spec, validates=False).validate(call) is call
    checked = ServedTool(spec, validates=True)
    assert checked.validate(call) == ToolCall("c", "f", {"a": 5})
    wrong = checked.validate(ToolCall("c", "f", {"a": "x"}))
    assert isinstance(wrong, ToolResult)
    assert wrong.is_error


def test_schema_that_cannot_be_used_is_not_validated(caplog: pytest.LogCaptureFixture) -> None:
    served = ServedTool(ToolSpec("f", parameters={"type": "odd"}), validates=True)
    call = ToolCall("c", "f", {"a": 1})
    assert served.validate(call) is call
    assert "the parameters of tool f are not validated" in caplog.text


# Questions


@pytest.mark.parametrize(
    "schema",
    [
        None,
        {"type": "boolean"},
        {"type": "array", "items": {"enum": ["a"]}},
        {"type": "array", "items": {"anyOf": [{"const": "a"}]}},
    ],
)
def test_single_value_is_asked_for_in_a_form(schema: Any) -> None:
    form = QuestionForm.of(schema)
    assert form.is_single
    field = {"type": "string"} if schema is None else schema
    assert form.schema == {"type": "object", "properties": {"answer": field}, "required": ["answer"]}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": {"type": "string"}},
        {"type": "array"},
        {"type": "object"},
        {"type": "object", "properties": {}},
        {"type": "object", "properties": {"a": {"type": "object"}}},
        {"type": "object", "properties": {"a": True}},
        {"$ref": "#/$defs/a", "type": "string"},
    ],
)
def test_question_that_no_form_can_ask_is_refused(schema: Any) -> None:
    with pytest.raises(ToolError, match="cannot be asked through MCP"):
        QuestionForm.of(schema)


def test_answer_is_read_from_the_form() -> None:
    accepted = mcp_types.ElicitResult(action="accept", content={"answer": 5})
    assert QuestionForm.of({"type": "integer"}).read(accepted) == (5, None)
    form = QuestionForm.of({"type": "object", "title": "T", "properties": {"answer": {"type": "integer"}}})
    assert form.schema == {"type": "object", "properties": {"answer": {"type": "integer"}}}
    assert form.read(accepted) == ({"answer": 5}, None)
    _, problem = QuestionForm.of({"type": "boolean"}).read(accepted)
    assert problem is not None
    with pytest.raises(ToolError, match="declined"):
        form.read(mcp_types.ElicitResult(action="decline"))


@pytest.mark.parametrize(
    ("capabilities", "shows_forms"),
    [
        ({"elicitation": {}}, True),
        ({"elicitation": {"form": {}, "url": {}}}, True),
        ({"elicitation": {"url": {}}}, False),
        ({}, False),
    ],
)
def test_client_shows_forms_unless_it_only_opens_urls(capabilities: Any, shows_forms: bool) -> None:
    assert can_ask(mcp_types.ClientCapabilities.model_validate(capabilities)) == shows_forms
    assert not can_ask(None)
