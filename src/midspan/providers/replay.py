"""Answers from a recording: the provider is asked nothing but how it would have put the request."""

from collections.abc import AsyncIterator

from midspan.errors import NotRecorded
from midspan.providers.around import Around
from midspan.providers.provider import Provider
from midspan.providers.recording.failures import error_of
from midspan.providers.recording.player import Player
from midspan.providers.recording.questions import question_of
from midspan.types.exchange import ModelRequest, ModelResponse
from midspan.types.parts import Part


class Replayed(Around):
    """A model that says what it said then, to requests that are the same as then."""

    def __init__(self, provider: Provider, player: Player) -> None:
        super().__init__(provider)
        self._player = player

    async def stream(self, request: ModelRequest, *, whole: bool = False) -> AsyncIterator[Part | ModelResponse]:
        """The parts of the answer as they came, then the answer; see `Provider`."""
        then = self._player.exchange(question_of(self._provider, request, whole=whole))
        parts = then.answer.message.parts if then.answer is not None and then.asked.whole else then.parts
        # A run goes on after an error in the middle of an answer, and not after one at its beginning; so that it does
        # the same again, the parts before an error are told even where nobody listens.
        if not whole or then.error is not None:
            for part in parts:
                yield part
        if then.answer is not None:
            yield then.answer
        if then.error is not None:
            raise error_of(then.error)
        if not then.ended:
            raise NotRecorded("the recording was broken off in the middle of this answer; record the run again")
