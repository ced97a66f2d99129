"""Cached contents: created, read, prolonged, listed, deleted, and gone when they expire."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from midspan._http.retry import Clock
from midspan.emulator.gemini.check import Target
from midspan.emulator.gemini.contents import check_each, count_tokens
from midspan.emulator.gemini.errors import ApiError, invalid
from midspan.emulator.gemini.models import Models, not_found, page_of
from midspan.emulator.gemini.reading import Dialect, read
from midspan.emulator.gemini.route import Route
from midspan.emulator.gemini.tools import check_declarations
from midspan.providers.gemini.capabilities import Api
from midspan.providers.gemini.wire import CachedContent

_DURATION = re.compile(r"\d+(\.\d+)?s")
_DEFAULT_SECONDS = 3_600.0


class Cache(Struct, frozen=True):
    name: str
    content: CachedContent
    model: str
    created: datetime
    updated: datetime
    expires: datetime
    tokens: int

    def describe(self) -> dict[str, Any]:
        times = {"createTime": self.created, "updateTime": self.updated, "expireTime": self.expires}
        description = {
            "name": self.name,
            "model": self.content.model,
            **{name: time.isoformat().replace("+00:00", "Z") for name, time in times.items()},
            "usageMetadata": {"totalTokenCount": self.tokens},
        }
        if self.content.display_name is not None:
            description["displayName"] = self.content.display_name
        return description


class Caches:
    """The caches of one server."""

    def __init__(self, clock: Clock, models: Models, *, min_tokens: int) -> None:
        self._clock = clock
        self._models = models
        self._min_tokens = min_tokens
        self._started = datetime.now(UTC), clock.monotonic()
        self._caches: dict[str, Cache] = {}
        self._created = 0

    def handle(self, method: str, route: Route, body: bytes) -> dict[str, Any] | None:
        """Answer a request; None if the API has no such method."""
        name = f"{route.parent}cachedContents/{route.name}"
        match method, route.name:
            case "POST", None:
                return self._create(route, body)
            case "GET", None:
                now, prefix = self._now(), f"{route.parent}cachedContents/"
                caches = [cache for key, cache in self._caches.items() if key.startswith(prefix)]
                return page_of("cachedContents", [item.describe() for item in caches if item.expires > now], route)
            case "GET", str():
                return self._get(name, route.api).describe()
            case "PATCH", str():
                return self._update(self._get(name, route.api), route, body)
            case "DELETE", str():
                del self._caches[self._get(name, route.api).name]
                return {}
        return None

    def for_request(self, name: str, target: Target) -> Cache:
        """Return the cache that a request names, if it is for this model."""
        cache = self._get(name, target.api)
        if cache.model != target.model:
            raise invalid(
                f"Model used by GenerateContent request (models/{target.model}) and CachedContent "
                f"(models/{cache.model}) has to be the same."
            )
        return cache

    def _create(self, route: Route, body: bytes) -> dict[str, Any]:
        content = read(CachedContent, body, Dialect(route.api, route.version))
        target = self._target(content.model, route)
        contents = content.contents or []
        check_each(contents, route.api)
        check_declarations(content.tools or (), target.family)
        tokens = count_tokens([*contents, *([content.system_instruction] if content.system_instruction else [])])
        if tokens < self._min_tokens:
            raise invalid(
                f"Cached content is too small. total_token_count={tokens}, min_total_token_count={self._min_tokens}"
            )
        now = self._now()
        cache = Cache(self._new_name(route), content, target.model, now, now, _expiry(content, now), tokens)
        self._caches[cache.name] = cache
        return cache.describe()

    def _update(self, cache: Cache, route: Route, body: bytes) -> dict[str, Any]:
        content = read(CachedContent, body, Dialect(route.api, route.version))
        if content.contents is not None or content.tools is not None or content.system_instruction is not None:
            raise invalid("Only ttl and expire_time of a CachedContent can be updated.")
        now = self._now()
        self._caches[cache.name] = updated = replace(cache, updated=now, expires=_expiry(content, now))
        return updated.describe()

    def _target(self, model: str | None, route: Route) -> Target:
        if not model:
            raise invalid("* CreateCachedContentRequest.cached_content.model: model is required\n")
        model_route = replace(route, collection="models", name=model.rsplit("/", 1)[-1])
        target = Target(self._models.require(model_route, "createCachedContent"), route.api, route.version)
        if not target.family.capabilities.explicit_cache:
            raise not_found(f"models/{target.model}", route, "createCachedContent")
        return target

    def _new_name(self, route: Route) -> str:
        self._created += 1
        if route.api is Api.VERTEX:
            return f"{route.parent}cachedContents/{8_000_000_000_000_000_000 + self._created}"
        return f"cachedContents/midspan{self._created:033d}"

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


def _expiry(content: CachedContent, now: datetime) -> datetime:
    if content.expire_time is not None:
        try:
            return datetime.fromisoformat(content.expire_time).astimezone(UTC)
        except ValueError as error:
            raise _invalid_time("expire_time", "Timestamp", content.expire_time) from error
    if content.ttl is not None and not _DURATION.fullmatch(content.ttl):
        raise _invalid_time("ttl", "Duration", content.ttl)
    return now + timedelta(seconds=float(content.ttl[:-1]) if content.ttl else _DEFAULT_SECONDS)


def _invalid_time(field: str, type_: str, value: str) -> ApiError:
    type_url = f"type.googleapis.com/google.protobuf.{type_}"
    return invalid(f"Invalid value at 'cached_content.{field}' ({type_url}), \"{value}\"")
