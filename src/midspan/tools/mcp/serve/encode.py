"""Tools and results as MCP writes them. Nothing here knows sessions, transports or running calls."""

import logging
from typing import Any

import mcp_types
import msgspec

from midspan._schema.arguments import SchemaValidator
from midspan._types.parts import Blob, Resource, Text, ToolCall, ToolResult
from midspan._types.specs import ToolSpec
from midspan.errors import SchemaError
from midspan.tools.mcp.conversion import ROOT_FIELDS, WRAPPED
from midspan.tools.source import bulleted

_log = logging.getLogger("midspan.tools")

_CONTENT_TAGS = (["blob"], ["text"], ["resource"])
"""The tags of `Blob`, `Text` and `Resource` in the schema of a function that returns them."""


class ServedTool:
    """A tool as clients see it, with the validators of its arguments and of its results."""

    def __init__(self, spec: ToolSpec, *, validates: bool) -> None:
        """`validates=False` is for tools whose source validates the arguments itself."""
        self.spec = spec
        response = None if _may_be_content(spec.response) else spec.response
        self.wraps = response is not None and response.get("type") != "object"
        self.declaration = mcp_types.Tool(
            name=spec.name,
            title=spec.title,
            description=spec.description,
            input_schema=_object_schema(spec.parameters),
            output_schema=_wrapped(response) if self.wraps and response is not None else response,
            annotations=_annotations(spec),
        )
        self._arguments = _validator(spec, spec.parameters, "parameters") if validates else None
        self._response = _validator(spec, response, "response")

    def validate(self, call: ToolCall) -> ToolCall | ToolResult:
        """Return the call with valid arguments, or the error result that says what is wrong with them."""
        if self._arguments is None:
            return call
        validated = self._arguments.validate(call.arguments)
        if validated.problems:
            return call.error_result(f"invalid parameters:{bulleted(map(str, validated.problems))}")
        return msgspec.structs.replace(call, arguments=validated.arguments)

    def encode(self, result: ToolResult) -> mcp_types.CallToolResult:
        """Return a result for a client.

        MCP demands that a result has the declared form or is an error. A value that does not have it is therefore sent
        as text in an error result, with what is wrong: what the tool did must not be hidden.
        """
        content = _contents(result)
        if result.is_error:
            return mcp_types.CallToolResult(content=content, is_error=True)
        if self._response is not None and (problems := self._response.problems(result.value)):
            text = f"The tool ran, but its result does not match its output schema:{bulleted(map(str, problems))}"
            return mcp_types.CallToolResult(content=[*content, _text(text)], is_error=True)
        if result.hint:
            content.append(_text(result.hint))
        return mcp_types.CallToolResult(content=content, structured_content=self._structured(result.value))

    def _structured(self, value: Any) -> Any:
        if self.declaration.output_schema is None:
            return value if isinstance(value, dict) else None
        return {WRAPPED: value} if self.wraps else value


def _object_schema(schema: dict[str, Any] | None) -> dict[str, Any]:
    if not schema:
        return {"type": "object", "properties": {}}
    return schema if schema.get("type") == "object" else {"type": "object", **schema}


def _may_be_content(schema: Any) -> bool:
    """Whether values of a schema may hold texts, images or files, which are sent as content and not in the value."""
    if isinstance(schema, list):
        return any(map(_may_be_content, schema))
    if not isinstance(schema, dict):
        return False
    if schema.get("type") == "array" and schema.get("items", {}) in ({}, True) and "prefixItems" not in schema:
        return True
    tag = (schema.get("properties") or {}).get("type")
    return (isinstance(tag, dict) and tag.get("enum") in _CONTENT_TAGS) or any(map(_may_be_content, schema.values()))


def _wrapped(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object with a value of this schema. Definitions stay at the root, where `$ref` points."""
    inner = dict(schema)
    root: dict[str, Any] = {key: inner.pop(key) for key in ROOT_FIELDS if key in inner}
    return {**root, "type": "object", "properties": {WRAPPED: inner}, "required": [WRAPPED]}


def _annotations(spec: ToolSpec) -> mcp_types.ToolAnnotations | None:
    """Return what the effects of a tool mean in the words of MCP, whose clients ask before destructive calls only."""
    changes = None if spec.needs_approval and spec.changes is False else spec.changes
    hints: dict[str, bool | None] = {
        "read_only_hint": None if changes is None else not changes,
        "destructive_hint": True if spec.needs_approval else spec.destructive,
        "idempotent_hint": True if spec.effects is not None and spec.effects.idempotent else None,
        "open_world_hint": spec.open_world,
    }
    if all(hint is None for hint in hints.values()):
        return None
    return mcp_types.ToolAnnotations(**hints)  # type: ignore[arg-type]  # title is not among them


def _validator(spec: ToolSpec, schema: dict[str, Any] | None, label: str) -> SchemaValidator | None:
    if not schema:
        return None
    try:
        return SchemaValidator(schema, label=label)
    except SchemaError as error:
        _log.warning("the %s of tool %s are not validated: %s", label, spec.name, error)
        return None


def _contents(result: ToolResult) -> list[mcp_types.ContentBlock]:
    """Return the content in the order of the tool; before media without any text comes the value as text."""
    blocks = [_content(part, index) for index, part in enumerate(result.content)]
    has_text = any(not isinstance(part, Blob) for part in result.content)
    return blocks if has_text or result.value is None else [_text(_as_text(result.value)), *blocks]


def _content(part: Text | Blob | Resource, index: int) -> mcp_types.ContentBlock:
    if isinstance(part, Text):
        return _text(part.text)
    if isinstance(part, Resource):
        return _resource(part)
    if part.base64 is None:
        url = part.url or ""
        return mcp_types.ResourceLink(uri=url, name=part.name or url, mime_type=part.media_type)
    if part.media_type.startswith("image/"):
        return mcp_types.ImageContent(data=part.base64, mime_type=part.media_type)
    if part.media_type.startswith("audio/"):
        return mcp_types.AudioContent(data=part.base64, mime_type=part.media_type)
    file = Resource(f"attachment:{part.name or index}", media_type=part.media_type, base64=part.base64)
    return _resource(file)


def _resource(part: Resource) -> mcp_types.ContentBlock:
    contents: mcp_types.TextResourceContents | mcp_types.BlobResourceContents
    if part.text is not None:
        contents = mcp_types.TextResourceContents(uri=part.url, mime_type=part.media_type, text=part.text)
    elif part.base64 is not None:
        contents = mcp_types.BlobResourceContents(uri=part.url, mime_type=part.media_type, blob=part.base64)
    else:
        return mcp_types.ResourceLink(uri=part.url, name=part.name or part.url, mime_type=part.media_type)
    return mcp_types.EmbeddedResource(resource=contents)


def _text(text: str) -> mcp_types.TextContent:
    return mcp_types.TextContent(text=text)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
