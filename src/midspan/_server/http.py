"""What goes over the connection, for all APIs: the body of a request, errors, and streams of server-sent events."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, TypeVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from midspan import errors
from midspan._schema.arguments import SchemaValidator
from midspan._server.config import ServerConfig
from midspan._server.documents import ErrorDocument, OpenAIError, OpenAIErrorDocument, with_json_patterns
from midspan._types.events import CANCELLED, ErrorInfo
from midspan.errors import MidspanError, ProviderError, RunError

_log = logging.getLogger("midspan._server")

T = TypeVar("T", bound=msgspec.Struct)
ABORT = "midspan_abort"
"""The ASGI extension with which a connection is closed at once, without waiting for a client that does not read."""
encode_json = msgspec.json.Encoder().encode


# Errors


class HttpError(Exception):
    """A response that is an error."""

    def __init__(
        self, status: int, message: str, *, error: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.error = error or _NAMES.get(status) or HTTPStatus(status).name.lower()
        self.headers = dict(headers or {})

    def response(self, scope: Scope) -> Response:
        """Return the error in the form of the API to which the path belongs."""
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        document = self.openai_document() if path.startswith("/v1/") else self.document()
        return Response(encode_json(document), self.status, self.headers, "application/json")

    def document(self) -> ErrorDocument:
        return ErrorDocument(self.error, self.message, self.status)

    def openai_document(self) -> OpenAIErrorDocument:
        error_type = "server_error" if self.status >= 500 else "invalid_request_error"
        return OpenAIErrorDocument(OpenAIError(self.message, error_type, code=self.error))


_NAMES = {400: "invalid_request", 413: "too_large", 500: "processing_error", 503: "unavailable"}
"""Where they differ from the names of HTTP."""
_PROVIDER_MESSAGES: dict[type[Exception], tuple[int, str]] = {
    errors.AuthenticationError: (502, "the model's service does not accept the credentials of this server"),
    errors.PermissionDeniedError: (502, "the model's service does not allow this with the credentials of this server"),
    errors.UnknownModelError: (502, "the model's service does not have this model"),
    errors.InvalidRequestError: (400, "the model's service did not accept the request"),
    errors.PromptBlockedError: (400, "a filter of the model's service blocked the prompt"),
    errors.QuotaExhaustedError: (502, "the quota of this server at the model's service is used up"),
    errors.RateLimitError: (503, "the model's service gets too many requests; try again later"),
    errors.RequestTimeoutError: (504, "the model's service did not answer in time"),
    errors.ProviderError: (502, "the model's service failed"),
}
_INTERNAL = "the server could not process the request; its log says why"


def invalid(message: str) -> HttpError:
    return HttpError(400, message)


def run_error(error: BaseException, run_id: str) -> HttpError:
    """Return the response for a run that ended with an error. What clients must not read goes to the log."""
    status, message = _describe(type(error), str(error))
    if isinstance(error, MidspanError) and error.kind not in (None, CANCELLED):  # it quotes the stored error
        message = public_error(ErrorInfo(error.kind, message)).message
    if message != str(error):
        fields = {"run_id": run_id}
        _log.warning("run %s failed: %s: %s", run_id, type(error).__name__, error, extra=fields)
    if isinstance(error, MidspanError) and error.kind == CANCELLED:
        return HttpError(409, message, error="cancelled")
    headers = {"Retry-After": "1"} if status == 503 else {}
    return HttpError(status, message, error="invalid_request" if status == 400 else "processing_error", headers=headers)


def public_error(info: ErrorInfo) -> ErrorInfo:
    """Return a stored error as clients may read it."""
    if info.kind == CANCELLED:
        return info
    error_class = getattr(errors, info.kind, None)
    if not isinstance(error_class, type) or not issubclass(error_class, MidspanError):
        return ErrorInfo("Error", _INTERNAL)
    return ErrorInfo(info.kind, _describe(error_class, info.message)[1])


def error_document(info: ErrorInfo) -> ErrorDocument:
    """Return a stored error with the HTTP status that /chat returns for it."""
    public = public_error(info)
    error_class = getattr(errors, public.kind, Exception)
    status = 409 if info.kind == CANCELLED else _describe(error_class, "")[0]
    return ErrorDocument(public.kind, public.message, status)


def _describe(error_class: type[BaseException], message: str) -> tuple[int, str]:
    """Return the status and the message of an error. Only messages of RunError are safe to show to clients."""
    if issubclass(error_class, RunError):
        return 500, message
    if issubclass(error_class, ProviderError):
        return next(value for base, value in _PROVIDER_MESSAGES.items() if issubclass(error_class, base))
    return 500, _INTERNAL


def unexpected_error(error: Exception, scope: Scope) -> HttpError:
    """Return the response for an exception that an endpoint or the router raised."""
    if not isinstance(error, HTTPException):
        _log.error("%s %s failed", scope.get("method"), scope.get("path"), exc_info=error)
        return HttpError(500, _INTERNAL)
    headers = dict(error.headers or {})
    messages = {
        404: f"there is nothing at {scope['path'][:200]!r}; see /openapi.json",
        405: f"{scope['method'][:20]} is not allowed here; allowed: {headers.get('Allow', '')}",
    }
    message = messages.get(error.status_code, HTTPStatus(error.status_code).phrase)
    return HttpError(error.status_code, message, headers=headers)


# Requests


async def read_json(request: Request, kind: type[T], config: ServerConfig) -> T:
    """Return the body of a request. Raises HttpError if it is too large, too slow or not valid."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise HttpError(415, "the body of the request must be JSON; send it with `Content-Type: application/json`")
    body = await read_body(request, config)
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise invalid(f"the body of the request is not valid: {_problems(body, kind)}") from None


async def read_body(request: Request, config: ServerConfig) -> bytes:
    """Return the bytes of a body. Raises HttpError if it is too large or too slow."""
    limit, close = config.max_body_bytes, {"Connection": "close"}
    body = bytearray()
    try:
        async with asyncio.timeout(config.request_timeout):
            async for piece in request.stream():
                body += piece
                if len(body) > limit:
                    raise HttpError(413, f"the body of the request has more than {limit} bytes", headers=close)
    except TimeoutError:
        raise HttpError(408, "the body of the request did not arrive in time", headers=close) from None
    return bytes(body)


def replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that begins with a body that was read already."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return messages.pop() if messages else await receive()

    return receive_again


def _problems(body: bytes, kind: Any) -> str:
    """Return what is wrong with a body that cannot be decoded: each field with what is expected there."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return f"it is not JSON: {error}"
    problems = SchemaValidator(with_json_patterns(msgspec.json.schema(kind))).problems(value)[:5]
    return "; ".join(map(str, problems)) or "it has a value that is out of range"


# Responses


def json_response(document: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(encode_json(document), status, headers, "application/json")


def frame(data: Any, *, id: int | None = None, event: str | None = None) -> bytes:
    """Return one server-sent event with JSON data."""
    head = b"" if id is None else b"id: %d\n" % id
    if event is not None:
        head += b"event: " + event.encode() + b"\n"
    return head + b"data: " + encode_json(data) + b"\n\n"


DONE = b"data: [DONE]\n\n"
"""The end of a stream in OpenAI's and in Vercel's protocol."""
_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",  # nginx
}


class EventStreamResponse:
    """A response whose body is a stream of frames. The next frame is made when the client has taken the last one."""

    def __init__(
        self,
        frames: AsyncGenerator[bytes, None],
        config: ServerConfig,
        *,
        headers: Mapping[str, str] | None = None,
        on_disconnect: Callable[[], Awaitable[Any]] | None = None,
    ) -> None:
        """`on_disconnect` is called if the client goes away before the end."""
        self._frames = frames
        self._config = config
        self._headers = {**_HEADERS, **(headers or {})}
        self._on_disconnect = on_disconnect

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(name.encode(), value.encode()) for name, value in self._headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        create_task = asyncio.get_running_loop().create_task
        writing = create_task(self._write(scope, send))
        tasks = writing, create_task(self._send_heartbeats(send)), create_task(client_disconnect(receive))
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await self._frames.aclose()
        is_complete = writing in done
        try:
            for task in done:
                task.result()
        except TimeoutError:  # the client does not read
            is_complete = False
            if abort := scope.get("extensions", {}).get(ABORT):
                abort["abort"]()
        if is_complete:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        elif self._on_disconnect is not None:
            await self._on_disconnect()

    async def _write(self, scope: Scope, send: Send) -> None:
        if scope["method"] != "HEAD":
            async for data in self._frames:
                await self._send(send, data)

    async def _send_heartbeats(self, send: Send) -> None:
        while True:
            await asyncio.sleep(self._config.heartbeat_seconds)
            await self._send(send, b": heartbeat\n\n")

    async def _send(self, send: Send, data: bytes) -> None:
        async with asyncio.timeout(self._config.send_timeout):
            await send({"type": "http.response.body", "body": data, "more_body": True})


async def client_disconnect(receive: Receive) -> None:
    """Return when the client has gone away."""
    while (await receive())["type"] != "http.disconnect":
        pass
