"""The HTTP client of the Gemini API: the endpoint (Developer API or Vertex) and the credentials."""

import os
import re
import threading
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, TypedDict
from urllib.parse import quote

from msgspec import Struct

from midspan._http.messages import check_base_url
from midspan._http.retry import Clock, RetryPolicy
from midspan._http.transport import Transport
from midspan.errors import AuthenticationError, ConfigError, CredentialsError, MalformedResponseError, ProviderError
from midspan.providers.auth import ApiKey, Auth, BearerToken, EnvironmentKey, GetToken, Hidden, HiddenValues
from midspan.providers.gemini.capabilities import KEY_VARIABLES, MAX_REQUEST_BYTES, Api
from midspan.providers.rest import Response, RestClient

if TYPE_CHECKING:
    from midspan.providers.gemini.wire import CachedContent, Page

_DEVELOPER_URL = "https://generativelanguage.googleapis.com"
_KEY_HEADER = "x-goog-api-key"
_KEY_PAGE = "https://aistudio.google.com/apikey"
_MAX_PAGES = 1000
_HOW_TO_LOG_IN = (
    "install google-auth and log in with gcloud auth application-default login, or pass token=… (a function that "
    "returns an access token) or api_key=…"
)


class GeminiApi(RestClient):
    """One of the Gemini APIs, with credentials."""

    def __init__(self, endpoint: "Endpoint", auth: Auth, **options: Any) -> None:
        url = f"{endpoint.base_url}/{endpoint.version}"
        super().__init__(url, auth, _response_error, "Gemini", max_request_bytes=MAX_REQUEST_BYTES, **options)
        self.endpoint = endpoint

    async def cache(self, method: str, name: str | None = None, body: bytes = b"") -> "CachedContent":
        """Send a request about a context cache; PATCH sets its time to live."""
        from midspan.providers.gemini.proto import load
        from midspan.providers.gemini.wire import CachedContent

        path = self.endpoint.resource("cachedContents", name)
        query = "?updateMask=ttl" if method == "PATCH" else ""
        return load(CachedContent, await self.call(method, path + query, body) or b"{}")

    async def pages(self, path: str) -> AsyncIterator["Page"]:
        """Yield all pages of a list."""
        from midspan.providers.gemini.proto import load  # loaded with the first list
        from midspan.providers.gemini.wire import Page

        query = ""
        for _ in range(_MAX_PAGES):
            page = load(Page, await self.call("GET", path + query))
            yield page
            if not page.next_page_token:
                return
            query = f"?pageToken={quote(page.next_page_token, '')}"
        raise MalformedResponseError(f"the list {path} of Gemini has more than {_MAX_PAGES:,} pages")


def duration(seconds: float) -> str:
    """Return the time to live of a cache as the API writes it."""
    if not seconds > 0:
        raise ConfigError(f"ttl_seconds must be a positive number of seconds, got {seconds}")
    return f"{seconds:f}".rstrip("0").rstrip(".") + "s"


def _response_error(response: Response, body: bytes) -> ProviderError:
    from midspan.providers.errors import retry_delay  # loaded with the first error
    from midspan.providers.gemini.errors import parse_error

    return parse_error(response.status, body, retry_delay(response), response.header("location"))


class ConnectionOptions(TypedDict, total=False):
    """How the API is reached. Missing options are read from the environment."""

    api_key: str | None
    vertex: bool | None
    """Whether to use Vertex instead of the Developer API."""
    token: GetToken | None
    """For Vertex: a function that returns an access token."""
    project: str | None
    location: str | None
    base_url: str | None
    version: str | None
    """Of the API, such as `v1beta`."""
    headers: Mapping[str, str] | None
    transport: Transport | None
    retry: RetryPolicy | None
    clock: Clock | None


def connect(options: Mapping[str, Any]) -> GeminiApi:
    """Return the client that the options (`ConnectionOptions`) and the environment describe. It opens no connection."""
    known = ConnectionOptions.__annotations__
    for name in options:
        if name not in known:
            raise ConfigError(f"unknown argument {name!r}; known arguments of a connection: {', '.join(known)}")
    values = HiddenValues({**dict.fromkeys(known), **options})  # no traceback shows the key
    token, vertex = values["token"], values["vertex"]
    if token is not None and not callable(token):
        raise ConfigError("token must be a function that returns a token, for example token=lambda: value")
    where = endpoint(
        vertex=vertex if token is None else True,
        **{name: values[name] for name in ("base_url", "version", "project", "location")},
    )
    key = None if values["api_key"] is None else Hidden(values["api_key"])
    auth = google_credentials(where.api, key, token)
    return GeminiApi(where, auth, **{name: values[name] for name in ("transport", "retry", "clock", "headers")})


class Endpoint(Struct, frozen=True):
    """One of the APIs at one address."""

    api: Api
    base_url: str
    version: str
    parent: str = ""
    """Vertex: `projects/…/locations/…/`; empty for a key without a project."""

    def model(self, name: str) -> str:
        """Return the path of a model, given by its name, or by a part of its path."""
        if not isinstance(name, str) or not name.strip("/ ") or not name.isprintable() or ".." in name.split("/"):
            raise ConfigError(f"{name!r} is not a valid model name")
        name = name.strip("/ ")
        if self.api is Api.DEVELOPER:
            path = name if name.startswith(("models/", "tunedModels/")) else f"models/{name}"
        elif name.startswith("projects/"):
            path = name
        else:
            is_path = name.startswith("publishers/")
            path = self.parent + (name if is_path else f"publishers/google/models/{name.removeprefix('models/')}")
        return quote(path)

    def resource(self, collection: str, name: str | None = None) -> str:
        """Return the path of a collection, or of an item in it, given with or without the path of the collection."""
        if self.api is Api.VERTEX and not self.parent:
            raise ConfigError(f"{collection} belong to a project; pass project=…")
        path = quote(self.parent + collection)
        if name is None:
            return path
        item = name.rpartition(f"{collection}/")[2]
        return f"{path}/{_path_segment(f'name in {collection}', item)}"


def endpoint(
    *,
    vertex: bool | None = None,
    base_url: str | None = None,
    version: str | None = None,
    project: str | None = None,
    location: str | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Endpoint:
    """Return the endpoint that the arguments describe, and where they are None, the environment.

    An empty argument is an error: if it counted as None, a key could be sent to an unintended address.
    An empty variable counts as unset, because many tools can only clear a variable by setting it to nothing.
    """
    on_vertex = wants_vertex(environment) if vertex is None else vertex
    if version is None:
        version = environment.get("GOOGLE_GENAI_API_VERSION") or ("v1beta1" if on_vertex else "v1beta")
    version = _path_segment("version", "v1beta" if version == "beta" else version)
    if not on_vertex:
        address = environment.get("GOOGLE_GEMINI_BASE_URL") or _DEVELOPER_URL if base_url is None else base_url
        return Endpoint(Api.DEVELOPER, check_base_url(address), version)
    project = environment.get("GOOGLE_CLOUD_PROJECT") or None if project is None else project
    location = environment.get("GOOGLE_CLOUD_LOCATION") or "global" if location is None else location
    location = _path_segment("location", location)
    parent = "" if project is None else f"projects/{_path_segment('project', project)}/locations/{location}/"
    address = environment.get("GOOGLE_VERTEX_BASE_URL") or vertex_url(location) if base_url is None else base_url
    return Endpoint(Api.VERTEX, check_base_url(address), version, parent)


def wants_vertex(environment: Mapping[str, str]) -> bool:
    """Return whether the environment selects Vertex."""
    value = environment.get("GOOGLE_GENAI_USE_ENTERPRISE") or environment.get("GOOGLE_GENAI_USE_VERTEXAI") or ""
    return value.strip().lower() in ("1", "true", "yes", "on")


def vertex_url(location: str) -> str:
    """Return the address of Vertex in a location."""
    if location == "global":
        return "https://aiplatform.googleapis.com"
    if location in ("us", "eu"):
        return f"https://aiplatform.{location}.rep.googleapis.com"
    return f"https://{location}-aiplatform.googleapis.com"


def _path_segment(what: str, value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][\w.:-]*", value):
        raise ConfigError(f"{value!r} is not a valid {what}")
    return value


def google_credentials(api: Api, api_key: str | None, token: GetToken | None) -> Auth:
    """Return the given credentials. The default is google-auth for Vertex, otherwise the key in the environment."""
    if token is not None:
        return BearerToken(token)
    if api_key is not None:
        return ApiKey(api_key, _KEY_HEADER)
    if api is Api.VERTEX:
        return BearerToken(_google_auth_token())
    return EnvironmentKey("Gemini", dict.fromkeys(KEY_VARIABLES, (_KEY_HEADER, "")), page=_KEY_PAGE)


def _google_auth_token() -> GetToken:
    """Return a function that returns a token of google-auth, which is imported when the first request is made."""
    credentials: Any = None
    lock = threading.Lock()  # or a thousand requests would each ask for a token

    def current_token() -> str:
        nonlocal credentials
        try:
            import google.auth
            import google.auth.exceptions
            import google.auth.transport.requests
        except ImportError:
            raise CredentialsError(f"no credentials for Vertex: google-auth is missing; {_HOW_TO_LOG_IN}") from None
        try:
            with lock:
                if credentials is None:
                    credentials = google.auth.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])[0]
                if not credentials.valid:
                    credentials.refresh(google.auth.transport.requests.Request())
                return str(credentials.token)
        except google.auth.exceptions.DefaultCredentialsError as error:
            raise CredentialsError(f"no credentials for Vertex: {error}; {_HOW_TO_LOG_IN}") from error
        except google.auth.exceptions.GoogleAuthError as error:
            failed = AuthenticationError(f"google-auth returned no token for Vertex: {error}")
            failed.retryable = error.retryable
            raise failed from error

    return current_token
