"""The events of a run, in order: their stored form, and the public form made from it.

Journals store `RunEvent`. Browsers and command lines get `public_event(event)`, which leaves out provider data.

A new event kind or a new optional field does not change the version of the stored form: an older process reads an
unknown kind as `UnknownEvent` and ignores an unknown field.
"""

from collections.abc import Mapping
from typing import Any, get_args

import msgspec
from msgspec import Raw, Struct

from midspan._types.exchange import Citation, FinishReason, Usage
from midspan._types.messages import Message
from midspan._types.parts import ToolCall, ToolResult
from midspan._types.specs import ToolChoice

CANCELLED = "cancelled"
"""The `ErrorInfo.kind` of a run that was cancelled."""


class RunStart(Struct, frozen=True, gc=False, omit_defaults=True, tag="run_start"):
    run_id: str
    model: str
    messages: tuple[Message, ...]


class TurnStart(Struct, frozen=True, gc=False, omit_defaults=True, tag="turn_start"):
    turn: int
    answer_only: bool = False
    """The model cannot make calls in this turn, so its text is the answer."""
    tool_choice: ToolChoice | None = None
    """The tool choice of the request."""
    tools_withdrawn: bool = False
    """The model may only answer, because a limit was reached. Only a call that gives the answer is allowed."""
    limit: str | None = None
    """The limit that was reached."""


class TextDelta(Struct, frozen=True, gc=False, omit_defaults=True, tag="text_delta"):
    turn: int
    text: str


class ThoughtDelta(Struct, frozen=True, gc=False, omit_defaults=True, tag="thought_delta"):
    turn: int
    text: str


class ToolCallDelta(Struct, frozen=True, gc=False, omit_defaults=True, tag="tool_call_delta"):
    """A fragment of a call while the model writes it. The complete call is in `TurnEnd` and `ToolStart`."""

    turn: int
    index: int
    """The position of the call in the turn."""
    arguments: str
    """The next piece of the arguments as JSON text."""
    call_id: str | None = None
    name: str | None = None


class TurnEnd(Struct, frozen=True, gc=False, omit_defaults=True, tag="turn_end"):
    turn: int
    message: Message
    finish_reason: FinishReason
    usage: Usage
    citations: tuple[Citation, ...] = ()
    requests: int = 1
    """How many requests the turn took. An answer may come in several parts."""


class TurnRetry(Struct, frozen=True, gc=False, omit_defaults=True, tag="turn_retry"):
    """The last turn had no usable answer, so the model is asked again."""

    turn: int
    reason: str
    message: Message | None = None
    """The message to the model, if there is one."""


class RequestRetry(Struct, frozen=True, gc=False, omit_defaults=True, tag="request_retry"):
    """A request to the model failed and is sent again after a wait."""

    turn: int
    attempt: int
    """The number of the attempt that failed, from 1."""
    wait_seconds: float
    status: int | None = None
    """The HTTP status of the failed attempt, if there was a response."""
    message: str = ""
    model: str | None = None
    """The model that gets the request, if it is another one than before."""


class ToolStart(Struct, frozen=True, gc=False, omit_defaults=True, tag="tool_start"):
    turn: int
    call: ToolCall
    index: int = 0
    """The position of the call in the turn. Two calls may share an id, but not an index."""
    may_write: bool = True
    """The tool is not declared read-only. A journaled run stores this event before it runs the call."""
    has_more: bool = False
    """Another ToolStart follows before any of these calls runs, so that a journal can store them together."""


class ToolProgress(Struct, frozen=True, gc=False, omit_defaults=True, tag="tool_progress"):
    """A running tool reports its progress."""

    turn: int
    call_id: str
    index: int = 0
    fraction: float | None = None
    """From 0 to 1, if the tool knows."""
    message: str | None = None


class ToolEnd(Struct, frozen=True, gc=False, omit_defaults=True, tag="tool_end"):
    turn: int
    result: ToolResult
    duration_seconds: float
    index: int = 0
    """The position of the call in the turn, as in its ToolStart."""


class SourceUnavailable(Struct, frozen=True, gc=False, omit_defaults=True, tag="source_unavailable"):
    """The tools of a source could not be listed, so the run continues without them."""

    source: str
    message: str


class ErrorInfo(Struct, frozen=True, gc=False, omit_defaults=True):
    """Why a run ended without an answer: the stored form of an exception."""

    kind: str
    """The name of the exception class, or CANCELLED."""
    message: str


class Interrupted(Struct, frozen=True, gc=False, omit_defaults=True, tag="interrupted"):
    """The last event of a run whose process ended before the run did, as `interrupt_unfinished` stores it."""

    message: str = ""


class RunEnd(Struct, frozen=True, gc=False, omit_defaults=True, tag="run_end"):
    run_id: str
    text: str
    usage: Usage
    turns: int
    limit: str | None = None
    """The limit that the run reached, even if the limit is its error."""
    error: ErrorInfo | None = None


class UnknownEvent(Struct, frozen=True, gc=False):
    """An event of a kind that this version does not know. It is stored again exactly as it was read."""

    tag: str
    raw: Raw


_TurnEvent = TurnStart | TextDelta | ThoughtDelta | ToolCallDelta | TurnEnd | TurnRetry | RequestRetry
_ToolEvent = ToolStart | ToolProgress | ToolEnd
KnownEvent = RunStart | _TurnEvent | _ToolEvent | SourceUnavailable | Interrupted | RunEnd
RunEvent = KnownEvent | UnknownEvent


class _Tagged(Struct):
    type: str


_known: msgspec.json.Decoder[KnownEvent] = msgspec.json.Decoder(KnownEvent)
_KNOWN_TAGS = frozenset(event_type.__struct_config__.tag for event_type in get_args(KnownEvent))


def decode_event(data: bytes | Raw) -> RunEvent:
    """Decode the stored form of an event. Raises msgspec.DecodeError if it is not one."""
    try:
        return _known.decode(data)
    except msgspec.ValidationError:
        tag = msgspec.json.decode(data, type=_Tagged).type
        if tag in _KNOWN_TAGS:
            raise
        return UnknownEvent(tag, Raw(bytes(data)))


PublicEvent = Mapping[str, Any]
"""JSON-compatible data: `type` and the public fields."""

_PUBLIC_NAMES = """
    answer_only attempt call call_id citations duration_seconds error finish_reason fraction index kind limit may_write
    message messages model reason requests result run_id source status text tool_choice tools_withdrawn turn
    turns usage wait_seconds
    arguments arguments_error base64 content hint id is_error is_final media_type name notes parts role url value
    cache_write cached input output thoughts tools
    end quote start title
    mode names parallel strict
"""
_PUBLIC_FIELDS = frozenset(_PUBLIC_NAMES.split())
"""Fields that leave the process. Fields that are not listed, such as raw bytes and provider data, never do."""


def public_event(event: RunEvent) -> PublicEvent:
    """Convert an event to the form for browsers, command lines and logs, without raw bytes and provider data."""
    return {"type": event.tag} if type(event) is UnknownEvent else _public(event)


def _public(value: Any) -> Any:
    if isinstance(value, Struct):
        tag = value.__struct_config__.tag
        fields = {name: _public(getattr(value, name)) for name in value.__struct_fields__ if name in _PUBLIC_FIELDS}
        return fields if tag is None else {"type": tag, **fields}
    if isinstance(value, tuple):
        return [_public(item) for item in value]
    return msgspec.to_builtins(value)
