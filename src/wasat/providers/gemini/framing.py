"""The bytes of a response to its JSON documents, whatever frame they come in.

A stream is server-sent events, or one JSON array; a plain response is one document. What it is shows in its first
byte, not in what was asked for: gateways answer as they please.
"""

from collections.abc import Iterator

from wasat.http.json_array import ArrayStream
from wasat.http.sse import Event, EventStream

_WHITE_SPACE = b" \t\r\n"


class Framing:
    """Feed it pieces; it gives the documents that they complete."""

    def __init__(self) -> None:
        self._frame: _Events | _Elements | _Whole | None = None

    @property
    def streams(self) -> bool:
        """The documents come one by one, so that the last may be cut without harm to those before it."""
        return not isinstance(self._frame, _Whole)

    def feed(self, piece: bytes) -> Iterator[bytes]:
        if self._frame is None:
            piece = piece.lstrip(_WHITE_SPACE)
            if not piece:
                return iter(())
            self._frame = _frame_for(piece)
        return self._frame.feed(piece)

    def end(self) -> Iterator[bytes]:
        """The document that was not closed, which may be cut anywhere."""
        return self._frame.end() if self._frame else iter(())


def _frame_for(piece: bytes) -> "_Events | _Elements | _Whole":
    if piece.startswith(b"["):
        return _Elements()
    return _Whole() if piece[:1] in b"{<" else _Events()


class _Events:
    def __init__(self) -> None:
        self._stream = EventStream()

    def feed(self, piece: bytes) -> Iterator[bytes]:
        return _documents(self._stream.feed(piece))

    def end(self) -> Iterator[bytes]:
        return _documents(self._stream.end())


def _documents(events: list[Event]) -> Iterator[bytes]:
    for data, stray in events:
        # Gateways end a stream with [DONE]; of stray lines only JSON is meant for us: an error between two events.
        if data != b"[DONE]" and (not stray or data.lstrip()[:1] == b"{"):
            yield data


class _Elements:
    def __init__(self) -> None:
        self._stream = ArrayStream()

    def feed(self, piece: bytes) -> Iterator[bytes]:
        return iter(self._stream.feed(piece))

    def end(self) -> Iterator[bytes]:
        rest = self._stream.end()
        return iter((rest,) if rest else ())


class _Whole:
    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def feed(self, piece: bytes) -> Iterator[bytes]:
        self._pieces.append(piece)
        return iter(())

    def end(self) -> Iterator[bytes]:
        return iter((b"".join(self._pieces),))
