"""A streamed answer as the caller takes it, in async and in plain code."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import TYPE_CHECKING, Self, cast

from midspan._loop.blocking import iterate, run_blocking
from midspan._types.exchange import FinishReason
from midspan.errors import ConfigError, StreamCut
from midspan.gemini.response import ChunkReader, GenerateContentResponse

if TYPE_CHECKING:
    from midspan.gemini.auto import AutoStream


class AsyncResponseStream:
    """The chunks of an answer, to be taken once; when they are over, `response` is all of it.

    If the answer was cut, StreamCut is raised after the last chunk, and `response` is what came.
    """

    def __init__(self, chunks: AsyncIterator[tuple[ChunkReader, list[object]]]) -> None:
        self._chunks = cast("AsyncGenerator[tuple[ChunkReader, list[GenerateContentResponse]]]", chunks)
        self._taken = False
        self._response: GenerateContentResponse | None = None

    @property
    def response(self) -> GenerateContentResponse:
        if self._response is None:
            raise ConfigError("the stream is not over yet; take all of its chunks first")
        return self._response

    async def __aiter__(self) -> AsyncIterator[GenerateContentResponse]:
        if self._taken:
            raise ConfigError("a stream can be taken only once; ask again for another one")
        self._taken = True
        reader: ChunkReader | None = None
        try:
            async for now, chunks in self._chunks:
                reader = now
                for chunk in chunks:
                    yield chunk
        finally:
            await self._chunks.aclose()
        assert reader is not None, "the last item of a stream comes with its reader"
        self._response = reader.whole()
        if self._response.answer.finish_reason is FinishReason.CUT:
            raise StreamCut("Gemini ended the stream without saying that the answer is whole", status=200)

    async def aclose(self) -> None:
        """Leave the stream, wherever it is."""
        self._taken = True
        await self._chunks.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class ResponseStream:
    """The chunks of an answer for plain code; see `AsyncResponseStream`."""

    def __init__(self, stream: "AsyncResponseStream | AutoStream") -> None:
        self._stream = stream

    @property
    def response(self) -> GenerateContentResponse:
        return self._stream.response

    def __iter__(self) -> Iterator[GenerateContentResponse]:
        return iterate(aiter(self._stream))

    def close(self) -> None:
        run_blocking(self._stream.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
