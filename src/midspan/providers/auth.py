"""Keys and tokens, held so that nobody sees them by accident: not in a repr, a log or the locals of a traceback."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from midspan.errors import ConfigError, CredentialsError

GiveToken = Callable[[], str | Awaitable[str]]


class Auth(Protocol):
    """Adds credentials to requests."""

    @property
    def is_static(self) -> bool:
        """Whether the headers are the same for every request."""

    async def headers(self) -> Mapping[str, str]:
        """Return the headers that authorise a request."""


class Hidden(str):
    """A text whose repr does not show it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<hidden>"


class HiddenArguments(dict[str, Any]):
    """Keyword arguments that may include a key."""

    def __repr__(self) -> str:
        return f"<arguments {', '.join(self)}; values hidden>"


class SecretHeaders(dict[str, str]):
    """Headers whose repr does not show their values."""

    def __repr__(self) -> str:
        return f"<headers {', '.join(self)}; values hidden>"

    __str__ = __repr__


class ApiKey:
    """A key that is sent in a header, after an optional prefix such as `Bearer `."""

    __slots__ = ("_headers",)
    is_static = True

    def __init__(self, key: str, header: str = "authorization", prefix: str = "") -> None:
        key = checked_key(Hidden(key) if isinstance(key, str) else key)
        self._headers = SecretHeaders({header: Hidden(prefix + key) if prefix else key})

    async def headers(self) -> Mapping[str, str]:
        return self._headers

    def __repr__(self) -> str:
        return "<API key, hidden>"

    def __reduce__(self) -> Any:
        raise TypeError("an API key is not copied out of the process that has it")


class BearerToken:
    """A token that a function of the caller returns, called for every request; that function may cache it.

    A plain function runs in a thread, because it may ask a server for the token.
    """

    __slots__ = ("_give", "_is_async", "_more")
    is_static = False

    def __init__(self, give: GiveToken, *, more: Mapping[str, str] | None = None) -> None:
        self._give = give
        self._is_async = inspect.iscoroutinefunction(give) or inspect.iscoroutinefunction(type(give).__call__)
        self._more = dict(more or {})

    async def headers(self) -> Mapping[str, str]:
        given = self._give() if self._is_async else await asyncio.to_thread(self._give)
        if inspect.isawaitable(given):
            given = await given
        if not isinstance(given, str) or not given.strip():
            what = "an empty text" if isinstance(given, str) else type(given).__name__
            raise CredentialsError(f"the function token=… returned {what}; it returns the token, as text")
        return SecretHeaders(Authorization=f"Bearer {given}", **self._more)

    def __repr__(self) -> str:
        return "<token, hidden>"


def checked_key(key: Any) -> Hidden:
    """Return the key without white space around it, or say what is wrong with it."""
    if not isinstance(key, str):
        raise ConfigError(f"the API key is a text, not a {type(key).__name__}")
    stripped = Hidden(key.strip())
    if not stripped:
        raise CredentialsError("the API key is empty")
    if not stripped.isascii() or not stripped.isprintable():
        raise CredentialsError("the API key holds characters that no key has; was something else pasted?")
    return stripped
