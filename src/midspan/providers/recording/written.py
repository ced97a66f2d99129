"""A line to and from bytes without a line break in them, and every byte that a provider sent as it was."""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from midspan._types.exchange import DataPartDelta, PartDelta, PartEnd, PartEvent, PartStart
from midspan._types.messages import Message
from midspan._types.parts import Part, ProviderData, ToolResult
from midspan.errors import CodecError
from midspan.providers.recording.lines import Answered, Asked, Began, Called, Ended, Line, Streamed

Change = Callable[[Raw], Raw]


def written(line: Line) -> bytes:
    """The line as JSON."""
    return written_value(_changed(line, _on_one_line))


def read(data: bytes) -> Line:
    """The line that was written."""
    return _changed(_decode(data), as_it_was)


def written_value(value: Any) -> bytes:
    try:
        return _encode(value)
    except (TypeError, msgspec.MsgspecError, UnicodeEncodeError, RecursionError) as error:
        raise CodecError(f"a recording cannot hold what JSON cannot say: {error}") from error


def written_messages(messages: tuple[Message, ...]) -> Raw:
    """A conversation as JSON on one line."""
    return Raw(written_value([_message(one, _on_one_line) for one in messages]))


def as_it_was(raw: Raw) -> Raw:
    """The bytes as the provider sent them."""
    data = bytes(raw)
    return Raw(msgspec.json.decode(data, type=str).encode()) if data[:1] == b'"' else raw


def _on_one_line(raw: Raw) -> Raw:
    """The bytes themselves if they fit into a line, or else a text of them.

    Gemini indents what it does not stream. A document that is itself a text is put into another one too, so that the
    two can be told apart.
    """
    data = bytes(raw)
    if b"\n" in data or b"\r" in data or data != data.strip() or data[:1] == b'"':
        return Raw(_encode(data.decode()))
    return raw


def _changed(line: Line, change: Change) -> Line:
    match line:
        case Began():
            return replace(line, messages=tuple(_message(one, change) for one in line.messages))
        case Asked():
            return replace(line, request=change(line.request))
        case Streamed():
            return replace(line, event=_event(line.event, change))
        case Called():
            result = None if line.result is None else _part(line.result, change)
            return replace(line, call=_part(line.call, change), result=result)
        case Ended():
            return replace(line, calls=tuple([_part(call, change) for call in line.calls]))
        case Answered():
            response = line.response
            message, raw = _message(response.message, change), tuple(map(change, response.raw))
            return replace(line, response=replace(response, message=message, raw=raw))
    return line


def _event(event: PartEvent, change: Change) -> PartEvent:
    match event:
        case PartDelta(delta=DataPartDelta(provider_data=ProviderData() as data) as delta):
            return replace(event, delta=replace(delta, provider_data=_data(data, change)))
        case PartStart(part=part) | PartEnd(part=part) if part is not None:
            return replace(event, part=_part(part, change))
    return event


def _message(message: Message, change: Change) -> Message:
    parts = tuple([_part(part, change) for part in message.parts])
    return replace(message, parts=parts, provider_data=_data(message.provider_data, change))


def _part(part: Part, change: Change) -> Any:
    if isinstance(part, ToolResult) and part.media:
        part = replace(part, media=tuple([_part(blob, change) for blob in part.media]))
    return part if part.provider_data is None else replace(part, provider_data=_data(part.provider_data, change))


def _data(data: ProviderData | None, change: Change) -> ProviderData | None:
    return data if data is None or not data.raw else ProviderData(data.origin, change(data.raw))


_encode = msgspec.json.Encoder().encode
_decode: Callable[[bytes], Line] = msgspec.json.Decoder(Line).decode
