"""What an observer of a run sees, in order."""

from msgspec import Struct

from wasat.types.exchange import FinishReason, Usage
from wasat.types.messages import Message
from wasat.types.parts import ToolCall, ToolResult


class RunStart(Struct, frozen=True, omit_defaults=True, tag="run_start"):
    run_id: str
    model: str
    messages: tuple[Message, ...]


class TurnStart(Struct, frozen=True, omit_defaults=True, tag="turn_start"):
    turn: int


class TextDelta(Struct, frozen=True, omit_defaults=True, tag="text_delta"):
    turn: int
    text: str


class ThoughtDelta(Struct, frozen=True, omit_defaults=True, tag="thought_delta"):
    turn: int
    text: str


class TurnEnd(Struct, frozen=True, omit_defaults=True, tag="turn_end"):
    turn: int
    message: Message
    finish: FinishReason
    usage: Usage


class ToolStart(Struct, frozen=True, omit_defaults=True, tag="tool_start"):
    turn: int
    call: ToolCall


class ToolEnd(Struct, frozen=True, omit_defaults=True, tag="tool_end"):
    turn: int
    result: ToolResult
    duration_seconds: float


class RunEnd(Struct, frozen=True, omit_defaults=True, tag="run_end"):
    run_id: str
    text: str
    usage: Usage
    turns: int


RunEvent = RunStart | TurnStart | TextDelta | ThoughtDelta | TurnEnd | ToolStart | ToolEnd | RunEnd
