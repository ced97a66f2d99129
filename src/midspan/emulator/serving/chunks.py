"""Bodies that come in chunks, put together as they come."""

import re

from midspan.emulator.serving.refused import BadRequest

_SIZE = re.compile(rb"[0-9A-Fa-f]{1,16}")
_LONGEST_LINE = 1_024
_LARGEST_TRAILERS = 65_536


class Chunks:
    """The chunks of one body so far; each is used up as soon as it is whole."""

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._body = bytearray()
        self.needed = 0
        """How many bytes must be there before looking at them is worthwhile."""
        self.in_trailers = False
        """All chunks are there, and only an empty line is missing."""

    def feed(self, data: bytes, at: int) -> tuple[bytes | None, int]:
        """The body, if its end is there, and how far the bytes are used up."""
        self.needed = 0
        while (end := data.find(b"\r\n", at, at + _LONGEST_LINE)) >= 0:
            size = self._size(data[at:end])
            if size == 0:
                return self._ended(data, at, end)
            after = end + 2 + size
            if len(data) < after + 2:
                self.needed = after + 2 - at
                return None, at
            if data[after : after + 2] != b"\r\n":
                raise BadRequest(400, "a chunk is longer than its size")
            self._body += data[end + 2 : after]
            at = after + 2
        if len(data) - at >= _LONGEST_LINE:
            raise BadRequest(400, "a chunk has no size")
        return None, at

    def _size(self, line: bytes) -> int:
        word = line.partition(b";")[0].strip()
        if not _SIZE.fullmatch(word):
            raise BadRequest(400, "a chunk has no size")
        size = int(word, 16)
        if size + len(self._body) > self._largest:
            raise BadRequest(413, "the body is too large")
        return size

    def _ended(self, data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
        last = data.find(b"\r\n\r\n", end)  # trailers, if any, end with an empty line of their own
        if last >= 0:
            return bytes(self._body), last + 4
        if len(data) - end > _LARGEST_TRAILERS:
            raise BadRequest(431, "what follows the last chunk is too large")
        self.in_trailers = True
        return None, at
