"""Two calls over HTTP, send and stream: the one way from Midspan to the network.

Above are the providers, who know what they ask and what an answer means; below is aiohttp, which is loaded with the
first request. It knows nothing of models, does not follow redirects (services have none) and judges no status: what a
server answers is an answer. What does not arrive is an error of ours.
"""

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self

from midspan.errors import ConfigError
from midspan.http.deadlines import Deadlines
from midspan.http.loops import PoolPerLoop
from midspan.http.messages import HttpRequest, HttpResponse, header
from midspan.http.watch import Wait

if TYPE_CHECKING:
    from midspan.http.pool import Pool
    from midspan.http.response import Response

__all__ = ["Deadlines", "HttpRequest", "HttpResponse", "HttpStream", "Transport"]

_LARGEST_BODY = 256 * 2**20


class Transport:
    """Sends requests from any thread and any event loop; connections are kept per loop and closed with it.

    `connections` is how many requests of one loop may be under way at once, None for as many as there are; the others
    wait, which counts in no deadline. `largest_body` is how many bytes the body of a response may have, streamed or
    not, after it was decompressed; a larger one is not read further, so that no server can fill the memory.
    """

    def __init__(
        self,
        deadlines: Deadlines | None = None,
        *,
        connections: int | None = None,
        largest_body: int | None = _LARGEST_BODY,
    ) -> None:
        for name, limit in (("connections", connections), ("largest_body", largest_body)):
            if limit is not None and (type(limit) is not int or limit < 1):
                raise ConfigError(f"{name} is {limit!r}; it is a number above 0, or None for no limit")
        if deadlines is not None and not isinstance(deadlines, Deadlines):
            raise ConfigError(f"{deadlines!r} is no Deadlines; give Transport(Deadlines(total=…)) to limit the time")
        self._deadlines = deadlines or Deadlines()
        self._largest_body = largest_body
        self._pools = PoolPerLoop(connections)

    async def send(self, request: HttpRequest, deadlines: Deadlines | None = None) -> HttpResponse:
        """The response with its whole body."""
        async with self.stream(request, deadlines) as answer:
            return HttpResponse(answer.status, answer.headers, await answer.read())

    def stream(self, request: HttpRequest, deadlines: Deadlines | None = None) -> "HttpStream":
        """The response as it arrives, within `async with`; leaving that early closes the connection."""
        return HttpStream(self._pools, request, deadlines or self._deadlines, self._largest_body)

    async def close(self) -> None:
        """Close the connections of this event loop; a request after that opens new ones."""
        await self._pools.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class HttpStream:
    """A response whose body is still arriving: iterate over its pieces, of any size, or `read` all that is left."""

    __slots__ = (
        "_deadlines", "_largest", "_left", "_pool", "_pools", "_request", "_response", "_wait", "headers", "status"
    )  # fmt: skip

    status: int
    headers: Mapping[str, str]

    def __init__(
        self, pools: PoolPerLoop, request: HttpRequest, deadlines: Deadlines, largest_body: int | None = None
    ) -> None:
        self._pools = pools
        self._request = request
        self._deadlines = deadlines
        self._largest = largest_body
        self._left = float("inf") if largest_body is None else largest_body

    def header(self, name: str) -> str | None:
        """The header of that name, in whatever case either of us writes it."""
        return header(self.headers, name)

    # Errors are raised outside the `except`: within, the foreign one, which may tell secrets, would go along.

    async def __aenter__(self) -> Self:
        self._pool: Pool = self._pools.current() or await self._pools.begin()
        self._wait = Wait(self._pool.watch, self._deadlines)
        try:
            response = await self._pool.open(self._request, self._wait)
        except BaseException as error:  # noqa: BLE001 - aiohttp and the network are foreign
            self._wait.end()
            failure = self._failure(error, in_body=False)
        else:
            self._wait.answered(response.give_up)
            self._response: Response = response
            self.status = response.status
            self.headers = response.headers
            return self
        raise failure

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        content = self._response.content
        if not content.is_eof():  # else the rest is here already
            self._wait.begin("between_bytes")
        try:
            piece = await content.readany()
        except BaseException as error:  # noqa: BLE001 - as above
            self._wait.pause()
            failure = self._failure(error, in_body=True)
        else:
            self._wait.pause()
            self._left -= len(piece)
            if piece and self._left >= 0:
                return piece
            if piece:
                failure = self._too_large()
            elif (broken := content.exception()) is not None:  # it came to an end that is none
                failure = self._failure(broken, in_body=True)
            else:
                failure = StopAsyncIteration()
        raise failure

    async def read(self) -> bytes:
        """All that has not been given yet."""
        pieces, content = [], self._response.content
        async for piece in self:
            pieces.append(piece)
            if content.at_eof() and content.exception() is None:
                break
        return b"".join(pieces)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._wait.end()
        self._pool.done(self._response)

    def _too_large(self) -> BaseException:
        from midspan.http.failures import too_large

        self._response.done()
        return too_large(self._request, self._largest)

    def _failure(self, error: BaseException, *, in_body: bool) -> BaseException:
        from midspan.http.failures import closed, cut, timed_out, unanswered

        if self._wait.gave_up(error):
            if self._wait.expired is None:
                return closed(self._request)
            return timed_out(self._wait.expired, self._request, self._deadlines)
        return (cut if in_body else unanswered)(error, self._request)
