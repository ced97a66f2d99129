"""Context caches, and the pages in which the API lists things."""

from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from midspan._loop.blocking import run_blocking
from midspan.errors import ConfigError
from midspan.gemini.checking import plain, read_plain, shown
from midspan.gemini.request import Contents, Toolish, cache_name, request_fields, request_of, tools_of
from midspan.providers.gemini import responses, wire
from midspan.providers.gemini.api import GeminiApi
from midspan.providers.gemini.capabilities import Capabilities
from midspan.providers.gemini.proto import dump, load


class Caches:
    """Context caches: contents, system instruction and tools that the server keeps."""

    def __init__(self, api: GeminiApi, model: Callable[[str | None], tuple[str, Capabilities]]) -> None:
        self._api = api
        self._model = model

    async def create(
        self,
        contents: Contents = (),
        *,
        model: str | None = None,
        ttl_seconds: float = 3600,
        display_name: str | None = None,
        system_instruction: Contents | None = None,
        tools: Toolish | Iterable[Toolish] | None = (),
        tool_config: Any = None,
        **unknown: Any,
    ) -> wire.CachedContent:
        """Make a cache; name it with cached_content=… in requests, and leave out what it holds."""
        for name in unknown:
            raise ConfigError(f"there is no setting of a cache called {name!r}; known: {', '.join(_SETTINGS)}")
        if model is not None and not (isinstance(model, str) and model.isprintable()):
            raise ConfigError(f"{shown(model)} is no name of a model")
        path, capabilities = self._model(model)
        if not capabilities.explicit_cache:
            raise ConfigError(f"{path} has no explicit caches; it caches long prefixes by itself")
        fixed = {"model": path, "ttl": _duration(ttl_seconds), "display_name": plain(display_name, "display_name")}
        head = dump(replace(read_plain(wire.CachedContent, fixed, ""), tools=tools_of(tools) or None))
        fields = request_fields(capabilities, system_instruction=system_instruction, tool_config=tool_config)
        body = request_of(contents, b"," + head[1:-1] + fields, capabilities, needed=False)
        path = self._api.endpoint.resource("cachedContents")
        return load(wire.CachedContent, await self._api.call("POST", path, body))

    async def get(self, name: str | wire.CachedContent) -> wire.CachedContent:
        return load(wire.CachedContent, await self._call("GET", name))

    async def list(self) -> list[wire.CachedContent]:
        found: list[wire.CachedContent] = []
        path = self._api.endpoint.resource("cachedContents")
        async for page in self._api.pages(path, responses.ListCachedContentsResponse):
            found += page.cached_contents or []
        return found

    async def update(self, name: str | wire.CachedContent, *, ttl_seconds: float) -> wire.CachedContent:
        """Let a cache live on for so long from now."""
        body = dump(wire.CachedContent(ttl=_duration(ttl_seconds)))
        return load(wire.CachedContent, await self._call("PATCH", name, body, "?updateMask=ttl"))

    async def delete(self, name: str | wire.CachedContent) -> None:
        await self._call("DELETE", name)

    async def _call(self, method: str, name: str | wire.CachedContent, body: bytes = b"", query: str = "") -> bytes:
        path = self._api.endpoint.resource("cachedContents", cache_name(name, "the name of a cache"))
        return await self._api.call(method, path + query, body)


_SETTINGS = ("model", "ttl_seconds", "display_name", "system_instruction", "tools", "tool_config")
_LONGEST_SECONDS = 315_576_000_000  # of a Duration: https://protobuf.dev/reference/protobuf/google.protobuf


def _duration(seconds: float) -> str:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= _LONGEST_SECONDS:
        raise ConfigError(f"ttl_seconds is a number of seconds above 0, not {shown(seconds)}")
    return f"{seconds:.9f}".rstrip("0").rstrip(".") + "s"


class SyncCaches:
    """`Caches` for plain code."""

    def __init__(self, caches: Caches) -> None:
        self._caches = caches

    def create(self, contents: Contents = (), **cache: Any) -> wire.CachedContent:
        return run_blocking(self._caches.create(contents, **cache))

    def get(self, name: str | wire.CachedContent) -> wire.CachedContent:
        return run_blocking(self._caches.get(name))

    def list(self) -> list[wire.CachedContent]:
        return run_blocking(self._caches.list())

    def update(self, name: str | wire.CachedContent, *, ttl_seconds: float) -> wire.CachedContent:
        return run_blocking(self._caches.update(name, ttl_seconds=ttl_seconds))

    def delete(self, name: str | wire.CachedContent) -> None:
        run_blocking(self._caches.delete(name))
