"""What an observer of a run sees, in order."""

from msgspec import Struct

from midspan.types.exchange import Citation, FinishReason, Usage
from midspan.types.messages import Message
from midspan.types.parts import ToolCall, ToolResult


class RunStart(Struct, frozen=True, gc=False, omit_defaults=True, tag="run_start"):
    run_id: str
    model: str
    messages: tuple[Message, ...]


class TurnStart(Struct, frozen=True, gc=False, omit_defaults=True, tag="turn_start"):
    turn: int


class TextDelta(Struct, frozen=True, gc=False, omit_defaults=True, tag="text_delta"):
    turn: int
    text: str


class ThoughtDelta(Struct, frozen=True, gc=False, omit_defaults=True, tag="thought_delta"):
    turn: int
    text: str


class TurnEnd(Struct, frozen=True, gc=False, omit_defaults=True, tag="turn_end"):
    turn: int
    message: Message
    finish_reason: FinishReason
    usage: Usage
    citations: tuple[Citation, ...] = ()
    requests: int = 1
    """How many it took: an answer may come in several portions."""


class TurnRetry(Struct, frozen=True, gc=False, omit_defaults=True, tag="turn_retry"):
    """The turn that just ended brought nothing to go on with, so the model is asked again."""

    turn: int
    reason: str
    message: Message | None = None
    """What the model is told, if it is told anything."""


class ToolStart(Struct, frozen=True, gc=False, omit_defaults=True, tag="tool_start"):
    turn: int
    call: ToolCall


class ToolEnd(Struct, frozen=True, gc=False, omit_defaults=True, tag="tool_end"):
    turn: int
    result: ToolResult
    duration_seconds: float


STOPPED_BY_CALLER = "cancelled"
"""The kind of fault of a run that nothing went wrong with: somebody stopped it."""


class Fault(Struct, frozen=True, gc=False, omit_defaults=True):
    """Why a run ended without an answer."""

    kind: str
    """What the exception is called; or that it was stopped."""
    message: str


class RunEnd(Struct, frozen=True, gc=False, omit_defaults=True, tag="run_end"):
    run_id: str
    text: str
    usage: Usage
    turns: int
    limit: str | None = None
    """The limit that it came to, also where that is its fault."""
    fault: Fault | None = None


RunEvent = RunStart | TurnStart | TextDelta | ThoughtDelta | TurnEnd | TurnRetry | ToolStart | ToolEnd | RunEnd
