"""Requests, parsed by httptools, and replies as the steps that the server performs on the connection."""

import zlib
from enum import Enum
from http import HTTPStatus

from httptools import HttpParserError, HttpRequestParser
from msgspec import Struct

_MAX_HEAD_BYTES = 2**16
"""Also the limit for trailers and chunk extensions."""
_MAX_BODY_BYTES = 2**28
_MAX_DECOMPRESSED_BYTES = 2**26
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS


class Request(Struct, frozen=True):
    method: str
    target: str
    headers: dict[str, str] = {}
    """By lower-case name; several headers of one name are joined by commas."""
    body: bytes = b""
    keep_alive: bool = True
    accepts_chunks: bool = True
    """False for HTTP/1.0."""

    def header(self, name: str) -> str | None:
        return self.headers.get(name.lower())


class BadRequest(Exception):
    """The bytes are not a valid HTTP request, or there are too many of them."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class RequestParser:
    """Collects requests from the bytes of one connection."""

    error: BadRequest | None = None
    """Ends the connection, after the requests before it have been answered."""
    awaits_continue = False
    """The client waits for `100 Continue` before it sends the body."""

    def __init__(self) -> None:
        self._parser = HttpRequestParser(self)
        self._complete: list[Request] = []
        self._overhead = 0
        """Bytes since the last ones that belonged to a body."""
        self.on_message_begin()

    def feed(self, data: bytes) -> list[Request]:
        """Parse received bytes and return the requests that they complete."""
        if self.error is None:
            self._overhead += len(data)
            try:
                self._parser.feed_data(data)
            except HttpParserError as error:
                if isinstance(error.__context__, BadRequest):
                    self.error = error.__context__
                else:
                    self.error = BadRequest(400, f"not a valid HTTP request: {error}")
            if self._overhead > _MAX_HEAD_BYTES:
                self.error = BadRequest(431, "the head or the trailers of the request are too large")
        complete, self._complete = self._complete, []
        return complete

    # Parser callbacks. One that raises stops the parser; feed() reports the error.

    def on_message_begin(self) -> None:
        self._target = b""
        self._fields: list[tuple[str, str]] = []
        self._headers: dict[str, str] = {}
        self._body = bytearray()

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields.append((name.decode("latin-1").lower(), value.decode("latin-1").strip()))

    def on_headers_complete(self) -> None:
        for name, value in self._fields:
            self._headers[name] = f"{self._headers[name]}, {value}" if name in self._headers else value
        if self._parser.get_http_version() not in ("1.0", "1.1"):
            raise BadRequest(505, "this server supports HTTP/1.1 and HTTP/1.0 only")
        if self._parser.should_upgrade():
            raise BadRequest(501, "this server does not support protocol upgrades")
        if self._headers.get("transfer-encoding", "chunked").lower() != "chunked":
            raise BadRequest(501, "the Transfer-Encoding of the request is not supported; use chunked")
        if int(self._headers.get("content-length", 0)) > _MAX_BODY_BYTES:
            raise BadRequest(413, "the body of the request is too large")
        self.awaits_continue = self._headers.get("expect", "").lower() == "100-continue"

    def on_body(self, data: bytes) -> None:
        self._overhead = 0
        self._body += data
        if len(self._body) > _MAX_BODY_BYTES:
            raise BadRequest(413, "the body of the request is too large")

    def on_message_complete(self) -> None:
        self._overhead = 0
        self.awaits_continue = False
        self._complete.append(
            Request(
                self._parser.get_method().decode("ascii"),
                self._target.decode("latin-1"),
                self._headers,
                _decompress(bytes(self._body), self._headers.get("content-encoding", "").lower()),
                self._parser.should_keep_alive(),
                accepts_chunks=self._parser.get_http_version() == "1.1",
            )
        )


def _decompress(body: bytes, coding: str) -> bytes:
    if coding in ("", "identity"):
        return body
    if coding not in ("gzip", "x-gzip", "deflate"):
        raise BadRequest(415, "the Content-Encoding of the request is not supported; use gzip or deflate")
    inflate = zlib.decompressobj(_GZIP_OR_ZLIB)
    try:
        data = inflate.decompress(body, _MAX_DECOMPRESSED_BYTES)
    except zlib.error as error:
        raise BadRequest(400, f"the body is not valid {coding}, although its Content-Encoding says so") from error
    if inflate.unconsumed_tail:
        raise BadRequest(413, "the decompressed body of the request is too large")
    if not inflate.eof or inflate.unused_data:
        raise BadRequest(400, f"the body is not valid {coding}, although its Content-Encoding says so")
    return data


class Wait(Struct, frozen=True):
    """Send nothing for this long."""

    seconds: float


class Disconnect(Enum):
    CLOSE = "close"
    """Close the connection, even if the head promised more."""
    RESET = "reset"
    """Reset the connection, as a crash does."""


Step = bytes | Wait | Disconnect
Reply = list[Step]

JSON = "application/json; charset=UTF-8"
HTML = "text/html; charset=UTF-8"
EVENT_STREAM = "text/event-stream"
LAST_CHUNK = b"0\r\n\r\n"


def reply(body: bytes, status: int = 200, content_type: str = JSON) -> Reply:
    """Return a reply that is sent at once."""
    return [head(status, content_type, f"Content-Length: {len(body)}") + body]


def head(status: int, content_type: str, framing: str) -> bytes:
    """Return the head of a reply; `framing` is the header that says how the end of the body is found."""
    reason = "Client Closed Request" if status == 499 else HTTPStatus(status).phrase
    return f"HTTP/1.1 {status} {reason}\r\nContent-Type: {content_type}\r\n{framing}\r\n\r\n".encode()


def chunk(data: bytes) -> bytes:
    """Frame a piece of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def without_body(reply: Reply) -> Reply:
    """Return only the head, for a HEAD request."""
    first = next(step for step in reply if isinstance(step, bytes))
    return [first[: first.index(b"\r\n\r\n") + 4]]
