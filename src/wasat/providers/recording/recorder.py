"""A provider around a provider: every question and answer is written down, and nothing else is different."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, TypeVar

from wasat.providers.provider import Provider, Traits, traits_of
from wasat.providers.recording.failures import failure_of
from wasat.providers.recording.lines import Answered, Asked, Failed, Said, Silent
from wasat.providers.recording.questions import question_of
from wasat.providers.recording.tape import Tape
from wasat.types.exchange import ModelRequest, ModelResponse
from wasat.types.parts import Part

T = TypeVar("T")


class Recorded:
    """A model whose exchanges go onto a tape."""

    def __init__(self, provider: Provider, tape: Tape) -> None:
        self._provider = provider
        self._tape = tape

    @property
    def model(self) -> str:
        return self._provider.model

    @property
    def traits(self) -> Traits:
        return traits_of(self._provider)

    def __repr__(self) -> str:
        return f"Recorded({self._provider!r})"

    async def stream(self, request: ModelRequest, *, whole: bool = False) -> AsyncIterator[Part | ModelResponse]:
        """The parts of the answer as they come, then the answer; see `Provider`."""
        question = question_of(self._provider, request, whole=whole)
        self._tape.write(Asked(question.model, whole, question.request, question.path))
        answered = False
        try:
            async with aclosing(_closable(self._provider.stream(request, whole=whole))) as parts:
                async for part in parts:
                    answered = answered or isinstance(part, ModelResponse)
                    self._write(part)
                    yield part
        except Exception as error:
            self._tape.write(Failed(failure_of(error)))
            raise
        if not answered:
            self._tape.write(Silent())

    def _write(self, part: Any) -> None:
        if isinstance(part, ModelResponse):
            self._tape.write(Answered(part))
        elif isinstance(part, Part):  # whatever else a provider of somebody's gives, nobody hears it
            self._tape.write(Said(part))

    async def close(self) -> None:
        await self._provider.close()


async def _closable(items: AsyncIterator[T]) -> AsyncGenerator[T, None]:
    """Items of a provider that may have no way to be closed, as ours to close."""
    try:
        async for item in items:
            yield item
    finally:
        if isinstance(items, AsyncGenerator):
            await items.aclose()
