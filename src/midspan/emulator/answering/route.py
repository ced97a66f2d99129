"""Where a request goes: which API, version, collection, name and method its path means."""

import re
from functools import lru_cache
from urllib.parse import parse_qs, unquote

from msgspec import Struct

from midspan.providers.gemini.capabilities import Api

_PATH = re.compile(
    r"/(?P<version>v1(?:beta1?|alpha)?)/"
    r"(?P<parent>projects/[^/]+/locations/[^/]+/)?"
    r"(?P<publisher>publishers/[^/]+/)?"
    r"(?P<collection>models|tunedModels|cachedContents)"
    r"(?:/(?P<name>[^/:]+))?(?::(?P<method>\w+))?"
)
_PLAN = re.compile(r"/~(?P<plan>[^/]+)(?=/)")


class Route(Struct, frozen=True, cache_hash=True):
    http_method: str
    api: Api
    version: str
    collection: str
    name: str | None = None
    method: str | None = None
    parent: str = ""
    query: tuple[tuple[str, str], ...] = ()
    plan: str | None = None
    """The plan of faults that the path asks for: `/~NAME/v1beta/…`."""

    @property
    def model(self) -> str | None:
        return self.name if self.collection != "cachedContents" else None

    @property
    def streaming(self) -> bool:
        return self.method == "streamGenerateContent"

    @property
    def is_sse(self) -> bool:
        return self.parameter("alt") == "sse"

    @property
    def numbered_enums(self) -> bool:
        """Whether the caller wants numbers where the API has words."""
        return bool(self.query) and "enum-encoding=int" in (self.parameter("$alt") or self.parameter("alt") or "")

    def parameter(self, name: str) -> str | None:
        return next((value for key, value in self.query if key == name), None)


@lru_cache(maxsize=1_024)
def route_of(http_method: str, target: str) -> Route | None:
    """The route of a request's target; None where the API has nothing there."""
    path, _, query = target.partition("?")
    planned = _PLAN.match(path)
    path = unquote(path[planned.end() :] if planned else path)
    found = _PATH.fullmatch(path)
    if found is None:
        return None
    vertex = found["parent"] is not None or found["publisher"] is not None
    if not vertex and found["version"] == "v1beta1":
        return None  # a version that only Vertex has
    return Route(
        http_method,
        Api.VERTEX if vertex else Api.DEVELOPER,
        found["version"],
        found["collection"],
        found["name"],
        found["method"],
        found["parent"] or "",
        tuple((key, values[-1]) for key, values in parse_qs(query, keep_blank_values=True).items()),
        unquote(planned["plan"]) if planned else None,
    )
