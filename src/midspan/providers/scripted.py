"""Answers from a script: a model for tests, which says what it was told to say and remembers what it was asked."""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from inspect import isawaitable
from typing import Any, TypeGuard

from midspan._types.exchange import FinishReason, ModelEvent, ModelRequest, ModelResponse
from midspan._types.messages import Message
from midspan._types.parts import Part, Text, Thought, ToolCall
from midspan.errors import ConfigError
from midspan.providers.provider import ModelProfile
from midspan.providers.stream import StreamAccumulator, parts_as_events

Turn = str | Part | Sequence[Part] | ModelResponse | BaseException | Callable[[ModelRequest], Any]
"""What the model says: a text, a part, several parts, a whole answer; an exception is raised; a function is asked."""


class ScriptedProvider:
    """Says one turn of its script after another. `requests` are the questions so far.

    Streaming, each part comes for itself; two texts in a row are deltas of one, and become one in the answer.
    """

    profile = ModelProfile()

    def __init__(
        self,
        script: Iterable[Turn] | Callable[[ModelRequest], Any],
        *,
        model: str = "scripted",
        profile: ModelProfile | None = None,
    ) -> None:
        if not isinstance(model, str):
            raise ConfigError(f"model is what the scripted model is called, a text, not {model!r:.80}")
        self._script = script if _is_function(script) else iter(_checked(script))
        self._model = model
        if profile is not None:
            self.profile = profile
        self.requests: list[ModelRequest] = []

    @property
    def model(self) -> str:
        return self._model

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the parts of the next turn, then the response; see `Provider`."""
        parts, response = await self._turn(request)
        for event in parts_as_events(parts, StreamAccumulator()):
            yield event
        yield response

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Return the response of the next turn."""
        return (await self._turn(request))[1]

    async def _turn(self, request: ModelRequest) -> tuple[Sequence[Part], ModelResponse]:
        self.requests.append(request)
        number = len(self.requests)
        turn = self._next(request)
        while _is_function(turn) or isawaitable(turn):
            turn = turn(request) if callable(turn) else await turn
        if isinstance(turn, BaseException):
            raise turn
        return _said(turn, number)

    def _next(self, request: ModelRequest) -> Any:
        if callable(self._script):
            return self._script(request)
        try:
            return next(self._script)
        except StopIteration:
            raise ConfigError(f"the script has ended, but the model is asked for turn {len(self.requests)}") from None

    async def aclose(self) -> None:
        pass


def _is_function(given: Any) -> TypeGuard[Callable[[ModelRequest], Any]]:
    """Whether it is asked; a class is none, since what it makes of a request is no turn."""
    return callable(given) and not isinstance(given, type)


def _checked(script: Any) -> Iterable[Any]:
    """The script, if it is one; turns that are there already are looked at now, the others when they are said."""
    if isinstance(script, str | Part | ModelResponse | BaseException):
        raise ConfigError(f"a script is a list of turns, and {script!r:.80} is one turn; give [{script!r:.80}]")
    if not isinstance(script, Iterable) or isinstance(script, bytes | Mapping | AbstractSet | type):
        raise ConfigError(f"a script is a list of turns or a function of the request, not {script!r:.80}")
    if isinstance(script, Sequence):
        for number, turn in enumerate(script, start=1):
            if not (_is_function(turn) or isawaitable(turn) or isinstance(turn, BaseException)):
                _said(turn, number)
    return script


def _said(turn: Any, number: int) -> tuple[Sequence[Part], ModelResponse]:
    if isinstance(turn, ModelResponse):
        if not isinstance(turn.message, Message):
            words = f"turn {number} of the script is a ModelResponse whose message is {turn.message!r:.80}"
            raise ConfigError(f"{words}; give it a Message, as Message('model', (Text('…'),))")
        return turn.message.parts, turn
    given = turn if isinstance(turn, list | tuple) else [turn]
    parts = [Text(part) if isinstance(part, str) else part for part in given]
    for part in parts:
        if not _is_part(part):
            raise _no_turn(turn, part, number)
    accumulator = StreamAccumulator()
    for part in parts:
        accumulator.add_part(part)
    return parts, accumulator.response(FinishReason.END)


def _is_part(part: Any) -> bool:
    """Whether it is a part that a model could say; what is in the arguments of a call, models get wrong themselves."""
    match part:
        case Text() | Thought():
            return isinstance(part.text, str)
        case ToolCall():
            return isinstance(part.id, str) and isinstance(part.name, str)
    return isinstance(part, Part)


def _no_turn(turn: Any, part: Any, number: int) -> ConfigError:
    where = f"turn {number} of the script {'is' if turn is part else 'holds'}"
    if isinstance(part, type):
        return ConfigError(f"{where} the class {part.__name__}; give one that is made, as {part.__name__}(…)")
    return ConfigError(
        f"{where} {part!r:.80}; a turn is a text, a part, a list of them, a ModelResponse, an exception, or a function "
        "of the request that gives one of these"
    )
