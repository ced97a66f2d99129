"""Streams of model events: `StreamAccumulator` builds a message from them; conversions between stream and response.

Gemini's messages are built in gemini/stream.py, because they keep the bytes of the server.
"""

from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import aclosing
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from midspan._types.exchange import (
    ArgumentsPartDelta,
    DataPartDelta,
    Delta,
    FinishReason,
    ModelEvent,
    ModelRequest,
    ModelResponse,
    PartDelta,
    PartEnd,
    PartEvent,
    PartStart,
    TextPartDelta,
    ThoughtPartDelta,
)
from midspan._types.messages import Message
from midspan._types.parts import Blob, Part, Text, Thought, ToolCall
from midspan.errors import MalformedResponseError, ProviderError
from midspan.providers.encoding import json_text
from midspan.providers.provider import ensure_aclose

_INCOMPLETE = "the arguments are incomplete: the response ended before the call did"


class StreamAccumulator:
    """Builds the parts of a message from the events of a stream.

    `add` takes events that the provider created. `add_text`, `add_thought` and `add_part` create the events, for APIs
    whose streams have no part indices: each returns the events to yield, which are already added.
    """

    def __init__(self, first_index: int = 0) -> None:
        self._parts: dict[int, _OpenPart | Part] = {}
        self.next_index = first_index
        """The index of the next part."""
        self._current: _OpenPart | None = None
        """The text or thought that `add_text` and `add_thought` append to."""
        self._current_index = -1

    def add(self, event: PartEvent) -> PartEvent:
        """Add an event and return it."""
        part = self._parts.get(event.index)
        if isinstance(event, PartStart):
            self._parts[event.index] = _OpenPart(event.part)
        elif isinstance(event, PartEnd) and event.part is not None:
            self._parts[event.index] = event.part
        elif not isinstance(part, _OpenPart):
            raise MalformedResponseError(f"the stream continues part {event.index}, which is not open")
        elif isinstance(event, PartDelta):
            part.append(event.delta)
        else:
            self._parts[event.index] = part.finished(is_complete=True)
        if event.index >= self.next_index:
            self.next_index = event.index + 1
        return event

    def add_text(self, text: str) -> list[PartEvent]:
        """Append to the text that is being streamed, or start one."""
        return self._append(Text, text)

    def add_thought(self, text: str) -> list[PartEvent]:
        return self._append(Thought, text)

    def add_part(self, part: Part) -> list[PartEvent]:
        """Add a part that is complete. A text or a thought without provider data is appended to one that is open."""
        if isinstance(part, Text | Thought) and part.provider_data is None:
            return self._append(type(part), part.text)
        events = self.end_current()
        index = self.reserve()
        self._parts[index] = part
        return [*events, PartStart(index, part), PartEnd(index, part)]

    def reserve(self) -> int:
        """Return the index of the next part, for one that starts later."""
        self.next_index += 1
        return self.next_index - 1

    def end_current(self) -> list[PartEvent]:
        """End the text or thought that is being streamed, if there is one."""
        if self._current is None:
            return []
        self._current = None
        return [self.add(PartEnd(self._current_index))]

    def _append(self, part_type: type[Text] | type[Thought], text: str) -> list[PartEvent]:
        if self._current is not None and type(self._current.part) is part_type:
            self._current.pieces.append(text)
            delta = TextPartDelta(text) if part_type is Text else ThoughtPartDelta(text)
            return [PartDelta(self._current_index, delta)]
        events = self.end_current()
        self._current_index = self.reserve()
        part = part_type(text)
        self._current = self._parts[self._current_index] = _OpenPart(part)
        return [*events, PartStart(self._current_index, part)]

    @property
    def is_empty(self) -> bool:
        return not self._parts

    def parts(self, *, is_complete: bool = True) -> tuple[Part, ...]:
        """Return the parts in the order of their indices.

        Text that is still open is returned as it is. A call that is still open gets an `arguments_error`, unless the
        response `is_complete` and its arguments can be read.
        """
        return tuple(
            part.finished(is_complete=is_complete) if isinstance(part, _OpenPart) else part
            for _, part in sorted(self._parts.items())
        )

    def response(self, finish_reason: FinishReason, **fields: Any) -> ModelResponse:
        """Return the whole response; `fields` are those of `ModelResponse`."""
        parts = self.parts(is_complete=finish_reason is FinishReason.END)
        return ModelResponse(Message("model", parts), finish_reason, **fields)


class _OpenPart(Struct):
    """A part that is being streamed."""

    part: Part
    pieces: list[str] = []

    def append(self, delta: Delta) -> None:
        if isinstance(delta, ArgumentsPartDelta):
            self.pieces.append(delta.json)
        elif isinstance(delta, DataPartDelta):
            self.pieces.append(delta.base64)
            if delta.provider_data is not None:
                self.part = replace(self.part, provider_data=delta.provider_data)
        else:
            self.pieces.append(delta.text)

    def finished(self, *, is_complete: bool) -> Part:
        part, text = self.part, "".join(self.pieces)
        if isinstance(part, ToolCall):
            return with_arguments(part, (part.raw_arguments or "") + text, is_complete=is_complete)
        if not text:
            return part
        if isinstance(part, Text | Thought):
            return type(part)(part.text + text, part.provider_data)
        return replace(part, base64=(part.base64 or "") + text) if isinstance(part, Blob) else part


def with_arguments(call: ToolCall, value: Any, *, is_complete: bool = True) -> ToolCall:
    """Return a call with the arguments that a service sent, as JSON text or as an object."""
    if is_complete and value in (None, "", {}, []):
        return call
    if isinstance(value, dict) and is_complete:
        return replace(call, arguments=value)
    text = value if isinstance(value, str) else json_text(value)
    arguments, error = read_arguments(text)
    if not is_complete:
        error = _INCOMPLETE
    if error is not None:
        return replace(call, arguments={}, raw_arguments=text, arguments_error=error)
    return replace(call, arguments=arguments, raw_arguments=None)


def read_arguments(text: str) -> tuple[dict[str, Any], str | None]:
    """Return the arguments that a service sent as JSON text, and what is wrong with the text."""
    from midspan._schema.lenient_json import InvalidJson, parse_json  # loaded with the first arguments that are text

    try:
        arguments = parse_json(text) if text.strip() else {}
    except InvalidJson as error:
        return {}, f"the arguments are not valid JSON: {error}"
    if not isinstance(arguments, dict):
        return {}, f"the arguments must be a JSON object, not {type(arguments).__name__}"
    return arguments, None


def events_of(response: ModelResponse) -> Iterator[ModelEvent]:
    """Yield a whole response as the events of a stream, for providers that only implement `generate`."""
    yield from parts_as_events(response.message.parts)
    yield response


class NonStreamingProvider:
    """A base class for providers that do not stream. They define `model`, `profile` and `generate`."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Return the whole response. See `Provider`."""
        raise NotImplementedError

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the parts of the response, and then the whole response."""
        for event in events_of(await self.generate(request)):
            yield event

    async def aclose(self) -> None:
        """Do nothing: there is no connection."""


def parts_as_events(parts: Iterable[Part]) -> Iterator[PartEvent]:
    """Yield parts as events. Two texts in a row are pieces of one text."""
    accumulator = StreamAccumulator()
    for part in parts:
        yield from accumulator.add_part(part)
    yield from accumulator.end_current()


async def collect(stream: AsyncIterator[ModelEvent]) -> ModelResponse:
    """Return the response at the end of a stream, for providers that only implement `stream`.

    An error after the first event carries the parts so far as `partial_response`, which counts no completed request.
    """
    accumulator = StreamAccumulator()
    try:
        async with aclosing(ensure_aclose(stream)) as events:
            async for event in events:
                if isinstance(event, ModelResponse):
                    return event
                accumulator.add(event)
    except ProviderError as error:
        if error.partial_response is None and not accumulator.is_empty:
            error.partial_response = accumulator.response(FinishReason.CUT, requests=0)
        raise
    return accumulator.response(FinishReason.CUT)
