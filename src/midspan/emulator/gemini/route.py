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
_UNAUTHENTICATED = (
    "Request is missing required authentication credential, or had invalid ones. Expected OAuth 2 access token, login "
    "cookie or other valid authentication credential."
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

    @property
    def is_streaming(self) -> bool:
        return self.method == "streamGenerateContent"

    @property
    def is_sse(self) -> bool:
        return self.query.get("alt") == "sse"


def route_of(target: str) -> Route | None:
    """Parse the target of a request; None if the API has nothing there."""
    path, _, query = target.partition("?")
    match = _PATH.fullmatch(unquote(path))
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
    )


def check_credentials(request: Request, route: Route, api_key: str | None) -> None:
    """Check the key or token of a request; any is valid if `api_key` is None, except an empty one and `invalid`."""
    key = request.headers.get("x-goog-api-key", route.query.get("key"))
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    has_token = scheme.lower() == "bearer"
    credential = key.strip() if key is not None else token.strip() if has_token else ""
    if credential not in ("", "invalid") and api_key in (None, credential):
        return
    if key is not None:
        info = {"@type": f"{DETAIL_TYPE}ErrorInfo", "reason": "API_KEY_INVALID", "domain": "googleapis.com"}
        raise ApiError(400, "API key not valid. Please pass a valid API key.", [info])
    if has_token or route.api is Api.VERTEX:
        raise ApiError(401, _UNAUTHENTICATED)
    raise ApiError(
        403,
        "Method doesn't allow unregistered callers (callers without established identity). Please use API Key or "
        "other form of API consumer identity to call this API.",
    )
