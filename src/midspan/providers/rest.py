"""A client for JSON APIs over HTTP: URLs, credentials, retries, and HTTP errors as exceptions of `midspan.errors`."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

import msgspec

from midspan._http.messages import HttpRequest, HttpResponse, check_base_url
from midspan._http.retry import Clock, RetryPolicy, RetryState
from midspan._http.transport import HttpStream, Transport
from midspan._types.exchange import OnRetry
from midspan.errors import ConfigError, IncompleteResponseError, MalformedResponseError, ProviderError
from midspan.providers.auth import Auth, HiddenValues, Masker, is_secret

_log = logging.getLogger("midspan.providers")


class Reader(Protocol):
    """Gets the bytes of a streamed response piece by piece and returns the items that each piece completes."""

    def feed(self, piece: bytes) -> Iterable[Any]: ...

    def end(self) -> Iterable[Any]: ...

    @property
    def is_empty(self) -> bool: ...

    @property
    def is_complete(self) -> bool:
        """Whether the response has ended, so that a connection that breaks now has lost nothing."""


T = TypeVar("T")
AnyReader = TypeVar("AnyReader", bound=Reader)
_UNEXPECTED = (msgspec.MsgspecError, ValueError, RecursionError, LookupError, TypeError, AttributeError)
"""What reading a response of an unexpected form raises."""
Response = HttpResponse | HttpStream
ErrorParser = Callable[[Response, bytes], ProviderError]
"""Converts a response with an error status, and its body, to an exception."""


class RestClient:
    """One service at one URL with one set of credentials. Tasks, event loops and threads may share it.

    `base_url` may have a path and a query, which is added to each request. `headers` are sent with each request;
    those whose names look like credentials are masked in errors like those of `auth`.
    """

    def __init__(
        self,
        base_url: str,
        auth: Auth,
        parse_error: ErrorParser,
        service: str,
        *,
        transport: Transport | None = None,
        retry: RetryPolicy | None = None,
        clock: Clock | None = None,
        headers: Mapping[str, str] | None = None,
        max_request_bytes: int | None = None,
    ) -> None:
        for name, value, expected in (("transport", transport, Transport), ("retry", retry, RetryPolicy)):
            if value is not None and not isinstance(value, expected):
                raise ConfigError(f"{name} must be a {expected.__name__}, got {value!r:.80}")
        address, _, self._query = base_url.partition("?")
        self.base_url = check_base_url(address)
        self.service = service
        self._auth = auth
        self._parse_error = parse_error
        self._transport = transport or Transport()
        self._retry = retry or RetryPolicy()
        self._clock = clock or Clock()
        defaults = {"content-type": "application/json"}
        self._headers = defaults | {name.lower(): value for name, value in (headers or {}).items()}
        self._max_request_bytes = max_request_bytes
        self._static_headers: HiddenValues | None = None
        self._masker = Masker()
        self._masker.add(self._headers)

    async def call(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        read: Callable[[bytes], T] = bytes,  # type: ignore[assignment]  # the default returns the body
        on_retry: OnRetry | None = None,
    ) -> T:
        """Send a request and return the body, converted by `read`. A ProviderError that `read` raises can be retried.

        Use it only for requests that can be repeated: a lost response does not tell whether the server has acted.
        """
        started_at, retries = self._clock.monotonic(), None
        while True:
            try:
                headers = self._static_headers or await self._all_headers()
                response = await self._transport.send(self._request(method, path, body, headers))
                if not 200 <= response.status < 300:
                    raise self._parse_error(response, response.body)
                try:
                    return read(response.body)
                except _UNEXPECTED as error:
                    raise self._malformed(error, response.body) from error
            except ProviderError as error:
                self._masker.mask(error)
                retries = retries or RetryState(self._retry, self._clock, started_at, on_retry)
                await retries.wait_or_raise(error)
            except asyncio.CancelledError as cancelled:
                if retries is not None:
                    retries.set_cause(cancelled)
                raise

    async def stream(
        self, path: str, body: bytes, make_reader: Callable[[], AnyReader], *, on_retry: OnRetry | None = None
    ) -> AsyncGenerator[tuple[AnyReader, list[Any]], None]:
        """Send a POST request and yield the reader of the response with the items of each piece, and of its end.

        Until the first items arrive the request is retried, each time with a new reader. After that the caller has
        seen a part of the response, and errors are raised.
        """
        retries = RetryState(self._retry, self._clock, self._clock.monotonic(), on_retry)
        has_output = False
        while True:
            try:
                request = self._request("POST", path, body, self._static_headers or await self._all_headers())
                async with self._transport.stream(request) as response:
                    if not 200 <= response.status < 300:
                        raise self._parse_error(response, await response.read())
                    reader = make_reader()
                    async for piece in _until_complete(response, reader):
                        items, failure = self._feed(reader, piece)
                        if items and (has_output or failure is None):
                            has_output = True
                            yield reader, items
                        if failure is not None:
                            raise failure
                    items = self.checked(lambda reader: list(reader.end()), reader)
                    if reader.is_empty:
                        raise self._empty_stream(response)
                    yield reader, items
                    return
            except ProviderError as error:
                self._masker.mask(error)
                if has_output:
                    raise
                await retries.wait_or_raise(error)
            except asyncio.CancelledError as cancelled:
                retries.set_cause(cancelled)
                raise

    def _feed(self, reader: Reader, piece: bytes) -> tuple[list[Any], ProviderError | None]:
        """Return the items that a piece completes, and the error that follows them in the same piece."""
        items: list[Any] = []
        try:
            items += reader.feed(piece)
        except ProviderError as error:
            return items, error
        except _UNEXPECTED as error:
            return items, self._malformed(error, piece)
        return items, None

    def _empty_stream(self, response: HttpStream) -> ProviderError:
        content_type = response.header("content-type") or ""
        if content_type and "event-stream" not in content_type:
            return MalformedResponseError(f"{self.service} answered {content_type} instead of a stream")
        return IncompleteResponseError(f"{self.service} sent an empty stream", status=response.status)

    def checked(self, read: Callable[..., T], *args: Any) -> T:
        """Return `read(*args)`; a response of an unexpected form is a MalformedResponseError."""
        try:
            return read(*args)
        except _UNEXPECTED as error:
            raise self._malformed(error) from error

    def _malformed(self, error: Exception, data: bytes = b"") -> MalformedResponseError:
        reason = str(error) if isinstance(error, msgspec.MsgspecError) else "a value is missing or has the wrong type"
        if isinstance(error, KeyError):
            reason = f"the field {error} is missing"
        excerpt = f", in {data[:120]!r}" if data else ""
        return MalformedResponseError(f"the response of {self.service} has an unexpected form: {reason}{excerpt}")

    def _request(self, method: str, path: str, body: bytes, headers: HiddenValues) -> HttpRequest:
        limit = self._max_request_bytes
        if limit is not None and len(body) > limit:
            raise ConfigError(f"the request has {len(body):,} bytes; {self.service} accepts at most {limit:,}")
        if _log.isEnabledFor(logging.DEBUG):
            shown = [f"{name}: {'***' if is_secret(name, value) else value}" for name, value in headers.items()]
            # Without the query of the base URL, which may have a key.
            head = "\n".join([f"{method} {self.base_url}/{path}", *shown])
            _log.debug("request:\n%s\n\n%s", head, self._masker.masked(body.decode(errors="replace")))
        if self._query:
            path += f"{'&' if '?' in path else '?'}{self._query}"
        return HttpRequest(method, f"{self.base_url}/{path}", headers, body)

    async def _all_headers(self) -> HiddenValues:
        credentials = HiddenValues(await self._auth.headers())
        headers = HiddenValues({**self._headers, **{name.lower(): value for name, value in credentials.items()}})
        self._masker.add(headers)
        if self._auth.is_static:
            self._static_headers = headers
        return headers

    async def aclose(self) -> None:
        await self._transport.aclose()


async def _until_complete(response: HttpStream, reader: Reader) -> AsyncGenerator[bytes, None]:
    """Yield the pieces of a response. An error of the connection after the end of the response is ignored."""
    try:
        async for piece in response:
            yield piece
    except ProviderError:
        if not reader.is_complete:
            raise
