"""The base class of decoders for responses that are streamed as server-sent events with JSON data."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Raw

from midspan._types.exchange import ModelResponse, PartEvent
from midspan.providers.rest import JsonEventReader, ParseEventError
from midspan.providers.stream import StreamAccumulator


def token_count(usage: Any, name: str) -> int:
    """Return a number of tokens that a service reports; 0 if it does not."""
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if isinstance(value, int) else 0


class EventDecoder:
    """A `Reader` of model events. Subclasses define `decode` and `response`."""

    def __init__(self, parse_error: ParseEventError | None = None, *, first_index: int = 0) -> None:
        self._reader = JsonEventReader(parse_error)
        self.accumulator = StreamAccumulator(first_index)
        self.raw_items: list[Raw] = []
        """The data of all events so far."""

    @property
    def is_empty(self) -> bool:
        return self._reader.is_empty

    def feed(self, piece: bytes) -> Iterator[PartEvent]:
        return self._decode_all(self._reader.feed(piece))

    def end(self) -> Iterator[PartEvent]:
        yield from self._decode_all(self._reader.end())
        yield from self.accumulator.end_current()

    def _decode_all(self, items: Iterable[Any]) -> Iterator[PartEvent]:
        for item in items:
            self.raw_items.append(Raw(msgspec.json.encode(item)))
            yield from self.decode(item)

    def decode(self, item: Any) -> Iterator[PartEvent]:
        """Yield the model events of one event of the service."""
        raise NotImplementedError

    def response(self) -> ModelResponse:
        """Return the whole response, at the end of the stream."""
        raise NotImplementedError
