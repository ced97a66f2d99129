"""Tools and results of MCP as the run knows them."""

import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from mcp import types
from msgspec import Struct
from msgspec.structs import replace
from pydantic import ValidationError

from midspan._schema.arguments import SchemaValidator
from midspan._schema.jsonable import to_jsonable
from midspan._schema.tree import change_subschemas
from midspan._types.parts import Blob, Resource, Text, ToolCall, ToolResult
from midspan._types.specs import Effects, ToolSpec
from midspan._types.texts import count_noun, replace_surrogates, truncate
from midspan.errors import ConfigError, ResultError
from midspan.tools.source import bulleted

NO_OUTPUT = "Tool executed successfully with no output"
_MAX_DESCRIPTION_CHARS = 20_000
_MAX_PROBLEMS = 3
WRAPPED = "result"
"""Where a value that is not an object is: MCP 2025-11-25 allows only objects as structured content."""
ROOT_FIELDS = ("$schema", "$defs", "definitions")
"""Of a schema; `$ref` points to them from anywhere."""
_WRAPPER_FIELDS = {*ROOT_FIELDS, "type", "properties", "required", "title", "x-fastmcp-wrap-result"}
_PROTOCOL_META = "io.modelcontextprotocol/"
"""Before the metadata of the protocol itself, such as the name of the server in each result."""
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]"
)
"""Control characters, and characters that a person who reads a description does not see."""


class RemoteTool(Struct, frozen=True, eq=False):
    """A tool of a server."""

    spec: ToolSpec
    parameters: SchemaValidator
    response: SchemaValidator | None
    definition: dict[str, Any]
    """What the server declares: name, description, schemas and annotations."""
    is_wrapped: bool
    """Whether the server returns a value as `{"result": value}`."""


def remote_tool(tool: types.Tool, server: str, overrides: Mapping[str, Any]) -> RemoteTool:
    """Return a tool as a run sees it. Raises SchemaError if one of its schemas is not valid.

    Annotations are hints of the server. What the user declares in `overrides` wins.
    """
    hints = tool.annotations or types.ToolAnnotations()
    is_destructive = hints.destructive_hint if not hints.read_only_hint else None
    value_schema = _wrapped_schema(tool.output_schema or {})
    spec = ToolSpec(
        tool.name,
        _visible(tool.description or ""),
        tool.input_schema,
        tool.output_schema if value_schema is None else value_schema,
        _effects(hints, server),
        title=_visible(tool.title or hints.title or "") or None,
        read_only=hints.read_only_hint,
        destructive=is_destructive,
        open_world=hints.open_world_hint,
        needs_approval=bool(is_destructive),
    )
    parameters = SchemaValidator(tool.input_schema)  # first: it refuses a schema that is too deep
    spec = replace(spec, **{"parameters": _visible_schema(tool.input_schema), **overrides})
    return RemoteTool(
        spec,
        parameters,
        None if tool.output_schema is None else SchemaValidator(tool.output_schema, label="output"),
        tool.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"icons", "meta", "execution"}),
        value_schema is not None,
    )


def _wrapped_schema(schema: dict[str, Any]) -> dict[str, Any] | None:
    """Return the schema of the value if the schema is that of an object whose only property is a required `result`.

    The Python SDK, FastMCP and our own server declare values like this that are not objects.
    """
    properties = schema.get("properties")
    if schema.get("type") != "object" or not isinstance(properties, dict) or properties.keys() != {WRAPPED}:
        return None
    if schema.get("required") != [WRAPPED] or not schema.keys() <= _WRAPPER_FIELDS:
        return None
    value = properties[WRAPPED]
    if not isinstance(value, dict) or value.get("type") == "object":
        return None
    return {**{key: schema[key] for key in ROOT_FIELDS if key in schema}, **value}


def _effects(hints: types.ToolAnnotations, server: str) -> Effects | None:
    """A tool that reads may read everything of its server; one that says that it writes may write all of it."""
    if hints.read_only_hint:
        return Effects(reads=(f"{server}:*",), idempotent=True)
    if hints.read_only_hint is False:
        return Effects(writes=(f"{server}:*",), idempotent=bool(hints.idempotent_hint))
    return Effects(idempotent=True) if hints.idempotent_hint else None


def _visible(text: str) -> str:
    return truncate(_INVISIBLE.sub("", text), _MAX_DESCRIPTION_CHARS)


def _visible_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema with descriptions and titles as a person sees them."""
    texts = {key: schema[key] for key in ("description", "title") if isinstance(schema.get(key), str)}
    visible = {key: _INVISIBLE.sub("", text) for key, text in texts.items()}
    return change_subschemas({**schema, **visible}, _visible_schema)


def describe_invalid(error: ValueError) -> str:
    """Say what is wrong with a message of the server, which the SDK has refused."""
    if not isinstance(error, ValidationError):
        return str(error)
    problems = [f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors()[:_MAX_PROBLEMS]]
    return f"the server sent a message that is not valid: {'; '.join(problems)}"


def to_tool_result(call: ToolCall, result: types.CallToolResult, tool: RemoteTool, *, max_chars: int) -> ToolResult:
    """Return the result of a call as the run knows it."""
    content = tuple(map(_part, result.content))
    if result.is_error:
        return _error(call, content)
    try:
        value = to_jsonable(result.structured_content)  # the SDK accepts NaN
    except ResultError as error:
        return call.error_result(f"invalid response: {error}")
    if tool.response is not None:
        if value is None and "structured_content" not in result.model_fields_set:
            return call.error_result(
                "invalid response: the tool declares an output schema and returned no structured content"
            )
        if not tool.response.accepts(value):
            return call.error_result(f"invalid response:{bulleted(map(str, tool.response.problems(value)))}")
    if value is None and not content:
        value = NO_OUTPUT
    elif tool.is_wrapped:
        value = value[WRAPPED]
    content = _shortened(content, max_chars)
    if value is not None and len(encoded := msgspec.json.encode(value)) > max_chars:
        value = truncate(encoded.decode(), max_chars)
    meta = {key: item for key, item in (result.meta or {}).items() if not key.startswith(_PROTOCOL_META)}
    return ToolResult(call.id, call.name, value, False, content, meta=meta)


def _error(call: ToolCall, content: Iterable[Text | Blob | Resource]) -> ToolResult:
    texts = [part.text for part in content if not isinstance(part, Blob) and part.text]
    return call.error_result("\n".join(texts) or f"{call.name} reported an error without a message")


def _shortened(content: Iterable[Text | Blob | Resource], max_chars: int) -> tuple[Text | Blob | Resource, ...]:
    """Return the content with at most `max_chars` characters of texts, URLs and names; a note replaces the rest."""
    left, omitted = max_chars, 0
    parts: list[Text | Blob | Resource] = []
    for part in content:
        if isinstance(part, Blob):
            parts.append(part)
            continue
        left -= _label_chars(part)
        if left <= 0:
            omitted += 1
            continue
        text = part.text or ""
        parts.append(part if len(text) <= left else replace(part, text=truncate(text, left)))
        left -= len(text)
    if omitted:
        parts.append(Text(f"[{count_noun(omitted, 'part')} left out: a result has at most {max_chars:,} characters]"))
    return tuple(parts)


def _label_chars(part: Text | Resource) -> int:
    """Return the length of the fields that describe a resource."""
    labels = (part.url, part.name, part.media_type) if isinstance(part, Resource) else ()
    return sum(len(label or "") for label in labels)


def _part(block: types.ContentBlock) -> Text | Blob | Resource:
    match block:
        case types.TextContent(text=text):
            return Text(replace_surrogates(text))
        case types.ImageContent(data=data, mime_type=media_type) | types.AudioContent(data=data, mime_type=media_type):
            return _blob(data, media_type)
        case types.ResourceLink(uri=uri, name=name, mime_type=media_type):
            return Resource(str(uri), name, media_type)
        case types.EmbeddedResource(resource=types.TextResourceContents(uri=uri, mime_type=media_type, text=text)):
            return Resource(str(uri), media_type=media_type, text=replace_surrogates(text))
        case types.EmbeddedResource(resource=types.BlobResourceContents(uri=uri, mime_type=media_type, blob=data)):
            return Resource(str(uri), media_type=media_type, base64=data)
    raise AssertionError(f"unknown content {block!r:.80}")


def _blob(data: str, media_type: str) -> Blob | Text:
    try:
        return Blob.of(b64decode(data, validate=True), media_type)
    except (Base64Error, ValueError, ConfigError) as error:
        return Text(f"[{media_type[:80]} that cannot be read: {error}]")
