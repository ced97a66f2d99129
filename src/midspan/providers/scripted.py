"""A provider for tests that returns the responses of a script and keeps the requests it receives."""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from inspect import isawaitable
from typing import Any

from midspan._types.exchange import FinishReason, ModelEvent, ModelRequest, ModelResponse
from midspan._types.parts import Part, Text
from midspan.errors import ConfigError
from midspan.providers.provider import ModelProfile
from midspan.providers.stream import StreamAccumulator, parts_as_events

Turn = str | Part | Sequence[Part] | ModelResponse | BaseException | Callable[[ModelRequest], Any]
"""One response: text, a part, several parts or a ModelResponse; an exception to raise; or a function that returns one
of these."""


class ScriptedProvider:
    """Returns the turns of its script one after another; `requests` are the requests so far.

    When it streams, each part is an event of its own. Two texts in a row are deltas of one text.
    """

    profile = ModelProfile()

    def __init__(
        self,
        script: Iterable[Turn] | Callable[[ModelRequest], Any],
        *,
        model: str = "scripted",
        profile: ModelProfile | None = None,
    ) -> None:
        if isinstance(script, str):
            raise ConfigError(f"a script is a list of turns, but {script!r:.80} is one turn; pass [{script!r:.80}]")
        self._script = script if callable(script) else iter(script)
        self.model = model
        if profile is not None:
            self.profile = profile
        self.requests: list[ModelRequest] = []

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r})"

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the parts of the next turn, then the response; see `Provider`."""
        parts, response = await self._next_turn(request)
        for event in parts_as_events(parts):
            yield event
        yield response

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Return the response of the next turn."""
        return (await self._next_turn(request))[1]

    async def _next_turn(self, request: ModelRequest) -> tuple[Sequence[Part], ModelResponse]:
        self.requests.append(request)
        number = len(self.requests)
        turn = self._script(request) if callable(self._script) else next(self._script, _END)
        if turn is _END:
            raise ConfigError(f"the script has ended, but the model is asked for turn {number}")
        while callable(turn) or isawaitable(turn):
            turn = turn(request) if callable(turn) else await turn
        if isinstance(turn, BaseException):
            raise turn
        return _read_turn(turn, number)

    async def aclose(self) -> None:
        pass


_END = object()


def _read_turn(turn: Any, number: int) -> tuple[Sequence[Part], ModelResponse]:
    if isinstance(turn, ModelResponse):
        return turn.message.parts, turn
    items = turn if isinstance(turn, list | tuple) else [turn]
    parts = [Text(item) if isinstance(item, str) else item for item in items]
    accumulator = StreamAccumulator()
    for part in parts:
        if not isinstance(part, Part):
            raise ConfigError(
                f"turn {number} of the script contains {part!r:.80}; a turn is text, a part, a list of them, a "
                "ModelResponse, an exception, or a function of the request that returns one of these"
            )
        accumulator.add_part(part)
    return parts, accumulator.response(FinishReason.END)
