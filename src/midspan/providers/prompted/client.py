"""`Prompted(provider)`: a provider around a provider, for models that only write text.

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

from midspan.errors import ConfigError
from midspan.providers.around import Around
from midspan.providers.prompted.history import Renderer
from midspan.providers.prompted.marker import MARKER
from midspan.providers.prompted.prompt import system_prompt
from midspan.providers.prompted.triggers import ANY_MARK, triggers
from midspan.providers.prompted.turn import Instructions, Manner, Turn
from midspan.providers.provider import Provider, Traits, traits_of
from midspan.types.exchange import ModelRequest, ModelResponse
from midspan.types.parts import Part


class Prompted(Around):
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

    @property
    def traits(self) -> Traits:
        """Calls are text, which is no JSON; and they are run one after another, for a later one may need them."""
        return Traits(traits_of(self._provider).family, json_with_functions=False, calls_in_order=True)

    async def stream(self, request: ModelRequest, *, whole: bool = False) -> AsyncIterator[Part | ModelResponse]:
        """The parts of the answer as they come, then the answer; see `Provider`."""
        turn = Turn(request, self._manner, self._renderer)
        answer = None
        async with aclosing(self._asked(turn.question, whole=whole)) as parts:
            async for part in parts:
                if isinstance(part, ModelResponse):
                    answer = part
                    continue
                for made in turn.heard(part):
                    yield made
        if answer is None:
            return  # it broke off without a word of why, and whoever asked is told so by that
        self._renderer.keep(request.history, turn.question.history)
        rest = turn.ended(answer)
        if not whole:
            for made in rest:
                yield made
        yield turn.response(answer)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _check_provider(provider: Any) -> None:
    if isinstance(provider, str):
        raise ConfigError(f"Prompted takes a provider and not a name; write Agent({provider!r}, …, prompt_mode=True)")
    if isinstance(provider, type) or not isinstance(provider, Provider):
        raise ConfigError(f"Prompted takes a provider, as Gemini(…) or ScriptedProvider(…); not {provider!r}")


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
