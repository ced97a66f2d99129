"""A reply as what happens on the wire, in order: bytes, waiting, and ways to break off."""

from enum import Enum

from msgspec import Struct

from midspan.emulator.refusal import Refusal

_REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    413: "Payload Too Large",
    415: "Unsupported Media Type",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    499: "Client Closed Request",
    500: "Internal Server Error",
    501: "Not Implemented",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
    505: "HTTP Version Not Supported",
}
JSON = "application/json; charset=UTF-8"
HTML = "text/html; charset=UTF-8"
EVENTS = "text/event-stream"


class Wait(Struct, frozen=True):
    seconds: float


class Break(Enum):
    RESET = "reset"
    """The connection is torn down without a farewell."""
    CLOSE = "close"
    """The connection is closed, whatever was promised."""


Step = bytes | Wait | Break
Reply = list[Step]


def whole(body: bytes, status: int = 200, content_type: str = JSON) -> Reply:
    """All at once, with its length."""
    return [sized(len(body), status, content_type) + body]


def sized(length: int, status: int = 200, content_type: str = JSON) -> bytes:
    """The head of a body of this length."""
    return _head(status, content_type) + b"Content-Length: %d\r\n\r\n" % length


def refused(refusal: Refusal) -> Reply:
    return whole(refusal.body(), refusal.code)


def streamed(content_type: str = EVENTS) -> bytes:
    """The head of a body that comes in chunks."""
    return _head(200, content_type) + b"Transfer-Encoding: chunked\r\n\r\n"


def unsized(content_type: str = EVENTS) -> bytes:
    """The head of a body that ends when the connection does, for those who know no chunks."""
    return _head(200, content_type) + b"Connection: close\r\n\r\n"


def without_body(reply: Reply) -> Reply:
    """The head of a reply that is bytes and nothing else, for who asked for no more."""
    first = reply[0]
    return [first[: first.find(b"\r\n\r\n") + 4]] if isinstance(first, bytes) else reply


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


LAST_CHUNK = b"0\r\n\r\n"

_heads: dict[tuple[int, str], bytes] = {}


def _head(status: int, content_type: str) -> bytes:
    found = _heads.get((status, content_type))
    if found is None:
        lines = (
            f"HTTP/1.1 {status} {_REASONS.get(status, 'Unknown')}",
            f"Content-Type: {content_type}",
            "Vary: Origin, X-Origin, Referer",
            "Server: scaffolding on HTTPServer2",
            "X-Content-Type-Options: nosniff",
            "",
        )
        found = _heads[status, content_type] = "\r\n".join(lines).encode()
    return found
