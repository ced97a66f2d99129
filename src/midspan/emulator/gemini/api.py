"""Routes, the credentials of the caller, and error responses."""

import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qs, unquote

import msgspec

from midspan.emulator.http import Reply, Request, reply
from midspan.providers.gemini.capabilities import Api
from midspan.providers.gemini.errors import RPC_STATUSES

_PATH = re.compile(
    r"/(?P<version>v1(?:beta|alpha|beta1(?=/p))?)/"  # v1beta1 is a version of Vertex only
    r"(?P<parent>projects/[^/]+/locations/[^/]+/)?"
    r"(?P<publisher>publishers/[^/]+/)?"
    r"(?P<collection>models|cachedContents)"
    r"(?:/(?P<name>[^/:]+))?(?::(?P<method>\w+))?"
)
_UNAUTHENTICATED = (
    "Request is missing required authentication credential, or had invalid ones. Expected OAuth 2 access token, login "
    "cookie or other valid authentication credential."
)


class ApiRoute:
    """Which method of the API a request is for."""

    def __init__(self, path: re.Match[str], query: str) -> None:
        is_vertex = path["parent"] is not None or path["publisher"] is not None
        self.api = Api.VERTEX if is_vertex else Api.DEVELOPER
        self.version: str = path["version"]
        self.collection: str = path["collection"]
        self.name: str | None = path["name"]
        self.method: str | None = path["method"]
        self.parent: str = path["parent"] or ""
        """For Vertex: project and location."""
        self.query = {key: values[-1] for key, values in parse_qs(query, keep_blank_values=True).items()}
        self.is_streaming = self.method == "streamGenerateContent"
        self.is_sse = self.query.get("alt") == "sse"


def route_of(target: str) -> ApiRoute | None:
    """Parse the target of a request; None if the API has nothing there."""
    path, _, query = target.partition("?")
    match = _PATH.fullmatch(unquote(path))
    return None if match is None else ApiRoute(match, query)


def check_key(request: Request, route: ApiRoute, api_key: str | None) -> None:
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


STATUS_NAMES = {
    **{http_status: name for name, (_, http_status) in RPC_STATUSES.items()},
    400: "INVALID_ARGUMENT",
    500: "INTERNAL",
    502: "UNAVAILABLE",
}
"""By HTTP status."""
DETAIL_TYPE = "type.googleapis.com/google.rpc."


class ApiError(Exception):
    """An error response of the API."""

    def __init__(self, code: int, message: str, details: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = details

    def body(self) -> bytes:
        error: dict[str, Any] = {"code": self.code, "message": self.message, "status": STATUS_NAMES[self.code]}
        if self.details:
            error["details"] = self.details
        return msgspec.json.format(msgspec.json.encode({"error": error}), indent=2) + b"\n"

    def reply(self) -> Reply:
        return reply(self.body(), self.code)


def invalid(message: str) -> ApiError:
    """The request breaks a rule of the API."""
    return ApiError(400, message)


def invalid_fields(errors: Sequence[tuple[str, str]], api: Api) -> ApiError:
    """Fields of a request break a rule: for each its path and a message."""
    if api is Api.VERTEX:
        lines = "\n".join(f"  * {path}: [FIELD_INVALID] {message}" for path, message in errors)
        return invalid(f"The GenerateContentRequest proto is invalid:\n{lines}")
    return invalid("".join(f"* GenerateContentRequest.{path}: {message}\n" for path, message in errors))


def invalid_json(violations: Sequence[tuple[str, str]]) -> ApiError:
    """The JSON does not describe a request: for each violation its path and a message."""
    listed = [{"field": path, "description": message} for path, message in violations]
    details = [{"@type": f"{DETAIL_TYPE}BadRequest", "fieldViolations": listed}]
    return ApiError(400, "\n".join(message for _, message in violations), details)


def error_page(status: int) -> bytes:
    """The HTML error page that a front end sends instead of the API."""
    return f"<!DOCTYPE html>\n<title>Error {status}!!1</title>\n".encode()
