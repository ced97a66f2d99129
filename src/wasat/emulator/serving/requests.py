"""Bytes to HTTP requests, fed piece by piece."""

from msgspec import Struct

_LARGEST_HEAD = 65_536
_LARGEST_BODY = 256 * 1024 * 1024
_CHUNKED = b"\r\ntransfer-encoding: chunked"


class Request(Struct, frozen=True, gc=False):
    method: str
    target: str
    head: "Head"
    body: bytes = b""
    keep_alive: bool = True

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


class BadRequest(Exception):
    """Bytes that are no HTTP, or too many of them."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


class RequestReader:
    """Feed it pieces; it gives the requests that they complete."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0
        self._needed = 0
        """How many bytes must be there before looking at them is worthwhile."""
        self._begun: tuple[str, str, Head, bool] | None = None
        """Method, target and headers of a request whose body is not all there yet, and whether more may follow it."""
        self._chunks: list[bytes] = []
        self.wants_continue = False
        """The other side waits for «100 Continue» before it sends its body."""

    def feed(self, piece: bytes) -> list[Request]:
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size < self._needed:
            return []
        data = piece if len(self._pieces) == 1 else b"".join(self._pieces)
        requests = []
        at = 0
        while at < len(data):
            request, at = self._next(data, at)
            if request is None:
                break
            requests.append(request)
        rest = data[at:]
        self._pieces = [rest] if rest else []
        self._size = len(rest)
        return requests

    def _next(self, data: bytes, at: int) -> tuple[Request | None, int]:
        """The request that begins or goes on here, if it is all there, and how far the bytes are used up."""
        first = self._begun is None
        if self._begun is None:
            end = data.find(b"\r\n\r\n", at)
            if end < 0:
                if len(data) - at > _LARGEST_HEAD:
                    raise BadRequest(431, "the head of the request is too large")
                return None, at
            self._begun, at = _head(data[at:end]), end + 4
        method, target, head, keep_alive = self._begun
        body, at = self._chunked(data, at) if _CHUNKED in head.lowered else self._sized(data, at, head)
        if body is None:
            self.wants_continue = first and (head.value(b"expect") or b"").lower() == b"100-continue"
            return None, at
        self._begun = None
        self._needed = 0
        return Request(method, target, head, body, keep_alive), at

    def _sized(self, data: bytes, at: int, head: Head) -> tuple[bytes | None, int]:
        length = head.value(b"content-length")
        if length is not None and not length.isdigit():
            raise BadRequest(400, "the length of the body is no number")
        size = int(length or 0)
        if size > _LARGEST_BODY:
            raise BadRequest(413, "the body is too large")
        if len(data) - at < size:
            self._needed = size
            return None, at
        return data[at : at + size], at + size

    def _chunked(self, data: bytes, at: int) -> tuple[bytes | None, int]:
        """The body whose chunks are all there; each is used up as soon as it is whole."""
        while (end := data.find(b"\r\n", at)) >= 0:
            try:
                size = int(data[at:end].partition(b";")[0], 16)
            except ValueError as error:
                raise BadRequest(400, "a chunk has no size") from error
            if size < 0 or size + sum(map(len, self._chunks)) > _LARGEST_BODY:
                raise BadRequest(413, "the body is too large")
            if size == 0:
                last = data.find(b"\r\n\r\n", end)  # trailers, if any, end with an empty line of their own
                if last < 0:
                    break
                body, self._chunks = b"".join(self._chunks), []
                return body, last + 4
            if len(data) < end + size + 4:
                self._needed = end - at + size + 4
                return None, at
            self._chunks.append(data[end + 2 : end + 2 + size])
            at = end + size + 4
        self._needed = 0
        return None, at


def _head(whole: bytes) -> tuple[str, str, Head, bool]:
    start = whole.find(b"\r\n") % (len(whole) + 1)  # a head of one line has none
    try:
        method, target, version = whole[:start].decode("ascii").split(" ")
    except ValueError as error:
        raise BadRequest(400, "the first line is none of HTTP") from error
    lines = whole[start:]
    head = Head(lines, lines.lower())
    connection = (head.value(b"connection") or b"").lower()
    keep = b"close" not in connection if version == "HTTP/1.1" else b"keep-alive" in connection
    return method, target, head, keep
