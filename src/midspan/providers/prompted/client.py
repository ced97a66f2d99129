"""`PromptedTools(provider)`: a provider around a provider, for models that only write text.

Tools go into the system prompt, results into text of the user, and calls are read from what the model writes, while it
writes. A call that cannot be read, or is one of a tool that is not there, never becomes a `ToolCall`: nobody can run
what does not exist. It is an `Opaque` part of the answer, and the model is told of it with the next request, beside the
results of the calls that could be read. If there are none, the answer ends with `MALFORMED_CALL` and says in
`finish_message` what is wrong, because a run that sees no calls would take the answer for the last.
"""

from collections.abc import AsyncIterator
from contextlib import aclosing
from inspect import iscoroutinefunction, signature
from typing import Any, Literal, Self

from midspan._types.exchange import ModelEvent, ModelRequest, ModelResponse
from midspan.errors import ConfigError
from midspan.providers.prompted.history import Renderer
from midspan.providers.prompted.marker import MARKER
from midspan.providers.prompted.prompt import system_prompt
from midspan.providers.prompted.triggers import ANY_MARK, triggers
from midspan.providers.prompted.turn import Instructions, Manner, Turn
from midspan.providers.provider import ModelProfile, Provider, WrapperProvider, ensure_aclose


class PromptedTools(WrapperProvider):
    """A model that gets its tools by the prompt."""

    def __init__(
        self,
        provider: Provider,
        *,
        instructions: Instructions = system_prompt,
        marker: str = MARKER,
        dialects: bool = True,
        guarded: bool = False,
        on_bad_args: Literal["error", "empty"] = "error",
    ) -> None:
        """`instructions` writes the prompt about the tools. `dialects` also reads the forms in which other models print
        calls. `guarded` demands a mark in every call, which only the prompt tells; the forms of others have none.
        `on_bad_args="empty"` runs a tool whose arguments cannot be read without any, if its schema allows that.
        """
        _check_provider(provider)
        _check_instructions(instructions)
        for name, value in (("dialects", dialects), ("guarded", guarded)):
            if not isinstance(value, bool):
                raise ConfigError(f"{name} is True or False, not {value!r}")
        if not isinstance(marker, str) or not marker.isidentifier() or not marker.isascii():
            raise ConfigError(f"the marker {marker!r} is not a word of letters, digits and underscores")
        if on_bad_args not in ("error", "empty"):
            raise ConfigError(f"on_bad_args is 'error' or 'empty', not {on_bad_args!r}")
        super().__init__(provider)
        self._manner = Manner(instructions, marker, dialects and not guarded, guarded, on_bad_args)
        self._renderer = Renderer(marker, triggers(marker, ANY_MARK, True))
        # Calls are text, which is no JSON; and they run one after another, for a later one may need them.
        inner = provider.profile
        self._profile = ModelProfile(inner.service, supports_json_with_tools=False, calls_in_order=True)

    @property
    def profile(self) -> ModelProfile:
        return self._profile

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the parts as they arrive, with calls where the model writes some, then the response."""
        turn = Turn(request, self._manner, self._renderer)
        response = None
        async with aclosing(ensure_aclose(self.wrapped.stream(turn.question))) as events:
            async for event in events:
                if isinstance(event, ModelResponse):
                    response = event
                    continue
                for made in turn.heard(event):
                    yield made
        if response is None:
            return  # the inner stream was cut, which the missing response says
        for made in turn.ended(response):
            yield made
        yield turn.response(response)

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Return the whole response."""
        turn = Turn(request, self._manner, self._renderer)
        response = await self.wrapped.generate(turn.question)
        turn.ended(response)
        return turn.response(response)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _check_provider(provider: Any) -> None:
    if isinstance(provider, str):
        raise ConfigError(
            f"PromptedTools takes a provider and not a name; write Agent({provider!r}, …, prompt_mode=True)"
        )
    if isinstance(provider, type) or not isinstance(provider, Provider):
        raise ConfigError(f"PromptedTools takes a provider, as Gemini(…) or ScriptedProvider(…); not {provider!r}")


def _check_instructions(instructions: Any) -> None:
    if instructions is system_prompt:
        return
    if not callable(instructions) or iscoroutinefunction(instructions) or not _takes_two(instructions):
        raise ConfigError(
            f"instructions is a plain function of the tools and the marker that returns a text, not {instructions!r}"
        )


def _takes_two(function: Instructions) -> bool:
    try:
        taken = signature(function)
    except (TypeError, ValueError):
        return True  # one that does not tell what it takes
    try:
        taken.bind((), MARKER)
    except TypeError:
        return False
    return True
