"""A provider around a provider that writes every request and response to a recording."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from midspan._types.exchange import ModelEvent, ModelRequest, ModelResponse, PartEvent
from midspan.providers.provider import Provider, WrapperProvider, ensure_aclose
from midspan.providers.recording.failures import failure_of
from midspan.providers.recording.lines import Answered, Asked, Failed, Silent, Streamed
from midspan.providers.recording.questions import question_of
from midspan.providers.recording.tape import Tape


class Recorded(WrapperProvider):
    """A model whose exchanges are recorded."""

    def __init__(self, provider: Provider, tape: Tape) -> None:
        super().__init__(provider)
        self._tape = tape

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the parts as they arrive, then the response; see `Provider`."""
        self._write_request(request, stream=True)
        answered = False
        try:
            async with aclosing(ensure_aclose(self.wrapped.stream(request))) as events:
                async for event in events:
                    answered = answered or isinstance(event, ModelResponse)
                    self._write(event)
                    yield event
        except Exception as error:
            self._tape.write(Failed(failure_of(error)))
            raise
        if not answered:
            self._tape.write(Silent())

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Return the whole response."""
        self._write_request(request, stream=False)
        try:
            response = await self.wrapped.generate(request)
        except Exception as error:
            self._tape.write(Failed(failure_of(error)))
            raise
        self._write(response)
        return response

    def _write_request(self, request: ModelRequest, *, stream: bool) -> None:
        question = question_of(self.wrapped, request, stream=stream)
        self._tape.write(Asked(question.model, stream, question.request, question.path))

    def _write(self, event: Any) -> None:
        if isinstance(event, ModelResponse):
            self._tape.write(Answered(event))
        elif isinstance(event, PartEvent):  # anything else a provider yields is ignored by runs, too
            self._tape.write(Streamed(event))
