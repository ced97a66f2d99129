"""What a tool returned, as a result: sayable in JSON, of the shape it promised, no larger than a model can pay for."""

from collections.abc import Sequence
from typing import Any

import msgspec

from wasat.errors import ResultError
from wasat.schema.arguments import Checker
from wasat.schema.results import sayable
from wasat.tools.function import Tool
from wasat.types.parts import Blob, ToolCall, ToolResult


def outcome(tool: Tool[..., Any], call: ToolCall, returned: Any, notes: tuple[str, ...]) -> ToolResult:
    """The result of a call whose function returned this."""
    value, media = (returned, ()) if type(returned) in _NO_MEDIA else _without_media(returned)
    try:
        value, size = _sayable(value)
    except ResultError as error:
        value, notes = _described(value, error), (*notes, f"the result was described: {error}")
        size = len(value)
    else:
        if tool.response is not None and not media and not tool.response.accepts(value):
            return _broken_promise(tool.response, call, value, notes)
    if size > tool.largest_result:
        value, notes = _cut(value, tool.largest_result, notes)
    is_final = tool.final if tool.final is False or tool.final is True else bool(tool.final(value))
    return ToolResult(call.id, call.name, value, False, media, is_final, notes)


def _sayable(value: Any) -> tuple[Any, int]:
    """The value as JSON has it, and how many bytes that are.

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
    said = sayable(value)
    return said, len(_encode(said))


def _broken_promise(promised: Checker, call: ToolCall, value: Any, notes: tuple[str, ...]) -> ToolResult:
    # A tool may say «error» in its result, whatever shape its successes have.
    told = isinstance(value, dict) and "error" in value
    words = value if told else f"invalid response: {'; '.join(map(str, promised.problems(value)))}"
    return ToolResult(call.id, call.name, words, is_error=True, notes=notes)


_NO_MEDIA = frozenset((dict, str, int, float, bool, type(None)))


def _without_media(returned: Any) -> tuple[Any, tuple[Blob, ...]]:
    """The value for the model to read, and what it shall look at or hear."""
    if isinstance(returned, Blob):
        return _named((returned,)), (returned,)
    if isinstance(returned, bytes | bytearray) and (found := _media_type(bytes(returned[:16]))):
        blob = Blob.of(bytes(returned), found)
        return _named((blob,)), (blob,)
    if type(returned) in (list, tuple) and any(isinstance(one, Blob) for one in returned):
        media = tuple(one for one in returned if isinstance(one, Blob))
        rest = [one for one in returned if not isinstance(one, Blob)]
        return (rest[0] if len(rest) == 1 else rest) if rest else _named(media), media
    return returned, ()


def _named(media: Sequence[Blob]) -> str:
    return ", ".join(blob.name or blob.media_type for blob in media)


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
    except Exception:  # noqa: BLE001 - foreign code
        words = "it cannot describe itself"
    return f"a {type(value).__name__} that cannot be shown as data ({error}): {words}"


def _cut(value: Any, largest: int, notes: tuple[str, ...]) -> tuple[Any, tuple[str, ...]]:
    """The value, or as much of it as a model shall read, with a mark where it was cut."""
    text = value if isinstance(value, str) else _encode(value).decode()
    if len(text) <= largest:
        return value, notes
    shown = f"the first {largest:,} of {len(text):,} characters"
    return f"{text[:largest]}… [cut: {shown}]", (*notes, f"the result was cut to {shown}")


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
