"""Turn what a tool returned into a result: JSON data that matches the response schema and is not too large."""

import logging
from typing import Any

import msgspec

from midspan._schema.arguments import SchemaValidator
from midspan._schema.jsonable import to_jsonable
from midspan._types.parts import Blob, ToolCall, ToolResult
from midspan.errors import ResultError
from midspan.tools.error_results import bulleted, failed, truncate
from midspan.tools.function import Tool

_log = logging.getLogger("midspan.tools")


def to_tool_result(tool: Tool[..., Any], call: ToolCall, returned: Any, notes: tuple[str, ...]) -> ToolResult:
    """Return the result of a call whose function returned `returned`."""
    media: list[Blob] = []
    try:
        value, size = _to_json(returned, media)
    except ResultError as error:
        if tool.response is not None:
            return failed(call, f"invalid response: {error}")
        value = _describe(returned, error)
        size, notes = len(value), (*notes, f"the result was described: {error}")
    else:
        if tool.response is not None and not media and not tool.response.accepts(value):
            return _invalid_response(tool.response, call, value, notes)
    is_final = tool.final if tool.final is False or tool.final is True else _is_final(tool, value)
    if size > tool.max_result_chars:
        value, notes = _cut(value, tool.max_result_chars, notes)
    return ToolResult(call.id, call.name, value, False, tuple(media), is_final, notes)


def _is_final(tool: Tool[..., Any], value: Any) -> bool:
    try:
        return bool(tool.final(value))  # type: ignore[operator]  # not a bool here
    except Exception:  # noqa: BLE001 - user code
        _log.exception("final= of tool %s raised; treating the result as not final", tool.name)
        return False


def _to_json(value: Any, media: list[Blob]) -> tuple[Any, int]:
    """Convert a tool's return value to JSON data and its encoded size. Images and audio are moved into `media`.

    A value that survives encoding and decoding unchanged is plain data, as most are; msgspec finds that out much faster
    than a walk in Python. The decoded copy also keeps later changes by the tool out of the conversation.
    """
    try:
        encoded = _encode(value)
        data = _decode(encoded)
        if data == value:
            return data, len(encoded)
    except Exception:  # noqa: BLE001, S110 - comparing may run user code; the slow path below reports what is wrong
        pass
    data = to_jsonable(_extract_media(value, media))
    return data, len(_encode(data))


def _invalid_response(schema: SchemaValidator, call: ToolCall, value: Any, notes: tuple[str, ...]) -> ToolResult:
    # A tool may report an error in its result, whatever schema its successes have.
    if isinstance(value, dict) and "error" in value:
        shown = value if len(_encode(value)) <= _MAX_ERROR_BYTES else truncate(_encode(value).decode())
        return ToolResult(call.id, call.name, shown, is_error=True, notes=notes)
    return failed(call, f"invalid response:{bulleted(map(str, schema.problems(value)))}")


def _extract_media(value: Any, media: list[Blob], depth: int = 0) -> Any:
    """Return the value with a name in place of each image or other medium, which is appended to `media`."""
    blob = _to_blob(value)
    if blob is not None:
        media.append(blob)
        return blob.name or blob.media_type
    if depth < _MAX_MEDIA_DEPTH and type(value) in (list, tuple):
        items = [_extract_media(item, media, depth + 1) for item in value]
        texts = [item for item, original in zip(items, value, strict=True) if _to_blob(original) is None]
        if len(texts) == len(items):
            return value if all(item is original for item, original in zip(items, value, strict=True)) else items
        return (texts[0] if len(texts) == 1 else texts) if texts else ", ".join(items)
    if depth < _MAX_MEDIA_DEPTH and type(value) is dict:
        return {name: _extract_media(item, media, depth + 1) for name, item in value.items()}
    return value


def _to_blob(value: Any) -> Blob | None:
    if isinstance(value, Blob):
        return value
    if isinstance(value, bytes | bytearray | memoryview) and (media_type := _media_type(bytes(value[:16]))):
        return Blob.of(bytes(value), media_type)
    return None


_MAX_MEDIA_DEPTH = 4
_MAX_ERROR_BYTES = 4_000

_SIGNATURES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"%PDF-": "application/pdf",
}


def _media_type(head: bytes) -> str | None:
    if head[:4] == b"RIFF" and head[8:12] in (b"WEBP", b"WAVE"):
        return "image/webp" if head[8:12] == b"WEBP" else "audio/wav"
    return next((media_type for signature, media_type in _SIGNATURES.items() if head.startswith(signature)), None)


def _describe(value: Any, error: ResultError) -> str:
    """Describe a value that is not JSON serializable."""
    try:
        text = repr(value)[:200]
    except BaseException:  # noqa: BLE001 - __repr__ is user code, and nothing of it may escape
        text = "its repr() failed"
    return truncate(f"a {type(value).__name__} that cannot be shown as data ({error}): {text}")


def _cut(value: Any, max_chars: int, notes: tuple[str, ...]) -> tuple[Any, tuple[str, ...]]:
    """Return the value, or as much of it as the model shall read, with a mark where it was cut."""
    text = value if isinstance(value, str) else _encode(value).decode()
    if len(text) <= max_chars:
        return value, notes
    shown = f"the first {max_chars:,} of {len(text):,} characters"
    return f"{text[:max_chars]}… [cut: {shown}]", (*notes, f"the result was cut to {shown}")


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
