"""Who asks: the key or token of a request, and what is said to those who have none or a wrong one."""

from midspan.emulator.answering.route import Route
from midspan.emulator.refusal import Refusal
from midspan.emulator.serving.requests import Request
from midspan.providers.gemini.capabilities import Api

_WRONG = frozenset(("", "invalid"))
"""What is no key anywhere."""
_INFO = "type.googleapis.com/google.rpc.ErrorInfo"
_LOCALIZED = "type.googleapis.com/google.rpc.LocalizedMessage"
_EXPECTED = (
    "Expected OAuth 2 access token, login cookie or other valid authentication credential. See "
    "https://developers.google.com/identity/sign-in/web/devconsole-project."
)


def check_credentials(request: Request, route: Route, api_key: str | None) -> None:
    """Pass a key that is right: any, or only this one."""
    key = request.header("x-goog-api-key")
    if key is None:
        key = route.parameter("key")
    if key is not None:
        if not _is_right(key.strip(), api_key):
            raise _wrong_key(route)
        return
    token = request.header("authorization")
    if token is not None and token.lower().startswith("bearer"):
        if not _is_right(token[len("bearer") :].strip(), api_key):
            raise _unauthenticated(f"Request had invalid authentication credentials. {_EXPECTED}")
        return
    if route.api is Api.VERTEX:
        raise _unauthenticated(f"Request is missing required authentication credential. {_EXPECTED}")
    raise Refusal(
        403,
        "Method doesn't allow unregistered callers (callers without established identity). Please use API Key or "
        "other form of API consumer identity to call this API.",
    )


def _is_right(given: str, wanted: str | None) -> bool:
    return given not in _WRONG and (wanted is None or given == wanted)


def _wrong_key(route: Route) -> Refusal:
    words = "API key not valid. Please pass a valid API key."
    service = "generativelanguage" if route.api is Api.DEVELOPER else "aiplatform"
    info = {
        "@type": _INFO,
        "reason": "API_KEY_INVALID",
        "domain": "googleapis.com",
        "metadata": {"service": f"{service}.googleapis.com"},
    }
    return Refusal(400, words, details=[info, {"@type": _LOCALIZED, "locale": "en-US", "message": words}])


def _unauthenticated(words: str) -> Refusal:
    info = {"@type": _INFO, "reason": "CREDENTIALS_MISSING", "domain": "googleapis.com"}
    return Refusal(401, words, details=[info])
