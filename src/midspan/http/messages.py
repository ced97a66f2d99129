"""What is sent and what comes back, as values that keep their secrets when they are printed."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

_DEFAULT_PORTS = {"http": 80, "https": 443}


class HttpRequest(Struct, frozen=True, eq=False):
    """A request, ready to be sent as it is."""

    method: str
    url: str
    headers: Mapping[str, str] = {}
    body: bytes = b""

    # Keys are in headers and sometimes in the query; a repr ends up in logs and in tracebacks that show locals.
    def __repr__(self) -> str:
        return _shown("HttpRequest", self.__rich_repr__())

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("method", self.method), ("to", origin_of(self.url)), *_outline(self.headers, self.body)]


class HttpResponse(Struct, frozen=True, eq=False):
    """A response with its whole body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def header(self, name: str) -> str | None:
        """The header of that name, in whatever case either of us writes it."""
        return header(self.headers, name)

    def __repr__(self) -> str:
        return _shown("HttpResponse", self.__rich_repr__())

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("status", self.status), *_outline(self.headers, self.body)]


def header(headers: Mapping[str, str], name: str) -> str | None:
    """The header of that name, whatever its case; None if there is none."""
    found = headers.get(name)
    if found is not None:
        return found
    name = name.lower()
    return next((value for key, value in headers.items() if key.lower() == name), None)


def origin_of(url: str) -> str:
    """The `host:port` of an address, the only part of it that is fit to be shown."""
    from urllib.parse import urlsplit  # takes as long to load as all of us, and is rarely needed

    try:
        parts = urlsplit(url)
        port = parts.port or _DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return "an address that is none"
    host = str(parts.hostname).encode(errors="backslashreplace").decode()  # half a character cannot be printed
    return f"{host}:{port}" if port else host


def _outline(headers: Mapping[str, str], body: bytes) -> list[tuple[str, Any]]:
    return [("headers", list(headers)), ("bytes", len(body))]


def _shown(name: str, fields: list[tuple[str, Any]]) -> str:
    return f"{name}({', '.join(f'{field}={value!r}' for field, value in fields)})"
