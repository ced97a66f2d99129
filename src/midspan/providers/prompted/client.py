"""`PromptedTools(provider)`: a provider around a provider, for models that only write text.

Tools go into the system prompt, results into text of the user, and calls are read from the text of the model while it
streams. A call that cannot be read, or that calls an unknown tool, never becomes a `ToolCall`, so nothing can run it.
It is an `Opaque` part of the response, and the next request reports its error beside the results of the other calls.
If there are no other calls, the response ends with `MALFORMED_CALL` and the errors in `finish_message`.
"""

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import aclosing
from typing import Any, Literal, Self

from msgspec import Struct

from midspan._types.exchange import FinishReason, ModelEvent, ModelRequest, ModelResponse, RequestConfig
from midspan._types.messages import History, Message
from midspan._types.parts import Opaque
from midspan._types.specs import ModelSettings, ToolSpec
from midspan.errors import ConfigError
from midspan.providers.prompted.history import TextRenderer
from midspan.providers.prompted.forms import call_patterns
from midspan.providers.prompted.prompt import system_prompt
from midspan.providers.prompted.reader import DEFAULT_MARKER, rejected_call
from midspan.providers.prompted.turn import Instructions, PromptStyle, Turn
from midspan.providers.provider import ModelProfile, Provider, WrapperProvider, ensure_aclose


class PromptedStep(Struct, frozen=True):
    """One response of the model in prompt mode. Its calls were read and not run."""

    text: str
    tool_calls: list[dict[str, Any]]
    """Each with `id`, `name` and `arguments`."""
    errors: list[str]
    """What is wrong with calls that were not read. The next step reports it to the model."""
    message: Message
    """The turn of the model, for the history of the next step."""
    finish_reason: FinishReason


class PromptedTools(WrapperProvider):
    """A model that gets its tools by the prompt."""

    def __init__(
        self,
        provider: Provider,
        *,
        instructions: Instructions = system_prompt,
        marker: str = DEFAULT_MARKER,
        other_forms: bool = True,
        guarded: bool = False,
        on_bad_args: Literal["error", "empty"] = "error",
    ) -> None:
        """`instructions` writes the prompt about the tools. `other_forms` also reads the forms in which other models
        write calls. `guarded` demands in every call a nonce that only the prompt contains. `on_bad_args="empty"` calls
        a tool without arguments if its arguments cannot be read and its schema allows that.
        """
        if isinstance(provider, type) or not isinstance(provider, Provider):
            raise ConfigError(
                f"PromptedTools needs a provider such as Gemini(…), got {provider!r}; "
                "with the name of a model, use Agent(name, …, prompt_mode=True)"
            )
        if not isinstance(marker, str) or not marker.isidentifier() or not marker.isascii():
            raise ConfigError(f"marker must be a word of letters, digits and underscores, got {marker!r}")
        if on_bad_args not in ("error", "empty"):
            raise ConfigError(f"on_bad_args must be 'error' or 'empty', got {on_bad_args!r}")
        super().__init__(provider)
        self._style = PromptStyle(instructions, marker, other_forms, guarded, on_bad_args)
        self._renderer = TextRenderer(call_patterns(marker, other_forms=True))
        # Calls are text, so the response cannot be JSON. They run in order: a later one may need an earlier one.
        self._profile = ModelProfile(provider.profile.service, supports_json_with_tools=False, calls_in_order=True)

    @property
    def profile(self) -> ModelProfile:
        return self._profile

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the parts as they arrive, with calls where the model writes some, then the response."""
        turn = Turn(request, self._style, self._renderer)
        response = None
        async with aclosing(ensure_aclose(self.wrapped.stream(turn.request))) as events:
            async for event in events:
                if isinstance(event, ModelResponse):
                    response = event
                    continue
                for part_event in turn.add(event):
                    yield part_event
        if response is None:
            return  # the inner stream was cut off
        for part_event in turn.finish(response):
            yield part_event
        yield turn.response(response)

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Return the whole response."""
        turn = Turn(request, self._style, self._renderer)
        response = await self.wrapped.generate(turn.request)
        turn.finish(response)
        return turn.response(response)

    async def step(
        self,
        messages: str | Iterable[Message],
        tools: Sequence[ToolSpec],
        *,
        system: str | None = None,
        settings: ModelSettings | None = None,
    ) -> PromptedStep:
        """Ask the model once and return the calls that it wrote, for a caller that runs them itself.

        The next step gets these messages, `step.message`, and a message with a `ToolResult` for each call.
        """
        history = History([Message.user(messages)] if isinstance(messages, str) else messages)
        config = RequestConfig(self.model, system, tuple(tools), settings=settings or ModelSettings())
        response = await self.generate(ModelRequest(config, history))
        message = response.message
        rejected = [rejected_call(part) for part in message.parts if isinstance(part, Opaque)]
        return PromptedStep(
            text=message.text,
            tool_calls=[{"id": call.id, "name": call.name, "arguments": call.arguments} for call in message.calls],
            errors=[call.error for call in rejected if call is not None],
            message=message,
            finish_reason=response.finish_reason,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
