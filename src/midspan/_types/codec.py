"""Conversations and events of runs, to and from JSON documents with a format version.

A document is `{"midspan": 1, "kind": "messages", "value": …}`. Raw bytes from a provider are embedded and read back
unchanged. Unknown fields are ignored, and unknown kinds of events are kept (see `_types/events.py`), so a document of a
newer release can be read as long as its version is the same.
"""

from collections.abc import Callable, Iterable
from typing import Any, Literal, get_args

import msgspec
from msgspec import Raw, Struct

from midspan._types.events import RunEvent, UnknownEvent, decode_event
from midspan._types.messages import Message
from midspan.errors import CodecError

VERSION = 1

DECODERS: dict[str, Callable[[Raw], Any]] = {
    "messages": msgspec.json.Decoder(tuple[Message, ...]).decode,
    "event": decode_event,
}
"""By the kind of a document, how its value is decoded."""
_EVENTS = frozenset(get_args(RunEvent))


class _Document(Struct):
    midspan: int
    kind: str
    value: Raw


_encode = msgspec.json.Encoder().encode
_decode_document = msgspec.json.Decoder(_Document).decode


def to_json(value: RunEvent | Iterable[Message]) -> bytes:
    """Encode the messages of a conversation, or an event of a run; see `from_json`."""
    try:
        if type(value) in _EVENTS:
            stored = value.raw if type(value) is UnknownEvent else value
            return _encode({"midspan": VERSION, "kind": "event", "value": stored})
        messages = tuple(value)  # type: ignore[arg-type]  # it is not an event
        if not all(isinstance(message, Message) for message in messages):
            raise TypeError("expected messages, or an event of a run")
        return _encode({"midspan": VERSION, "kind": "messages", "value": messages})
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
        return DECODERS[kind](document.value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, TypeError) as error:
        raise CodecError(f"not a valid document of the kind {kind!r}, as to_json writes it: {error}") from error
