"""The Gemini API as it is, typed: one request, one response, and the calls in it are executed by the caller."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Self, Unpack

from midspan._http.messages import origin_of
from midspan._loop.blocking import iterate, run_blocking
from midspan._types.events import TextDelta
from midspan._types.exchange import FinishReason
from midspan._types.specs import Limits
from midspan._types.texts import check_text
from midspan.errors import ConfigError, IncompleteResponseError
from midspan.gemini.output import requested_type
from midspan.gemini.request import AutoOptions, Contents, RequestFields, RequestOptions, cache_name, request_fields
from midspan.gemini.response import AsyncResponseStream, ChunkReader, GenerateContentResponse, ResponseStream
from midspan.gemini.tools import ToolLike
from midspan.providers.auth import HiddenArguments
from midspan.providers.gemini import decode, wire
from midspan.providers.gemini.api import ConnectionOptions, GeminiApi, connect, duration
from midspan.providers.gemini.capabilities import DEFAULT_MODEL, Api, Capabilities, capabilities_of
from midspan.providers.gemini.client import warn_if_retired
from midspan.providers.gemini.family import list_models
from midspan.providers.gemini.proto import Proto, dump, load
from midspan.providers.provider import ClosedOnExit

if TYPE_CHECKING:
    from midspan._loop.background import RunStatus
    from midspan._loop.background_runs import BackgroundRuns, View
    from midspan.gemini.auto import AutoResponse

_SCALARS = frozenset((str, int, float, bool, type(None)))


class AsyncClient(ClosedOnExit):
    """The Gemini API for async code."""

    def __init__(self, model: str = DEFAULT_MODEL, **connection: Unpack[ConnectionOptions]) -> None:
        hidden: Any = HiddenArguments(connection)  # no traceback shows the key
        del connection
        self.model = model
        self.api = connect(hidden)
        self.api.endpoint.model(model)  # raises an error for an invalid name
        warn_if_retired(model)
        self.caches = AsyncCaches(self.api, self.resolve)

    def __repr__(self) -> str:
        api = getattr(self, "api", None)
        address = origin_of(api.endpoint.base_url) if api is not None else "not connected"
        return f"{type(self).__name__}({getattr(self, 'model', None)!r}, {address!r})"

    async def generate_content(
        self, contents: Contents, *, model: str | None = None, **options: Unpack[RequestOptions]
    ) -> GenerateContentResponse:
        """Send a request and return the whole response."""
        path, capabilities = self.resolve(model)
        body = _fields(capabilities, options).body(contents, capabilities)
        answer = await self.api.call(
            "POST", f"{path}:generateContent", body, read=lambda data: decode.response(data, capabilities.api)
        )
        return GenerateContentResponse(answer, form=requested_type(options))

    def stream_generate_content(
        self,
        contents: Contents,
        *,
        model: str | None = None,
        auto_execute_tools: bool = False,
        turn_limit: int | None = None,
        limits: Limits | dict[str, Any] | None = None,
        **options: Unpack[RequestOptions],
    ) -> AsyncResponseStream:
        """Send a request and return the chunks of the response.

        With `auto_execute_tools` the calls are executed first, and the chunks are those of the final answer;
        `turn_limit` and `limits` are those of `generate_content_with_auto_tools`.
        """
        if auto_execute_tools:
            from midspan.gemini.auto import answer_chunks, prepare  # imports the loop

            auto = {"model": model, "turn_limit": turn_limit, "limits": limits, **options}
            agent, history, form = prepare(self, contents, auto)
            return AsyncResponseStream(answer_chunks(agent.stream(messages=history), form))
        path, capabilities = self.resolve(model)
        body = _fields(capabilities, options).body(contents, capabilities)
        return AsyncResponseStream(self._stream(path, body, capabilities.api, requested_type(options)))

    async def _stream(
        self, path: str, body: bytes, api: Api, form: Any
    ) -> AsyncGenerator[GenerateContentResponse, None]:
        pieces = self.api.stream(f"{path}:streamGenerateContent?alt=sse", body, lambda: ChunkReader(api, form))
        async with aclosing(pieces):
            async for reader, chunks in pieces:  # noqa: B007 - the last reader has the response
                for chunk in chunks:
                    yield chunk  # type: ignore[misc]  # the items are chunks; the type of a reader cannot say so
        response = reader.response()
        yield response
        if response.answer.finish_reason is FinishReason.CUT:
            raise IncompleteResponseError("Gemini ended the stream before the response was complete", status=200)

    async def generate_content_with_auto_tools(
        self, contents: Contents, tools: Any = None, **request: Unpack[AutoOptions]
    ) -> "AutoResponse":
        """Send a request, execute the calls of the model and send the results until it gives its final answer.

        `turn_limit` is the maximum number of requests, 10 by default; `limits` has further limits. Python functions are
        called directly; for declarations, the functions that were registered with `Tools.register`.
        """
        from midspan.gemini.auto import AutoResponse, prepare  # imports the loop

        agent, history, form = prepare(self, contents, {"tools": tools, **request})
        return AutoResponse(await agent.run(messages=history), form)

    def stream_generate_with_auto_tools(
        self, contents: Contents, tools: Any = None, **request: Unpack[AutoOptions]
    ) -> str:
        """Do the same in the background; return an id, under which any number of subscribers get the answer."""
        from midspan.gemini.auto import prepare  # imports the loop

        agent, history, _ = prepare(self, contents, {"tools": tools, **request})
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

    async def count_tokens(
        self, contents: Contents, *, model: str | None = None, **options: Unpack[RequestOptions]
    ) -> wire.CountTokensResponse:
        """Return how many tokens a request has."""
        path, capabilities = self.resolve(model)
        body = _fields(capabilities, options).body(contents, capabilities)
        if capabilities.api is Api.DEVELOPER and options:
            body = b'{"generateContentRequest":{"model":"%b",%b}' % (path.encode(), body[1:])
        return load(wire.CountTokensResponse, await self.api.call("POST", f"{path}:countTokens", body))

    async def list_models(self) -> list[wire.Model]:
        """Return all models, from all pages of the list."""
        return await list_models(self.api)

    async def get_model(self, model: str | None = None) -> wire.Model:
        return load(wire.Model, await self.api.call("GET", self.resolve(model)[0]))

    def resolve(self, model: str | None) -> tuple[str, Capabilities]:
        """Return the path of a model, and what it accepts."""
        name, endpoint = self.model if model is None else model, self.api.endpoint
        return endpoint.model(name), capabilities_of(name, endpoint.api, endpoint.version)

    async def aclose(self) -> None:
        if "_runs" in self.__dict__:
            await self.__dict__.pop("_runs").aclose()
        await self.api.aclose()


def _fields(capabilities: Capabilities, options: Mapping[str, Any]) -> RequestFields:
    """Return the encoded fields beside the contents; in a loop they are the same for every request."""
    items = [(name, tuple(value) if type(value) is list else value) for name, value in options.items()]
    key = tuple((name, type(value), value) for name, value in items)  # the type, because True equals 1
    try:
        hash(key)
        is_constant = all(_is_constant(value) for _, value in items)
    except TypeError:  # for example, metadata of Annotated
        is_constant = False
    return _cached_fields(capabilities, key) if is_constant else request_fields(capabilities, **options)


def _is_constant(value: Any) -> bool:
    """Whether a value cannot be changed in place; functions and types are not changed either."""
    if type(value) is tuple:
        return all(map(_is_constant, value))
    return type(value) in _SCALARS or (callable(value) and not isinstance(value, Proto))


@lru_cache(maxsize=64)
def _cached_fields(capabilities: Capabilities, key: tuple[tuple[str, type, Any], ...]) -> RequestFields:
    return request_fields(capabilities, **{name: value for name, _, value in key})


class Client:
    """The Gemini API for plain code; `aio` is the same for async code. Any number of threads may share a client."""

    def __init__(self, model: str = DEFAULT_MODEL, **connection: Unpack[ConnectionOptions]) -> None:
        hidden: Any = HiddenArguments(connection)
        del connection
        self.aio = AsyncClient(model, **hidden)
        self.caches = Caches(self.aio.caches)

    @property
    def model(self) -> str:
        return self.aio.model

    def __repr__(self) -> str:
        return repr(getattr(self, "aio", "Client(not connected)")).removeprefix("Async")

    def generate_content(
        self, contents: Contents, *, model: str | None = None, **request: Unpack[RequestOptions]
    ) -> GenerateContentResponse:
        """Send a request and return the whole response; see `AsyncClient.generate_content`."""
        return run_blocking(self.aio.generate_content(contents, model=model, **request))

    def stream_generate_content(
        self,
        contents: Contents,
        *,
        model: str | None = None,
        auto_execute_tools: bool = False,
        turn_limit: int | None = None,
        limits: Limits | dict[str, Any] | None = None,
        **options: Unpack[RequestOptions],
    ) -> ResponseStream:
        """Send a request and return the chunks of the response; see `AsyncClient.stream_generate_content`."""
        auto = {"auto_execute_tools": auto_execute_tools, "turn_limit": turn_limit, "limits": limits}
        return ResponseStream(self.aio.stream_generate_content(contents, model=model, **auto, **options))  # type: ignore[arg-type]

    def generate_content_with_auto_tools(
        self, contents: Contents, tools: Any = None, **request: Unpack[AutoOptions]
    ) -> "AutoResponse":
        """Execute calls until the final answer; see `AsyncClient.generate_content_with_auto_tools`."""
        return run_blocking(self.aio.generate_content_with_auto_tools(contents, tools, **request))

    def stream_generate_with_auto_tools(
        self, contents: Contents, tools: Any = None, **request: Unpack[AutoOptions]
    ) -> str:
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

    def count_tokens(
        self, contents: Contents, *, model: str | None = None, **request: Unpack[RequestOptions]
    ) -> wire.CountTokensResponse:
        return run_blocking(self.aio.count_tokens(contents, model=model, **request))

    def list_models(self) -> list[wire.Model]:
        return run_blocking(self.aio.list_models())

    def get_model(self, model: str | None = None) -> wire.Model:
        return run_blocking(self.aio.get_model(model))

    def close(self) -> None:
        run_blocking(self.aio.aclose())

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
    ) -> wire.CachedContent:
        """Create a cache. Pass it as cached_content=… in requests, and leave out what it holds."""
        path, capabilities = self._resolve(model)
        if not capabilities.explicit_cache:
            raise ConfigError(f"{path} has no explicit caches; it caches long prefixes by itself")
        if display_name is not None:
            check_text(display_name, "display_name")
        fields = request_fields(
            capabilities, system_instruction=system_instruction, tools=tools, tool_config=tool_config
        )
        head = dump(wire.CachedContent(model=path, ttl=duration(ttl_seconds), display_name=display_name))
        body = head[:-1] + b"," + fields.body(contents, capabilities, may_be_empty=True)[1:]
        created: bytes = await self._api.call("POST", self._api.endpoint.resource("cachedContents"), body)
        return load(wire.CachedContent, created)

    async def get(self, name: str | wire.CachedContent) -> wire.CachedContent:
        return load(wire.CachedContent, await self._call("GET", name))

    async def list(self) -> list[wire.CachedContent]:
        path = self._api.endpoint.resource("cachedContents")
        return [cache async for page in self._api.pages(path) for cache in page.cached_contents or []]

    async def update(self, name: str | wire.CachedContent, *, ttl_seconds: float) -> wire.CachedContent:
        """Let a cache live for `ttl_seconds` from now."""
        body = dump(wire.CachedContent(ttl=duration(ttl_seconds)))
        return load(wire.CachedContent, await self._call("PATCH", name, body, "?updateMask=ttl"))

    async def delete(self, name: str | wire.CachedContent) -> None:
        await self._call("DELETE", name)

    async def _call(self, method: str, name: str | wire.CachedContent, body: bytes = b"", query: str = "") -> bytes:
        path = self._api.endpoint.resource("cachedContents", cache_name(name, "the name of a cache"))
        return await self._api.call(method, path + query, body)


class Caches:
    """`AsyncCaches` for plain code."""

    def __init__(self, caches: AsyncCaches) -> None:
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
