"""A Gemini model whose system prompt and tool declarations are in a context cache, and left out of its requests.

It wraps a provider, so the agent loop needs no code for caches. Requests are sent without a cache if the prompt is too
small, the model has no caches, or calls are forbidden.
"""

import logging
import threading
from collections.abc import AsyncIterator
from contextlib import aclosing
from math import inf

from msgspec import Struct
from msgspec.structs import replace

from midspan._http.retry import Clock
from midspan._types.exchange import CachePolicy, ModelEvent, ModelRequest, ModelResponse
from midspan._types.texts import CHARACTERS_PER_TOKEN
from midspan.errors import InvalidRequestError, PermissionDeniedError, ProviderError
from midspan.providers.encoding import encode_json
from midspan.providers.gemini.api import duration
from midspan.providers.gemini.client import Gemini
from midspan.providers.gemini.encode import prompt_fields
from midspan.providers.gemini.wire import CachedContent
from midspan.providers.provider import WrapperProvider, ensure_aclose

_log = logging.getLogger("midspan.providers.gemini")

_MAX_CACHES = 32
"""Caches cost money. Requests with further prompts are sent without one."""


class _Cache(Struct):
    """The cache of one system prompt with its tools."""

    name: str | None = None
    """None while the cache is being created, and if the server did not create one."""
    refreshed_at: float = -inf
    """The time of the last attempt to create or refresh it. After the TTL, the server deletes it."""
    is_busy: bool = False
    """A request is creating or refreshing it; other requests do not wait for it."""


class Cached(WrapperProvider):
    """Keeps what all requests have in common on the server, for `ttl_seconds` after the last refresh."""

    def __init__(
        self, gemini: Gemini, *, ttl_seconds: float = 3600, min_tokens: int = 1024, clock: Clock | None = None
    ) -> None:
        super().__init__(gemini)
        self._gemini = gemini
        self._ttl = ttl_seconds
        self._duration = duration(ttl_seconds)
        self._min_chars = min_tokens * CHARACTERS_PER_TOKEN
        self._clock = clock or Clock()
        self._lock = threading.Lock()
        self._caches: dict[bytes, _Cache] = {}
        """By the fields that they hold."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the parts as they arrive, then the response; see `Provider`."""
        cached = await self._with_cache(request)
        has_output, cause = False, None
        for attempt in (cached, request):
            try:
                async with aclosing(ensure_aclose(self.wrapped.stream(attempt))) as events:
                    async for event in events:
                        if cause is not None and isinstance(event, ModelResponse):
                            await self._discard(cached, cause)
                        has_output = True
                        yield event
                return
            except (InvalidRequestError, PermissionDeniedError) as error:
                if has_output or attempt is request:
                    raise
                cause = error

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Return the whole response."""
        cached = await self._with_cache(request)
        try:
            return await self.wrapped.generate(cached)
        except (InvalidRequestError, PermissionDeniedError) as error:
            if cached is request:
                raise
            cause = error
        response = await self.wrapped.generate(request)
        await self._discard(cached, cause)
        return response

    async def _discard(self, cached: ModelRequest, cause: ProviderError) -> None:
        """Delete the cache of a request that the server rejected with the cache and accepted without it.

        A request that the server rejects without the cache as well says nothing about the cache, which stays.
        """
        assert cached.config.cache is not None, "a request with a cache names it"
        name = cached.config.cache.key
        _log.info("the cache %s can no longer be used: %s", name, cause)
        with self._lock:
            kept = {fields: cache for fields, cache in self._caches.items() if cache.name != name}
            is_known, self._caches = len(kept) < len(self._caches), kept
        if is_known:
            await self._call("DELETE", name)

    async def _with_cache(self, request: ModelRequest) -> ModelRequest:
        """Return the request with the name of its cache, if the model supports caches and there is one now."""
        config, capabilities = request.config, self._gemini.capabilities
        # A request that forbids calls is the last one of a run, and the mode of a cache cannot be changed for it.
        forbids_calls = config.tool_choice is not None and config.tool_choice.mode == "none"
        if forbids_calls or config.cache is not None or not capabilities.explicit_cache:
            return request
        fields = config.derived(("prompt", capabilities), lambda: encode_json(prompt_fields(config, capabilities)))
        name = await self._cache_for(fields) if len(fields) >= self._min_chars else None
        if name is None:
            return request
        policy = CachePolicy(name, self._ttl)
        return replace(request, config=config.derived(("gemini cached", name), lambda: replace(config, cache=policy)))

    async def _cache_for(self, fields: bytes) -> str | None:
        """Return the name of the cache that holds these fields; create or refresh it if that is due."""
        now = self._clock.monotonic()
        with self._lock:
            if fields not in self._caches:
                caches = self._caches.items()
                live = {key: cache for key, cache in caches if cache.is_busy or now - cache.refreshed_at < self._ttl}
                if len(live) >= _MAX_CACHES:
                    return None
                self._caches = {**live, fields: _Cache()}
            cache = self._caches[fields]
            if cache.is_busy or now - cache.refreshed_at < self._ttl / 2:
                return cache.name
            cache.is_busy = True
        try:
            cache.name = await self._refreshed(cache, fields, now)
            cache.refreshed_at = now
        finally:
            cache.is_busy = False
        if cache.name is not None and self._caches.get(fields) is not cache:
            await self._call("DELETE", cache.name)  # it was discarded meanwhile, or the provider closed
            return None
        return cache.name

    async def _refreshed(self, cache: _Cache, fields: bytes, now: float) -> str | None:
        """Extend the life of a cache, or create it if that is not possible; return its name, or None without one."""
        if cache.name is not None and now - cache.refreshed_at < self._ttl:
            body = encode_json({"ttl": self._duration})
            if await self._call("PATCH", cache.name, body) is not None:
                return cache.name
            await self._call("DELETE", cache.name)
        head = encode_json({"model": self._gemini.api.endpoint.model(self.model), "ttl": self._duration})
        created = await self._call("POST", body=b"%b,%b" % (head[:-1], fields[1:]))
        return None if created is None else created.name

    async def _call(self, method: str, name: str | None = None, body: bytes = b"") -> CachedContent | None:
        """Send a request about a cache. An error is logged and None returned: the run can continue without a cache."""
        try:
            return await self._gemini.api.cache(method, name, body)
        except ProviderError as error:
            _log.info("%s of the cache %s failed: %s", method, name or "", error)
            return None

    async def aclose(self) -> None:
        """Delete the caches and close the model."""
        with self._lock:
            names, self._caches = [cache.name for cache in self._caches.values() if cache.name is not None], {}
        for name in names:
            await self._call("DELETE", name)
        await self._gemini.aclose()
