"""The route of a request: API, version, collection, name and method, and the credentials of the caller."""

import re
from urllib.parse import parse_qs, unquote

from msgspec import Struct

from midspan.emulator.gemini.errors import DETAIL_TYPE, ApiError
from midspan.emulator.http import Request
from midspan.providers.gemini.capabilities import Api

_PATH = re.compile(
    r"/(?P<version>v1(?:beta1?|alpha)?)/"
    r"(?P<parent>projects/[^/]+/locations/[^/]+/)?"
    r"(?P<publisher>publishers/[^/]+/)?"
    r"(?P<collection>models|tunedModels|cachedContents)"
    r"(?:/(?P<name>[^/:]+))?(?::(?P<method>\w+))?"
)
_PLAN = re.compile(r"/~(?P<plan>[^/]+)(?=/)")
_INVALID_KEYS = ("", "invalid")
_EXPECTED = (
    "Expected OAuth 2 access token, login cookie or other valid authentication credential. See "
    "https://developers.google.com/identity/sign-in/web/devconsole-project."
)


class Route(Struct, frozen=True, kw_only=True):
    api: Api
    version: str
    collection: str
    name: str | None = None
    method: str | None = None
    parent: str = ""
    """For Vertex: project and location."""
    query: dict[str, str] = {}
    plan: str | None = None
    """The name of a fault plan, from the beginning of the path: `/~NAME/v1beta/…`."""

    @property
    def is_streaming(self) -> bool:
        return self.method == "streamGenerateContent"

    @property
    def is_sse(self) -> bool:
        return self.query.get("alt") == "sse"

    @property
    def wants_enum_numbers(self) -> bool:
        return "enum-encoding=int" in (self.query.get("$alt") or self.query.get("alt") or "")


def route_of(target: str) -> Route | None:
    """Parse the target of a request; None if the API has nothing there."""
    path, _, query = target.partition("?")
    plan = _PLAN.match(path)
    match = _PATH.fullmatch(unquote(path[plan.end() :] if plan else path))
    if match is None:
        return None
    is_vertex = match["parent"] is not None or match["publisher"] is not None
    if not is_vertex and match["version"] == "v1beta1":
        return None  # a version of Vertex only
    return Route(
        api=Api.VERTEX if is_vertex else Api.DEVELOPER,
        version=match["version"],
        collection=match["collection"],
        name=match["name"],
        method=match["method"],
        parent=match["parent"] or "",
        query={key: values[-1] for key, values in parse_qs(query, keep_blank_values=True).items()},
        plan=unquote(plan["plan"]) if plan else None,
    )


def check_credentials(request: Request, route: Route, api_key: str | None) -> None:
    """Check the key or token of a request; any is valid if `api_key` is None."""
    key = request.headers.get("x-goog-api-key", route.query.get("key"))
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    has_token = key is None and scheme.lower() == "bearer"
    credential = token.strip() if key is None else key.strip()
    is_valid = credential not in _INVALID_KEYS and api_key in (None, credential)
    if key is not None and not is_valid:
        raise _invalid_key(route)
    if has_token and not is_valid:
        raise _unauthenticated(f"Request had invalid authentication credentials. {_EXPECTED}")
    if key is not None or has_token:
        return
    if route.api is Api.VERTEX:
        raise _unauthenticated(f"Request is missing required authentication credential. {_EXPECTED}")
    raise ApiError(
        403,
        "Method doesn't allow unregistered callers (callers without established identity). Please use API Key or "
        "other form of API consumer identity to call this API.",
    )


def _invalid_key(route: Route) -> ApiError:
    message = "API key not valid. Please pass a valid API key."
    service = "generativelanguage" if route.api is Api.DEVELOPER else "aiplatform"
    info = {
        "@type": f"{DETAIL_TYPE}ErrorInfo",
        "reason": "API_KEY_INVALID",
        "domain": "googleapis.com",
        "metadata": {"service": f"{service}.googleapis.com"},
    }
    localized = {"@type": f"{DETAIL_TYPE}LocalizedMessage", "locale": "en-US", "message": message}
    return ApiError(400, message, details=[info, localized])


def _unauthenticated(message: str) -> ApiError:
    info = {"@type": f"{DETAIL_TYPE}ErrorInfo", "reason": "CREDENTIALS_MISSING", "domain": "googleapis.com"}
    return ApiError(401, message, details=[info])
