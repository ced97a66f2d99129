"""The conversation that a source answers, and the protocol of sources.

Above is the server, which has checked the request and frames the answer. Below is a script, a provider or a recording.
A source does not know HTTP, faults or chunks.
"""

from collections.abc import Awaitable
from itertools import pairwise
from typing import Protocol

from msgspec import Struct

from midspan.emulator.gemini.answers import Answer
from midspan.emulator.gemini.checks.check import Target
from midspan.emulator.gemini.checks.tools import declarations_in
from midspan.providers.gemini.wire import Content, FunctionCallingConfig, GenerateContentRequest, GenerationConfig


class Conversation(Struct, frozen=True):
    """A request that the API accepts."""

    target: Target
    request: GenerateContentRequest
    """With the contents, tools and system instruction of the cache that it names."""
    body: bytes
    prompt_tokens: int
    cached_tokens: int = 0

    @property
    def model(self) -> str:
        return self.target.family.name

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
        for content in reversed(self.contents):
            text = _text_of(content)
            if content.role != "model" and text:
                return text
        return ""

    @property
    def system_text(self) -> str:
        instruction = self.request.system_instruction
        return _text_of(instruction) if instruction is not None else ""

    @property
    def generation_config(self) -> GenerationConfig:
        return self.request.generation_config or GenerationConfig()

    @property
    def calling_config(self) -> FunctionCallingConfig:
        config = self.request.tool_config.function_calling_config if self.request.tool_config is not None else None
        return config or FunctionCallingConfig()


def _text_of(content: Content) -> str:
    return "".join(part.text or "" for part in content.parts or ())


class Source(Protocol):
    """Answers conversations."""

    def answer(self, conversation: Conversation) -> Answer | Awaitable[Answer]:
        """Return the next answer in this conversation."""
        ...


class Echo:
    """Repeats what the user wrote; the source of a server without a script."""

    def answer(self, conversation: Conversation) -> Answer:
        if conversation.results:
            return Answer(parts=({"text": f"Results came from {', '.join(conversation.results)}."},))
        return Answer(parts=({"text": f"You said: {conversation.last_text}"},))
