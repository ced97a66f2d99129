"""Response bodies that arrive piece by piece: decompression, and splitting into server-sent events."""

import zlib
from typing import Any

from msgspec import Struct

_MAX_DECODED_PIECE = 2**18
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_IGNORED_FIELDS = (b"", b"id", b"retry")  # a line that begins with a colon is a comment


class Decompressor:
    """Decompresses a body, gzip or deflate, in pieces of limited size."""

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
                # Deflated data comes with or without the zlib header; wbits=47 detects zlib and gzip headers.
                is_bare = self.coding == "deflate" and data[0] & 0x0F != 8
                self._inflate = zlib.decompressobj(-15 if is_bare else 47)
            piece: bytes = self._inflate.decompress(data, _MAX_DECODED_PIECE)
            data = self._pending = self._inflate.unused_data or self._inflate.unconsumed_tail
            if piece or not data:
                return piece

    def finish(self) -> None:
        """Raise an error if the compressed data ended too early."""
        if self._inflate is not None and not self._inflate.eof:
            raise zlib.error("truncated")


class ServerSentEvent(Struct, frozen=True, gc=False):
    """The data of one event and its name, if it has one. If `stray`, lines that belong to no event."""

    data: bytes
    name: str = ""
    stray: bool = False


class ServerSentEventParser:
    """Splits server-sent events: feed it chunks; it returns the events they complete.

    Lines end with LF or CRLF; no service ends them with CR alone, as the standard also allows. Contrary to the
    standard, lines that are not a field of an event are kept: some servers print an error as JSON between two events.
    """

    def __init__(self) -> None:
        self._partial_line: list[bytes] = []
        """Chunks of a line whose end has not arrived."""
        self._lines: list[bytes] = []
        self._name = ""
        self._stray = False
        self._at_start = True

    def feed(self, piece: bytes) -> list[ServerSentEvent]:
        if piece.find(b"\n") < 0:  # `in` is slower: it tries to read an integer first
            if piece:
                self._partial_line.append(piece)
            return []
        *lines, rest = b"".join([*self._partial_line, piece]).split(b"\n")
        self._partial_line = [rest] if rest else []
        if self._at_start:
            self._at_start = False
            lines[0] = lines[0].removeprefix(_BYTE_ORDER_MARK)
        events: list[ServerSentEvent] = []
        for line in lines:
            line = line.removesuffix(b"\r")  # noqa: PLW2901 - still the same line
            field, _, value = line.partition(b":")
            is_stray = field != b"data"
            if not line:
                self._end_event(events)
            elif field == b"event":
                self._name = value.removeprefix(b" ").decode(errors="replace")
            elif field not in _IGNORED_FIELDS:
                if self._lines and self._stray != is_stray:
                    self._end_event(events)
                self._stray = is_stray
                self._lines.append(line if is_stray else value.removeprefix(b" "))
        return events

    def end(self) -> list[ServerSentEvent]:
        """Return an event that no empty line has ended; the stream may have been cut inside it."""
        return self.feed(b"\n\n")

    def _end_event(self, events: list[ServerSentEvent]) -> None:
        data = b"\n".join(self._lines)
        if data:  # an event without data is ignored
            events.append(ServerSentEvent(data, self._name, self._stray))
        self._lines, self._name = [], ""
