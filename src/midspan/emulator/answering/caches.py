"""Cached contents: made, looked up, prolonged, listed, deleted, and gone when their time is over."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from midspan._http.retry import Clock
from midspan.emulator.answering.models import Models, not_found, page_of
from midspan.emulator.answering.route import Route
from midspan.emulator.checking import Target
from midspan.emulator.reading.read import Dialect, read
from midspan.emulator.refusal import Refusal, invalid
from midspan.emulator.rules.contents import check_content
from midspan.emulator.rules.declarations import check_declarations
from midspan.emulator.turns import turn_of
from midspan.providers.gemini.capabilities import Api
from midspan.providers.gemini.wire import CachedContent, GenerateContentRequest

_DURATION = re.compile(r"\d+(\.\d+)?s")
_DEFAULT_SECONDS = 3_600.0


class Cache(Struct, frozen=True):
    content: CachedContent
    model: str
    created: datetime
    updated: datetime
    expires: datetime
    tokens: int

    @property
    def setup(self) -> GenerateContentRequest:
        """What a request that names the cache is asked with."""
        content = self.content
        return GenerateContentRequest(
            system_instruction=content.system_instruction, tools=content.tools, tool_config=content.tool_config
        )


class Caches:
    """The caches of one server."""

    def __init__(self, clock: Clock, models: Models, *, least_tokens: int) -> None:
        self._clock = clock
        self._models = models
        self._least_tokens = least_tokens
        self._started = datetime.now(UTC), clock.monotonic()
        self._caches: dict[str, Cache] = {}
        self._made = 0

    def create(self, route: Route, body: bytes) -> dict[str, Any]:
        content = read(CachedContent, body, Dialect(route.api, route.version))
        target = self._target(content.model, route)
        turns = [turn_of(one) for one in content.contents or ()]
        for at, turn in enumerate(turns):
            check_content(at, turn, target.family)
        check_declarations(content.tools or (), target.family)
        tokens = sum(turn.tokens for turn in turns)
        if content.system_instruction is not None:
            tokens += turn_of(content.system_instruction).tokens
        if tokens < self._least_tokens:
            raise invalid(
                f"Cached content is too small. total_token_count={tokens}, min_total_token_count={self._least_tokens}"
            )
        now = self._now()
        name = self._name(route)
        made = Cache(content, target.model, now, now, self._expiry(content, now), tokens)
        self._caches[name] = made
        return _described(name, made)

    def get(self, route: Route) -> dict[str, Any]:
        name = self._full_name(route)
        return _described(name, self._found(name, route.api))

    def patch(self, route: Route, body: bytes) -> dict[str, Any]:
        """Prolong a cache; its time is all that can be changed."""
        name = self._full_name(route)
        found = self._found(name, route.api)
        content = read(CachedContent, body, Dialect(route.api, route.version))
        if content.contents is not None or content.tools is not None or content.system_instruction is not None:
            raise invalid("Only ttl and expire_time of a CachedContent can be updated.")
        now = self._now()
        self._caches[name] = changed = replace(found, updated=now, expires=self._expiry(content, now))
        return _described(name, changed)

    def delete(self, route: Route) -> dict[str, Any]:
        name = self._full_name(route)
        self._found(name, route.api)
        del self._caches[name]
        return {}

    def page(self, route: Route) -> dict[str, Any]:
        size, start = page_of(route)
        now = self._now()
        alive = [
            (name, cache)
            for name, cache in self._caches.items()
            if cache.expires > now and name.startswith(f"{route.parent}cachedContents/")
        ]
        listed = {"cachedContents": [_described(name, cache) for name, cache in alive[start : start + size]]}
        return {**listed, "nextPageToken": str(start + size)} if start + size < len(alive) else listed

    def for_request(self, name: str, target: Target) -> Cache:
        """The cache that a request names, if it is for this model."""
        found = self._found(name, target.api)
        if found.model != target.model:
            raise invalid(
                f"Model used by GenerateContent request (models/{target.model}) and CachedContent "
                f"(models/{found.model}) has to be the same."
            )
        return found

    def _target(self, model: str | None, route: Route) -> Target:
        if not model:
            raise invalid("* CreateCachedContentRequest.cached_content.model: model is required\n")
        place = Route("POST", route.api, route.version, "models", model.rsplit("/", 1)[-1], parent=route.parent)
        target = Target(self._models.check(place, "createCachedContent"), route.api, route.version)
        if not target.family.capabilities.explicit_cache:
            raise not_found(f"models/{target.model}", route, "createCachedContent")
        return target

    def _name(self, route: Route) -> str:
        self._made += 1
        if route.api is Api.VERTEX:
            return f"{route.parent}cachedContents/{8_000_000_000_000_000_000 + self._made}"
        return f"cachedContents/midspan{self._made:033d}"

    def _full_name(self, route: Route) -> str:
        return f"{route.parent}cachedContents/{route.name}"

    def _found(self, name: str, api: Api) -> Cache:
        found = self._caches.get(name)
        if found is not None and found.expires > self._now():
            return found
        if api is Api.VERTEX:
            raise Refusal(404, f"Not found: cached content metadata for {name.rsplit('/', 1)[-1]}.")
        raise Refusal(403, "CachedContent not found (or permission denied)")

    def _expiry(self, content: CachedContent, now: datetime) -> datetime:
        if content.expire_time is not None:
            try:
                return datetime.fromisoformat(content.expire_time).astimezone(UTC)
            except ValueError as error:
                words = f"Invalid value at 'cached_content.expire_time' ({_TIMESTAMP}), \"{content.expire_time}\""
                raise invalid(words) from error
        if content.ttl is not None and not _DURATION.fullmatch(content.ttl):
            raise invalid(f"Invalid value at 'cached_content.ttl' ({_DURATION_TYPE}), \"{content.ttl}\"")
        return now + timedelta(seconds=float(content.ttl[:-1]) if content.ttl else _DEFAULT_SECONDS)

    def _now(self) -> datetime:
        wall, monotonic = self._started
        return wall + timedelta(seconds=self._clock.monotonic() - monotonic)


_TIMESTAMP = "type.googleapis.com/google.protobuf.Timestamp"
_DURATION_TYPE = "type.googleapis.com/google.protobuf.Duration"


def _described(name: str, cache: Cache) -> dict[str, Any]:
    described = {
        "name": name,
        "model": cache.content.model,
        "createTime": _written(cache.created),
        "updateTime": _written(cache.updated),
        "expireTime": _written(cache.expires),
        "usageMetadata": {"totalTokenCount": cache.tokens},
    }
    if cache.content.display_name is not None:
        described["displayName"] = cache.content.display_name
    return described


def _written(time: datetime) -> str:
    return time.isoformat().replace("+00:00", "Z")
