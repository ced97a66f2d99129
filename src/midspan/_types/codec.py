"""Conversations and events of runs, to and from JSON documents with a format version.

A document is `{"midspan": 1, "kind": "messages", "value": …}`. Raw bytes from a provider are embedded and read back
unchanged. Unknown fields are ignored, and unknown kinds of events are kept (see `_types/events.py`), so a document of a
newer release can be read as long as its version is the same.
"""

from collections.abc import Iterable
from typing import Any, Literal, get_args

import msgspec
from msgspec import Raw, Struct

from midspan._types.events import RunEvent, RunStart, TurnEnd, UnknownEvent, decode_event
from midspan._types.messages import Message
from midspan._types.parts import ToolCall, ToolResult
from midspan.errors import CodecError

VERSION = 1

_EVENTS = frozenset(get_args(RunEvent))


class _Document(Struct):
    midspan: int
    kind: str
    value: Raw


_encode = msgspec.json.Encoder().encode
_decode_document = msgspec.json.Decoder(_Document).decode
_decode_messages = msgspec.json.Decoder(tuple[Message, ...]).decode


def to_json(value: RunEvent | Iterable[Message]) -> bytes:
    """Encode the messages of a conversation, or an event of a run; see `from_json`."""
    kind = "event" if type(value) in _EVENTS else "messages"
    stored: Any = value
    messages: tuple[Message, ...] = ()
    try:
        if type(value) is UnknownEvent:
            stored = value.raw
        elif type(value) is TurnEnd:
            messages = (value.message,)
        elif type(value) is RunStart:
            messages = value.messages
        elif kind == "messages":
            stored = messages = tuple(value)  # type: ignore[arg-type]  # it is not an event
        for message in messages:
            if not isinstance(message, Message):
                raise TypeError("expected messages, or an event of a run")
            for part in message.parts:  # an id that is not a string would be written, but no decoder would read it
                if (type(part) is ToolCall or type(part) is ToolResult) and not isinstance(part.id, str):
                    name = type(part).__name__
                    raise TypeError(f"the id of a {name} of {part.name!r} must be a string, got {part.id!r}")
        return _encode({"midspan": VERSION, "kind": kind, "value": stored})
    except (TypeError, msgspec.MsgspecError, UnicodeEncodeError, RecursionError) as error:
        raise CodecError(f"{type(value).__name__} is not JSON serializable: {error}") from error


def from_json(data: bytes | str, kind: Literal["messages", "event"]) -> Any:
    """Decode a document of this kind, as `to_json` writes it.

    The kinds are `messages` (a tuple of Message) and `event` (one of the events of a run).
    """
    try:
        document = _decode_document(data)
        if document.midspan > VERSION:
            raise CodecError(
                f"this document has format version {document.midspan}, but this release reads up to version {VERSION}; "
                "install a newer Midspan"
            )
        if document.kind != kind:
            raise CodecError(f"this document contains {document.kind!r}, not {kind!r}")
        return decode_event(document.value) if kind == "event" else _decode_messages(document.value)
    except (msgspec.DecodeError, UnicodeError, RecursionError, TypeError) as error:
        raise CodecError(f"not a valid document of the kind {kind!r}, as to_json writes it: {error}") from error
