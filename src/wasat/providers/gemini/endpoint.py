"""Where the two Gemini APIs are, and what their resources are called there."""

import os
from collections.abc import Mapping
from urllib.parse import quote, urlsplit

from msgspec import Struct

from wasat.errors import ConfigError
from wasat.providers.gemini.capabilities import Api

_DEVELOPER = "https://generativelanguage.googleapis.com"


class Endpoint(Struct, frozen=True):
    """One of the APIs at one address."""

    api: Api
    base_url: str
    version: str
    parent: str = ""
    """Vertex: `projects/…/locations/…`; empty for a key without a project."""

    def url(self, path: str) -> str:
        """The address of a resource, named from the version on."""
        return f"{self.base_url}/{self.version}/{path}"

    def model(self, name: str) -> str:
        """The path of a model, whatever of it was given."""
        name = name.strip("/ ")
        if not name or ".." in name.split("/"):
            raise ConfigError(f"{name!r} is no name of a model")
        if self.api is Api.DEVELOPER:
            return quote(name if name.startswith(("models/", "tunedModels/")) else f"models/{name}", "/")
        if name.startswith("projects/"):
            return quote(name, "/")
        path = name if name.startswith("publishers/") else f"publishers/google/models/{name.removeprefix('models/')}"
        return quote(f"{self.parent}/{path}".lstrip("/"), "/")

    def resource(self, name: str) -> str:
        """The path of a cache or a file: on Vertex it belongs to a project."""
        if ".." in name.split("/"):
            raise ConfigError(f"{name!r} is no name of a resource")
        if self.api is Api.VERTEX and not name.startswith("projects/"):
            name = f"{self.parent}/{name}"
        return quote(name, "/")


def endpoint(
    *,
    vertex: bool | None = None,
    base_url: str | None = None,
    version: str | None = None,
    project: str | None = None,
    location: str | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Endpoint:
    """The endpoint that the caller means; what he does not say, the environment does."""
    on_vertex = _wants_vertex(environment) if vertex is None else vertex
    version = version or _version(environment.get("GOOGLE_GENAI_API_VERSION"))
    if not on_vertex:
        address = base_url or environment.get("GOOGLE_GEMINI_BASE_URL") or _DEVELOPER
        return Endpoint(Api.DEVELOPER, _checked(address), version or "v1beta")
    project = project or environment.get("GOOGLE_CLOUD_PROJECT")
    location = location or environment.get("GOOGLE_CLOUD_LOCATION") or "global"
    address = base_url or environment.get("GOOGLE_VERTEX_BASE_URL") or _vertex_address(location)
    parent = f"projects/{project}/locations/{location}" if project else ""
    return Endpoint(Api.VERTEX, _checked(address), version or "v1beta1", parent)


def _wants_vertex(environment: Mapping[str, str]) -> bool:
    word = environment.get("GOOGLE_GENAI_USE_ENTERPRISE") or environment.get("GOOGLE_GENAI_USE_VERTEXAI") or ""
    return word.strip().lower() in ("1", "true", "yes", "on")


def _version(word: str | None) -> str | None:
    return "v1beta" if word == "beta" else word


def _vertex_address(location: str) -> str:
    if location == "global":
        return "https://aiplatform.googleapis.com"
    if location in ("us", "eu"):
        return f"https://aiplatform.{location}.rep.googleapis.com"
    return f"https://{location}-aiplatform.googleapis.com"


def _checked(address: str) -> str:
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"{address!r} is no base address; write it like https://host or http://127.0.0.1:8080")
    return address.rstrip("/")
