"""API keys and tokens, kept out of reprs, logs and tracebacks that show locals."""

import asyncio
import inspect
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, ClassVar, Protocol
from weakref import WeakSet

from msgspec import Struct

from midspan.errors import AuthenticationError, CredentialsError, MidspanError, ProviderError

_log = logging.getLogger("midspan.providers")

GetToken = Callable[[], str | Awaitable[str]]


class Auth(Protocol):
    """Provides the credentials of requests."""

    @property
    def is_static(self) -> bool:
        """Whether the headers are the same for every request."""

    async def headers(self) -> Mapping[str, str]:
        """Return the headers that authenticate a request."""


class Hidden(str):
    """A string whose repr does not show it, and that is not pickled with the objects that hold it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<hidden>"

    def __reduce__(self) -> Any:
        raise TypeError("an API key cannot be pickled")


class HiddenValues(dict[str, Any]):
    """Headers or keyword arguments, which may include a key; the repr does not show their values."""

    def __repr__(self) -> str:
        return f"<{', '.join(self)}; values hidden>"


class ApiKey:
    """A key that is sent in a header, after an optional prefix such as `Bearer `."""

    is_static = True

    def __init__(self, key: str, header: str = "authorization", prefix: str = "") -> None:
        key = Hidden(key.strip())
        if not key:
            raise CredentialsError("the API key is empty")
        if not key.isascii() or not key.isprintable():
            raise CredentialsError("the API key contains invalid characters; was something else pasted?")
        self._headers = HiddenValues({header: Hidden(prefix + key) if prefix else key})
        self._masker = Masker()
        self._masker.add(self._headers)  # known from now on, and not only when it is first sent

    async def headers(self) -> Mapping[str, str]:
        return self._headers


class EnvironmentKey(Struct, frozen=True):
    """The key in the environment, which is read when the first request is sent."""

    service: str
    variables: Mapping[str, tuple[str, str]]
    """The names of the variables, each with its header and the prefix of the key in that header."""
    is_optional: bool = False
    page: str = ""
    """The address where a user gets a key."""
    is_static: ClassVar[bool] = True

    async def headers(self) -> Mapping[str, str]:
        names = [name for name in self.variables if os.environ.get(name, "").strip()]
        if len(names) > 1:
            _log.warning("both %s are set; %s is used", " and ".join(names), names[0])
        if names:
            return await ApiKey(Hidden(os.environ[names[0]]), *self.variables[names[0]]).headers()
        if self.is_optional:
            return {}
        raise missing_key(self.service, self.variables, page=self.page)


def missing_key(service: str, variables: Iterable[str], *, page: str = "", family: str = "") -> CredentialsError:
    """Return the error for a key that none of these variables holds."""
    missing = f"no {service} API key: set {' or '.join(variables)}, or"
    page = f"; create a key at {page}" if page else ""
    error = CredentialsError(f"{missing} pass api_key=…{page}")
    command = f"midspan keys set {family}".rstrip()
    error.shell_message = f"{missing} store it with {command}, or name another model with --model{page}"
    return error


class BearerToken:
    """A token that a function returns. It is called for every attempt of a request, so it should cache the token.

    A sync function runs in a thread, because it may ask a server for the token.
    """

    is_static = False

    def __init__(self, get_token: GetToken) -> None:
        self._get_token = get_token
        self._is_async = inspect.iscoroutinefunction(get_token) or inspect.iscoroutinefunction(type(get_token).__call__)

    async def headers(self) -> Mapping[str, str]:
        try:
            token: Any = self._get_token() if self._is_async else await asyncio.to_thread(self._get_token)
            token = await token if inspect.isawaitable(token) else token
        except MidspanError:
            raise
        except Exception as error:  # the function is the caller's code
            raise AuthenticationError(f"the function token=… raised {type(error).__name__}: {error}") from error
        token = Hidden(token) if isinstance(token, str) else token
        if not isinstance(token, str) or not token.strip() or not token.isascii() or not token.isprintable():
            raise CredentialsError("the function token=… must return a token: a string of printable ASCII characters")
        return HiddenValues(Authorization=Hidden(f"Bearer {token}"))


class Masker:
    """Removes secrets from errors: a gateway may quote the request, with its key, in its response."""

    def __init__(self) -> None:
        self.secrets: tuple[Hidden, ...] = ()
        with _lock:
            _maskers.add(self)

    def add(self, headers: Mapping[str, str]) -> None:
        """Mask the secrets in these headers from now on."""
        for name, value in headers.items():
            secret = Hidden(value.rsplit(" ", 1)[-1])  # without the scheme, as in `Bearer …`
            if is_secret(name, value) and len(secret) >= _MIN_SECRET and secret not in self.secrets:
                self.secrets = (*self.secrets, secret)[-_MAX_SECRETS:]

    def mask(self, error: ProviderError) -> None:
        """Replace secrets in the message and fields of an error. If it has any, drop its cause and its traceback."""
        args, fields = self.masked(error.args), self.masked(vars(error))
        if args != error.args or fields != vars(error):
            error.args = args
            vars(error).update(fields)
            error.__cause__ = error.__context__ = error.__traceback__ = None

    def masked(self, value: Any) -> Any:
        """Return a text, or a list, tuple or dict, without the secrets."""
        match value:
            case str():
                for secret in self.secrets:
                    value = value.replace(secret, "***")
            case tuple() | list():
                return type(value)(self.masked(item) for item in value)
            case dict():
                return {self.masked(name): self.masked(item) for name, item in value.items()}
        return value


def is_secret(header: str, value: str) -> bool:
    """Whether the value of a header must not be shown."""
    return isinstance(value, Hidden) or any(word in header.lower() for word in _SECRET_HEADERS)


_maskers: "WeakSet[Masker]" = WeakSet()
_lock = threading.Lock()


def secrets_in_use() -> set[str]:
    """Return the secrets of all clients in this process, for recordings, which must not contain them."""
    with _lock:
        maskers = list(_maskers)
    return {secret for masker in maskers for secret in masker.secrets}


_MAX_SECRETS = 16
"""Tokens are renewed, and responses do not quote old ones."""
_MIN_SECRET = 8
"""Shorter values may be parts of ordinary words."""
_SECRET_HEADERS = ("auth", "key", "token", "secret", "cookie", "password")
"""Parts of the names of headers whose values are secret."""
