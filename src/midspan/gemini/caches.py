"""Context caches: contents, system instruction and tools that the server keeps."""

from collections.abc import Callable
from typing import Any

from midspan._loop.blocking import run_blocking
from midspan.errors import ConfigError
from midspan.gemini.checking import check_text, describe
from midspan.gemini.request import Contents, cache_name, request_fields
from midspan.gemini.tools import ToolLike
from midspan.providers.gemini import responses
from midspan.providers.gemini.api import GeminiApi
from midspan.providers.gemini.capabilities import Capabilities
from midspan.providers.gemini.proto import dump, load
from midspan.providers.gemini.wire import CachedContent

_MAX_SECONDS = 315_576_000_000
"""Of a Duration: https://protobuf.dev/reference/protobuf/google.protobuf"""


class AsyncCaches:
    """The caches of a client."""

    def __init__(self, api: GeminiApi, resolve: Callable[[str | None], tuple[str, Capabilities]]) -> None:
        self._api = api
        self._resolve = resolve

    async def create(
        self,
        contents: Contents = (),
        *,
        model: str | None = None,
        ttl_seconds: float = 3600,
        display_name: str | None = None,
        system_instruction: Contents | None = None,
        tools: ToolLike = (),
        tool_config: Any = None,
    ) -> CachedContent:
        """Create a cache. Pass it as cached_content=… in requests, and leave out what it holds."""
        path, capabilities = self._resolve(model)
        if not capabilities.explicit_cache:
            raise ConfigError(f"{path} has no explicit caches; it caches long prefixes by itself")
        name = None if display_name is None else check_text(display_name, "display_name")
        fields = request_fields(
            capabilities, system_instruction=system_instruction, tools=tools, tool_config=tool_config
        )
        head = dump(CachedContent(model=path, ttl=_duration(ttl_seconds), display_name=name))
        body = head[:-1] + b"," + fields.body(contents, capabilities, may_be_empty=True)[1:]
        created: bytes = await self._api.call("POST", self._api.endpoint.resource("cachedContents"), body)
        return load(CachedContent, created)

    async def get(self, name: str | CachedContent) -> CachedContent:
        return load(CachedContent, await self._call("GET", name))

    async def list(self) -> list[CachedContent]:
        caches: list[CachedContent] = []
        path = self._api.endpoint.resource("cachedContents")
        async for page in self._api.pages(path, responses.ListCachedContentsResponse):
            caches += page.cached_contents or []
        return caches

    async def update(self, name: str | CachedContent, *, ttl_seconds: float) -> CachedContent:
        """Let a cache live for `ttl_seconds` from now."""
        body = dump(CachedContent(ttl=_duration(ttl_seconds)))
        return load(CachedContent, await self._call("PATCH", name, body, "?updateMask=ttl"))

    async def delete(self, name: str | CachedContent) -> None:
        await self._call("DELETE", name)

    async def _call(self, method: str, name: str | CachedContent, body: bytes = b"", query: str = "") -> bytes:
        path = self._api.endpoint.resource("cachedContents", cache_name(name, "the name of a cache"))
        return await self._api.call(method, path + query, body)


def _duration(seconds: float) -> str:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= _MAX_SECONDS:
        raise ConfigError(f"ttl_seconds must be a positive number of seconds, got {describe(seconds)}")
    return f"{seconds:.9f}".rstrip("0").rstrip(".") + "s"


class Caches:
    """`AsyncCaches` for plain code."""

    def __init__(self, caches: AsyncCaches) -> None:
        self._caches = caches

    def create(self, contents: Contents = (), **cache: Any) -> CachedContent:
        return run_blocking(self._caches.create(contents, **cache))

    def get(self, name: str | CachedContent) -> CachedContent:
        return run_blocking(self._caches.get(name))

    def list(self) -> list[CachedContent]:
        return run_blocking(self._caches.list())

    def update(self, name: str | CachedContent, *, ttl_seconds: float) -> CachedContent:
        return run_blocking(self._caches.update(name, ttl_seconds=ttl_seconds))

    def delete(self, name: str | CachedContent) -> None:
        run_blocking(self._caches.delete(name))
