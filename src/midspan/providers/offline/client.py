"""The offline model as a provider: a deterministic program where no language model is at hand."""

import re
from collections.abc import AsyncIterator, Callable
from datetime import date

from midspan.providers.provider import Traits
from midspan.types.exchange import FinishReason, ModelRequest, ModelResponse, Usage
from midspan.types.messages import History, Message
from midspan.types.parts import Part, Text

MODEL = "offline"
_CHARACTERS_PER_TOKEN = 4
_PIECE = re.compile(r"\s*\S+\s*|\s+")


class Offline:
    """A model that needs no network and no key. It calls tools and words their results; it knows nothing by itself."""

    traits = Traits(prompts=False)

    def __init__(self, *, today: Callable[[], date] = date.today) -> None:
        """`today` tells the day that «tomorrow» is counted from."""
        self._today = today

    @property
    def model(self) -> str:
        return MODEL

    def __repr__(self) -> str:
        return "Offline()"

    async def stream(self, request: ModelRequest, *, whole: bool = False) -> AsyncIterator[Part | ModelResponse]:
        """The answer word by word, or its calls; then the answer itself. See `Provider`."""
        response = self.respond(request)
        for part in () if whole else response.message.parts:
            if isinstance(part, Text):
                for piece in _PIECE.findall(part.text):
                    yield Text(piece)
            else:
                yield part
        yield response

    def respond(self, request: ModelRequest) -> ModelResponse:
        """The answer at once."""
        from midspan.providers.offline.reply import reply  # its tables of words are read when they are first needed

        said = reply(request, self._today())
        parts: tuple[Part, ...] = (said,) if isinstance(said, Text) else said
        finish, longest = FinishReason.END, request.setup.settings.max_tokens
        if longest is not None and isinstance(said, Text) and len(said.text) > longest * _CHARACTERS_PER_TOKEN:
            parts, finish = (Text(said.text[: longest * _CHARACTERS_PER_TOKEN]),), FinishReason.LENGTH
        message = Message("model", parts)
        return ModelResponse(message, finish, usage=_usage(request.history, message), model=MODEL)

    async def close(self) -> None:
        """Nothing is open."""


def _usage(history: History, message: Message) -> Usage:
    """An estimate, the same every time: a token for four characters of text."""
    read = sum(len(one.text) for one in history) // _CHARACTERS_PER_TOKEN
    written = len(message.text) // _CHARACTERS_PER_TOKEN + 1
    return Usage(input=read, output=written, total=read + written)
