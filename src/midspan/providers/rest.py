"""A client for JSON APIs over HTTP: URLs, credentials, retries, and HTTP errors as exceptions of `midspan.errors`.

Above are providers, which encode requests and decode responses; below is the HTTP transport. Services differ in
`parse_error`, which the provider passes in.
"""

import asyncio
import logging
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Protocol, TypeVar

import msgspec

from midspan._http.body import Event, EventStream
from midspan._http.messages import DEFAULT_PORTS, HttpRequest, HttpResponse, check_base_url
from midspan._http.retry import Clock, RetryPolicy, RetryState, SystemClock
from midspan._http.transport import HttpStream, Transport
from midspan._types.exchange import OnRetry
from midspan._types.texts import truncate
from midspan._version import VERSION
from midspan.errors import (
    AuthenticationError,
    ConfigError,
    IncompleteResponseError,
    InvalidRequestError,
    MalformedResponseError,
    PermissionDeniedError,
    ProviderError,
    RateLimitError,
    ServerError,
)
from midspan.providers.auth import Auth, Masker, SecretHeaders, is_secret

T = TypeVar("T")
Item = TypeVar("Item", covariant=True)


class Reader(Protocol[Item]):
    """Gets the bytes of a streamed response piece by piece and returns the items that each piece completes."""

    def feed(self, piece: bytes) -> Iterable[Item]: ...

    def end(self) -> Iterable[Item]: ...

    @property
    def is_empty(self) -> bool: ...


_log = logging.getLogger("midspan.providers")

AnyReader = TypeVar("AnyReader", bound=Reader[object])
_UNEXPECTED = (msgspec.MsgspecError, UnicodeDecodeError, LookupError, TypeError, AttributeError)
"""What code that reads a response raises if the response does not have the form that the code expects."""
Response = HttpResponse | HttpStream
ParseError = Callable[[Response, bytes], ProviderError]
"""Converts a response with an error status, and its body, to an exception."""
ParseEventError = Callable[[str, Any], ProviderError | None]
"""Gets the name and the data of an event; returns the error that it reports, or None if it reports none."""


class RestClient:
    """One service at one URL with one set of credentials. Tasks, event loops and threads may share it.

    `base_url` may have a path and a query, which is added to each request. `headers` are sent with each request;
    those whose names look like credentials are masked in errors like those of `auth`.
    """

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
        address, _, self._query = base_url.partition("?")
        self.base_url = check_base_url(address)
        self.service = service
        self._auth = auth
        self._parse_error = parse_error
        self._transport = transport or Transport()
        self._retry = retry or RetryPolicy()
        self._clock = clock or SystemClock()
        defaults = {"user-agent": f"midspan/{VERSION}", "content-type": "application/json"}
        self._headers = {**defaults, **{name.lower(): value for name, value in (headers or {}).items()}}
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
        """Send a request and return the body, converted by `read`. A ProviderError that `read` raises can be retried.

        Use it only for requests that can be repeated: a lost response does not tell whether the server has acted.
        """
        started_at, attempts = self._clock.monotonic(), None
        while True:
            try:
                headers = self._static_headers or await self._all_headers()
                response = await self._transport.send(self._request(method, path, body, headers))
                if not 200 <= response.status < 300:
                    raise self._parse_error(response, response.body)
                try:
                    return read(response.body)
                except _UNEXPECTED as error:
                    raise self._malformed(error) from error
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
        """Send a POST request and yield the reader of the response with the items of each piece, and of its end.

        Until the first items arrive the request is retried, each time with a new reader. After that the caller has
        seen a part of the response, and errors are raised.
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
                        except ProviderError as error:  # after the items that precede it in the same piece
                            failure = error
                        except _UNEXPECTED as error:
                            failure = self._malformed(error)
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
        """Start a stream and read its first items. Without an iterator there is nothing more to read."""
        request = self._request("POST", path, body, self._static_headers or await self._all_headers())
        response = await opened.enter_async_context(self._transport.stream(request))
        if not 200 <= response.status < 300:
            raise self._parse_error(response, await response.read())
        reader, pieces = make_reader(), aiter(response)
        try:
            async for piece in pieces:
                items = list(reader.feed(piece))
                if items:
                    return reader, items, pieces
            items = list(reader.end())
        except _UNEXPECTED as error:
            raise self._malformed(error) from error
        if reader.is_empty:
            content_type = response.header("content-type") or ""
            if content_type and "event-stream" not in content_type:
                raise MalformedResponseError(f"{self.service} answered {content_type} instead of a stream")
            raise IncompleteResponseError(f"{self.service} sent an empty stream", status=response.status)
        return reader, items, None

    def checked(self, read: Callable[[], T]) -> T:
        """Return what `read` returns; a response of an unexpected form is a MalformedResponseError."""
        try:
            return read()
        except _UNEXPECTED as error:
            raise self._malformed(error) from error

    def _malformed(self, error: Exception) -> MalformedResponseError:
        return MalformedResponseError(f"the response of {self.service} has an unexpected form: {error}")

    def _request(self, method: str, path: str, body: bytes, headers: SecretHeaders) -> HttpRequest:
        if self._max_body_bytes is not None and len(body) > self._max_body_bytes:
            raise self.body_too_large(len(body))
        if _log.isEnabledFor(logging.DEBUG):
            self._log_request(method, path, body, headers)
        if self._query:
            path += f"{'&' if '?' in path else '?'}{self._query}"
        return HttpRequest(method, f"{self.base_url}/{path}", headers, body)

    def _log_request(self, method: str, path: str, body: bytes, headers: SecretHeaders) -> None:
        shown = {name: "***" if is_secret(name, value) else value for name, value in headers.items()}
        # Without the query of the base URL, which may have a key.
        lines = [f"{method} {self.base_url}/{path}", *(f"{name}: {value}" for name, value in shown.items())]
        _log.debug("request:\n%s\n\n%s", "\n".join(lines), self._masker.masked_text(body.decode(errors="replace")))

    def body_too_large(self, size: int) -> ConfigError:
        """Return the error for a body larger than `max_body_bytes`. Subclasses can add what to do instead."""
        return ConfigError(f"the request has {size:,} bytes; {self.service} accepts at most {self._max_body_bytes:,}")

    async def _all_headers(self) -> SecretHeaders:
        credentials = SecretHeaders(await self._auth.headers())
        headers = SecretHeaders({**self._headers, **{name.lower(): value for name, value in credentials.items()}})
        self._masker.add(headers)
        if self._auth.is_static:
            self._static_headers = headers
        return headers

    async def aclose(self) -> None:
        await self._transport.aclose()


class JsonEventReader:
    """Reads server-sent events whose data is JSON. Other lines and `[DONE]` are skipped.

    With `parse_error`, events that report an error raise it. Such an error is retried if it comes first.
    """

    def __init__(self, parse_error: ParseEventError | None = None) -> None:
        self._events = EventStream()
        self._parse_error = parse_error
        self.is_empty = True

    def feed(self, piece: bytes) -> Iterator[Any]:
        return self._decode(self._events.feed(piece))

    def end(self) -> Iterator[Any]:
        return self._decode(self._events.end())

    def _decode(self, events: Iterable[Event]) -> Iterator[Any]:
        for event in events:
            if event.stray or event.data.strip() in (b"", b"[DONE]"):
                continue
            try:
                item = msgspec.json.decode(event.data)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise MalformedResponseError(f"an event of the stream is not JSON: {event.data[:80]!r}") from error
            if self._parse_error is not None and (failure := self._parse_error(event.name, item)) is not None:
                raise failure
            self.is_empty = False
            yield item


def status_error(response: Response, message: str) -> ProviderError:
    """Return the error that the status of a response usually means, with the delay that its headers ask for."""
    location = response.header("location") if 300 <= response.status < 400 else None
    if location:
        message += f" ({describe_redirect(location)})"
    return error_for_status(response.status, message, delay=retry_delay(response))


_STATUS_ERRORS = {401: AuthenticationError, 403: PermissionDeniedError, 429: RateLimitError}


def error_for_status(
    status: int, message: str, *, details: Sequence[Any] = (), delay: float | None = None
) -> ProviderError:
    """Return the error that a status usually means."""
    if status in _STATUS_ERRORS:
        return _STATUS_ERRORS[status](message, status=status, details=details, retry_delay_seconds=delay)
    if 300 <= status < 500 and status not in (408, 499):
        return InvalidRequestError(message, status=status, details=details)
    error = ServerError(message, status=status, details=details, retry_delay_seconds=delay)
    error.retryable = status != 501  # Not Implemented: a retry would get the same response
    return error


def describe_redirect(location: str) -> str:
    """Describe a redirect; the query, a user name and a password in its URL may be secrets and are left out."""
    target = re.sub(r"//[^/]*@", "//", re.split(r"[?#]", location)[0])
    return f"moved to {truncate(target, 400)!r}; redirects are not followed, pass the right base_url=…"


def retry_delay(response: Response) -> float | None:
    """Return the seconds that the headers `retry-after-ms` or `retry-after` ask for; None if they do not."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1)):
        value = response.header(name)
        if value is not None and (seconds := parse_seconds(value)) is not None:
            return seconds * unit
    return None


def parse_seconds(value: str) -> float | None:
    """Parse a number of seconds, or a date as the seconds until then; None if it is neither, or negative."""
    try:
        seconds = float(value)
    except ValueError:
        from email.utils import parsedate_to_datetime  # slow to import, and rarely needed

        try:
            seconds = parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, OverflowError):
            return None
        seconds = max(seconds, 0.0)  # a date in the past
    return seconds if 0 <= seconds < float("inf") else None


def can_connect(url: str, timeout: float) -> bool:
    """Whether a TCP connection can be opened to the host of a URL, or to its proxy."""
    import socket
    from urllib.parse import urlsplit

    from midspan._http.routes import proxy_for

    try:
        parts = urlsplit(proxy_for(url) or url)
        port = parts.port or DEFAULT_PORTS.get(parts.scheme, 80)
        with socket.create_connection((parts.hostname or "", port), timeout):
            return True
    except (OSError, ValueError):  # a ConfigError about the proxy is a ValueError
        return False
