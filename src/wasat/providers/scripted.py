"""Answers from a script: a model for tests, which says what it was told to say and remembers what it was asked."""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from inspect import isawaitable
from typing import Any

from wasat.errors import ConfigError
from wasat.types.exchange import FinishReason, ModelRequest, ModelResponse, Usage
from wasat.types.messages import Message
from wasat.types.parts import Part, Text

Turn = str | Part | Sequence[Part] | ModelResponse | BaseException | Callable[[ModelRequest], Any]
"""What the model says: a text, a part, several parts, a whole answer; an exception is raised; a function is asked."""


class ScriptedProvider:
    """Says one turn of its script after another. `requests` are the questions so far.

    Streaming, each part comes for itself; two texts in a row are deltas of one, and become one in the answer.
    """

    def __init__(self, script: Iterable[Turn] | Callable[[ModelRequest], Any], *, model: str = "scripted") -> None:
        self._script = script if callable(script) else iter(script)
        self._model = model
        self.requests: list[ModelRequest] = []

    @property
    def model(self) -> str:
        return self._model

    async def stream(self, request: ModelRequest, *, whole: bool = False) -> AsyncIterator[Part | ModelResponse]:
        """The parts of the turn, then the answer; see `Provider`."""
        self.requests.append(request)
        turn = self._next(request)
        while callable(turn) or isawaitable(turn):
            turn = turn(request) if callable(turn) else await turn
        if isinstance(turn, BaseException):
            raise turn
        parts, answer = _said(turn)
        if not whole:
            for part in parts:
                yield part
        yield answer

    def _next(self, request: ModelRequest) -> Any:
        if callable(self._script):
            return self._script(request)
        try:
            return next(self._script)
        except StopIteration:
            raise ConfigError(f"the script has ended, but the model is asked for turn {len(self.requests)}") from None

    async def close(self) -> None:
        pass


def _said(turn: Any) -> tuple[Sequence[Part], ModelResponse]:
    if isinstance(turn, ModelResponse):
        return turn.message.parts, turn
    parts: Sequence[Part] = turn if isinstance(turn, list | tuple) else [turn]
    parts = [Text(part) if isinstance(part, str) else part for part in parts]
    return parts, ModelResponse(Message("model", _joined(parts)), FinishReason.END, usage=Usage())


def _joined(parts: Sequence[Part]) -> tuple[Part, ...]:
    joined: list[Part] = []
    for part in parts:
        last = joined[-1] if joined else None
        if type(part) is Text and type(last) is Text and part.signature is None and last.signature is None:
            joined[-1] = Text(last.text + part.text)
        else:
            joined.append(part)
    return tuple(joined)
