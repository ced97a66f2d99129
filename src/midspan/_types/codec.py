"""Values to and from JSON documents with a format version.

A document is `{"midspan": 1, "kind": "messages", "value": …}`. Raw bytes from a provider are embedded and read back
unchanged. Unknown fields are ignored, and unknown kinds of events are kept (see `types/events.py`), so a document of a
newer release can be read as long as its version is the same.
"""

from collections.abc import Callable
from typing import Any, TypeVar, get_args

import msgspec
from msgspec import Raw, Struct

from midspan._types.events import RunEvent, UnknownEvent, decode_event
from midspan._types.exchange import ModelResponse, RequestConfig, Usage
from midspan._types.messages import History, Message
from midspan._types.specs import ToolSpec
from midspan._types.texts import with_article
from midspan.errors import CodecError

VERSION = 1

KINDS: dict[str, Any] = {
    "messages": tuple[Message, ...],
    "message": Message,
    "response": ModelResponse,
    "request_config": RequestConfig,
    "tool": ToolSpec,
    "event": RunEvent,
    "usage": Usage,
}
_KIND_BY_TYPE = dict.fromkeys(get_args(RunEvent), "event") | {
    form: kind for kind, form in KINDS.items() if isinstance(form, type)
}

_Value = TypeVar("_Value")


def to_json(value: Any) -> bytes:
    """Encode a message, a response, a request's config, the spec of a tool, an event of a run, or usage.

    A History, or a list or tuple of messages, becomes a document of the kind `messages`; see `from_json`.
    """
    if isinstance(value, History | list):
        value = tuple(value)
    kind = _kind_of(value)
    if type(value) is UnknownEvent:
        value = value.raw
    try:
        return _encoder.encode(_Document(VERSION, kind, value))
    except (TypeError, msgspec.MsgspecError, UnicodeEncodeError, RecursionError) as error:
        raise CodecError(f"{type(value).__name__} is not JSON serializable: {error}") from error


def from_json(data: bytes | str, kind: str) -> Any:
    """Decode a document of this kind, as `to_json` writes it.

    The kinds are `messages` (a tuple of Message), `message` (Message), `response` (ModelResponse), `request_config`
    (RequestConfig), `tool` (ToolSpec), `event` (one of the events of a run) and `usage` (Usage).
    """
    if kind not in KINDS:
        raise CodecError(f"unknown kind of document {kind!r}; known kinds: {', '.join(KINDS)}")
    try:
        document = _read(data, _decode_envelope, "document")
    except CodecError as error:
        if isinstance(error.__cause__, msgspec.ValidationError):  # it is JSON
            raise CodecError("not a valid document: this was not written by to_json") from error.__cause__
        raise
    if document.midspan > VERSION:
        raise CodecError(
            f"this document has format version {document.midspan}, but this release reads up to version {VERSION}; "
            "install a newer Midspan"
        )
    if document.kind != kind:
        raise CodecError(f"this document contains {document.kind!r}, not {kind!r}")
    return _read(document.value, _decoder(kind), kind)


class _Document(Struct):
    midspan: int
    kind: str
    value: Any


class _Envelope(Struct):
    midspan: int
    kind: str
    value: Raw


def _kind_of(value: Any) -> str:
    kind = _KIND_BY_TYPE.get(type(value))
    if kind is not None:
        return kind
    if isinstance(value, tuple) and all(isinstance(item, Message) for item in value):
        return "messages"
    raise CodecError(f"cannot encode {with_article(type(value).__name__)}; expected one of: {', '.join(KINDS)}")


def _read(data: Any, decode: Callable[[Any], _Value], what: str) -> _Value:
    try:
        return decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, TypeError) as error:
        raise CodecError(f"not a valid {what}: {error}") from error


_encoder = msgspec.json.Encoder()
_decode_envelope = msgspec.json.Decoder(_Envelope).decode
_decoders: dict[str, Callable[[Any], Any]] = {"event": decode_event}


def _decoder(kind: str) -> Callable[[Any], Any]:
    decode = _decoders.get(kind)
    if decode is None:
        decode = _decoders[kind] = msgspec.json.Decoder(KINDS[kind]).decode
    return decode
