"""Response bodies that arrive piece by piece: decompression, server-sent events, and one long JSON array.

The parsers take chunks of any size and do not interpret the data.
"""

import re
import zlib
from typing import Any

from msgspec import Struct

_MAX_DECODED_PIECE = 2**18
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_IGNORED_FIELDS = (b"id", b"retry")
_JSON_TOKENS = re.compile(rb'["\[\]{},]|\\.?', re.DOTALL)


class Decoder:
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
                self._inflate = zlib.decompressobj(self._window_bits(data))
            piece: bytes = self._inflate.decompress(data, _MAX_DECODED_PIECE)
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


class Event(Struct, frozen=True, gc=False):
    """The data of one event and its name, if it has one. If `stray`, lines that belong to no event."""

    data: bytes
    name: str = ""
    stray: bool = False


class EventStream:
    """Splits server-sent events: feed it chunks; it returns the events they complete.

    Contrary to the standard, it keeps lines that are not a field of an event: some servers print an error as bare JSON
    between two events.
    """

    def __init__(self) -> None:
        self._partial_line: list[bytes] = []
        """Chunks of a line whose end has not arrived."""
        self._lines: list[bytes] = []
        self._name = ""
        self._stray = False
        self._at_start = True

    def feed(self, piece: bytes) -> list[Event]:
        if b"\n" not in piece:
            self._partial_line.append(piece)
            return []
        *lines, rest = b"".join([*self._partial_line, piece]).split(b"\n")
        self._partial_line = [rest] if rest else []
        return self._read(lines)

    def end(self) -> list[Event]:
        """Return an event that no empty line has ended; the stream may have been cut inside it."""
        rest = b"".join(self._partial_line)
        self._partial_line = []
        return self._read([rest, b""] if rest else [b""])

    def _read(self, lines: list[bytes]) -> list[Event]:
        events: list[Event] = []
        if self._at_start:
            self._at_start = False
            lines[0] = lines[0].removeprefix(_BYTE_ORDER_MARK)
        for line in lines:
            line = line.removesuffix(b"\r")  # noqa: PLW2901 - still the same line
            if line.startswith(b"data: "):
                self._add_line(line[6:], events, stray=False)
                continue
            field, _, value = line.partition(b":")
            if not line:
                self._end_event(events)
            elif field == b"data":
                self._add_line(value.removeprefix(b" "), events, stray=False)
            elif field == b"event":
                self._name = value.removeprefix(b" ").decode(errors="replace")
            elif field and field not in _IGNORED_FIELDS:
                self._add_line(line, events, stray=True)
        return events

    def _add_line(self, line: bytes, events: list[Event], *, stray: bool) -> None:
        if self._lines and self._stray != stray:
            self._end_event(events)
        self._stray = stray
        self._lines.append(line)

    def _end_event(self, events: list[Event]) -> None:
        data = b"\n".join(self._lines)
        if data:  # an event without data is ignored
            events.append(Event(data, self._name, self._stray))
        self._lines, self._name = [], ""


class ArrayStream:
    """Splits a JSON array: feed it chunks; it returns the elements they complete.

    It looks at strings and brackets only. Whether an element is valid JSON is for its decoder to decide.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        """The element that is not complete yet, and what follows the array."""
        self._position = 0
        """Where to continue in the buffer."""
        self._depth = 0
        self._in_string = False
        self._has_ended = False

    def feed(self, piece: bytes) -> list[bytes]:
        self._buffer += piece
        elements: list[bytes] = []
        begin, token = 0, b""
        for match in _JSON_TOKENS.finditer(self._buffer, self._position):
            token, end = match.group(), match.end()
            if token == b'"':
                self._in_string = not self._in_string
            elif self._in_string or self._has_ended:
                continue
            elif token in b"[{":
                self._depth += 1
                begin = end if self._depth == 1 else begin
            elif token in b"]}":
                self._depth -= 1
                self._has_ended = self._depth == 0
            if self._has_ended or (token == b"," and self._depth == 1):
                elements.append(bytes(self._buffer[begin : end - 1]).strip())
                begin = end
        # If the escaped byte has not arrived, the next feed begins with its backslash.
        self._position = len(self._buffer) - begin - (token == b"\\")
        del self._buffer[:begin]
        return [element for element in elements if element]

    def end(self) -> bytes:
        """Return what follows the last complete element; empty if the array was complete."""
        return bytes(self._buffer).strip()
