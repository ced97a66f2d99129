"""The Gemini API as it is, typed: one request, one answer, and the calls in it are yours to execute."""

from typing import Any, Self

from wasat.gemini.caches import Caches, SyncCaches, pages
from wasat.gemini.request import Contents, from_plain_or_same, identity_of, request_fields, request_of
from wasat.gemini.response import ChunkReader, GenerateContentResponse
from wasat.gemini.streams import AsyncResponseStream, ResponseStream
from wasat.http.messages import origin_of
from wasat.loop.blocking import wait_for
from wasat.providers.gemini import decode, wire
from wasat.providers.gemini.capabilities import DEFAULT_MODEL, Api, Capabilities, capabilities_of
from wasat.providers.gemini.client import connected, warn_if_retired
from wasat.providers.gemini.credentials import HiddenArguments
from wasat.providers.gemini.proto import load

_MOST_KEPT = 64


class AsyncClient:
    """The Gemini API for async code. `connection` is what `connect` takes: api_key, base_url, vertex, project, …"""

    def __init__(self, model: str = DEFAULT_MODEL, **connection: Any) -> None:
        connection = HiddenArguments(connection)
        warn_if_retired(model)
        self.model = model
        self._api = connected(connection)
        self.caches = Caches(self._api, self._model)
        self._known: dict[str, tuple[str, Capabilities]] = {}
        self._written: dict[Any, tuple[bytes, list[Any]]] = {}
        """By the identity of what was asked; that is kept too, so that no other thing gets the same identity."""

    def __repr__(self) -> str:
        api = getattr(self, "_api", None)
        where = origin_of(api.endpoint.base_url) if api is not None else "not connected"
        return f"{type(self).__name__}({getattr(self, 'model', None)!r}, {where!r})"

    async def generate_content(
        self, contents: Contents, *, model: str | None = None, **request: Any
    ) -> GenerateContentResponse:
        """Ask, and wait for the whole answer.

        `request` takes system_instruction, tools, tool_choice, tool_config, cached_content, safety_settings, labels,
        and every field of generationConfig by its snake_case name.
        """
        path, capabilities = self._model(model)
        body = request_of(contents, self._fields(capabilities, request), capabilities)
        answer = await self._api.call(
            "POST", f"{path}:generateContent", body, read=lambda answer: decode.response(answer, capabilities.api)
        )
        return GenerateContentResponse(answer)

    def stream_generate_content(
        self, contents: Contents, *, model: str | None = None, **request: Any
    ) -> AsyncResponseStream:
        """Ask, and take the answer chunk by chunk."""
        path, capabilities = self._model(model)
        body = request_of(contents, self._fields(capabilities, request), capabilities)
        chunks = self._api.stream(
            f"{path}:streamGenerateContent?alt=sse", body, lambda: ChunkReader(self._api.endpoint.api)
        )
        return AsyncResponseStream(chunks)

    async def count_tokens(
        self, contents: Contents, *, model: str | None = None, **request: Any
    ) -> wire.CountTokensResponse:
        """How many tokens a request would be."""
        path, capabilities = self._model(model)
        body = request_of(contents, self._fields(capabilities, request), capabilities)
        if capabilities.api is Api.DEVELOPER and request:
            body = b'{"generateContentRequest":{"model":"%b",%b}' % (path.encode(), body[1:])
        return load(wire.CountTokensResponse, await self._api.call("POST", f"{path}:countTokens", body))

    async def list_models(self) -> list[wire.Model]:
        """The models that there are, all pages of them."""
        models: list[wire.Model] = []
        where = self._api.endpoint
        path = "models" if where.api is Api.DEVELOPER else "publishers/google/models"
        async for page in pages(self._api, path, wire.ListModelsResponse):
            models += page.models or [
                from_plain_or_same(wire.Model, one) for one in page.extra.get("publisherModels", [])
            ]
        return models

    async def get_model(self, model: str | None = None) -> wire.Model:
        path, _ = self._model(model)
        return load(wire.Model, await self._api.call("GET", path))

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

    def _model(self, model: str | None) -> tuple[str, Capabilities]:
        name = model or self.model
        known = self._known.get(name)
        if known is None:
            where = self._api.endpoint
            known = self._known[name] = (where.model(name), capabilities_of(name, where.api, where.version))
        return known

    async def close(self) -> None:
        await self._api.close()

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
        return wait_for(self.aio.generate_content(contents, **request))

    def stream_generate_content(self, contents: Contents, **request: Any) -> ResponseStream:
        """Ask, and take the answer chunk by chunk."""
        return ResponseStream(self.aio.stream_generate_content(contents, **request))

    def count_tokens(self, contents: Contents, **request: Any) -> wire.CountTokensResponse:
        return wait_for(self.aio.count_tokens(contents, **request))

    def list_models(self) -> list[wire.Model]:
        return wait_for(self.aio.list_models())

    def get_model(self, model: str | None = None) -> wire.Model:
        return wait_for(self.aio.get_model(model))

    def close(self) -> None:
        wait_for(self.aio.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
