"""A client for JSON APIs over HTTP: addresses, credentials, retries, and errors of our own.

Above are providers, which know what is asked; below is the transport, which only carries. What differs between
services is `parse_error` and what a provider encodes and decodes.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from typing import Any, Protocol, TypeVar

import msgspec

from midspan._http.messages import HttpRequest, HttpResponse
from midspan._http.retry import Clock, RetryPolicy, RetryState, SystemClock
from midspan._http.sse import Event, EventStream
from midspan._http.transport import HttpStream, Transport
from midspan._types.exchange import OnRetry
from midspan._version import VERSION
from midspan.errors import (
    AuthenticationError,
    ConfigError,
    InvalidRequest,
    MalformedResponse,
    PermissionDenied,
    ProviderError,
    RateLimited,
    ServerError,
    StreamCut,
)
from midspan.providers.auth import Auth, Masker, SecretHeaders

T = TypeVar("T")
Item = TypeVar("Item", covariant=True)


class Reader(Protocol[Item]):
    """Gets the bytes of a streamed response piece by piece and returns the items that each piece completes."""

    def feed(self, piece: bytes) -> Iterable[Item]: ...

    def end(self) -> Iterable[Item]: ...

    @property
    def is_empty(self) -> bool: ...


AnyReader = TypeVar("AnyReader", bound=Reader[object])
Response = HttpResponse | HttpStream
ParseError = Callable[[Response, bytes], ProviderError]
"""Turns a response with an error status, and its body, into an error of ours."""


class RestClient:
    """One service at one address with one set of credentials. Tasks, event loops and threads may share it."""

    def __init__(
        self,
        base_url: str,
        auth: Auth,
        parse_error: ParseError,
        service: str,
        *,
        transport: Transport | None = None,
        retry: RetryPolicy | None = None,
        clock: Clock | None = None,
        headers: Mapping[str, str] | None = None,
        max_body_bytes: int | None = None,
    ) -> None:
        self.base_url = base_url
        self.service = service
        self._auth = auth
        self._parse_error = parse_error
        self._transport = transport or Transport()
        self._retry = retry or RetryPolicy()
        self._clock = clock or SystemClock()
        self._headers = {"user-agent": f"midspan/{VERSION}", "content-type": "application/json", **(headers or {})}
        self._max_body_bytes = max_body_bytes
        self._static_headers: SecretHeaders | None = None
        self._masker = Masker()
        self._masker.add(self._headers)

    async def call(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        read: Callable[[bytes], T] = bytes,  # type: ignore[assignment]  # bytes reads bytes
        on_retry: OnRetry | None = None,
    ) -> T:
        """Send a request and return what `read` makes of the body. A body that it cannot read is a retryable error."""
        started_at, attempts = self._clock.monotonic(), None
        while True:
            try:
                headers = self._static_headers or await self._all_headers()
                response = await self._transport.send(self._request(method, path, body, headers))
                if not 200 <= response.status < 300:
                    raise self._parse_error(response, response.body)
                return read(response.body)
            except ProviderError as error:
                self._masker.mask(error)
                attempts = attempts or RetryState(self._retry, self._clock, started_at, on_retry)
                await attempts.wait_or_raise(error)
            except asyncio.CancelledError as cancelled:
                if attempts is not None:
                    attempts.set_cause(cancelled)
                raise

    async def stream(
        self, path: str, body: bytes, make_reader: Callable[[], AnyReader], *, on_retry: OnRetry | None = None
    ) -> AsyncGenerator[tuple[AnyReader, list[object]], None]:
        """Yield the reader of a streamed response with the items of each piece; the last time, those of its end.

        Until the first items arrive the request is retried, each time with a new reader. After that the caller has
        seen the beginning and must decide whether to ask again.
        """
        attempts = RetryState(self._retry, self._clock, on_retry=on_retry)
        async with AsyncExitStack() as opened:
            while True:
                try:
                    reader, items, pieces = await self._open(opened, path, body, make_reader)
                    break
                except ProviderError as error:
                    self._masker.mask(error)
                    await opened.aclose()
                    await attempts.wait_or_raise(error)
                except asyncio.CancelledError as cancelled:
                    attempts.set_cause(cancelled)
                    raise
            yield reader, items
            if pieces is not None:
                try:
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
                except ProviderError as error:
                    self._masker.mask(error)
                    raise

    async def _open(
        self, opened: AsyncExitStack, path: str, body: bytes, make_reader: Callable[[], AnyReader]
    ) -> tuple[AnyReader, list[object], AsyncIterator[bytes] | None]:
        """Start a stream and read its first items; without an iterator there is nothing more to read."""
        request = self._request("POST", path, body, self._static_headers or await self._all_headers())
        response = await opened.enter_async_context(self._transport.stream(request))
        if not 200 <= response.status < 300:
            raise self._parse_error(response, await response.read())
        reader, pieces = make_reader(), aiter(response)
        async for piece in pieces:
            items = list(reader.feed(piece))
            if items:
                return reader, items, pieces
        items = list(reader.end())
        if reader.is_empty:
            raise StreamCut(f"{self.service} ended a stream before it had begun", status=response.status)
        return reader, items, None

    def _request(self, method: str, path: str, body: bytes, headers: SecretHeaders) -> HttpRequest:
        if self._max_body_bytes is not None and len(body) > self._max_body_bytes:
            raise self.refuse_body(len(body))
        return HttpRequest(method, f"{self.base_url}/{path}", headers, body)

    def refuse_body(self, size: int) -> ConfigError:
        """Return the error for a body larger than `max_body_bytes`; a subclass knows what the caller can do instead."""
        return ConfigError(f"the request has {size} bytes, and {self.service} accepts {self._max_body_bytes}")

    async def _all_headers(self) -> SecretHeaders:
        headers = SecretHeaders({**self._headers, **await self._auth.headers()})
        self._masker.add(headers)
        if self._auth.is_static:
            self._static_headers = headers
        return headers

    async def aclose(self) -> None:
        await self._transport.close()


class JsonEventReader:
    """Reads server-sent events whose data is JSON, as most services stream it; `[DONE]` is left out."""

    def __init__(self) -> None:
        self._events = EventStream()
        self.is_empty = True

    def feed(self, piece: bytes) -> list[Any]:
        return self._decode(self._events.feed(piece))

    def end(self) -> list[Any]:
        return self._decode(self._events.end())

    def _decode(self, events: Iterable[Event]) -> list[Any]:
        items: list[Any] = []
        for event in events:
            if event.stray or event.data.strip() in (b"", b"[DONE]"):
                continue
            try:
                items.append(msgspec.json.decode(event.data))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise MalformedResponse(f"the stream holds {event.data[:80]!r}, which is not JSON") from error
        self.is_empty = self.is_empty and not items
        return items


def status_error(status: int, message: str, *, retry_delay_seconds: float | None = None) -> ProviderError:
    """Return the error that an HTTP status usually means, for services whose errors say no more."""
    match status:
        case 401:
            return AuthenticationError(message, status=status)
        case 403:
            return PermissionDenied(message, status=status)
        case 429:
            return RateLimited(message, status=status, retry_delay_seconds=retry_delay_seconds)
    if 300 <= status < 500 and status != 408:
        return InvalidRequest(message, status=status)
    return ServerError(message, status=status, retry_delay_seconds=retry_delay_seconds)


def can_connect(url: str, timeout: float) -> bool:
    """Whether a TCP connection can be opened to the host of a URL, or to the proxy that leads there."""
    import socket
    from urllib.parse import urlsplit

    from midspan._http.routes import Proxies

    try:
        parts = urlsplit(Proxies().proxy_for(url) or url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        with socket.create_connection((parts.hostname or "", port), timeout):
            return True
    except (OSError, ValueError):  # ConfigError, of a proxy that cannot be used, is one
        return False
