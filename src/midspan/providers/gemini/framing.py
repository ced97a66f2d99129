"""The bytes of a response to its JSON documents, whatever frame they come in.

A stream is server-sent events, or one JSON array; a plain response is one document. What it is shows in its first
byte, not in what was asked for: gateways answer as they please.
"""

import re

from midspan._http.json_array import ArrayStream
from midspan._http.sse import Event, EventStream

_WHITE_SPACE = b" \t\r\n"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_FIELD = re.compile(rb"[\w-]{0,20}:")
"""How a stream of events begins: `data:`, `event:`, a comment, or a field that nobody knows."""
_UNDECIDED = re.compile(rb"[\w-]{0,20}")
"""What may become such a field, when there is more of it."""


class Framing:
    """Feed it pieces; it gives the documents that they complete."""

    def __init__(self) -> None:
        self._frame: _Events | _Elements | _Whole | None = None
        self._head = b""

    @property
    def streams(self) -> bool:
        """The documents come one by one, so that the last may be cut without harm to those before it."""
        return isinstance(self._frame, _Events | _Elements)

    def feed(self, piece: bytes) -> list[bytes]:
        if self._frame is None:
            piece = self._head = (self._head + piece).removeprefix(_BYTE_ORDER_MARK).lstrip(_WHITE_SPACE)
            if _BYTE_ORDER_MARK.startswith(piece) or _UNDECIDED.fullmatch(piece):
                return []
            self._frame = _frame_for(piece)
        return self._frame.feed(piece)

    def end(self) -> list[bytes]:
        """The document that was not closed, which may be cut anywhere."""
        if self._frame is None:
            return [] if b"data:".startswith(self._head) else [self._head]
        return self._frame.end()


def _frame_for(piece: bytes) -> "_Events | _Elements | _Whole":
    if piece.startswith(b"["):
        return _Elements()
    return _Events() if _FIELD.match(piece) else _Whole()


class _Events:
    def __init__(self) -> None:
        self._stream = EventStream()

    def feed(self, piece: bytes) -> list[bytes]:
        events = self._stream.feed(piece)
        if len(events) == 1 and events[0].data.startswith(b"{"):  # as nearly every piece is
            return [events[0].data]
        return _documents(events)

    def end(self) -> list[bytes]:
        return _documents(self._stream.end())


def _documents(events: list[Event]) -> list[bytes]:
    # Gateways end a stream with [DONE]; of stray lines only JSON is meant for us: an error between two events.
    return [
        event.data
        for event in events
        if event.data.strip() != b"[DONE]" and (not event.stray or event.data.lstrip()[:1] == b"{")
    ]


class _Elements:
    def __init__(self) -> None:
        self._stream = ArrayStream()

    def feed(self, piece: bytes) -> list[bytes]:
        return self._stream.feed(piece)

    def end(self) -> list[bytes]:
        rest = self._stream.end()
        return [rest] if rest else []


class _Whole:
    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def feed(self, piece: bytes) -> list[bytes]:
        self._pieces.append(piece)
        return []

    def end(self) -> list[bytes]:
        return [b"".join(self._pieces)]
