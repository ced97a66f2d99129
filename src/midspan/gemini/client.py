"""The Gemini API as it is, typed: one request, one answer, and the calls in it are yours to execute."""

from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self, overload

from midspan._http.messages import origin_of
from midspan._loop.blocking import iterate, run_blocking
from midspan._types.events import TextDelta
from midspan.errors import ConfigError
from midspan.gemini.caches import Caches, SyncCaches
from midspan.gemini.checking import shown
from midspan.gemini.output import form_of
from midspan.gemini.request import Contents, identity_of, request_fields, request_of
from midspan.gemini.response import ChunkReader, GenerateContentResponse
from midspan.gemini.streams import AsyncResponseStream, ResponseStream
from midspan.providers.auth import HiddenArguments
from midspan.providers.gemini import decode, responses
from midspan.providers.gemini.api import connect_with
from midspan.providers.gemini.capabilities import DEFAULT_MODEL, Api, Capabilities, capabilities_of
from midspan.providers.gemini.client import check_model
from midspan.providers.gemini.family import list_models
from midspan.providers.gemini.proto import load

if TYPE_CHECKING:
    from midspan._loop.background_runs import RunStatus, View
    from midspan.gemini.auto import Automatic, AutoResponse, AutoStream

_MOST_KEPT = 64


class AsyncClient:
    """The Gemini API for async code. `connection` is what `connect` takes: api_key, base_url, vertex, project, …"""

    def __init__(self, model: str = DEFAULT_MODEL, **connection: Any) -> None:
        connection = HiddenArguments(connection)
        check_model(model)
        self.model = model
        self.api = connect_with(connection)
        self.caches = Caches(self.api, self.known)
        self._known: dict[str, tuple[str, Capabilities]] = {}
        self._written: dict[Any, tuple[bytes, list[Any]]] = {}
        """By the identity of what was asked; that is kept too, so that no other thing gets the same identity."""

    def __repr__(self) -> str:
        api = getattr(self, "api", None)
        where = origin_of(api.endpoint.base_url) if api is not None else "not connected"
        return f"{type(self).__name__}({getattr(self, 'model', None)!r}, {where!r})"

    async def generate_content(
        self, contents: Contents, *, model: str | None = None, **request: Any
    ) -> GenerateContentResponse:
        """Ask, and wait for the whole answer.

        `request` takes system_instruction, tools, tool_choice, tool_config, cached_content, safety_settings, labels,
        and every field of generationConfig by its snake_case name.
        """
        path, capabilities = self.known(model)
        body = request_of(contents, self._fields(capabilities, request), capabilities)
        answer = await self.api.call(
            "POST", f"{path}:generateContent", body, read=lambda answer: decode.response(answer, capabilities.api)
        )
        return GenerateContentResponse(answer, form=form_of(request))

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
        """Ask, and take the answer chunk by chunk; with `auto_execute_tools`, that after all calls were done."""
        if not isinstance(auto_execute_tools, bool):
            raise ConfigError(f"auto_execute_tools is True or False, not {shown(auto_execute_tools)}")
        if auto_execute_tools:
            return self._automatic.stream(contents, {"model": model, **request})
        path, capabilities = self.known(model)
        body = request_of(contents, self._fields(capabilities, request), capabilities)
        api, form = capabilities.api, form_of(request)
        chunks = self.api.stream(f"{path}:streamGenerateContent?alt=sse", body, lambda: ChunkReader(api, form))
        return AsyncResponseStream(chunks)

    async def generate_content_with_auto_tools(
        self, contents: Contents, tools: Any = None, **request: Any
    ) -> "AutoResponse":
        """Ask, have the tools called as often as the model wants, and give its final answer.

        `turn_limit` is how often the model is asked at most, 10 if nothing is said; `limits` says more. Functions are
        called as they are; for declarations, what was registered with `Tools.register` is.
        """
        return await self._automatic.generate(contents, {"tools": tools, **request})

    def stream_generate_with_auto_tools(self, contents: Contents, tools: Any = None, **request: Any) -> str:
        """The same in the background; returns an id, under which any number of subscribers find the answer."""
        return self._automatic.start(contents, {"tools": tools, **request})

    async def subscribe_stream(
        self, stream_id: str, *, view: "View" = "final", from_event: int = 0
    ) -> AsyncIterator[Any]:
        """The text of the final answer, piece by piece; with `view="all"` every event of the run with its number."""
        async with aclosing(self._automatic.runs.subscribe(stream_id, view=view, from_event=from_event)) as events:
            async for number, event in events:
                if view == "all":
                    yield number, event
                elif isinstance(event, TextDelta):
                    yield event.text

    async def stop_stream(self, stream_id: str) -> bool:
        """Stop it; whether it was still going on."""
        return await self._automatic.runs.cancel(stream_id)

    async def get_stream_status(self, stream_id: str) -> "RunStatus":
        """Its phase, and how far it is."""
        return await self._automatic.runs.status(stream_id)

    @cached_property
    def _automatic(self) -> "Automatic":
        from midspan.gemini.auto import Automatic  # the loop is loaded where it is wanted

        return Automatic(self)

    async def count_tokens(
        self, contents: Contents, *, model: str | None = None, **request: Any
    ) -> responses.CountTokensResponse:
        """How many tokens a request would be."""
        path, capabilities = self.known(model)
        body = request_of(contents, self._fields(capabilities, request), capabilities)
        if capabilities.api is Api.DEVELOPER and request:
            body = b'{"generateContentRequest":{"model":"%b",%b}' % (path.encode(), body[1:])
        return load(responses.CountTokensResponse, await self.api.call("POST", f"{path}:countTokens", body))

    async def list_models(self) -> list[responses.Model]:
        """The models that there are, all pages of them."""
        return await list_models(self.api)

    async def get_model(self, model: str | None = None) -> responses.Model:
        path, _ = self.known(model)
        return load(responses.Model, await self.api.call("GET", path))

    def _fields(self, capabilities: Capabilities, request: dict[str, Any]) -> bytes:
        """What stands beside the contents; written once for each way of asking, as in a loop it is always the same."""
        key = (capabilities, identity_of(request))
        kept = self._written.get(key)
        if kept is None:
            held = [tuple(value) if isinstance(value, list) else value for value in request.values()]
            kept = (request_fields(capabilities, **request) if request else b"", held)
            if key[1] is not None:
                if len(self._written) >= _MOST_KEPT:
                    self._written.clear()
                self._written[key] = kept
        return kept[0]

    def known(self, model: str | None) -> tuple[str, Capabilities]:
        """Where a model is, and what it can do."""
        name = model or self.model
        if not isinstance(name, str) or not name.isprintable():
            raise ConfigError(f"{shown(name)} is no name of a model")
        known = self._known.get(name)
        if known is None:
            where = self.api.endpoint
            known = self._known[name] = (where.model(name), capabilities_of(name, where.api, where.version))
        return known

    async def close(self) -> None:
        if "_automatic" in self.__dict__:
            await self._automatic.close()
        await self.api.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Client:
    """The Gemini API for plain code; `aio` is the same for async code. Any number of threads may share one."""

    def __init__(self, model: str = DEFAULT_MODEL, **connection: Any) -> None:
        connection = HiddenArguments(connection)
        self.aio = AsyncClient(model, **connection)
        self.caches = SyncCaches(self.aio.caches)

    @property
    def model(self) -> str:
        return self.aio.model

    def __repr__(self) -> str:
        return repr(getattr(self, "aio", "Client(not connected)")).removeprefix("Async")

    def generate_content(self, contents: Contents, **request: Any) -> GenerateContentResponse:
        """Ask, and wait for the whole answer; see `AsyncClient.generate_content`."""
        return run_blocking(self.aio.generate_content(contents, **request))

    def stream_generate_content(self, contents: Contents, **request: Any) -> ResponseStream:
        """Ask, and take the answer chunk by chunk; see `AsyncClient.stream_generate_content`."""
        return ResponseStream(self.aio.stream_generate_content(contents, **request))

    def generate_content_with_auto_tools(self, contents: Contents, tools: Any = None, **request: Any) -> "AutoResponse":
        """Ask, have the tools called, and give the final answer; see `AsyncClient`."""
        return run_blocking(self.aio.generate_content_with_auto_tools(contents, tools, **request))

    def stream_generate_with_auto_tools(self, contents: Contents, tools: Any = None, **request: Any) -> str:
        """The same in the background; returns the id to subscribe to."""

        async def start() -> str:
            return self.aio.stream_generate_with_auto_tools(contents, tools, **request)

        return run_blocking(start())

    def subscribe_stream(self, stream_id: str, *, view: "View" = "final", from_event: int = 0) -> Iterator[Any]:
        """The text of the final answer, piece by piece; with `view="all"` every event of the run with its number."""
        return iterate(self.aio.subscribe_stream(stream_id, view=view, from_event=from_event))

    def stop_stream(self, stream_id: str) -> bool:
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
