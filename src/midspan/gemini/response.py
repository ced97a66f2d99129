"""Responses of the Gemini API, whole and as streams of chunks, with everything that the server sent."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from functools import cached_property
from typing import Any, Self, TypeVar, overload

from msgspec import Raw
from msgspec.structs import replace

from midspan._loop.blocking import ClosableFromSyncCode, iterate
from midspan._schema.adapt import adapt_schema
from midspan._types.exchange import ModelResponse, PartDelta, PartStart, TextPartDelta, ThoughtPartDelta
from midspan._types.messages import Message
from midspan._types.parts import Part, Text, Thought, is_local_id
from midspan._types.texts import count_noun
from midspan.errors import ArgumentError, ConfigError, MalformedResponseError
from midspan.gemini.types import FunctionCall
from midspan.providers.gemini import wire
from midspan.providers.gemini.capabilities import GEMINI_JSON_SCHEMA
from midspan.providers.gemini.proto import load
from midspan.providers.gemini.stream import StreamDecoder

T = TypeVar("T")


class GenerateContentResponse:
    """A response, or a chunk of one. What the server sent is converted to types when it is used."""

    def __init__(
        self, model_response: ModelResponse, text: str | None = None, *, output_type: Any = Any, is_chunk: bool = False
    ) -> None:
        """`text` replaces that of the response; `output_type` is the type that was requested for it."""
        self.model_response = model_response
        """The response in the form that all providers share."""
        self.is_chunk = is_chunk
        """Whether it is one chunk of a stream."""
        self._text = text
        self._output_type = output_type

    @property
    def message(self) -> Message:
        """The response as a message of a History, which sends it back byte for byte."""
        return self.model_response.message

    @cached_property
    def chunks(self) -> tuple[wire.GenerateContentResponse, ...]:
        """What the server sent, one for each chunk of a stream."""
        chunks = []
        for raw in self.model_response.raw:
            chunk = load(wire.GenerateContentResponse, raw)
            candidates = [
                replace(candidate, content=candidate.content and _with_args(candidate.content))
                for candidate in chunk.candidates or ()
            ]
            chunks.append(replace(chunk, candidates=candidates) if candidates else chunk)
        return tuple(chunks)

    @cached_property
    def content(self) -> wire.Content:
        """The turn of the model, for the contents of the next request."""
        data = self.model_response.message.provider_data
        if data is not None and data.raw:
            return _with_args(load(wire.Content, data.raw))
        contents = [candidate.content for candidate in self.candidates if candidate.content]
        return contents[0] if contents and self.is_chunk else wire.Content(role="model", parts=[])

    @property
    def candidates(self) -> list[wire.Candidate]:
        """The candidates of the last chunk that has any."""
        return next((chunk.candidates for chunk in reversed(self.chunks) if chunk.candidates), [])

    @property
    def parts(self) -> list[wire.Part]:
        return self.content.parts or []

    @property
    def text(self) -> str:
        """The text of the answer without thoughts; empty if there is none."""
        return self.model_response.message.text if self._text is None else self._text

    @property
    def function_calls(self) -> list[FunctionCall]:
        """The complete calls. Of a chunk: the calls that it completed, which may have begun in earlier chunks."""
        return [
            FunctionCall(name=call.name, args=call.arguments, id=None if is_local_id(call.id) else call.id)
            for call in self.model_response.message.calls
        ]

    @property
    def finish_reason(self) -> str | None:
        return self.model_response.raw_finish_reason

    @property
    def usage_metadata(self) -> wire.UsageMetadata | None:
        return next((chunk.usage_metadata for chunk in reversed(self.chunks) if chunk.usage_metadata), None)

    @overload
    def parsed(self, output_type: type[T]) -> T: ...

    @overload
    def parsed(self, output_type: Any = None) -> Any: ...

    def parsed(self, output_type: Any = None) -> Any:
        """Return the answer, which is JSON, as a value of a type, such as a dataclass or `list[int]`.

        The default is the type that was passed as `response_schema`; if that was none, plain JSON data.
        """
        from midspan._schema.output_type import OutputType, parse_json_answer  # loaded with the first structured answer

        output_type = self._output_type if output_type is None else output_type
        try:
            value = parse_json_answer(self.text)
            if output_type is Any:
                return value
            output = OutputType(output_type)
            return output.parse(adapt_schema(output.schema, GEMINI_JSON_SCHEMA, arguments=False).restore_names(value))
        except ArgumentError as error:
            raise MalformedResponseError(f"the answer is not the requested JSON: {error}") from error

    def __repr__(self) -> str:
        return f"<response {self.finish_reason}: {self.text[:60]!r}, {count_noun(len(self.function_calls), 'call')}>"


def _with_args(content: wire.Content) -> wire.Content:
    """Return a content whose complete calls have arguments; a server leaves out empty ones."""
    parts = [
        replace(part, function_call=replace(call, args={}))
        if (call := part.function_call) and call.args is None and call.partial_args is None and not call.will_continue
        else part
        for part in content.parts or ()
    ]
    return replace(content, parts=parts) if parts else content


class ChunkReader(StreamDecoder):
    """A decoder that yields chunks in place of events."""

    def end(self) -> Iterator[Any]:
        return (item for item in super().end() if isinstance(item, GenerateContentResponse))

    def add(self, document: bytes) -> list[Any]:
        parts: list[Part] = []
        for event in super().add(document):
            match event:
                case PartStart(part=part):
                    parts.append(part)
                case PartDelta(delta=TextPartDelta(text)):
                    parts.append(Text(text))
                case PartDelta(delta=ThoughtPartDelta(text)):
                    parts.append(Thought(text))
        answer = ModelResponse(Message("model", tuple(parts)), *self.finish_reason, raw=(Raw(document),))
        return [GenerateContentResponse(answer, is_chunk=True)]


class ResponseStream(ClosableFromSyncCode):
    """The chunks of a response, read once, in async or sync code. After the last one, `response` is the whole response.

    If the response was cut, IncompleteResponseError is raised after the last chunk, and `response` is what arrived.
    """

    def __init__(self, items: AsyncGenerator[GenerateContentResponse, None]) -> None:
        """`items` yields the chunks, and the whole response last."""
        self._items = items
        self._was_iterated = False
        self._closing = asyncio.Lock()
        self._response: GenerateContentResponse | None = None

    @property
    def response(self) -> GenerateContentResponse:
        if self._response is None:
            raise ConfigError("the stream has not ended; read all of its chunks first")
        return self._response

    def __aiter__(self) -> Self:
        if self._was_iterated:
            raise ConfigError("the chunks of a response can be read only once; send the request again")
        self._was_iterated = True
        return self

    async def __anext__(self) -> GenerateContentResponse:
        item = await anext(self._items)
        if not item.is_chunk:
            self._response = item
            item = await anext(self._items)
        return item

    def __iter__(self) -> Iterator[GenerateContentResponse]:
        return iterate(aiter(self))

    async def aclose(self) -> None:
        async with self._closing:  # the end of a `for` loop closes it, too, and may still be doing so
            await self._items.aclose()
