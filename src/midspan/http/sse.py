"""Bytes to server-sent events, fed piece by piece: any size of piece, any length of line, CRLF or LF.

It knows nothing of what the data means. Lines that are no field of an event are not thrown away, as the
standard would have it: some servers print an error between two events as bare JSON, and it must be heard.
"""

from msgspec import Struct

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_FIELDS_IGNORED = (b"event", b"id", b"retry")
_EMPTY_LINE = (b"\r\n", b"\n")


class Event(Struct, frozen=True, gc=False):
    """The data of one event; or, if `stray`, lines that belong to none."""

    data: bytes
    stray: bool = False


class EventStream:
    """Feed it pieces; it gives the events that they complete."""

    def __init__(self) -> None:
        self._begun: list[bytes] = []
        """The pieces of a line whose end has not come."""
        self._lines: list[bytes] = []
        self._stray = False
        self._at_start = True

    def feed(self, piece: bytes) -> list[Event]:
        line, end, rest = piece.partition(b"\n")
        if rest in _EMPTY_LINE and line.startswith(b"data: ") and not self._begun and not self._lines:
            # Servers write an event in one go, and so it comes: nearly every piece is this.
            self._at_start = False
            data = line[6:].removesuffix(b"\r")
            return [Event(data)] if data else []
        if not end:
            self._begun.append(piece)
            return []
        *lines, rest = b"".join([*self._begun, piece]).split(b"\n")
        self._begun = [rest] if rest else []
        return self._read(lines)

    def end(self) -> list[Event]:
        """What was begun and not closed by an empty line; the stream may have been cut within it."""
        rest = b"".join(self._begun)
        self._begun = []
        return self._read([rest, b""] if rest else [b""])

    def _read(self, lines: list[bytes]) -> list[Event]:
        events: list[Event] = []
        if self._at_start:
            self._at_start = False
            lines[0] = lines[0].removeprefix(_BYTE_ORDER_MARK)
        for line in lines:
            line = line.removesuffix(b"\r")  # noqa: PLW2901 - the same line
            if line.startswith(b"data:"):
                self._keep(line[6:] if line.startswith(b" ", 5) else line[5:], events, stray=False)
            elif not line:
                self._close(events)
            elif not line.startswith(b":") and line.partition(b":")[0] not in _FIELDS_IGNORED:
                self._keep(line, events, stray=True)
        return events

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
