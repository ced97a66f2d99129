"""The collection cachedContents: create, get, update, list and delete caches, which expire."""

from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct

from midspan._http.retry import Clock
from midspan.emulator.gemini.api import ApiError, ApiRoute, invalid
from midspan.emulator.gemini.check import check_declarations
from midspan.emulator.gemini.contents import check_each, count_tokens
from midspan.emulator.gemini.models import ModelRules, Models, not_found
from midspan.emulator.gemini.reading import read
from midspan.providers.gemini.capabilities import Api
from midspan.providers.gemini.wire import CachedContent

_MIN_TOKENS = 1_024


class Cache(Struct):
    content: CachedContent
    model: str
    tokens: int
    description: dict[str, Any]
    """The cache as the API shows it, without its contents."""
    expires: datetime = datetime.min


class CacheStore:
    """The caches of one server."""

    def __init__(self, clock: Clock, models: Models) -> None:
        self._clock = clock
        self._models = models
        self._started = datetime.now(UTC), clock.monotonic()
        self._caches: dict[str, Cache] = {}
        self._created = 0

    def handle(self, method: str, route: ApiRoute, body: bytes) -> dict[str, Any] | None:
        """Answer a request; None if the API has no such method."""
        prefix = f"{route.parent}cachedContents/"
        name = f"{prefix}{route.name}"
        match method, route.name:
            case "POST", None:
                return self._create(prefix, route, body)
            case "GET", None:
                now = self._now()
                caches = [cache for key, cache in self._caches.items() if key.startswith(prefix)]
                return {"cachedContents": [cache.description for cache in caches if cache.expires > now]}
            case "GET", str():
                return self._get(name, route.api).description
            case "PATCH", str():
                cache = self._get(name, route.api)
                return self._set_expiry(cache, read(CachedContent, body, ModelRules("", route.api, route.version)))
            case "DELETE", str():
                self._get(name, route.api)
                del self._caches[name]
                return {}
        return None

    def for_request(self, name: str, rules: ModelRules) -> Cache:
        """Return the cache that a request names, if it is for this model."""
        cache = self._get(name, rules.api)
        if cache.model != rules.name:
            raise invalid(
                f"Model used by GenerateContent request (models/{rules.name}) and CachedContent "
                f"(models/{cache.model}) has to be the same."
            )
        return cache

    def _create(self, prefix: str, route: ApiRoute, body: bytes) -> dict[str, Any]:
        content = read(CachedContent, body, ModelRules("", route.api, route.version))
        model = (content.model or "").rsplit("/", 1)[-1]
        rules = self._models.require(model, route)
        if not rules.capabilities.explicit_cache:
            raise not_found(model, route)
        check_each(content.contents or (), route.api)
        check_declarations(content.tools or (), rules)
        tokens = count_tokens(content.contents, content.system_instruction)
        if tokens < _MIN_TOKENS:
            raise invalid(
                f"Cached content is too small. total_token_count={tokens}, min_total_token_count={_MIN_TOKENS}"
            )
        self._created += 1
        name = f"{prefix}midspan{self._created:033d}"
        description: dict[str, Any] = {"name": name, "model": content.model, "createTime": _timestamp(self._now())}
        description["usageMetadata"] = {"totalTokenCount": tokens}
        if content.display_name is not None:
            description["displayName"] = content.display_name
        cache = Cache(content, rules.name, tokens, description)
        self._set_expiry(cache, content)
        self._caches[name] = cache
        return cache.description

    def _set_expiry(self, cache: Cache, content: CachedContent) -> dict[str, Any]:
        """Let a cache expire when `content` says, and return its description."""
        now = self._now()
        try:
            if content.expire_time is not None:
                cache.expires = datetime.fromisoformat(content.expire_time).astimezone(UTC)
            else:
                cache.expires = now + timedelta(seconds=float((content.ttl or "3600s").removesuffix("s")))
        except (ValueError, OverflowError) as error:
            raise invalid(f"Invalid value at 'cached_content.ttl' or 'cached_content.expire_time', {error}") from error
        cache.description |= {"updateTime": _timestamp(now), "expireTime": _timestamp(cache.expires)}
        return cache.description

    def _get(self, name: str, api: Api) -> Cache:
        cache = self._caches.get(name)
        if cache is not None and cache.expires > self._now():
            return cache
        if api is Api.VERTEX:
            raise ApiError(404, f"Not found: cached content metadata for {name.rsplit('/', 1)[-1]}.")
        raise ApiError(403, "CachedContent not found (or permission denied)")

    def _now(self) -> datetime:
        wall, monotonic = self._started
        return wall + timedelta(seconds=self._clock.monotonic() - monotonic)


def _timestamp(time: datetime) -> str:
    return time.isoformat().replace("+00:00", "Z")
