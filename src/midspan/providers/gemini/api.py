"""The REST calls of the Gemini API: addressed, authorised, tried again where that helps, refused in our own errors.

Above are the provider and the typed client, which know what is asked; below is the transport, which only carries.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from typing import Protocol, TypeVar

from midspan.errors import ConfigError, ProviderError, StreamCut
from midspan.http.clock import Clock, SystemClock
from midspan.http.messages import HttpRequest, HttpResponse
from midspan.http.retry import RetryPolicy, RetryState
from midspan.http.transport import HttpStream, Transport
from midspan.providers.gemini.capabilities import LARGEST_REQUEST
from midspan.providers.gemini.credentials import ApiKey, Credentials, SecretHeaders
from midspan.providers.gemini.endpoint import Endpoint
from midspan.providers.gemini.refusals import refusal
from midspan.version import VERSION

T = TypeVar("T")
Item = TypeVar("Item", covariant=True)


class Reader(Protocol[Item]):
    """Whatever is fed the bytes of a stream and gives what they complete."""

    def feed(self, piece: bytes) -> Iterable[Item]: ...

    def end(self) -> Iterable[Item]: ...

    @property
    def is_empty(self) -> bool: ...


AnyReader = TypeVar("AnyReader", bound=Reader[object])


class GeminiApi:
    """One endpoint with one set of credentials; safe to share between tasks, loops and threads."""

    def __init__(
        self,
        endpoint: Endpoint,
        credentials: Credentials,
        *,
        transport: Transport | None = None,
        retry: RetryPolicy | None = None,
        clock: Clock | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.endpoint = endpoint
        self._credentials = credentials
        self._transport = transport or Transport()
        self._retry = retry or RetryPolicy()
        self._clock = clock or SystemClock()
        self._headers = {"user-agent": f"midspan/{VERSION}", "content-type": "application/json", **(headers or {})}
        self._fixed_headers: SecretHeaders | None = None

    async def call(self, method: str, path: str, body: bytes = b"", *, read: Callable[[bytes], T] = bytes) -> T:  # type: ignore[assignment]  # bytes reads bytes
        """What `read` makes of the body of the answer; what it cannot read is asked for again, too."""
        attempts = RetryState(self._retry, self._clock)
        while True:
            try:
                response = await self._transport.send(await self._request(method, path, body))
                if not 200 <= response.status < 300:
                    raise _refusal(response, response.body)
                return read(response.body)
            except ProviderError as error:
                await attempts.wait_or_raise(error)
            except asyncio.CancelledError as cancelled:
                attempts.set_cause(cancelled)
                raise

    async def stream(
        self, path: str, body: bytes, make_reader: Callable[[], AnyReader]
    ) -> AsyncGenerator[tuple[AnyReader, list[object]], None]:
        """The reader of a streamed answer with what each piece completed; the last time, what its end did.

        As long as nothing was given it is tried again, each time with a new reader; after that the caller has seen the
        beginning, and whether to ask once more is for him to say.
        """
        attempts = RetryState(self._retry, self._clock)
        async with AsyncExitStack() as opened:
            while True:
                try:
                    reader, items, pieces = await self._begun(opened, path, body, make_reader)
                    break
                except ProviderError as error:
                    await opened.aclose()
                    await attempts.wait_or_raise(error)
                except asyncio.CancelledError as cancelled:
                    attempts.set_cause(cancelled)
                    raise
            yield reader, items
            if pieces is not None:
                async for piece in pieces:
                    items, failure = [], None
                    try:
                        items += reader.feed(piece)
                    except ProviderError as error:  # it may follow something within the same piece
                        failure = error
                    if items:
                        yield reader, items
                    if failure is not None:
                        raise failure
                yield reader, list(reader.end())

    async def _begun(
        self, opened: AsyncExitStack, path: str, body: bytes, make_reader: Callable[[], AnyReader]
    ) -> tuple[AnyReader, list[object], AsyncIterator[bytes] | None]:
        """A stream up to its first items; nothing to read more from if they are all."""
        response = await opened.enter_async_context(self._transport.stream(await self._request("POST", path, body)))
        if not 200 <= response.status < 300:
            raise _refusal(response, await response.read())
        reader, pieces = make_reader(), aiter(response)
        async for piece in pieces:
            items = list(reader.feed(piece))
            if items:
                return reader, items, pieces
        items = list(reader.end())
        if reader.is_empty:
            raise StreamCut("Gemini ended a stream before it had begun", status=response.status)
        return reader, items, None

    async def _request(self, method: str, path: str, body: bytes) -> HttpRequest:
        if len(body) > LARGEST_REQUEST:
            raise ConfigError(
                f"the request weighs {len(body) / 2**20:.1f} MB, and the API takes {LARGEST_REQUEST // 2**20}; "
                "upload large files with the Files API and give Part.from_uri(…)"
            )
        return HttpRequest(method, self.endpoint.url(path), self._fixed_headers or await self._all_headers(), body)

    async def _all_headers(self) -> SecretHeaders:
        if self._fixed_headers is not None:
            return self._fixed_headers
        headers = SecretHeaders({**self._headers, **await self._credentials.headers()})
        if isinstance(self._credentials, ApiKey):
            self._fixed_headers = headers
        return headers

    async def close(self) -> None:
        await self._transport.close()


def _refusal(response: HttpResponse | HttpStream, body: bytes) -> ProviderError:
    return refusal(response.status, body, response.header("retry-after"), response.header("location"))
