"""Credentials of the Gemini APIs: a key, or a token for Vertex, from arguments, the environment or google-auth."""

import logging
import os
import threading
from collections.abc import Mapping
from typing import Any

from midspan.errors import AuthenticationError, CredentialsError
from midspan.providers.auth import ApiKey, BearerToken, GiveToken, Hidden

_log = logging.getLogger("midspan.providers.gemini")

KEY_VARIABLES = ("GOOGLE_API_KEY", "GEMINI_API_KEY")
_HEADER = "x-goog-api-key"

Credentials = ApiKey | BearerToken


def gemini_key(key: str) -> ApiKey:
    """A key of the Developer API, or of Vertex in express mode."""
    key = Hidden(key) if isinstance(key, str) else key  # so that no traceback shows it
    if isinstance(key, str) and key.strip().startswith("auth_tokens/"):
        raise CredentialsError("this is an ephemeral token, which only Live sessions take; give an API key")
    return ApiKey(key, _HEADER)


def key_from(environment: Mapping[str, str]) -> ApiKey | None:
    """The key in the environment: GOOGLE_API_KEY, then GEMINI_API_KEY."""
    names = keys_in(environment)
    if len(names) > 1:
        _log.warning("both GOOGLE_API_KEY and GEMINI_API_KEY are set; GOOGLE_API_KEY is used")
    return gemini_key(environment[names[0]]) if names else None


def keys_in(environment: Mapping[str, str]) -> list[str]:
    """The names of the variables that hold a key."""
    return [name for name in KEY_VARIABLES if environment.get(name, "").strip()]


def developer_credentials(api_key: str | None, environment: Mapping[str, str] = os.environ) -> Credentials:
    """The credentials for the Developer API, or a word on how to give them."""
    api_key = Hidden(api_key) if isinstance(api_key, str) else api_key
    found = gemini_key(api_key) if api_key is not None else key_from(environment)
    if found is None:
        error = CredentialsError(
            "no Gemini API key: set GOOGLE_API_KEY or GEMINI_API_KEY, or give api_key=…; "
            "keys are made at https://aistudio.google.com/apikey"
        )
        error.shell_message = (
            "no Gemini API key: set GEMINI_API_KEY or GOOGLE_API_KEY to one, or take the offline model with "
            "--model offline; keys are made at https://aistudio.google.com/apikey"
        )
        raise error
    return found


def vertex_credentials(
    api_key: str | None, token: GiveToken | None, environment: Mapping[str, str] = os.environ
) -> Credentials:
    """The credentials for Vertex: a function that gives tokens, a key, or google-auth if it is installed."""
    if token is not None:
        return BearerToken(token)
    if api_key is not None:
        return gemini_key(api_key)
    project = environment.get("GOOGLE_CLOUD_QUOTA_PROJECT")
    more = {"x-goog-user-project": project} if project else {}
    return BearerToken(_token_of_google_auth(), more=more)


_VERTEX_IN_A_SHELL = (
    "no credentials for Vertex: install google-auth and log in with gcloud auth application-default login, "
    "or unset GOOGLE_GENAI_USE_VERTEXAI to ask the Developer API with a key"
)


def _token_of_google_auth() -> GiveToken:
    try:
        import google.auth
        import google.auth.exceptions
        import google.auth.transport.requests
    except ImportError:
        error = CredentialsError(
            "no credentials for Vertex: give token=… (a function that returns an access token), api_key=…, "
            "or install google-auth"
        )
        error.shell_message = _VERTEX_IN_A_SHELL
        raise error from None
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
            missing = CredentialsError(f"no credentials for Vertex: {error}")
            missing.shell_message = _VERTEX_IN_A_SHELL
            raise missing from error
        except google.auth.exceptions.GoogleAuthError as error:
            failed = AuthenticationError(f"google-auth gives no token for Vertex: {error}")
            failed.retryable = error.retryable
            raise failed from error

    return give_or_tell
