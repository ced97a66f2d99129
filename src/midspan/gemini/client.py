"""A typed client of the Gemini API, sync and async. It executes calls only in the methods for automatic tools."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import aclosing
from functools import cached_property, lru_cache, partial, wraps
from types import FunctionType, NoneType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack

from midspan._loop.blocking import ClosableFromSyncCode, iterate, run_blocking
from midspan._types.events import TextDelta
from midspan._types.exchange import FinishReason
from midspan.errors import ConfigError, IncompleteResponseError
from midspan.gemini.request import AutoOptions, Contents, RequestFields, RequestOptions, cache_name, request_fields
from midspan.gemini.response import ChunkReader, GenerateContentResponse, ResponseStream
from midspan.providers.auth import HiddenValues
from midspan.providers.gemini import decode, wire
from midspan.providers.gemini.api import ConnectionOptions, connect, duration
from midspan.providers.gemini.capabilities import DEFAULT_MODEL, Api, Capabilities, capabilities_of
from midspan.providers.gemini.client import warn_if_retired
from midspan.providers.gemini.family import list_models
from midspan.providers.gemini.proto import dump, load
from midspan.providers.provider import ClosedOnExit
from midspan.tools.function import Tool

if TYPE_CHECKING:
    from midspan._loop.background import RunStatus
    from midspan._loop.background_runs import BackgroundRuns, View
    from midspan.gemini.auto import AutoResponse

P = ParamSpec("P")
T = TypeVar("T")


class AsyncClient(ClosedOnExit):
    """The Gemini API for async code."""

    def __init__(self, model: str = DEFAULT_MODEL, **connection: Unpack[ConnectionOptions]) -> None:
        hidden: Any = HiddenValues(connection)  # no traceback shows the key
        del connection
        self.model = model
        self.api = connect(hidden)
        self.api.endpoint.model(model)  # raises an error for an invalid name
        warn_if_retired(model)
        self.caches = AsyncCaches(self)

    async def generate_content(self, contents: Contents, **options: Unpack[RequestOptions]) -> GenerateContentResponse:
        """Send a request and return the whole response."""
        path, api, body, output_type = self._request(contents, options)
        read = partial(decode.response, api=api)
        answer = await self.api.call("POST", f"{path}:generateContent", body, read=read)
        return GenerateContentResponse(answer, output_type=output_type)

    def stream_generate_content(
        self, contents: Contents, *, auto_execute_tools: bool = False, **options: Unpack[AutoOptions]
    ) -> ResponseStream:
        """Send a request and return the chunks of the response.

        With `auto_execute_tools` the calls are executed first, and the chunks are those of the final answer.
        """
        if auto_execute_tools:
            from midspan.gemini.auto import answer_chunks, prepare  # imports the loop

            agent, history, output_type = prepare(self, contents, options)
            return ResponseStream(answer_chunks(agent.stream(messages=history), output_type))
        return ResponseStream(self._stream(*self._request(contents, options)))

    async def _stream(
        self, path: str, api: Api, body: bytes, output_type: Any
    ) -> AsyncGenerator[GenerateContentResponse, None]:
        pieces = self.api.stream(f"{path}:streamGenerateContent?alt=sse", body, lambda: ChunkReader(api))
        async with aclosing(pieces):
            async for reader, chunks in pieces:  # noqa: B007 - the last reader has the response
                for chunk in chunks:
                    yield chunk
        response = reader.response()
        yield GenerateContentResponse(response, output_type=output_type)
        if response.finish_reason is FinishReason.CUT:
            raise IncompleteResponseError("Gemini ended the stream before the response was complete", status=200)

    async def generate_content_with_auto_tools(
        self, contents: Contents, **options: Unpack[AutoOptions]
    ) -> "AutoResponse":
        """Send a request, execute the calls of the model and send the results until it gives its final answer.

        Python functions are called directly; for declarations, the functions that were registered with
        `Tools.register`. `turn_limit` and `limits` are described in `AutoOptions`.
        """
        from midspan.gemini.auto import AutoResponse, prepare  # imports the loop

        agent, history, output_type = prepare(self, contents, options)
        return AutoResponse(await agent.run(messages=history), output_type)

    async def stream_generate_with_auto_tools(self, contents: Contents, **options: Unpack[AutoOptions]) -> str:
        """Like `generate_content_with_auto_tools`, in the background. Returns an id for `subscribe_stream`."""
        from midspan.gemini.auto import prepare  # imports the loop

        agent, history, _ = prepare(self, contents, options)
        return self._runs.start(agent=agent, messages=history)

    async def subscribe_stream(
        self, stream_id: str, *, view: "View" = "final", from_event: int = 0
    ) -> AsyncIterator[Any]:
        """Yield the text of the final answer in pieces; with `view="all"`, every event of the run with its number."""
        async with aclosing(self._runs.subscribe(stream_id, view=view, from_event=from_event)) as events:
            async for number, event in events:
                if view == "all":
                    yield number, event
                elif isinstance(event, TextDelta):
                    yield event.text

    async def stop_stream(self, stream_id: str) -> bool:
        """Cancel a background run; return whether it was still running."""
        return await self._runs.cancel(stream_id)

    async def get_stream_status(self, stream_id: str) -> "RunStatus":
        return await self._runs.status(stream_id)

    @cached_property
    def _runs(self) -> "BackgroundRuns":
        from midspan._loop.background_runs import BackgroundRuns  # imports the loop

        return BackgroundRuns()

    async def count_tokens(self, contents: Contents, **options: Unpack[RequestOptions]) -> wire.CountTokensResponse:
        """Return how many tokens a request has."""
        path, api, body, _ = self._request(contents, options)
        if api is Api.DEVELOPER and options.keys() - {"model"}:
            body = b'{"generateContentRequest":{"model":"%b",%b}' % (path.encode(), body[1:])
        return load(wire.CountTokensResponse, await self.api.call("POST", f"{path}:countTokens", body))

    async def list_models(self) -> list[wire.Model]:
        """Return all models, from all pages of the list."""
        return await list_models(self.api)

    def resolve(self, model: str | None) -> tuple[str, Capabilities]:
        """Return the path of a model, and what it accepts."""
        name, endpoint = self.model if model is None else model, self.api.endpoint
        return endpoint.model(name), capabilities_of(name, endpoint.api, endpoint.version)

    def _request(self, contents: Contents, options: Mapping[str, Any]) -> tuple[str, Api, bytes, Any]:
        """Return the path of the model, its API, the body of the request, and the type of the answer."""
        path, capabilities = self.resolve(options.get("model"))
        others = {name: value for name, value in options.items() if name != "model"}
        fields = _fields(capabilities, others)
        return path, capabilities.api, fields.body(contents, capabilities), fields.output_type

    async def aclose(self) -> None:
        if "_runs" in self.__dict__:
            await self.__dict__.pop("_runs").aclose()
        await self.api.aclose()


_CONSTANTS = (str, int, float, NoneType, FunctionType, type, Tool)
_cached_fields = lru_cache(maxsize=64, typed=True)(request_fields)


def _fields(capabilities: Capabilities, options: dict[str, Any]) -> RequestFields:
    """Return all encoded fields except the contents. Cached, because the requests of a loop have the same fields."""
    hashable = {name: tuple(value) if type(value) is list else value for name, value in options.items()}
    for value in hashable.values():
        if not all(isinstance(item, _CONSTANTS) for item in (value if type(value) is tuple else (value,))):
            return request_fields(capabilities, **options)  # the caller may change such a value
    return _cached_fields(capabilities, **hashable)


class AsyncCaches:
    """The caches of a client."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def create(
        self,
        contents: Contents = (),
        *,
        model: str | None = None,
        ttl_seconds: float = 3600,
        display_name: str | None = None,
        system_instruction: Contents | None = None,
        tools: Any = (),
        tool_config: Any = None,
    ) -> wire.CachedContent:
        """Create a cache. Pass it as cached_content=… in requests, and leave out what it holds."""
        path, capabilities = self._client.resolve(model)
        if not capabilities.explicit_cache:
            raise ConfigError(f"{path} has no explicit caches; it caches long prefixes by itself")
        fields = request_fields(
            capabilities, system_instruction=system_instruction, tools=tools, tool_config=tool_config
        )
        head = dump(wire.CachedContent(model=path, ttl=duration(ttl_seconds), display_name=display_name))
        body = head[:-1] + b"," + fields.body(contents, capabilities, may_be_empty=True)[1:]
        return await self._client.api.cache("POST", body=body)

    async def get(self, name: str | wire.CachedContent) -> wire.CachedContent:
        return await self._client.api.cache("GET", cache_name(name))

    async def list(self) -> list[wire.CachedContent]:
        api = self._client.api
        pages = api.pages(api.endpoint.resource("cachedContents"))
        return [cache async for page in pages for cache in page.cached_contents or []]

    async def update(self, name: str | wire.CachedContent, *, ttl_seconds: float) -> wire.CachedContent:
        """Let a cache expire `ttl_seconds` from now."""
        body = dump(wire.CachedContent(ttl=duration(ttl_seconds)))
        return await self._client.api.cache("PATCH", cache_name(name), body)

    async def delete(self, name: str | wire.CachedContent) -> None:
        await self._client.api.cache("DELETE", cache_name(name))


def _blocking(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """Return a sync method that calls this method of `self.aio` and waits for it."""

    @wraps(method)
    def blocking_method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return run_blocking(method(self.aio, *args, **kwargs))

    return blocking_method


class Caches:
    """`AsyncCaches` for sync code."""

    def __init__(self, caches: AsyncCaches) -> None:
        self.aio = caches

    create = _blocking(AsyncCaches.create)
    get = _blocking(AsyncCaches.get)
    list = _blocking(AsyncCaches.list)
    update = _blocking(AsyncCaches.update)
    delete = _blocking(AsyncCaches.delete)


class Client(ClosableFromSyncCode):
    """The Gemini API for sync code; `aio` is the same for async code. Any number of threads may share a client."""

    def __init__(self, model: str = DEFAULT_MODEL, **connection: Unpack[ConnectionOptions]) -> None:
        hidden: Any = HiddenValues(connection)
        del connection
        self.aio = AsyncClient(model, **hidden)
        self.caches = Caches(self.aio.caches)

    generate_content = _blocking(AsyncClient.generate_content)
    generate_content_with_auto_tools = _blocking(AsyncClient.generate_content_with_auto_tools)
    stream_generate_with_auto_tools = _blocking(AsyncClient.stream_generate_with_auto_tools)
    count_tokens = _blocking(AsyncClient.count_tokens)
    list_models = _blocking(AsyncClient.list_models)
    stop_stream = _blocking(AsyncClient.stop_stream)
    get_stream_status = _blocking(AsyncClient.get_stream_status)

    def stream_generate_content(
        self, contents: Contents, *, auto_execute_tools: bool = False, **options: Unpack[AutoOptions]
    ) -> ResponseStream:
        """Send a request and return the chunks of the response; see `AsyncClient.stream_generate_content`."""
        return self.aio.stream_generate_content(contents, auto_execute_tools=auto_execute_tools, **options)

    def subscribe_stream(self, stream_id: str, *, view: "View" = "final", from_event: int = 0) -> Iterator[Any]:
        """Yield the text of the final answer in pieces; with `view="all"`, every event of the run with its number."""
        return iterate(self.aio.subscribe_stream(stream_id, view=view, from_event=from_event))

    async def aclose(self) -> None:
        await self.aio.aclose()
