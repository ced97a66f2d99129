"""Gemini as a provider: requests out, answers in."""

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any, Self, cast

from wasat.http.clock import Clock
from wasat.http.retry import RetryPolicy
from wasat.http.transport import Transport
from wasat.providers.gemini import decode
from wasat.providers.gemini.api import GeminiApi
from wasat.providers.gemini.capabilities import DEFAULT_MODEL, Api, Capabilities, capabilities_of, successor_of
from wasat.providers.gemini.credentials import GiveToken, developer_credentials, vertex_credentials
from wasat.providers.gemini.encode import request_body
from wasat.providers.gemini.endpoint import endpoint
from wasat.types.exchange import ModelRequest, ModelResponse
from wasat.types.parts import Part

_log = logging.getLogger("wasat.providers.gemini")


def connect(
    *,
    api_key: str | None = None,
    vertex: bool | None = None,
    token: GiveToken | None = None,
    project: str | None = None,
    location: str | None = None,
    base_url: str | None = None,
    version: str | None = None,
    headers: Mapping[str, str] | None = None,
    transport: Transport | None = None,
    retry: RetryPolicy | None = None,
    clock: Clock | None = None,
) -> GeminiApi:
    """The API that the caller means, by what he says and by the environment; nothing is sent yet."""
    vertex = True if token is not None else vertex
    where = endpoint(vertex=vertex, base_url=base_url, version=version, project=project, location=location)
    on_vertex = where.api is Api.VERTEX
    credentials = vertex_credentials(api_key, token) if on_vertex else developer_credentials(api_key)
    return GeminiApi(where, credentials, transport=transport, retry=retry, clock=clock, headers=headers)


class Gemini:
    """A Gemini model, by the Developer API or by Vertex."""

    def __init__(
        self, model: str = DEFAULT_MODEL, *, capabilities: Capabilities | None = None, api: GeminiApi | None = None,
        **connection: Any,
    ) -> None:  # fmt: skip
        """`connection` is what `connect` takes: api_key, base_url, vertex, project, token, headers, retry, …"""
        warn_if_retired(model)
        self._model = model
        self.api = api or connect(**connection)
        where = self.api.endpoint
        self.capabilities = capabilities or capabilities_of(model, where.api, where.version)
        self._path = where.model(model)

    @property
    def model(self) -> str:
        return self._model

    def __repr__(self) -> str:
        return f"Gemini({self._model!r}, {self.api.endpoint.base_url!r})"

    async def stream(self, request: ModelRequest, *, whole: bool = False) -> AsyncIterator[Part | ModelResponse]:
        """The parts of the answer as they come, then the answer; see `Provider`."""
        body = request_body(request, self.capabilities)
        if whole:
            yield await self._whole(body)
            return
        answers = self.api.stream(f"{self._path}:streamGenerateContent?alt=sse", body, self._reader)
        async with aclosing(answers):  # type: ignore[type-var]  # an async generator, which is declared as an iterator
            async for reader, parts in answers:
                answer = reader
                for part in parts:
                    yield cast("Part", part)
        yield answer.response()

    async def respond(self, request: ModelRequest) -> ModelResponse:
        """The answer at once."""
        return await self._whole(request_body(request, self.capabilities))

    async def _whole(self, body: bytes) -> ModelResponse:
        return decode.response(
            await self.api.call("POST", f"{self._path}:generateContent", body), self.capabilities.api
        )

    def _reader(self) -> decode.ResponseStream:
        return decode.ResponseStream(self.capabilities.api)

    async def close(self) -> None:
        await self.api.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def warn_if_retired(model: str) -> None:
    """A word in the log about a model that was shut down."""
    successor = successor_of(model)
    if successor is not None:
        _log.warning("%s was shut down; use %s", model, successor)
