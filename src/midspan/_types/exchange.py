"""Requests to a model, and what a provider sends back: the events of a stream, and the whole response."""

from collections.abc import Callable, Hashable
from enum import StrEnum
from functools import cached_property
from typing import Any, Literal, TypeVar

from msgspec import Raw, Struct

from midspan._types.messages import History, Message
from midspan._types.parts import Part, ProviderData
from midspan._types.specs import AnyTool, BuiltinTool, ModelSettings, ToolChoice

T = TypeVar("T")
OnRetry = Callable[..., None]
"""Gets the number of the attempt that failed, the seconds until the next one, and the ProviderError.

If another model gets the request, the fourth argument is its name.
"""
_MAX_DERIVED = 64


class Output(Struct, frozen=True, gc=False, omit_defaults=True):
    """The answer must be JSON, and match the JSON Schema if there is one."""

    json_schema: dict[str, Any] | None = None
    strict: bool = False
    """Whether the schema is written so that the provider can enforce it."""


class CachePolicy(Struct, frozen=True, gc=False, omit_defaults=True):
    """How the provider caches the part of a prompt that stays the same. Each provider maps it to its own mechanism."""

    key: str | None = None
    """The provider's name of an existing cache. For Gemini the cache already holds system prompt and tools."""
    ttl_seconds: float | None = None
    """How long the provider should keep the prefix, where the request says so."""
    parts: tuple[Literal["tools", "system", "messages"], ...] = ("tools", "system", "messages")
    """The parts of the prompt to cache, where the request says so."""


class RequestConfig(Struct, frozen=True, omit_defaults=True, dict=True):
    """What stays the same from turn to turn."""

    model: str
    system: str | None = None
    tools: tuple[AnyTool, ...] = ()
    tool_choice: ToolChoice | None = None
    settings: ModelSettings = ModelSettings()
    output: Output | None = None
    cache: CachePolicy | None = None

    @cached_property
    def has_builtins(self) -> bool:
        """Whether one of the tools is the provider's own."""
        return any(type(tool) is BuiltinTool for tool in self.tools)

    def derived(self, key: Hashable, make: Callable[..., T], *args: Any) -> T:
        """Return what `make(*args)` returns, computed once per key and cached here. Encoders use it."""
        cache = self._derived
        if key not in cache:
            if len(cache) >= _MAX_DERIVED:
                cache.pop(next(iter(cache)), None)
            cache[key] = make(*args)
        value: T = cache[key]
        return value

    @cached_property
    def _derived(self) -> dict[Hashable, Any]:
        return {}


class Budget(Struct, frozen=True, gc=False):
    """What a provider may use for one response that takes several requests. None means no limit."""

    max_requests: int | None = None
    max_tokens: int | None = None


class ModelRequest(Struct, frozen=True, gc=False):
    """One question to a model."""

    config: RequestConfig
    history: History
    budget: Budget = Budget()
    on_retry: OnRetry | None = None
    """Called before each wait, if the provider sends a failed request again."""


class FinishReason(StrEnum):
    """Why the model stopped; `ModelResponse.raw_finish_reason` is the value that the provider sent."""

    END = "end"
    LENGTH = "length"
    """The response reached its maximum of tokens."""
    CONTEXT_FULL = "context_full"
    """The context window is full."""
    BLOCKED = "blocked"
    """A filter stopped the model."""
    REFUSED = "refused"
    """The model itself declined to answer."""
    INTERRUPTED = "interrupted"
    """The user spoke, or the caller stopped the response."""
    MALFORMED_CALL = "malformed_call"
    UNEXPECTED_CALL = "unexpected_call"
    CONTINUES = "continues"
    """The model has paused and can continue."""
    CUT = "cut"
    """The stream ended without a reason."""
    OTHER = "other"


END, CUT, CONTINUES = FinishReason.END, FinishReason.CUT, FinishReason.CONTINUES
"""For code that runs in every turn: looking up an attribute of a class costs far more than a global name."""


class Usage(Struct, frozen=True, gc=False, omit_defaults=True):
    """Tokens. `output` does not include `thoughts`; `cached` and `cache_write` are part of `input`."""

    input: int = 0
    output: int = 0
    thoughts: int = 0
    cached: int = 0
    tools: int = 0
    """Prompt tokens that the provider's own tools added."""
    cache_write: int = 0

    @property
    def total(self) -> int:
        return self.input + self.output + self.thoughts + self.tools

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.thoughts + other.thoughts,
            self.cached + other.cached,
            self.tools + other.tools,
            self.cache_write + other.cache_write,
        )


class Citation(Struct, frozen=True, gc=False, omit_defaults=True):
    """A source that the answer is based on."""

    url: str
    title: str = ""
    start: int | None = None
    """Where in the text of the answer the cited passage starts, in characters; None if the provider does not say."""
    end: int | None = None
    quote: str | None = None
    """The passage of the source."""


class ModelResponse(Struct, frozen=True, gc=False, omit_defaults=True):
    """The whole response of a model."""

    message: Message
    finish_reason: FinishReason
    raw_finish_reason: str | None = None
    finish_message: str | None = None
    usage: Usage = Usage()
    model: str | None = None
    id: str | None = None
    raw: tuple[Raw, ...] = ()
    """Everything the provider sent, one document for each chunk of a stream."""
    citations: tuple[Citation, ...] = ()
    requests: int = 1
    """How many requests the response took."""


class TextPartDelta(Struct, frozen=True, gc=False, omit_defaults=True, tag="text"):
    """More text of a `Text`."""

    text: str


class ThoughtPartDelta(Struct, frozen=True, gc=False, omit_defaults=True, tag="thought"):
    """More text of a `Thought`."""

    text: str


class ArgumentsPartDelta(Struct, frozen=True, gc=False, omit_defaults=True, tag="arguments"):
    """More of the JSON text of a call's arguments."""

    json: str


class DataPartDelta(Struct, frozen=True, gc=False, omit_defaults=True, tag="data"):
    """More of a `Blob`, or data that only the provider reads, such as the signature of a thought."""

    base64: str = ""
    provider_data: ProviderData | None = None


Delta = TextPartDelta | ThoughtPartDelta | ArgumentsPartDelta | DataPartDelta


class PartStart(Struct, frozen=True, gc=False, omit_defaults=True, tag="start"):
    """A part of the response begins. `part` is what is known of it, which may already include text."""

    index: int
    part: Part


class PartDelta(Struct, frozen=True, gc=False, omit_defaults=True, tag="delta"):
    index: int
    delta: Delta


class PartEnd(Struct, frozen=True, gc=False, omit_defaults=True, tag="end"):
    """A part is complete. `part` is its final value; None if start and deltas already have all of it."""

    index: int
    part: Part | None = None


PartEvent = PartStart | PartDelta | PartEnd
ModelEvent = PartEvent | ModelResponse
"""What a provider streams: for each part a start, deltas and an end, and the whole response last."""
