"""Cached contents: created, read, prolonged, listed, deleted, and gone when they expire."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from midspan._http.retry import Clock
from midspan.emulator.gemini.contents import check_each, count_tokens
from midspan.emulator.gemini.errors import ApiError, invalid
from midspan.emulator.gemini.models import ModelRules, Models, not_found, page_of, rules_of
from midspan.emulator.gemini.reading import read
from midspan.emulator.gemini.route import Route
from midspan.emulator.gemini.tools import check_declarations
from midspan.providers.gemini.capabilities import Api
from midspan.providers.gemini.wire import CachedContent

_DURATION = re.compile(r"\d+(\.\d+)?s")
_DEFAULT_SECONDS = 3_600.0
_MIN_TOKENS = 1_024


class Cache(Struct, frozen=True):
    content: CachedContent
    model: str
    tokens: int
    expires: datetime
    description: dict[str, Any]
    """The cache as the API shows it, without its contents."""


class Caches:
    """The caches of one server."""

    def __init__(self, clock: Clock, models: Models) -> None:
        self._clock = clock
        self._models = models
        self._started = datetime.now(UTC), clock.monotonic()
        self._caches: dict[str, Cache] = {}
        self._created = 0

    def handle(self, method: str, route: Route, body: bytes) -> dict[str, Any] | None:
        """Answer a request; None if the API has no such method."""
        prefix = f"{route.parent}cachedContents/"
        name = f"{prefix}{route.name}"
        match method, route.name:
            case "POST", None:
                return self._create(prefix, route, body)
            case "GET", None:
                now = self._now()
                caches = [cache for key, cache in self._caches.items() if key.startswith(prefix)]
                return page_of("cachedContents", [item.description for item in caches if item.expires > now], route)
            case "GET", str():
                return self._get(name, route.api).description
            case "PATCH", str():
                return self._update(name, route, body)
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

    def _create(self, prefix: str, route: Route, body: bytes) -> dict[str, Any]:
        content = read(CachedContent, body, rules_of("", route.api, route.version))
        rules = self._rules(content.model, route)
        contents = content.contents or []
        check_each(contents, route.api)
        check_declarations(content.tools or (), rules)
        tokens = count_tokens([*contents, *([content.system_instruction] if content.system_instruction else [])])
        if tokens < _MIN_TOKENS:
            raise invalid(
                f"Cached content is too small. total_token_count={tokens}, min_total_token_count={_MIN_TOKENS}"
            )
        now = self._now()
        expires = _expiry(content, now)
        self._created += 1
        number = f"{self._created + 8 * 10**18}" if route.api is Api.VERTEX else f"midspan{self._created:033d}"
        description = {
            "name": f"{prefix}{number}",
            "model": content.model,
            **_times(create=now, update=now, expire=expires),
            "usageMetadata": {"totalTokenCount": tokens},
            **({} if content.display_name is None else {"displayName": content.display_name}),
        }
        self._caches[f"{prefix}{number}"] = Cache(content, rules.name, tokens, expires, description)
        return description

    def _update(self, name: str, route: Route, body: bytes) -> dict[str, Any]:
        cache = self._get(name, route.api)
        content = read(CachedContent, body, rules_of("", route.api, route.version))
        if content.contents is not None or content.tools is not None or content.system_instruction is not None:
            raise invalid("Only ttl and expire_time of a CachedContent can be updated.")
        now = self._now()
        expires = _expiry(content, now)
        description = cache.description | _times(update=now, expire=expires)
        self._caches[name] = replace(cache, expires=expires, description=description)
        return description

    def _rules(self, model: str | None, route: Route) -> ModelRules:
        if not model:
            raise invalid("* CreateCachedContentRequest.cached_content.model: model is required\n")
        name = model.rsplit("/", 1)[-1]
        route = replace(route, collection="models", name=name, method="createCachedContent")
        rules = self._models.require(route)
        if not rules.capabilities.explicit_cache:
            raise not_found(f"models/{name}", route)
        return rules

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


def _times(**times: datetime) -> dict[str, str]:
    return {f"{name}Time": time.isoformat().replace("+00:00", "Z") for name, time in times.items()}


def _expiry(content: CachedContent, now: datetime) -> datetime:
    if content.expire_time is not None:
        try:
            return datetime.fromisoformat(content.expire_time).astimezone(UTC)
        except ValueError as error:
            raise invalid(f"Invalid value at 'cached_content.expire_time', {content.expire_time!r}") from error
    if content.ttl is not None and not _DURATION.fullmatch(content.ttl):
        raise invalid(f"Invalid value at 'cached_content.ttl', {content.ttl!r}")
    return now + timedelta(seconds=float(content.ttl[:-1]) if content.ttl else _DEFAULT_SECONDS)
