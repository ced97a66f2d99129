"""Decoders of responses that are streamed as server-sent events with JSON data."""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import aclosing
from typing import Any

import msgspec
from msgspec import Raw

from midspan._http.body import ServerSentEvent, ServerSentEventParser
from midspan._types.exchange import ModelEvent, ModelRequest, ModelResponse, PartEvent
from midspan.errors import MalformedResponseError, ProviderError
from midspan.providers.provider import WireRequest
from midspan.providers.reading import READ_ERRORS, read_json
from midspan.providers.rest import RestClient
from midspan.providers.stream import StreamAccumulator

EventErrorParser = Callable[[str, Any], ProviderError | None]
"""Gets the name and the data of an event; returns the error that it reports, or None if it reports none."""


class JsonEventReader:
    """Reads server-sent events whose data is JSON. Other lines and `[DONE]` are skipped.

    With `parse_error`, events that report an error raise it. Such an error is retried if it comes first.
    """

    def __init__(self, parse_error: EventErrorParser | None = None) -> None:
        self._events = ServerSentEventParser()
        self._parse_error = parse_error
        self.is_empty = True
        self.is_complete = False

    def feed(self, piece: bytes) -> Iterator[Any]:
        return self._parse_events(self._events.feed(piece))

    def end(self) -> list[Any]:
        """Return the last items. An object that was cut is dropped: without its end the response counts as cut."""
        return list(self._parse_events([event for event in self._events.end() if not _is_cut(event.data)]))

    def _parse_events(self, events: Iterable[ServerSentEvent]) -> Iterator[Any]:
        for event in events:
            if event.stray or event.data.strip() in (b"", b"[DONE]"):
                continue
            try:
                item, _ = read_json(event.data)
            except READ_ERRORS as error:
                raise MalformedResponseError(f"an event of the stream is not JSON: {event.data[:80]!r}") from error
            if self._parse_error is not None and (failure := self._parse_error(event.name, item)) is not None:
                raise failure
            self.is_empty = False
            yield item


def _is_cut(data: bytes) -> bool:
    """Whether this is the beginning of a JSON object."""
    try:
        read_json(data)
    except READ_ERRORS:
        return data.lstrip().startswith(b"{")
    return False


class EventDecoder(JsonEventReader):
    """A `Reader` of model events. Subclasses define `decode` and `response`."""

    def __init__(self, parse_error: EventErrorParser | None = None, *, first_index: int = 0) -> None:
        super().__init__(parse_error)
        self.accumulator = StreamAccumulator(first_index)
        self.raw_items: list[Raw] = []
        """The data of all events so far, encoded again."""

    def end(self) -> list[PartEvent]:
        return [*super().end(), *self.accumulator.end_current()]

    def _parse_events(self, events: Iterable[ServerSentEvent]) -> Iterator[PartEvent]:
        for item in super()._parse_events(events):
            self.raw_items.append(Raw(msgspec.json.encode(item)))
            yield from self.decode(item)

    def decode(self, item: Any) -> Iterator[PartEvent]:
        """Yield the model events of one event of the service."""
        raise NotImplementedError

    def response(self) -> ModelResponse:
        """Return the whole response, at the end of the stream."""
        raise NotImplementedError


async def stream_response(
    client: RestClient, request: ModelRequest, wire: WireRequest, make_decoder: Callable[[], EventDecoder]
) -> AsyncIterator[ModelEvent]:
    """Send a request and yield the parts as they arrive, then the response."""
    updates = client.stream(wire.path, wire.body, make_decoder, on_retry=request.on_retry)
    async with aclosing(updates):
        async for decoder, events in updates:  # noqa: B007 - the last one has the response
            for event in events:
                yield event
    yield client.checked(decoder.response)
