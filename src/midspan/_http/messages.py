"""HTTP requests and responses as values whose repr shows no headers, query or body."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

DEFAULT_PORTS = {"http": 80, "https": 443}


class HttpRequest(Struct, frozen=True, eq=False):
    """A request, sent as it is."""

    method: str
    url: str
    headers: Mapping[str, str] = {}
    body: bytes = b""

    # Keys are in headers and sometimes in the query; a repr ends up in logs and in tracebacks that show locals.
    def __repr__(self) -> str:
        return _format("HttpRequest", self.__rich_repr__())

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("method", self.method), ("to", origin_of(self.url)), *_summary(self.headers, self.body)]


class HttpResponse(Struct, frozen=True, eq=False):
    """A response with its whole body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def header(self, name: str) -> str | None:
        """Look up a header, ignoring case."""
        return header(self.headers, name)

    def __repr__(self) -> str:
        return _format("HttpResponse", self.__rich_repr__())

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("status", self.status), *_summary(self.headers, self.body)]


def header(headers: Mapping[str, str], name: str) -> str | None:
    """Look up a header, ignoring case; None if it is missing."""
    value = headers.get(name)
    if value is not None:
        return value
    name = name.lower()
    return next((value for key, value in headers.items() if key.lower() == name), None)


def origin_of(url: str) -> str:
    """Return `host:port` of a URL, the only part that is safe to show."""
    from urllib.parse import urlsplit  # slow to import, and rarely needed

    try:
        parts = urlsplit(url)
        port = parts.port or DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return "an invalid URL"
    host = str(parts.hostname).encode(errors="backslashreplace").decode()  # an unpaired surrogate cannot be printed
    return f"{host}:{port}" if port else host


def _summary(headers: Mapping[str, str], body: bytes) -> list[tuple[str, Any]]:
    return [("headers", list(headers)), ("bytes", len(body))]


def _format(name: str, fields: list[tuple[str, Any]]) -> str:
    return f"{name}({', '.join(f'{field}={value!r}' for field, value in fields)})"
