"""Values to and from JSON, with the version of the form they are written in.

A document is `{"midspan": 1, "kind": "messages", "value": …}`. Bytes that a provider sent are embedded as
they are and come out of a saved document unchanged.
"""

from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct

from midspan.errors import CodecError
from midspan.types.events import RunEvent
from midspan.types.exchange import ModelResponse, RequestConfig, Usage
from midspan.types.messages import History, Message
from midspan.types.specs import ToolSpec

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

_Kind = TypeVar("_Kind")


def to_json(value: Any) -> bytes:
    """The document of any value in `KINDS`; a history or any sequence of messages is written as `messages`."""
    if isinstance(value, History | list):
        value = tuple(value)
    try:
        return _encoder.encode(_Document(VERSION, _kind_of(value), value))
    except (TypeError, msgspec.MsgspecError, UnicodeEncodeError, RecursionError) as error:
        raise CodecError(f"{type(value).__name__} holds something that JSON cannot say: {error}") from error


def from_json(data: bytes | str, kind: str) -> Any:
    """The value of a document of this kind."""
    if kind not in KINDS:
        raise CodecError(f"there is no kind of document called {kind!r}; known: {', '.join(KINDS)}")
    document = _read(data, _Envelope, "a saved document")
    if document.midspan > VERSION:
        raise CodecError(
            f"written in form {document.midspan}, this version reads up to {VERSION}; install a newer Midspan"
        )
    if document.kind != kind:
        raise CodecError(f"this document holds {document.kind!r}, not {kind!r}")
    return _read(document.value, KINDS[kind], kind)


class _Document(Struct):
    midspan: int
    kind: str
    value: Any


class _Envelope(Struct):
    midspan: int
    kind: str
    value: Raw


def _kind_of(value: Any) -> str:
    if isinstance(value, tuple) and all(isinstance(one, Message) for one in value):
        return "messages"
    for kind, form in KINDS.items():
        members = getattr(form, "__args__", (form,)) if kind == "event" else (form,)
        if type(value) in members:
            return kind
    raise CodecError(f"a {type(value).__name__} has no document form; these have: {', '.join(KINDS)}")


def _read(data: Any, form: type[_Kind], what: str) -> _Kind:
    try:
        return _decoder(form).decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, TypeError) as error:
        raise CodecError(f"this is not {what}: {error}") from error


_encoder = msgspec.json.Encoder()
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


def _decoder(form: type[_Kind]) -> msgspec.json.Decoder[_Kind]:
    decoder = _decoders.get(form)
    if decoder is None:
        decoder = _decoders[form] = msgspec.json.Decoder(form)
    return decoder
