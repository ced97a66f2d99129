"""Responses from a recording. The provider is asked only how it would have written the request."""

from collections.abc import AsyncIterator

from midspan._types.exchange import FinishReason, ModelEvent, ModelRequest, ModelResponse
from midspan.errors import NotRecorded, ProviderError
from midspan.providers.provider import Provider, WrapperProvider
from midspan.providers.recording.failures import error_of
from midspan.providers.recording.player import Player
from midspan.providers.recording.questions import question_of
from midspan.providers.recording.reading import Exchange
from midspan.providers.stream import StreamAccumulator, events_of


class Replayed(WrapperProvider):
    """A model that gives recorded responses to requests that equal the recorded ones."""

    def __init__(self, provider: Provider, player: Player) -> None:
        super().__init__(provider)
        self._player = player

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the events as they came, then the response; see `Provider`."""
        exchange = self._player.exchange(question_of(self.wrapped, request, stream=True))
        if exchange.answer is not None and not exchange.asked.stream:
            for event in events_of(exchange.answer):
                yield event
            return
        for event in exchange.events:
            yield event
        if exchange.answer is not None:
            yield exchange.answer
        _check_end(exchange)

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Return the recorded response."""
        exchange = self._player.exchange(question_of(self.wrapped, request, stream=False))
        if exchange.answer is not None:
            return exchange.answer
        accumulator = StreamAccumulator()
        for event in exchange.events:
            accumulator.add(event)
        try:
            _check_end(exchange)
        except ProviderError as error:
            if exchange.events:
                error.partial_response = accumulator.response(FinishReason.CUT, requests=0)
            raise
        return accumulator.response(FinishReason.CUT)


def _check_end(exchange: Exchange) -> None:
    """Raise what the exchange ended with, if that was not a response."""
    if exchange.error is not None:
        raise error_of(exchange.error)
    if not exchange.ended:
        raise NotRecorded("the recording was broken off in the middle of this response; record the run again")
