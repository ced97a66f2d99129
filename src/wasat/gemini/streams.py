"""A streamed answer as the caller takes it, in async and in plain code."""

from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import cast

from wasat.errors import ConfigError
from wasat.gemini.response import ChunkReader, GenerateContentResponse
from wasat.loop.blocking import iterate


class AsyncResponseStream:
    """The chunks of an answer; once they are over, `response` is all of it."""

    def __init__(self, chunks: AsyncIterator[tuple[ChunkReader, list[object]]]) -> None:
        self._chunks = chunks
        self._reader: ChunkReader | None = None
        self._response: GenerateContentResponse | None = None

    @property
    def response(self) -> GenerateContentResponse:
        if self._response is None:
            raise ConfigError("the stream is not over yet; take all of its chunks first")
        return self._response

    async def __aiter__(self) -> AsyncIterator[GenerateContentResponse]:
        async with aclosing(self._chunks):  # type: ignore[type-var]  # an async generator, declared as an iterator
            async for reader, chunks in self._chunks:
                self._reader = reader
                for chunk in chunks:
                    yield cast("GenerateContentResponse", chunk)
        assert self._reader is not None, "the last item of a stream comes with its reader"
        self._response = self._reader.whole()


class ResponseStream:
    """The chunks of an answer for plain code; once they are over, `response` is all of it."""

    def __init__(self, stream: AsyncResponseStream) -> None:
        self._stream = stream

    @property
    def response(self) -> GenerateContentResponse:
        return self._stream.response

    def __iter__(self) -> Iterator[GenerateContentResponse]:
        return iterate(aiter(self._stream))
