"""Keys and tokens, held so that nobody sees them by accident: not in a repr, a log or the locals of a traceback."""

import asyncio
import inspect
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from midspan.errors import AuthenticationError, ConfigError, CredentialsError

_log = logging.getLogger("midspan.providers.gemini")

GiveToken = Callable[[], str | Awaitable[str]]


class Hidden(str):
    """A text that does not show itself: where locals or arguments are printed, this is not."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<hidden>"


class HiddenArguments(dict[str, Any]):
    """Arguments among which there may be a key."""

    def __repr__(self) -> str:
        return f"<arguments {', '.join(self)}; values hidden>"


class SecretHeaders(dict[str, str]):
    """Headers whose values nobody is shown."""

    def __repr__(self) -> str:
        return f"<headers {', '.join(self)}; values hidden>"

    __str__ = __repr__


class ApiKey:
    """A key of the Developer API, or of Vertex in express mode."""

    __slots__ = ("_headers",)

    def __init__(self, key: str) -> None:
        key = Hidden(key) if isinstance(key, str) else key
        self._headers = SecretHeaders({"x-goog-api-key": _checked(key)})

    async def headers(self) -> Mapping[str, str]:
        return self._headers

    def __repr__(self) -> str:
        return "<API key, hidden>"

    def __reduce__(self) -> Any:
        raise TypeError("an API key is not copied out of the process that has it")


class BearerToken:
    """A token that a function of the caller gives, each time anew; whether it is cached is for that function.

    A plain function runs in a thread, because it may ask a server for the token.
    """

    __slots__ = ("_give", "_is_async", "_more")

    def __init__(self, give: GiveToken, *, user_project: str | None = None) -> None:
        self._give = give
        self._is_async = inspect.iscoroutinefunction(give) or inspect.iscoroutinefunction(type(give).__call__)
        self._more = {"x-goog-user-project": user_project} if user_project else {}

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


Credentials = ApiKey | BearerToken


def key_from(environment: Mapping[str, str]) -> ApiKey | None:
    """The key in the environment: GOOGLE_API_KEY, then GEMINI_API_KEY."""
    names = [name for name in ("GOOGLE_API_KEY", "GEMINI_API_KEY") if environment.get(name, "").strip()]
    if len(names) > 1:
        _log.warning("both GOOGLE_API_KEY and GEMINI_API_KEY are set; GOOGLE_API_KEY is used")
    return ApiKey(environment[names[0]]) if names else None


def developer_credentials(api_key: str | None, environment: Mapping[str, str] = os.environ) -> Credentials:
    """The credentials for the Developer API, or a word on how to give them."""
    api_key = Hidden(api_key) if isinstance(api_key, str) else api_key
    found = ApiKey(api_key) if api_key is not None else key_from(environment)
    if found is None:
        raise CredentialsError(
            "no Gemini API key: set GOOGLE_API_KEY or GEMINI_API_KEY, or give api_key=…; "
            "keys are made at https://aistudio.google.com/apikey"
        )
    return found


def vertex_credentials(
    api_key: str | None, token: GiveToken | None, environment: Mapping[str, str] = os.environ
) -> Credentials:
    """The credentials for Vertex: a function that gives tokens, a key, or google-auth if it is installed."""
    if token is not None:
        return BearerToken(token)
    if api_key is not None:
        return ApiKey(api_key)
    return BearerToken(_token_of_google_auth(), user_project=environment.get("GOOGLE_CLOUD_QUOTA_PROJECT"))


def _token_of_google_auth() -> GiveToken:
    try:
        import google.auth
        import google.auth.exceptions
        import google.auth.transport.requests
    except ImportError:
        raise CredentialsError(
            "no credentials for Vertex: give token=… (a function that returns an access token), api_key=…, "
            "or install google-auth"
        ) from None
    found: list[Any] = []
    one_at_a_time = threading.Lock()  # or a thousand requests would ask for a thousand tokens

    def give() -> str:
        with one_at_a_time:
            if not found:
                found.append(google.auth.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])[0])
            if not found[0].valid:
                found[0].refresh(google.auth.transport.requests.Request())
            return str(found[0].token)

    def give_or_tell() -> str:
        try:
            return give()
        except google.auth.exceptions.DefaultCredentialsError as error:
            raise CredentialsError(f"no credentials for Vertex: {error}") from error
        except google.auth.exceptions.GoogleAuthError as error:
            failed = AuthenticationError(f"google-auth gives no token for Vertex: {error}")
            failed.retryable = error.retryable
            raise failed from error

    return give_or_tell


def _checked(key: str) -> str:
    if not isinstance(key, str):
        raise ConfigError(f"the API key is a text, not a {type(key).__name__}")
    key = Hidden(key.strip())
    if not key:
        raise CredentialsError("the API key is empty")
    if key.startswith("auth_tokens/"):
        raise CredentialsError("this is an ephemeral token, which only Live sessions take; give an API key")
    if not key.isascii() or not key.isprintable():
        raise CredentialsError("the API key holds characters that no key has; was something else pasted?")
    return key
