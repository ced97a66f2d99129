"""What goes to a model and what comes back."""

from enum import StrEnum
from functools import cached_property
from typing import Any

from msgspec import Raw, Struct

from midspan.types.messages import History, Message
from midspan.types.specs import AnyTool, BuiltinTool, ModelSettings, ToolChoice


class Output(Struct, frozen=True, gc=False, omit_defaults=True):
    """The answer shall be JSON; of this JSON Schema, if there is one."""

    json_schema: dict[str, Any] | None = None


class Setup(Struct, frozen=True, omit_defaults=True, dict=True):
    """What stays the same from turn to turn. Encoders keep what they made of it beside it, so it is made once."""

    model: str
    system: str | None = None
    tools: tuple[AnyTool, ...] = ()
    tool_choice: ToolChoice | None = None
    settings: ModelSettings = ModelSettings()
    output: Output | None = None
    cache: str | None = None
    """The name of a provider-side cache that already holds system and tools."""

    @cached_property
    def has_builtins(self) -> bool:
        """Whether one of the tools is the provider's own."""
        return any(type(tool) is BuiltinTool for tool in self.tools)


class Room(Struct, frozen=True, gc=False):
    """How far an answer may go that comes in several portions, each by a request of its own; None is no limit."""

    requests: int | None = None
    tokens: int | None = None


class ModelRequest(Struct, frozen=True, gc=False):
    """One question to a model."""

    setup: Setup
    history: History
    continuation: str | None = None
    """The token with which the provider said that its answer goes on."""
    room: Room = Room()


class FinishReason(StrEnum):
    """Why the model stopped, in words that fit every provider; `ModelResponse.finish_word` is the provider's own."""

    END = "end"
    LENGTH = "length"
    BLOCKED = "blocked"
    MALFORMED_CALL = "malformed_call"
    UNEXPECTED_CALL = "unexpected_call"
    CONTINUES = "continues"
    CUT = "cut"
    """The stream ended and nobody said why."""
    OTHER = "other"


class Usage(Struct, frozen=True, gc=False, omit_defaults=True):
    """Tokens. `output` is without `thoughts`, `cached` is part of `input`."""

    input: int = 0
    output: int = 0
    thoughts: int = 0
    cached: int = 0
    tools: int = 0
    """What the provider's own tools put into the prompt."""
    total: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.thoughts + other.thoughts,
            self.cached + other.cached,
            self.tools + other.tools,
            self.total + other.total,
        )


class Source(Struct, frozen=True, gc=False, omit_defaults=True):
    """Something that an answer rests on."""

    url: str
    title: str = ""


class ModelResponse(Struct, frozen=True, gc=False, omit_defaults=True):
    """One answer of a model."""

    message: Message
    finish: FinishReason
    finish_word: str | None = None
    finish_message: str | None = None
    usage: Usage = Usage()
    model: str | None = None
    id: str | None = None
    continuation: str | None = None
    raw: tuple[Raw, ...] = ()
    """Everything the provider sent, one document for each chunk of a stream."""
    sources: tuple[Source, ...] = ()
    """What the provider's own tools found for it."""
    requests: int = 1
    """How many it took."""
