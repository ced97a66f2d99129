"""Where the two Gemini APIs are, and what their resources are called there."""

import os
import re
from collections.abc import Mapping

from msgspec import Struct

from midspan.errors import ConfigError
from midspan.providers.gemini.capabilities import Api

_DEVELOPER = "https://generativelanguage.googleapis.com"
_NEEDS_NO_QUOTING = re.compile(r"[\w.-]+(?:/[\w.-]+)*", re.ASCII)


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
        if not name or not name.isprintable() or ".." in name.split("/"):
            raise ConfigError(f"{name!r} is no name of a model")
        if self.api is Api.DEVELOPER:
            return _quote(name if name.startswith(("models/", "tunedModels/")) else f"models/{name}", "/")
        if name.startswith("projects/"):
            return _quote(name, "/")
        path = name if name.startswith("publishers/") else f"publishers/google/models/{name.removeprefix('models/')}"
        return _quote(f"{self.parent}/{path}".lstrip("/"), "/")

    def resource(self, collection: str, name: str | None = None) -> str:
        """The path of a collection, or of one thing in it, with or without the collection before its name."""
        if self.api is Api.VERTEX and not self.parent:
            raise ConfigError(f"{collection} belong to a project; give project=…")
        if name is None:
            return _quote(f"{self.parent}/{collection}".lstrip("/"), "/")
        bare = name.rsplit(f"{collection}/", 1)[-1].strip("/") if isinstance(name, str) else ""
        if not bare or "/" in bare or bare in (".", ".."):
            raise ConfigError(f"{name!r} is no name in {collection}")
        return self.resource(collection) + "/" + _quote(bare, "")


def endpoint(
    *,
    vertex: bool | None = None,
    base_url: str | None = None,
    version: str | None = None,
    project: str | None = None,
    location: str | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Endpoint:
    """The endpoint that the caller means; what he does not say, the environment does.

    An empty text says something, and something wrong: taken for nothing said, it would send the key elsewhere.
    """
    if vertex not in (None, True, False):
        raise ConfigError(f"vertex is True or False, not {vertex!r}")
    on_vertex = wants_vertex(environment) if vertex is None else vertex
    if version is None:
        version = _version(environment.get("GOOGLE_GENAI_API_VERSION")) or ("v1beta1" if on_vertex else "v1beta")
    version = _word("version", version)
    if not on_vertex:
        address = environment.get("GOOGLE_GEMINI_BASE_URL") or _DEVELOPER if base_url is None else base_url
        return Endpoint(Api.DEVELOPER, _checked(address), version)
    project = environment.get("GOOGLE_CLOUD_PROJECT") or None if project is None else project
    location = environment.get("GOOGLE_CLOUD_LOCATION") or "global" if location is None else location
    parent = "" if project is None else f"projects/{_word('project', project)}/locations/{_word('location', location)}"
    default = _vertex_address(_word("location", location))
    address = environment.get("GOOGLE_VERTEX_BASE_URL") or default if base_url is None else base_url
    return Endpoint(Api.VERTEX, _checked(address), version, parent)


def wants_vertex(environment: Mapping[str, str]) -> bool:
    """Whether the environment chooses Vertex."""
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


def _word(what: str, value: str) -> str:
    """A piece of an address that must not lead elsewhere."""
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9][\w.:-]*", value):
        raise ConfigError(f"{value!r} is no {what}")
    return value


def _quote(path: str, safe: str) -> str:
    if safe == "/" and _NEEDS_NO_QUOTING.fullmatch(path):
        return path
    from urllib.parse import quote  # slow to import

    return quote(path, safe)


def _checked(address: str) -> str:
    if address == _DEVELOPER:
        return address
    from urllib.parse import urlsplit  # as above

    try:
        parts = urlsplit(address.strip() if isinstance(address, str) else "")
        right = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port > 0)
        right = right and address.strip().isprintable() and " " not in parts.netloc
    except ValueError:
        right = False
    if not right or parts.query or parts.fragment:
        shown = address.split("@")[-1].split("?")[0] if isinstance(address, str) else address
        raise ConfigError(f"{shown!r} is no base address; write it like https://host or http://127.0.0.1:8080")
    return address.strip().rstrip("/")
