"""HTTP requests, responses and timeouts as values. Their repr shows no header value, no query and no body."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from midspan.errors import ConfigError

DEFAULT_PORTS = {"http": 80, "https": 443}
LENGTH_HEADERS = ("content-length", "transfer-encoding")
_LINE_END = b"\r\n"


class HttpRequest(Struct, frozen=True, gc=False):
    """A request, sent as it is."""

    method: str
    url: str
    headers: Mapping[str, str] = {}
    body: bytes = b""

    def __repr__(self) -> str:
        headers = list(self.headers)
        return f"HttpRequest({self.method!r}, to={host_and_port(self.url)!r}, {headers=}, bytes={len(self.body)})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:  # that of a Struct shows every field, also in tracebacks
        return [("to", host_and_port(self.url))]


class HttpResponse(Struct, frozen=True, gc=False):
    """A response with its whole body."""

    status: int
    head: bytes
    """The status line and the headers as the server sent them. Most headers are never looked up."""
    body: bytes

    def header(self, name: str) -> str | None:
        """Look up a header, ignoring case."""
        return find_header(self.head, name)

    def __repr__(self) -> str:
        return f"HttpResponse({self.status}, headers={self.head.count(_LINE_END)}, bytes={len(self.body)})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:  # as above
        return [("status", self.status)]


def find_header(head: bytes, name: str) -> str | None:
    """Look up a header in the head of a response, ignoring case. The values of a repeated header are joined."""
    key = name.lower().encode()
    fields = (line.partition(b":") for line in head.split(_LINE_END))
    values = [value.strip(b" \t") for field, _, value in fields if field.lower() == key]
    return b", ".join(values).decode("latin-1") if values else None


class Timeouts(Struct, frozen=True):
    """Seconds allowed for each stage of a request. `None` means no limit.

    The defaults suit language models, which may be silent for minutes while they think. TCP keep-alive probes detect a
    peer that has disappeared sooner than that.
    """

    connect: float | None = 10.0
    """Name resolution, TCP connection, proxy tunnel and TLS handshake."""
    first_byte: float | None = 600.0
    """From having a connection until the response head has arrived. Sending the request body is included."""
    between_bytes: float | None = 180.0
    """The longest pause within the response body."""
    total: float | None = None
    """From asking for a connection to the end of the response body."""

    def __post_init__(self) -> None:
        for name, seconds in asdict(self).items():
            if seconds is not None and not (isinstance(seconds, int | float) and seconds > 0):  # also NaN
                raise ConfigError(f"timeout {name!r} must be a positive number of seconds or None, got {seconds!r}")


def host_and_port(url: str) -> str:
    """Return `host:port` of a URL, the only part that is safe to show."""
    from urllib.parse import urlsplit  # slow to import, and rarely needed

    try:
        parts = urlsplit(url)
        port = parts.port or DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return "an invalid URL"
    host = str(parts.hostname).encode(errors="backslashreplace").decode()  # an unpaired surrogate cannot be printed
    return f"{host}:{port}" if port else host


def check_base_url(url: str) -> str:
    """Return a base URL without the slash at its end. Raises ConfigError if it is not valid, or has a query."""
    from urllib.parse import urlsplit  # as above

    try:
        parts = urlsplit(url.strip() if isinstance(url, str) else "")
        is_valid = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port > 0)
        is_valid = is_valid and url.strip().isprintable() and " " not in parts.netloc
    except ValueError:
        is_valid = False
    if not is_valid or parts.query or parts.fragment:
        shown = url.split("@")[-1].split("?")[0] if isinstance(url, str) else url  # without a password or a key
        raise ConfigError(f"{shown!r} is not a valid base URL; use one like https://host or http://127.0.0.1:8080")
    return url.strip().rstrip("/")
