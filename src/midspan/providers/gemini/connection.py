"""The Gemini API behind `RestClient`: which of the two APIs, at which address, with which credentials."""

import re
from collections.abc import AsyncIterator, Mapping
from typing import Any

from midspan._http.retry import Clock, RetryPolicy
from midspan._http.transport import Transport
from midspan.errors import ConfigError, ProviderError
from midspan.providers.auth import Auth, GiveToken, Hidden
from midspan.providers.gemini.capabilities import LARGEST_REQUEST, Api
from midspan.providers.gemini.credentials import developer_credentials, vertex_credentials
from midspan.providers.gemini.endpoint import Endpoint, endpoint
from midspan.providers.gemini.errors import parse_error
from midspan.providers.gemini.proto import AnyProto, load
from midspan.providers.rest import Response, RestClient

_MAX_PAGES = 1000


class GeminiApi(RestClient):
    """One of the Gemini APIs, with credentials."""

    def __init__(self, endpoint: Endpoint, auth: Auth, **options: Any) -> None:
        url = f"{endpoint.base_url}/{endpoint.version}"
        super().__init__(url, auth, _parse_error, "Gemini", max_body_bytes=LARGEST_REQUEST, **options)
        self.endpoint = endpoint

    def body_too_large(self, size: int) -> ConfigError:
        return ConfigError(
            f"the request has {size / 2**20:.1f} MB, and the API accepts {LARGEST_REQUEST // 2**20}; "
            "upload large files with the Files API and pass Part.from_uri(…)"
        )

    async def pages(self, path: str, form: type[AnyProto]) -> AsyncIterator[AnyProto]:
        """Yield all pages of a list."""
        from urllib.parse import quote  # slow to import

        token = ""
        for _ in range(_MAX_PAGES):
            page: Any = load(form, await self.call("GET", f"{path}?pageToken={quote(token, '')}" if token else path))
            yield page
            token = page.next_page_token or ""
            if not token:
                return
        raise ConfigError(f"{path} has more than {_MAX_PAGES} pages, which cannot be right")


def _parse_error(response: Response, body: bytes) -> ProviderError:
    return parse_error(response.status, body, response.header("retry-after"), response.header("location"))


def connect(
    *,
    api_key: str | None = None,
    vertex: bool | None = None,
    token: GiveToken | None = None,
    project: str | None = None,
    location: str | None = None,
    base_url: str | None = None,
    version: str | None = None,
    headers: Mapping[str, str] | None = None,
    transport: Transport | None = None,
    retry: RetryPolicy | None = None,
    clock: Clock | None = None,
) -> GeminiApi:
    """Return the API that the arguments and the environment describe. Nothing is sent yet."""
    api_key = Hidden(api_key) if isinstance(api_key, str) else api_key
    _check(token=token, retry=retry, transport=transport)
    _check_headers(headers)
    if token is not None:
        if vertex is False:
            raise ConfigError("a token is for Vertex; give api_key=… for the Developer API")
        vertex = True
    where = endpoint(vertex=vertex, base_url=base_url, version=version, project=project, location=location)
    on_vertex = where.api is Api.VERTEX
    credentials = vertex_credentials(api_key, token) if on_vertex else developer_credentials(api_key)
    return GeminiApi(where, credentials, transport=transport, retry=retry, clock=clock, headers=headers)


def connected(connection: dict[str, Any]) -> GeminiApi:
    """The same from keyword arguments, with an error that names an unknown one."""
    for name in connection:
        if name not in _CONNECTION:
            raise ConfigError(f"there is no argument called {name!r}; {_instead_of(name)}")
    return connect(**connection)


_CONNECTION = tuple(connect.__annotations__)[:-1]
_TIMES = "times are limited with transport=Transport(Timeouts(total=…)), both of midspan.gemini"
_TRIES = "how often it is tried is said with retry=RetryPolicy(max_attempts=…), of midspan.gemini"
_INSTEAD = {
    "timeout": _TIMES,
    "timeout_seconds": _TIMES,
    "deadlines": _TIMES,
    "retries": _TRIES,
    "max_retries": _TRIES,
    "credentials": "give token=…, a function that returns an access token",
    "proxy": "set HTTPS_PROXY in the environment",
    "verify": "name your certificates with SSL_CERT_FILE in the environment",
}
"""What other libraries call it, and how it is said here."""
_HEADERS_OF_HTTP = ("content-length", "transfer-encoding", "host", "connection")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A token: https://www.rfc-editor.org/rfc/rfc9110#section-5.6.2"""
_NO_HEADER_VALUE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")


def _instead_of(name: str) -> str:
    if name in _INSTEAD:
        return _INSTEAD[name]
    from difflib import get_close_matches  # loaded for a wrong argument only

    near = get_close_matches(name, _CONNECTION, 1)
    return f"did you mean {near[0]}?" if near else f"known: {', '.join(_CONNECTION)}"


def _check(*, token: Any, retry: Any, transport: Any) -> None:
    if token is not None and not callable(token):
        raise ConfigError("token is a function that returns a token, so that it can be renewed; give lambda: token")
    if retry is not None and not isinstance(retry, RetryPolicy):
        raise ConfigError(f"retry is a RetryPolicy, not {retry!r}")
    if transport is not None and not isinstance(transport, Transport):
        raise ConfigError(f"transport is a Transport, as Transport(Timeouts(total=60)), not {transport!r}")


def _check_headers(headers: Any) -> None:
    if headers is not None and not isinstance(headers, Mapping):
        raise ConfigError("headers is a dict of texts")
    for name, value in (headers or {}).items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise ConfigError(f"the header {name!r} is not a text with a text for its value")
        if not _HEADER_NAME.fullmatch(name):
            raise ConfigError(f"{name!r} is no name of a header; one has letters, digits and signs like - and _ only")
        if _NO_HEADER_VALUE.search(value):  # which may be a secret
            raise ConfigError(f"the value of the header {name!r} holds a control character, or half a character")
        if name.lower() in _HEADERS_OF_HTTP:
            raise ConfigError(f"the header {name!r} belongs to HTTP itself and cannot be set")
