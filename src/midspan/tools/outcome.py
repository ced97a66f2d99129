"""What a tool returned, as a result: sayable in JSON, of the shape it promised, no larger than a model can pay for."""

import logging
from typing import Any

import msgspec

from midspan.errors import ResultError
from midspan.schema.arguments import Checker
from midspan.schema.results import sayable
from midspan.tools.failure import failed, fitting, listed
from midspan.tools.function import Tool
from midspan.types.parts import Blob, ToolCall, ToolResult

_log = logging.getLogger("midspan.tools")


def outcome(tool: Tool[..., Any], call: ToolCall, returned: Any, notes: tuple[str, ...]) -> ToolResult:
    """The result of a call whose function returned this."""
    media: list[Blob] = []
    try:
        value, size = _sayable(returned, media)
    except ResultError as error:
        if tool.response is not None:
            return failed(call, f"invalid response: {error}")
        value = _described(returned, error)
        size, notes = len(value), (*notes, f"the result was described: {error}")
    else:
        if tool.response is not None and not media and not tool.response.accepts(value):
            return _broken_promise(tool.response, call, value, notes)
    is_final = tool.final if tool.final is False or tool.final is True else _is_final(tool, value)
    if size > tool.largest_result:
        value, notes = _cut(value, tool.largest_result, notes)
    return ToolResult(call.id, call.name, value, False, tuple(media), is_final, notes)


def _is_final(tool: Tool[..., Any], value: Any) -> bool:
    try:
        return bool(tool.final(value))  # type: ignore[operator]  # it is no bool here
    except Exception:  # noqa: BLE001 - a function of the user's
        _log.exception("whether the result of %s is final could not be said; it is not", tool.name)
        return False


def _sayable(value: Any, media: list[Blob]) -> tuple[Any, int]:
    """The value as JSON has it, and how many bytes that are; what is to be looked at or heard is put into `media`.

    What comes out of JSON equal to what went in was plain data, and most results are: msgspec finds that out much
    faster than a walk in Python. The copy also keeps the conversation apart from what the tool does with its own.
    """
    try:
        written = _encode(value)
        plain = _decode(written)
        if plain == value:
            return plain, len(written)
    except Exception:  # noqa: BLE001, S110 - comparing may run foreign code; the careful way below finds the words
        pass
    said = sayable(_without_media(value, media))
    return said, len(_encode(said))


def _broken_promise(promised: Checker, call: ToolCall, value: Any, notes: tuple[str, ...]) -> ToolResult:
    # A tool may say «error» in its result, whatever shape its successes have.
    if isinstance(value, dict) and "error" in value:
        told = value if len(_encode(value)) <= _LARGEST_ERROR else fitting(_encode(value).decode())
        return ToolResult(call.id, call.name, told, is_error=True, notes=notes)
    return failed(call, f"invalid response:{listed(map(str, promised.problems(value)))}")


def _without_media(value: Any, media: list[Blob], depth: int = 0) -> Any:
    """The value for the model to read, with a name where there was something to look at."""
    blob = _blob(value)
    if blob is not None:
        media.append(blob)
        return blob.name or blob.media_type
    if depth < _DEEPEST_MEDIA and type(value) in (list, tuple):
        items = [_without_media(item, media, depth + 1) for item in value]
        texts = [item for item, given in zip(items, value, strict=True) if _blob(given) is None]
        if len(texts) == len(items):
            return value if all(one is other for one, other in zip(items, value, strict=True)) else items
        return (texts[0] if len(texts) == 1 else texts) if texts else ", ".join(items)
    if depth < _DEEPEST_MEDIA and type(value) is dict:
        return {name: _without_media(item, media, depth + 1) for name, item in value.items()}
    return value


def _blob(value: Any) -> Blob | None:
    if isinstance(value, Blob):
        return value
    if isinstance(value, bytes | bytearray | memoryview) and (found := _media_type(bytes(value[:16]))):
        return Blob.of(bytes(value), found)
    return None


_DEEPEST_MEDIA = 4
_LARGEST_ERROR = 4_000


_SIGNS = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"%PDF-": "application/pdf",
}


def _media_type(head: bytes) -> str | None:
    if head[:4] == b"RIFF" and head[8:12] in (b"WEBP", b"WAVE"):
        return "image/webp" if head[8:12] == b"WEBP" else "audio/wav"
    return next((found for sign, found in _SIGNS.items() if head.startswith(sign)), None)


def _described(value: Any, error: ResultError) -> str:
    """Words for what JSON cannot say; an object's own words may run anything, so they are only asked for."""
    try:
        words = repr(value)[:200]
    except BaseException:  # noqa: BLE001 - foreign code, of which nothing shall escape
        words = "it cannot describe itself"
    return fitting(f"a {type(value).__name__} that cannot be shown as data ({error}): {words}")


def _cut(value: Any, largest: int, notes: tuple[str, ...]) -> tuple[Any, tuple[str, ...]]:
    """The value, or as much of it as a model shall read, with a mark where it was cut."""
    text = value if isinstance(value, str) else _encode(value).decode()
    if len(text) <= largest:
        return value, notes
    shown = f"the first {largest:,} of {len(text):,} characters"
    return f"{text[:largest]}… [cut: {shown}]", (*notes, f"the result was cut to {shown}")


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
