"""Bytes to HTTP requests, fed piece by piece."""

import re

from msgspec import Struct

from midspan.emulator.serving.chunks import Chunks
from midspan.emulator.serving.encodings import decompressed
from midspan.emulator.serving.refused import BadRequest

_LARGEST_HEAD = 65_536
_LARGEST_BODY = 256 * 1024 * 1024
_MOST_DIGITS = 18
_VERSION = re.compile(r"HTTP/\d+(\.\d+)?")


class Request(Struct, frozen=True, gc=False):
    method: str
    target: str
    head: "Head"
    body: bytes = b""
    keep_alive: bool = True
    takes_chunks: bool = True
    """Knows replies that come in chunks, as HTTP/1.0 does not."""

    def header(self, name: str) -> str | None:
        """The value of the first header of this name, which is given in small letters."""
        found = self.head.value(name.encode())
        return None if found is None else found.decode("latin-1")


class Head(Struct, frozen=True, gc=False):
    """Header lines as they came; looked through only for those that somebody asks for."""

    lines: bytes
    """With a line break before each of them."""
    lowered: bytes

    def value(self, name: bytes) -> bytes | None:
        at = self.lowered.find(b"\r\n%b:" % name)
        if at < 0:
            return None
        start = at + len(name) + 3
        end = self.lines.find(b"\r\n", start)
        return self.lines[start : end if end >= 0 else len(self.lines)].strip()

    def values(self, name: bytes) -> set[bytes]:
        """What all headers of this name say."""
        lines = self.lowered.split(b"\r\n")
        return {line[len(name) + 1 :].strip() for line in lines if line.startswith(b"%b:" % name)}


class _Begun(Struct, frozen=True, gc=False):
    """A request whose body is not all there yet."""

    method: str
    target: str
    head: Head
    keep_alive: bool
    takes_chunks: bool
    size: int
    """Of the body; -1 if it comes in chunks."""
    encoding: bytes | None


class RequestReader:
    """Feed it pieces; it gives the requests that they complete."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0
        self._needed = 0
        """How many bytes must be there before looking at them is worthwhile."""
        self._seam: bytes | None = None
        """The last bytes of lines of which nothing can be made before an empty one ends them."""
        self._begun: _Begun | None = None
        self._chunks: Chunks | None = None
        self.wants_continue = False
        """The other side waits for «100 Continue» before it sends its body."""
        self.failure: BadRequest | None = None
        """What is wrong behind the last request that was read; nothing after it is."""

    def feed(self, piece: bytes) -> list[Request]:
        if self.failure is not None:
            return []
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size < self._needed or (self._seam is not None and self._goes_on(self._seam + piece)):
            return []
        self._seam = None
        data = piece if len(self._pieces) == 1 else b"".join(self._pieces)
        requests: list[Request] = []
        at = 0
        while at < len(data):
            try:
                request, at = self._next(data, at)
            except BadRequest as error:
                self.failure = error
                break
            if request is None:
                break
            requests.append(request)
        rest = data[at:]
        self._pieces = [rest] if rest else []
        self._size = len(rest)
        return requests

    def _goes_on(self, end: bytes) -> bool:
        """Whether these bytes hold no empty line; without looking again at all that came before them."""
        self._seam = end[-3:]
        return b"\r\n\r\n" not in end and self._size <= _LARGEST_HEAD

    def _next(self, data: bytes, at: int) -> tuple[Request | None, int]:
        """The request that begins or goes on here, if it is all there, and how far the bytes are used up."""
        first = self._begun is None
        if self._begun is None:
            while data.startswith(b"\r\n", at):  # left over from a body that was written with one too many
                at += 2
            end = data.find(b"\r\n\r\n", at)
            if end < 0:
                if len(data) - at > _LARGEST_HEAD:
                    raise BadRequest(431, "the head of the request is too large")
                self._seam = data[-3:]
                return None, at
            self._begun, at = _begun(data[at:end]), end + 4
        begun = self._begun
        body, at = self._chunked(data, at) if begun.size < 0 else self._sized(data, at, begun.size)
        if body is None:
            self.wants_continue = first and (begun.head.value(b"expect") or b"").lower() == b"100-continue"
            return None, at
        self._begun = None
        self._needed = 0
        if begun.encoding is not None:
            body = decompressed(body, begun.encoding)
        return Request(begun.method, begun.target, begun.head, body, begun.keep_alive, begun.takes_chunks), at

    def _sized(self, data: bytes, at: int, size: int) -> tuple[bytes | None, int]:
        if len(data) - at < size:
            self._needed = size
            return None, at
        return data[at : at + size], at + size

    def _chunked(self, data: bytes, at: int) -> tuple[bytes | None, int]:
        if self._chunks is None:
            self._chunks = Chunks(_LARGEST_BODY)
        body, at = self._chunks.feed(data, at)
        self._needed = self._chunks.needed
        if body is not None:
            self._chunks = None
        elif self._chunks.in_trailers:
            self._seam = data[-3:]
        return body, at


def _begun(whole: bytes) -> _Begun:
    start = whole.find(b"\r\n") % (len(whole) + 1)  # a head of one line has none
    try:
        method, target, version = whole[:start].decode("ascii").split(" ")
    except ValueError as error:
        raise BadRequest(400, "the first line is none of HTTP") from error
    is_new = version == "HTTP/1.1"
    if not is_new and version != "HTTP/1.0":
        if not _VERSION.fullmatch(version):
            raise BadRequest(400, "the first line is none of HTTP")
        raise BadRequest(505, "only HTTP/1.1 and HTTP/1.0 are spoken here")
    lines = whole[start:]
    head = Head(lines, lines.lower())
    encoding = head.value(b"content-encoding") if b"\r\ncontent-encoding:" in head.lowered else None
    connection = (head.value(b"connection") or b"").lower()
    keep = b"close" not in connection if is_new else b"keep-alive" in connection
    return _Begun(method, target, head, keep, is_new, _size_of_body(head), encoding)


def _size_of_body(head: Head) -> int:
    length = head.value(b"content-length")
    if b"\r\ntransfer-encoding:" in head.lowered:
        if head.values(b"transfer-encoding") != {b"chunked"}:
            raise BadRequest(501, "the body has a transfer encoding other than chunked")
        if length is not None:
            raise BadRequest(400, "the body has a length and comes in chunks")
        return -1
    if length is None:
        return 0
    if not length.isdigit():
        raise BadRequest(400, "the length of the body is no number")
    if head.lowered.count(b"\r\ncontent-length:") > 1 and len(head.values(b"content-length")) > 1:
        raise BadRequest(400, "the body has several lengths")
    digits = length.lstrip(b"0") or b"0"
    if len(digits) > _MOST_DIGITS or int(digits) > _LARGEST_BODY:
        raise BadRequest(413, "the body is too large")
    return int(digits)
