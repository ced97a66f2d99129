"""The offline model as a provider: a deterministic program where no language model is at hand."""

import re
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import date

from midspan.providers.family import ProviderFamily
from midspan.providers.provider import ModelProfile
from midspan.providers.stream import StreamAccumulator, parts_as_events
from midspan.types.exchange import FinishReason, ModelEvent, ModelRequest, ModelResponse, Usage
from midspan.types.messages import History, Message
from midspan.types.parts import Part, Text

MODEL = "offline"
_CHARACTERS_PER_TOKEN = 4
_PIECE = re.compile(r"\s*\S+\s*|\s+")


class Offline:
    """A model that needs no network and no key. It calls tools and words their results; it knows nothing by itself."""

    profile = ModelProfile(supports_prompted_tools=False)

    def __init__(self, *, today: Callable[[], date] = date.today) -> None:
        """`today` tells the day that «tomorrow» is counted from."""
        self._today = today

    @property
    def model(self) -> str:
        return MODEL

    def __repr__(self) -> str:
        return "Offline()"

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """The answer word by word, or its calls; then the answer itself. See `Provider`."""
        response = self.respond(request)
        for event in parts_as_events(_pieces(response.message.parts), StreamAccumulator()):
            yield event
        yield response

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """The answer at once."""
        return self.respond(request)

    def respond(self, request: ModelRequest) -> ModelResponse:
        """The same for plain code: nothing is waited for."""
        from midspan.providers.offline.reply import reply  # its tables of words are read when they are first needed

        said = reply(request, self._today())
        parts: tuple[Part, ...] = (said,) if isinstance(said, Text) else said
        finish, longest = FinishReason.END, request.config.settings.max_tokens
        if longest is not None and isinstance(said, Text) and len(said.text) > longest * _CHARACTERS_PER_TOKEN:
            parts, finish = (Text(said.text[: longest * _CHARACTERS_PER_TOKEN]),), FinishReason.LENGTH
        message = Message("model", parts)
        return ModelResponse(message, finish, usage=_usage(request.history, message), model=MODEL)

    async def aclose(self) -> None:
        """Nothing is open."""


def _pieces(parts: tuple[Part, ...]) -> Iterator[Part]:
    """The parts, and texts word by word."""
    for part in parts:
        if isinstance(part, Text):
            yield from map(Text, _PIECE.findall(part.text))
        else:
            yield part


def _usage(history: History, message: Message) -> Usage:
    """An estimate, the same every time: a token for four characters of text."""
    read = sum(len(one.text) for one in history) // _CHARACTERS_PER_TOKEN
    written = len(message.text) // _CHARACTERS_PER_TOKEN + 1
    return Usage(input=read, output=written)


FAMILY = ProviderFamily(name="offline", make=Offline, summary="it calls tools, but knows nothing")
