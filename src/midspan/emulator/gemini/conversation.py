"""A conversation and its answer: what the server gives to a script, a provider or a recording, and gets back."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, field

from midspan._types.parts import Blob, Part, Text, Thought, ToolCall
from midspan.emulator.gemini.check import declarations_in
from midspan.emulator.gemini.models import ModelRules
from midspan.emulator.http import Seconds
from midspan.errors import ConfigError
from midspan.providers.gemini.encode import encode_blob, signature_of
from midspan.providers.gemini.wire import (
    Content,
    FunctionCallingConfig,
    GenerateContentRequest,
    GenerationConfig,
    ThinkingConfig,
    ToolConfig,
)


class Conversation(Struct, frozen=True):
    """A request that the API accepts."""

    rules: ModelRules
    request: GenerateContentRequest
    """With the contents, tools and system instruction of the cache that it names."""
    prompt_tokens: int
    cached_tokens: int = 0

    @property
    def model(self) -> str:
        return self.rules.name

    @property
    def contents(self) -> tuple[Content, ...]:
        return tuple(self.request.contents or ())

    @property
    def step(self) -> int:
        """How many turns the model has had; adjacent contents are one turn."""
        roles = [content.role for content in self.contents]
        return sum(role == "model" != previous for previous, role in pairwise([None, *roles]))

    @property
    def functions(self) -> tuple[str, ...]:
        """The names of the declared functions."""
        return tuple(declaration.name or "" for declaration in declarations_in(self.request.tools))

    @property
    def results(self) -> tuple[str, ...]:
        """The names of the functions whose results are in the last content."""
        parts = (self.contents[-1].parts or ()) if self.contents else ()
        return tuple(part.function_response.name or "" for part in parts if part.function_response is not None)

    @property
    def last_text(self) -> str:
        """The last text of the user."""
        texts = (_text_of(content) for content in reversed(self.contents) if content.role != "model")
        return next(filter(None, texts), "")

    @property
    def system_text(self) -> str:
        return _text_of(self.request.system_instruction or Content())

    @property
    def generation_config(self) -> GenerationConfig:
        return self.request.generation_config or GenerationConfig()

    @property
    def thinking_config(self) -> ThinkingConfig:
        return self.generation_config.thinking_config or ThinkingConfig()

    @property
    def calling_config(self) -> FunctionCallingConfig:
        return (self.request.tool_config or ToolConfig()).function_calling_config or FunctionCallingConfig()


def _text_of(content: Content) -> str:
    return "".join(part.text or "" for part in content.parts or ())


class Answer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The parts of an answer as the API writes them, and how they are sent."""

    parts: tuple[dict[str, Any], ...] = ()
    finish_reason: str | None = "STOP"
    """The finishReason; None leaves it out."""
    finish_message: str | None = None
    usage: dict[str, Annotated[int, Meta(ge=0)]] = field(default_factory=dict)
    """Fields of usageMetadata. Missing counts are estimated."""
    chunks: Annotated[int, Meta(ge=1)] = 3
    """Into how many chunks each text is split when the answer is streamed."""
    delay_seconds: Seconds = 0.0
    """Before the first byte."""
    gap_seconds: Seconds = 0.0
    """Between chunks."""
    extra: dict[str, Any] = field(default_factory=dict)
    """More fields of the last candidate, such as groundingMetadata."""
    documents: tuple[dict[str, Any], ...] = ()
    """A complete response, one document per chunk. It is sent unchanged, and the parts are ignored."""


PartLike = str | Mapping[str, Any] | Part
"""Text, a part as the API writes it, or a part of a Midspan message."""
AnswerLike = Answer | PartLike | Sequence[PartLike]
Source = Callable[[Conversation], AnswerLike | Awaitable[AnswerLike]]
"""Returns the next answer of a conversation. It does not know HTTP, faults or chunks."""


def answer(*parts: PartLike, **options: Any) -> Answer:
    """Make an answer of text, calls and other parts: `answer("Let me see.", call("search", query="x"), chunks=5)`."""
    try:
        return msgspec.convert({"parts": tuple(map(to_part, parts)), **options}, Answer)
    except msgspec.ValidationError as error:
        raise ConfigError(f"invalid answer: {error}") from error


def call(name: str, /, **arguments: Any) -> dict[str, Any]:
    """Make a part that calls a function. Like the real API, it has no `args` if there are no arguments."""
    return {"functionCall": {"name": name, **({"args": arguments} if arguments else {})}}


def to_part(part: PartLike) -> dict[str, Any]:
    """Convert to a part as the API writes it."""
    if isinstance(part, str):
        return {"text": part}
    if isinstance(part, Mapping):
        return dict(part)
    signature = signature_of(part) if isinstance(part, Part) else None
    signed = {"thoughtSignature": signature} if signature else {}
    match part:
        case Text() | Thought():
            return {"text": part.text, **({"thought": True} if isinstance(part, Thought) else {}), **signed}
        case ToolCall():
            return {**call(part.name, **part.arguments), **signed}
        case Blob():
            return {**encode_blob(part), **signed}
    raise ConfigError(f"a part must be text, a dict or a part of a model message, got {type(part).__name__}")


def to_answer(value: AnswerLike) -> Answer:
    """Convert an answer, a part or a list of parts."""
    if isinstance(value, Answer):
        return value
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):
        return answer(*value)
    return answer(value)
