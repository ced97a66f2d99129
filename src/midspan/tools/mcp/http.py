"""The streamable HTTP transport of the SDK, with limits, and with failures that cost one request only.

An exception of the HTTP client ends the SDK's transport, with all requests in flight. Here each failure becomes a
JSON-RPC error in the response to the request that failed.
"""

import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

import httpx2
import msgspec
from mcp.client.streamable_http import MCP_SESSION_ID, streamable_http_client
from mcp.types import CONNECTION_CLOSED, INTERNAL_ERROR

from midspan._http.pool import describe_connect_error
from midspan._http.routes import proxy_for, tls_context
from midspan._version import VERSION

NOT_SENT = "midspan/not_sent"
"""In the data of an error: the request did not reach the server."""
SESSION_LOST = "midspan/session_lost"
"""In the data of an error: the server does not know the session any more, and has ignored the request."""

_CONNECT_SECONDS = 30.0
_MAX_ERROR_BYTES = 65_536


def _hide_secrets(record: logging.LogRecord) -> bool:
    """Remove from URLs in log records what may be a secret: the query and the user."""
    if isinstance(record.args, tuple):
        record.args = tuple(
            value.copy_with(query=None, userinfo=b"") if isinstance(value, httpx2.URL) else value
            for value in record.args
        )
    return True


logging.getLogger("httpx2").addFilter(_hide_secrets)  # it logs each request at level INFO


class HttpTransport:
    """Connects to a URL, for one connection."""

    is_remote = True
    error_output = ""
    exit_code = None

    def __init__(
        self, url: str, *, headers: Mapping[str, str], auth: httpx2.Auth | None, max_message_bytes: int
    ) -> None:
        self._url = url
        self._headers = {"User-Agent": f"midspan/{VERSION}", **headers}
        self._auth = auth
        self._max_bytes = max_message_bytes

    @asynccontextmanager
    async def open(self, on_end: Callable[[], None]) -> AsyncGenerator[Any, None]:  # noqa: ARG002 - requests fail one by one
        inner = httpx2.AsyncHTTPTransport(verify=tls_context(), proxy=proxy_for(self._url))
        client = httpx2.AsyncClient(
            # Only plain bodies can be limited before they are in memory.
            headers={**self._headers, "Accept-Encoding": "identity"},
            auth=self._auth,
            transport=_LimitedTransport(inner, self._max_bytes),
            # Each call has a timeout of its own, and a stream of notifications may be silent for hours.
            timeout=httpx2.Timeout(_CONNECT_SECONDS, read=None),
        )
        async with (
            client,
            streamable_http_client(self._url, http_client=client, max_sse_event_size=self._max_bytes) as streams,
        ):
            yield streams


class _LimitedTransport(httpx2.AsyncBaseTransport):
    """Reads JSON bodies up to a limit, and reports what goes wrong as JSON-RPC errors."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, max_bytes: int) -> None:
        self._inner = inner
        self._max_bytes = max_bytes

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            response = await self._inner.handle_async_request(request)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError) as error:
            place = str(request.url.copy_with(query=None, userinfo=b""))  # both may have secrets
            cause = _os_error(error)
            problem = describe_connect_error(cause, place) if cause is not None and cause.errno is not None else None
            return _error(request, problem or f"cannot connect to {place}: {_describe(error)}", data=NOT_SENT)
        except httpx2.TransportError as error:
            return _error(request, f"the connection was lost: {_describe(error)}", code=CONNECTION_CLOSED)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            return _error(request, "the server sent a compressed response, which was not asked for")
        if response.status_code >= HTTPStatus.BAD_REQUEST:
            return await self._failed(request, response)
        if response.headers.get("content-type", "").lower().startswith("application/json"):
            return await self._read(request, response)
        return response

    async def _read(self, request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
        try:
            body = await _body(response, self._max_bytes)
        except httpx2.TransportError as error:
            return _error(request, f"the connection was lost: {_describe(error)}", code=CONNECTION_CLOSED)
        if body is None:
            return _error(request, f"the server sent a message of more than {self._max_bytes:,} bytes, the limit")
        return httpx2.Response(
            response.status_code, headers=_headers_without_framing(response), content=body, request=request
        )

    async def _failed(self, request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
        """Return an error response with a JSON-RPC error in it. Its headers may be needed for authorization."""
        try:
            body = await _body(response, _MAX_ERROR_BYTES)
        except httpx2.TransportError:
            body = None
        is_lost = response.status_code == HTTPStatus.NOT_FOUND and MCP_SESSION_ID in request.headers
        if (body is None or b'"jsonrpc"' not in body or is_lost) and _is_message(request):
            message = f"the server answered with HTTP status {response.status_code} {response.reason_phrase}".rstrip()
            data = SESSION_LOST if is_lost else None
            return _error(
                request, message, status=response.status_code, data=data, headers=_headers_without_framing(response)
            )
        return httpx2.Response(
            response.status_code, headers=_headers_without_framing(response), content=body or b"", request=request
        )

    async def aclose(self) -> None:
        await self._inner.aclose()


async def _body(response: httpx2.Response, max_bytes: int) -> bytes | None:
    """Return the body; None if it is too long."""
    body = bytearray()
    try:
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > max_bytes:
                return None
    finally:
        await response.aclose()
    return bytes(body)


def _headers_without_framing(response: httpx2.Response) -> dict[str, str]:
    """Return the headers that still describe the response once its body was read."""
    dropped = ("content-length", "transfer-encoding", "content-encoding")
    return {name: value for name, value in response.headers.items() if name not in dropped}


def _is_message(request: httpx2.Request) -> bool:
    """Whether the request carries a message of MCP. Those of an authorization flow do not accept event streams."""
    return request.method == "POST" and "text/event-stream" in request.headers.get("accept", "")


def _error(
    request: httpx2.Request,
    message: str,
    *,
    code: int = INTERNAL_ERROR,
    status: int = HTTPStatus.BAD_GATEWAY,
    data: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> httpx2.Response:
    """Return a response that the SDK reads as an error of this request, whose id it fills in."""
    error = {"code": code, "message": message} | ({} if data is None else {"data": data})
    content = msgspec.json.encode({"jsonrpc": "2.0", "id": None, "error": error})
    fields = {**(headers or {}), "content-type": "application/json"}
    return httpx2.Response(status, headers=fields, content=content, request=request)


def _os_error(error: BaseException) -> OSError | None:
    """Return the error of the operating system that the HTTP client reports in its own words."""
    found = None
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, BaseExceptionGroup):  # of the addresses of a host
            cause = cause.exceptions[0]
        if isinstance(cause, OSError):
            found = cause
        cause = cause.__cause__ or cause.__context__
    return found


def _describe(error: Exception) -> str:
    return str(error) or type(error).__name__
