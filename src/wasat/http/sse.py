"""Bytes to server-sent events, fed piece by piece: any size of piece, any length of line, CRLF or LF.

It knows nothing of what the data means. Lines that are no field of an event are not thrown away, as the
standard would have it: some servers print an error between two events as bare JSON, and it must be heard.
"""

from typing import NamedTuple

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_FIELDS_IGNORED = (b"event", b"id", b"retry")


class Event(NamedTuple):
    """The data of one event; or, if `stray`, lines that belong to none."""

    data: bytes
    stray: bool = False


class EventStream:
    """Feed it pieces; it gives the events that they complete."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._searched = 0
        self._lines: list[bytes] = []
        self._stray = False
        self._at_start = True

    def feed(self, piece: bytes) -> list[Event]:
        buffer = self._buffer
        buffer += piece
        events: list[Event] = []
        start = 0
        while (end := buffer.find(b"\n", max(start, self._searched))) >= 0:
            self._line(bytes(buffer[start:end]), events)
            start = end + 1
        if start:
            del buffer[:start]
        self._searched = len(buffer)
        return events

    def end(self) -> list[Event]:
        """What was begun and not closed by an empty line; the stream may have been cut within it."""
        events: list[Event] = []
        if self._buffer:
            self._line(bytes(self._buffer), events)
        self._buffer.clear()
        self._searched = 0
        self._close(events)
        return events

    def _line(self, line: bytes, events: list[Event]) -> None:
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(_BYTE_ORDER_MARK)
        if line.endswith(b"\r"):
            line = line[:-1]
        if line.startswith(b"data:"):
            self._keep(line[6:] if line[5:6] == b" " else line[5:], events, stray=False)
        elif not line:
            self._close(events)
        elif not line.startswith(b":") and line.partition(b":")[0] not in _FIELDS_IGNORED:
            self._keep(line, events, stray=True)

    def _keep(self, line: bytes, events: list[Event], *, stray: bool) -> None:
        if self._lines and self._stray != stray:
            self._close(events)
        self._stray = stray
        self._lines.append(line)

    def _close(self, events: list[Event]) -> None:
        data = b"\n".join(self._lines)
        self._lines = []
        if data:  # an event without data is no event
            events.append(Event(data, self._stray))
