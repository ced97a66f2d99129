"""A Gemini whose system prompt and tool declarations live in a context cache, and are left out of its requests.

It is a provider around a provider: the tools are run where they always are, and nothing above knows of caches. What
cannot be cached goes as it would go without: too small a prompt, a model without caches, a request that forbids calls.
"""

import logging
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Self

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from midspan._http.retry import Clock, SystemClock
from midspan._types.exchange import CachePolicy, ModelEvent, ModelRequest, ModelResponse, RequestConfig
from midspan.errors import ConfigError, InvalidRequest, PermissionDenied, ProviderError
from midspan.providers.gemini import wire
from midspan.providers.gemini.capabilities import Capabilities
from midspan.providers.gemini.client import Gemini
from midspan.providers.gemini.config import config_fields
from midspan.providers.gemini.proto import load
from midspan.providers.provider import WrapperProvider, ensure_aclose

_log = logging.getLogger("midspan.providers.gemini")

_MOST_CACHES = 32
_BYTES_PER_TOKEN = 4
"""What a token of English or JSON takes at least; whether it is enough in the end the server says."""


class _Kept(Struct):
    """What became of one system prompt with its tools."""

    name: str | None = None
    """Of the cache; None while it is being made, and where there was none to be had."""
    refreshed: float = 0.0
    """When it was last made or refreshed, or that was tried."""
    busy: bool = True
    """Somebody is making or refreshing it; all others do without in the meantime."""


class Cached(WrapperProvider):
    """Keeps what all requests have in common on the server, for `ttl_seconds` from its last refreshing."""

    def __init__(
        self, gemini: Gemini, *, ttl_seconds: float = 3600, minimum_tokens: int = 1024, clock: Clock | None = None
    ) -> None:
        if not isinstance(gemini, Gemini):
            raise ConfigError(
                f"a cache is kept for a model of Gemini, as in Cached(Gemini(model)); not for {gemini!r:.80}"
            )
        if type(ttl_seconds) not in (int, float) or not ttl_seconds > 0:
            raise ConfigError(f"ttl_seconds is how long a cache lives, a number above 0; not {ttl_seconds!r}")
        super().__init__(gemini)
        self._gemini = gemini
        self._ttl = ttl_seconds
        self._minimum = minimum_tokens
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the parts as they arrive, then the response; see `Provider`."""
        cached = await self._with_cache(request)
        has_output = False
        try:
            async with aclosing(ensure_aclose(self.wrapped.stream(cached))) as events:
                async for event in events:
                    has_output = True
                    yield event
            return
        except (InvalidRequest, PermissionDenied) as error:
            if has_output or cached is request:
                raise
            refusal: ProviderError | None = error
        async with aclosing(ensure_aclose(self.wrapped.stream(request))) as events:
            async for event in events:
                if refusal is not None:  # the first event: the request is accepted
                    await self._drop(cached, refusal)
                    refusal = None
                yield event

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Return the whole response."""
        cached = await self._with_cache(request)
        try:
            return await self.wrapped.generate(cached)
        except (InvalidRequest, PermissionDenied) as error:
            if cached is request:
                raise
            refusal = error
        response = await self.wrapped.generate(request)
        await self._drop(cached, refusal)
        return response

    async def _drop(self, cached: ModelRequest, refusal: ProviderError) -> None:
        """Delete the cache of a request that was refused with it and accepted without it.

        A request that is refused without the cache as well says nothing about the cache, which stays.
        """
        assert cached.config.cache is not None, "a request with a cache names it"
        name = cached.config.cache.key
        _log.info("the cache %s cannot be used any more: %s", name, refusal)
        with self._lock:
            fields = next((fields for fields, kept in self._kept.items() if kept.name == name), None)
            kept = None if fields is None else self._kept.pop(fields)
        if kept is not None:
            await self._delete(kept.name)

    def _cacheable(self, config: RequestConfig) -> bytes | None:
        """What of a config would go into a cache; None where there is nothing to be gained."""
        capabilities = self._gemini.capabilities
        if config.cache is not None or not capabilities.explicit_cache:
            return None
        if config.tool_choice is not None and config.tool_choice.mode == "none":
            return None  # said once, to get an answer; a cache cannot say it, because the mode lives in it too
        fields = config.derived(("gemini cache", capabilities), lambda: _cache_fields(config, capabilities))
        return fields if len(fields) >= self._minimum * _BYTES_PER_TOKEN else None

    async def _with_cache(self, request: ModelRequest) -> ModelRequest:
        """The request with the name of its cache, if there is one now."""
        fields = self._cacheable(request.config)
        name = None if fields is None else await self._cache_for(fields)
        if name is None:
            return request
        config = request.config
        policy = CachePolicy(name, self._ttl)
        return replace(request, config=config.derived(("gemini cached", name), lambda: replace(config, cache=policy)))

    async def _cache_for(self, fields: bytes) -> str | None:
        """The name of the cache that holds these fields, made or refreshed where that is due."""
        now = self._clock.monotonic()
        with self._lock:
            kept = self._kept.get(fields)
            if kept is None:
                kept = self._kept[fields] = _Kept()
                make = True
            elif kept.busy or now - kept.refreshed < self._ttl / 2:
                return kept.name
            else:
                kept.busy = True
                make = kept.name is None or now - kept.refreshed >= self._ttl
            self._kept.move_to_end(fields)
        try:
            kept.name = await self._made(fields) if make else await self._refreshed(kept.name, fields)
            kept.refreshed = now
        finally:
            kept.busy = False
        await self._drop_oldest()
        return kept.name

    async def _made(self, fields: bytes) -> str | None:
        """The name of a new cache; None if the server makes none, which is no reason not to ask."""
        where = self._gemini.api.endpoint
        head = msgspec.json.encode({"model": where.model(self.model), "ttl": f"{self._ttl:g}s"})
        try:
            body: bytes = await self._gemini.api.call(
                "POST", where.resource("cachedContents"), b"%b,%b" % (head[:-1], fields[1:])
            )
            return load(wire.CachedContent, body).name
        except ProviderError as error:
            _log.info("no cache was made: %s", error)
            return None

    async def _refreshed(self, name: str | None, fields: bytes) -> str | None:
        """The cache with a new life; if it is gone, another one."""
        assert name is not None, "only a cache that is there is refreshed"
        path = self._gemini.api.endpoint.resource("cachedContents", name)
        try:
            await self._gemini.api.call(
                "PATCH", f"{path}?updateMask=ttl", msgspec.json.encode({"ttl": f"{self._ttl:g}s"})
            )
        except ProviderError as error:
            _log.info("the cache %s could not be refreshed: %s", name, error)
            if not isinstance(error, InvalidRequest | PermissionDenied):  # it may still be there
                await self._delete(name)
            return await self._made(fields)
        return name

    async def _drop_oldest(self) -> None:
        with self._lock:
            many = len(self._kept) > _MOST_CACHES
            dropped = self._kept.popitem(last=False)[1] if many else None
        if dropped is not None:
            await self._delete(dropped.name)

    async def _delete(self, name: str | None) -> None:
        if name is None:
            return
        try:
            await self._gemini.api.call("DELETE", self._gemini.api.endpoint.resource("cachedContents", name))
        except ProviderError as error:  # it ends by itself when its time is over
            _log.info("the cache %s could not be deleted: %s", name, error)

    async def aclose(self) -> None:
        """Delete the caches that were made, and close the model."""
        with self._lock:
            kept, self._kept = list(self._kept.values()), OrderedDict()
        for one in kept:
            await self._delete(one.name)
        await self._gemini.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _cache_fields(config: RequestConfig, capabilities: Capabilities) -> bytes:
    fields = config_fields(config, capabilities)
    fields.pop("generationConfig", None)
    return msgspec.json.encode(fields)
