"""The Gemini API as it is, typed: one request, one response, and the calls in it are executed by the caller."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self, overload

from midspan._http.messages import origin_of
from midspan._loop.blocking import iterate, run_blocking
from midspan._types.events import TextDelta
from midspan._types.specs import ToolChoice
from midspan._types.texts import check_text
from midspan.errors import ConfigError, InvalidRequest
from midspan.gemini.checking import describe
from midspan.gemini.output import requested_type
from midspan.gemini.request import Contents, RequestFields, cache_name, request_fields
from midspan.gemini.response import AsyncResponseStream, ChunkReader, GenerateContentResponse, ResponseStream
from midspan.gemini.tools import ToolLike, read_tools
from midspan.providers.auth import HiddenArguments
from midspan.providers.gemini import decode, responses
from midspan.providers.gemini.api import GeminiApi, connect
from midspan.providers.gemini.capabilities import DEFAULT_MODEL, Api, Capabilities, capabilities_of
from midspan.providers.gemini.client import check_model, unvalidated_choice
from midspan.providers.gemini.family import list_models
from midspan.providers.gemini.proto import Proto, dump, load
from midspan.providers.gemini.wire import CachedContent

if TYPE_CHECKING:
    from midspan._loop.background import RunStatus
    from midspan._loop.background_runs import View
    from midspan.gemini.auto import AutoResponse, AutoStream, AutoTools

_MAX_CACHED_FIELDS = 64
_MAX_SECONDS = 315_576_000_000
"""Of a Duration: https://protobuf.dev/reference/protobuf/google.protobuf"""
_SCALARS = frozenset((str, int, float, bool, type(None)))


class AsyncClient:
    """The Gemini API for async code. `connection` has the arguments of `connect`: api_key, base_url, vertex, …"""

    def __init__(self, model: str = DEFAULT_MODEL, **connection: Any) -> None:
        connection = HiddenArguments(connection)
        check_model(model)
        self.model = model
        self.api = connect(**connection)
        self.caches = AsyncCaches(self.api, self.resolve)
        self._models: dict[str, tuple[str, Capabilities]] = {}
        self._cached_fields: dict[Any, tuple[RequestFields, list[Any]]] = {}
        """By the identity of the arguments, which are kept too, so that no other object gets the same identity."""

    def __repr__(self) -> str:
        api = getattr(self, "api", None)
        address = origin_of(api.endpoint.base_url) if api is not None else "not connected"
        return f"{type(self).__name__}({getattr(self, 'model', None)!r}, {address!r})"

    async def generate_content(
        self, contents: Contents, *, model: str | None = None, **request: Any
    ) -> GenerateContentResponse:
        """Send a request and return the whole response.

        `request` has system_instruction, tools, tool_choice, tool_config, cached_content, safety_settings, labels, and
        every field of generationConfig by its snake_case name.
        """
        path, capabilities = self.resolve(model)
        while True:
            body = self._fields(capabilities, request).body(contents, capabilities)
            try:
                answer = await self.api.call(
                    "POST", f"{path}:generateContent", body, read=lambda data: decode.response(data, capabilities.api)
                )
            except InvalidRequest as error:
                request = _unvalidated(request, error)
            else:
                return GenerateContentResponse(answer, form=requested_type(request))

    @overload
    def stream_generate_content(
        self, contents: Contents, *, auto_execute_tools: Literal[False] = False, **request: Any
    ) -> AsyncResponseStream: ...

    @overload
    def stream_generate_content(
        self, contents: Contents, *, auto_execute_tools: Literal[True], **request: Any
    ) -> "AutoStream": ...

    def stream_generate_content(
        self, contents: Contents, *, model: str | None = None, auto_execute_tools: bool = False, **request: Any
    ) -> "AsyncResponseStream | AutoStream":
        """Send a request and return the chunks of the response.

        With `auto_execute_tools` the calls are executed first, and the chunks are those of the final answer.
        """
        if not isinstance(auto_execute_tools, bool):
            raise ConfigError(f"auto_execute_tools must be True or False, got {describe(auto_execute_tools)}")
        if auto_execute_tools:
            return self._auto.stream(contents, {"model": model, **request})
        path, capabilities = self.resolve(model)
        body = self._fields(capabilities, request).body(contents, capabilities)
        return AsyncResponseStream(self._stream(path, capabilities, body, contents, request))

    async def _stream(
        self, path: str, capabilities: Capabilities, body: bytes, contents: Contents, request: dict[str, Any]
    ) -> AsyncGenerator[tuple[ChunkReader, list[object]], None]:
        form, has_output = requested_type(request), False
        while True:
            chunks = self.api.stream(
                f"{path}:streamGenerateContent?alt=sse", body, lambda: ChunkReader(capabilities.api, form)
            )
            try:
                async with aclosing(chunks):
                    async for reader, items in chunks:
                        has_output = has_output or bool(items)
                        yield reader, items
            except InvalidRequest as error:
                if has_output:
                    raise  # a second request would repeat what the caller has seen
                request = _unvalidated(request, error)
                body = self._fields(capabilities, request).body(contents, capabilities)
            else:
                return

    async def generate_content_with_auto_tools(
        self, contents: Contents, tools: Any = None, **request: Any
    ) -> "AutoResponse":
        """Send a request, execute the calls of the model and send the results until it gives its final answer.

        `turn_limit` is the maximum number of requests, 10 by default; `limits` has further limits. Python functions are
        called directly; for declarations, the functions that were registered with `Tools.register`.
        """
        return await self._auto.generate(contents, {"tools": tools, **request})

    def stream_generate_with_auto_tools(self, contents: Contents, tools: Any = None, **request: Any) -> str:
        """Do the same in the background; return an id, under which any number of subscribers get the answer."""
        return self._auto.start(contents, {"tools": tools, **request})

    async def subscribe_stream(
        self, stream_id: str, *, view: "View" = "final", from_event: int = 0
    ) -> AsyncIterator[Any]:
        """Yield the text of the final answer in pieces; with `view="all"`, every event of the run with its number."""
        async with aclosing(self._auto.runs.subscribe(stream_id, view=view, from_event=from_event)) as events:
            async for number, event in events:
                if view == "all":
                    yield number, event
                elif isinstance(event, TextDelta):
                    yield event.text

    async def stop_stream(self, stream_id: str) -> bool:
        """Cancel a background run; return whether it was still running."""
        return await self._auto.runs.cancel(stream_id)

    async def get_stream_status(self, stream_id: str) -> "RunStatus":
        return await self._auto.runs.status(stream_id)

    @cached_property
    def _auto(self) -> "AutoTools":
        from midspan.gemini.auto import AutoTools  # imports the loop

        return AutoTools(self)

    async def count_tokens(
        self, contents: Contents, *, model: str | None = None, **request: Any
    ) -> responses.CountTokensResponse:
        """Return how many tokens a request has."""
        path, capabilities = self.resolve(model)
        body = self._fields(capabilities, request).body(contents, capabilities)
        if capabilities.api is Api.DEVELOPER and request:
            body = b'{"generateContentRequest":{"model":"%b",%b}' % (path.encode(), body[1:])
        return load(responses.CountTokensResponse, await self.api.call("POST", f"{path}:countTokens", body))

    async def list_models(self) -> list[responses.Model]:
        """Return all models, from all pages of the list."""
        return await list_models(self.api)

    async def get_model(self, model: str | None = None) -> responses.Model:
        return load(responses.Model, await self.api.call("GET", self.resolve(model)[0]))

    def _fields(self, capabilities: Capabilities, request: dict[str, Any]) -> RequestFields:
        """Return the encoded fields beside the contents; in a loop they are the same for every request."""
        identity = _identity_of(request)
        cached = self._cached_fields.get((capabilities, identity))
        if cached is None:
            kept = [tuple(value) if isinstance(value, list) else value for value in request.values()]
            cached = (request_fields(capabilities, **request), kept)
            if identity is not None:
                if len(self._cached_fields) >= _MAX_CACHED_FIELDS:
                    self._cached_fields.clear()
                self._cached_fields[capabilities, identity] = cached
        return cached[0]

    def resolve(self, model: str | None) -> tuple[str, Capabilities]:
        """Return the path of a model, and what it accepts."""
        name = self.model if model is None else model
        if not isinstance(name, str) or not name.isprintable():
            raise ConfigError(f"{describe(name)} is not a valid model name")
        if name not in self._models:
            endpoint = self.api.endpoint
            self._models[name] = endpoint.model(name), capabilities_of(name, endpoint.api, endpoint.version)
        return self._models[name]

    async def close(self) -> None:
        if "_auto" in self.__dict__:
            await self._auto.close()
        await self.api.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _unvalidated(request: dict[str, Any], error: InvalidRequest) -> dict[str, Any]:
    """Return the request without server-side validation of calls if that may help; raise the error otherwise."""
    choice = request.get("tool_choice")
    if choice is None:
        raise error
    has_builtins = any(tool.function_declarations is None for tool in read_tools(request.get("tools")))
    return {**request, "tool_choice": unvalidated_choice(ToolChoice.of(choice), error, has_builtins=has_builtins)}


def _identity_of(request: dict[str, Any]) -> tuple[Any, ...] | None:
    """Return a key for these arguments without looking into them; None if one of them may be changed in place."""
    key: list[Any] = []
    for name, value in request.items():
        key.append(name)
        for item in value if type(value) in (list, tuple) else (value,):
            if type(item) in _SCALARS:
                key += (type(item), item)  # the type too, because True equals 1
            elif callable(item) and not isinstance(item, Proto):
                key.append(id(item))
            else:
                return None
    return tuple(key)


class Client:
    """The Gemini API for plain code; `aio` is the same for async code. Any number of threads may share a client."""

    def __init__(self, model: str = DEFAULT_MODEL, **connection: Any) -> None:
        connection = HiddenArguments(connection)
        self.aio = AsyncClient(model, **connection)
        self.caches = Caches(self.aio.caches)

    @property
    def model(self) -> str:
        return self.aio.model

    def __repr__(self) -> str:
        return repr(getattr(self, "aio", "Client(not connected)")).removeprefix("Async")

    def generate_content(self, contents: Contents, **request: Any) -> GenerateContentResponse:
        """Send a request and return the whole response; see `AsyncClient.generate_content`."""
        return run_blocking(self.aio.generate_content(contents, **request))

    def stream_generate_content(self, contents: Contents, **request: Any) -> ResponseStream:
        """Send a request and return the chunks of the response; see `AsyncClient.stream_generate_content`."""
        return ResponseStream(self.aio.stream_generate_content(contents, **request))

    def generate_content_with_auto_tools(self, contents: Contents, tools: Any = None, **request: Any) -> "AutoResponse":
        """Execute calls until the final answer; see `AsyncClient.generate_content_with_auto_tools`."""
        return run_blocking(self.aio.generate_content_with_auto_tools(contents, tools, **request))

    def stream_generate_with_auto_tools(self, contents: Contents, tools: Any = None, **request: Any) -> str:
        """Do the same in the background; return the id to subscribe to."""

        async def start() -> str:
            return self.aio.stream_generate_with_auto_tools(contents, tools, **request)

        return run_blocking(start())

    def subscribe_stream(self, stream_id: str, *, view: "View" = "final", from_event: int = 0) -> Iterator[Any]:
        """Yield the text of the final answer in pieces; with `view="all"`, every event of the run with its number."""
        return iterate(self.aio.subscribe_stream(stream_id, view=view, from_event=from_event))

    def stop_stream(self, stream_id: str) -> bool:
        """Cancel a background run; return whether it was still running."""
        return run_blocking(self.aio.stop_stream(stream_id))

    def get_stream_status(self, stream_id: str) -> "RunStatus":
        return run_blocking(self.aio.get_stream_status(stream_id))

    def count_tokens(self, contents: Contents, **request: Any) -> responses.CountTokensResponse:
        return run_blocking(self.aio.count_tokens(contents, **request))

    def list_models(self) -> list[responses.Model]:
        return run_blocking(self.aio.list_models())

    def get_model(self, model: str | None = None) -> responses.Model:
        return run_blocking(self.aio.get_model(model))

    def close(self) -> None:
        run_blocking(self.aio.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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
        if display_name is not None:
            check_text(display_name, "display_name")
        fields = request_fields(
            capabilities, system_instruction=system_instruction, tools=tools, tool_config=tool_config
        )
        head = dump(CachedContent(model=path, ttl=_duration(ttl_seconds), display_name=display_name))
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
