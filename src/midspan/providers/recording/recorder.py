"""A provider around a provider: every question and answer is written down, and nothing else is different."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from midspan.providers.around import Around
from midspan.providers.provider import Provider
from midspan.providers.recording.failures import failure_of
from midspan.providers.recording.lines import Answered, Asked, Failed, Said, Silent
from midspan.providers.recording.questions import question_of
from midspan.providers.recording.tape import Tape
from midspan.types.exchange import ModelRequest, ModelResponse
from midspan.types.parts import Part


class Recorded(Around):
    """A model whose exchanges go onto a tape."""

    def __init__(self, provider: Provider, tape: Tape) -> None:
        super().__init__(provider)
        self._tape = tape

    async def stream(self, request: ModelRequest, *, whole: bool = False) -> AsyncIterator[Part | ModelResponse]:
        """The parts of the answer as they come, then the answer; see `Provider`."""
        question = question_of(self._provider, request, whole=whole)
        self._tape.write(Asked(question.model, whole, question.request, question.path))
        answered = False
        try:
            async with aclosing(self._asked(request, whole=whole)) as parts:
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
