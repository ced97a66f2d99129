"""Providers and streams in tests: parts in, model events out, and the other way round."""

from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from typing import Any

from msgspec.structs import replace

from midspan._types.exchange import (
    ModelRequest,
    ModelResponse,
    PartDelta,
    PartEnd,
    PartStart,
    TextPartDelta,
    ThoughtPartDelta,
)
from midspan._types.messages import Message
from midspan._types.parts import Part, Text, Thought
from midspan.providers.provider import ModelProfile, Provider, ensure_aclose
from midspan.providers.stream import StreamAccumulator, collect


def raw_of(value: Message | Part) -> bytes:
    """The bytes that a provider sent for a message or a part; none if it has none."""
    return b"" if value.provider_data is None else bytes(value.provider_data.raw)


def plain(*parts: Part) -> list[Part]:
    """The parts without what only their provider reads."""
    return [replace(part, provider_data=None) for part in parts]


def pieces_of(events: Iterable[Any]) -> list[Part]:
    """What events give, in order: each delta of text as a text, every other part when it ends."""
    pieces: list[Part] = []
    texts: set[int] = set()
    for event in events:
        match event:
            case PartStart(index, Text() | Thought() as part):
                texts.add(index)
                pieces.append(part)
            case PartDelta(delta=TextPartDelta(text)):
                pieces.append(Text(text))
            case PartDelta(delta=ThoughtPartDelta(text)):
                pieces.append(Thought(text))
            case PartEnd(index, part) if index not in texts and part is not None:
                pieces.append(part)
    return pieces


async def listen(provider: Provider, request: ModelRequest, *, whole: bool = False) -> tuple[list[Part], ModelResponse]:
    """The pieces and the response of a stream; with `whole`, the response alone."""
    if whole:
        return [], await provider.generate(request)
    *events, response = [event async for event in provider.stream(request)]
    assert isinstance(response, ModelResponse)
    return pieces_of(events), response


class PartsProvider:
    """A provider for tests, which gives `parts`: pieces of text, whole parts, and a response."""

    profile = ModelProfile()

    def parts(self, request: ModelRequest) -> AsyncIterator[Any]:
        raise NotImplementedError

    async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
        accumulator = StreamAccumulator()
        async with aclosing(ensure_aclose(self.parts(request))) as items:
            async for item in items:
                if isinstance(item, Part):
                    for event in accumulator.add_part(item):
                        yield event
                else:
                    yield item

    async def generate(self, request: ModelRequest) -> ModelResponse:
        return await collect(self.stream(request))

    async def aclose(self) -> None:
        pass
