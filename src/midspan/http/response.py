"""One HTTP response: httptools parses the bytes into it, and a reader takes the body out of it.

Above is HttpStream, which reads; below is HttpProtocol, which feeds. A Response does not know about sockets, pools or
timeouts. Parsing never raises: a response that breaks the rules of HTTP gets an `error`, and its reader receives the
body up to that point first.
"""

import asyncio
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from midspan.errors import NetworkError, StreamCut

_MAX_HEAD_BYTES = 2**17
"""Also the limit for trailers and chunk extensions."""
_MAX_HEADERS = 256
_MAX_INTERIM_RESPONSES = 100
"""A server that sends `102 Processing` every 20 seconds may do so for half an hour."""
_HIGH_WATER = 2**18
"""Unread body bytes above which the connection stops reading."""
_MAX_PIECE = 2**18
"""Decompressed bytes given to the reader at once."""
_CODING = r"(?:x-)?(?:gzip|compress)|deflate|br|zstd"
_KNOWN_CODINGS = re.compile(rf"(?:{_CODING})(?:\s*,\s*(?:{_CODING}))*")


class Headers(Mapping[str, str]):
    """Response headers with case-insensitive names. Most are never looked up, so they are decoded when one is."""

    __slots__ = ("_decoded", "_fields")

    def __init__(self, fields: list[tuple[bytes, bytes]]) -> None:
        self._fields = fields
        self._decoded: dict[str, str] | None = None

    def _by_name(self) -> dict[str, str]:
        if self._decoded is None:
            self._decoded = {}
            for name, value in self._fields:
                key, text = name.lower().decode("latin-1"), value.decode("latin-1")
                self._decoded[key] = f"{self._decoded[key]}, {text}" if key in self._decoded else text
        return self._decoded

    def __getitem__(self, name: str) -> str:
        return self._by_name()[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name())

    def __len__(self) -> int:
        return len(self._by_name())


class Response:
    """A response that is still arriving. `status` is 0 until its head is complete."""

    status = 0
    headers: Mapping[str, str] = Headers([])
    error: NetworkError | None = None
    has_started = False
    """At least one byte has arrived."""
    is_complete = False
    keep_alive = False
    """The connection may carry another request after this response."""
    on_failed: Callable[[], object] | None = None
    """Closes the connection."""
    on_drained: Callable[[], object] | None = None
    """Resumes reading from a connection that was paused."""
    _interim = 0
    _rejection: str | None = None
    """Why a callback stopped the parser."""
    _buffered = 0
    _overhead = 0
    """Bytes since the last ones that belonged to the body."""
    _decoder: "_Decoder | None" = None
    _waiter: "asyncio.Future[None] | None" = None

    def __init__(self, loop: asyncio.AbstractEventLoop, origin: str, *, head_only: bool = False) -> None:
        self._loop = loop
        self._origin = origin
        self._head_only = head_only
        self._chunks: list[bytes] = []
        self._fields: list[tuple[bytes, bytes]] = []
        self._parser: HttpResponseParser | None = HttpResponseParser(self)

    # Reading

    async def wait(self) -> None:
        """Wait until the head, more of the body, the end or an error has arrived."""
        if self._waiter is not None:
            raise RuntimeError("this response is already being read by another task")
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def take(self) -> bytes:
        """Return the decoded body bytes that have arrived; empty if there are none."""
        chunks = self._chunks
        if chunks:
            data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
            chunks.clear()
            self._buffered = 0
            if self.on_drained is not None:
                self.on_drained()
                self.on_drained = None
        else:
            data = b""
        return data if self._decoder is None else self._decode(self._decoder, data)

    def _decode(self, decoder: "_Decoder", data: bytes) -> bytes:
        try:
            piece = decoder.decode(data)
            if not piece and self.is_complete:
                decoder.finish()
        except zlib.error:
            message = f"the body is not valid {decoder.coding}, although its Content-Encoding says so"
            self._set_error(self._malformed(message))
            self._decoder = None
            return b""
        return piece

    @property
    def is_drained(self) -> bool:
        """The whole body has been taken."""
        return self.is_complete and not self._chunks and self._decoder is None and self.error is None

    @property
    def is_buffer_full(self) -> bool:
        return self._buffered > _HIGH_WATER

    # Feeding

    def feed(self, data: memoryview) -> None:
        """Parse received bytes and wake the reader."""
        assert self._parser is not None, "a detached response receives no data"
        self.has_started = True
        self._overhead += len(data)
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            self.keep_alive = False  # nobody asked for another protocol
        except HttpParserError as error:
            if error.__context__ is not None and not isinstance(error.__context__, _Stop):
                raise error.__context__ from None
            self.keep_alive = False
            self.fail(self._malformed(self._rejection or str(error)))
        if self._overhead > _MAX_HEAD_BYTES:
            self.fail(self._malformed("its head or trailers are too large"))
        if self._head_only and self.is_complete and bytes(data[-4:]) != b"\r\n\r\n":
            self.keep_alive = False  # the head is followed by something else
        if self.status or self.error:
            self._wake()

    def end_of_connection(self, error: BaseException | None, *, clean: bool) -> None:
        """Handle the end of the connection; a body without a length may only end with a `clean` one."""
        if self.status and clean and not {"content-length", "transfer-encoding"} & self.headers.keys():
            self.is_complete = True
            self._wake()
            return
        if self.status:
            failure: NetworkError = StreamCut(f"{self._origin} closed the connection in the middle of the response")
        else:
            what = "in the middle of the response head" if self.has_started else "without a response"
            failure = NetworkError(f"{self._origin} closed the connection {what}; retrying may help")
        failure.__cause__ = error
        self.fail(failure)

    def fail(self, error: NetworkError) -> None:
        """End the response with an error, unless it is complete."""
        if not self.is_complete:
            self._set_error(error)

    def detach(self) -> None:
        """Break the reference cycle with the parser; nothing will be fed any more."""
        self._parser = self.on_failed = None

    def close(self) -> None:
        """Stop reading; the connection of an incomplete response is closed."""
        if not self.is_complete:
            self.abandon()

    def abandon(self) -> None:
        """Stop reading and close the connection, even if it is idle already."""
        self._set_error(StreamCut(f"the response of {self._origin} was closed before its end"))

    def _set_error(self, error: NetworkError) -> None:
        if self.error is None:
            self.error = error
            if self.on_failed is not None:
                self.on_failed()
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _malformed(self, reason: str) -> NetworkError:
        error = StreamCut if self.status else NetworkError
        return error(f"the response of {self._origin} is not valid HTTP: {reason}")

    # Parser callbacks. One that raises stops the parser; feed() reports the error.

    def on_message_begin(self) -> None:
        if self.is_complete:
            raise _Stop  # the server sent more than the response

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        assert self._parser is not None, "only the parser calls this"
        fields, self._fields = self._fields, []  # what follows are trailers, which are ignored
        status = self._parser.get_status_code()
        if status < 200 and status != 101:
            self._interim += 1
            if status < 100:
                raise self._reject("invalid status code")
            if self._interim > _MAX_INTERIM_RESPONSES:
                raise self._reject(f"it consists of {self._interim} interim (1xx) responses and no final one")
            return
        if len(fields) > _MAX_HEADERS or self._overhead > _MAX_HEAD_BYTES:
            raise self._reject("its head is too large")
        self.headers = Headers(fields)
        if b"-encoding" in b" ".join(dict(fields)).lower():  # cheaper than decoding all of them
            self._check_encodings(self.headers)
        self.keep_alive = self._parser.should_keep_alive()
        self.status = status
        self._overhead = 0
        self.is_complete = self._head_only

    def _check_encodings(self, headers: Mapping[str, str]) -> None:
        if headers.get("transfer-encoding", "chunked").lower() != "chunked":
            raise self._reject("its Transfer-Encoding is not supported")
        coding = headers.get("content-encoding")
        if coding is not None:
            self._decoder = self._decoder_for(coding.strip().lower())

    def on_body(self, data: bytes) -> None:
        if self.is_complete:
            raise _Stop  # the server sent more than the response
        self._chunks.append(data)
        self._buffered += len(data)
        self._overhead = 0

    def on_message_complete(self) -> None:
        self.is_complete = self.status != 0  # otherwise it was an interim response

    def _decoder_for(self, coding: str) -> "_Decoder | None":
        if coding in ("gzip", "deflate"):
            return _Decoder(coding)
        if _KNOWN_CODINGS.fullmatch(coding):
            raise self._reject(f"its Content-Encoding is {coding}, which was not asked for")
        return None  # some servers send a charset here; the body can be read as it is

    def _reject(self, reason: str) -> "_Stop":
        self._rejection = reason
        return _Stop()


class _Stop(Exception):
    """Raised in a callback to stop the parser."""


class _Decoder:
    """Decompresses a body in pieces of limited size."""

    __slots__ = ("_inflate", "_pending", "coding")

    def __init__(self, coding: str) -> None:
        self.coding = coding
        self._inflate: Any = None
        self._pending = b""

    def decode(self, data: bytes) -> bytes:
        """Decompress a piece; call again without data until the result is empty."""
        data = self._pending + data
        while True:
            if self._inflate is None or self._inflate.eof:
                if not data:
                    return b""
                self._inflate = zlib.decompressobj(self._window_bits(data))
            piece: bytes = self._inflate.decompress(data, _MAX_PIECE)
            data = self._pending = self._inflate.unused_data or self._inflate.unconsumed_tail
            if piece or not data:
                return piece

    def finish(self) -> None:
        """Raise an error if the compressed data ended too early."""
        if self._inflate is not None and not self._inflate.eof:
            raise zlib.error("truncated")

    def _window_bits(self, data: bytes) -> int:
        if self.coding == "gzip":
            return 31
        return 15 if data[0] & 0x0F == 8 else -15  # with or without the zlib header; servers send both
