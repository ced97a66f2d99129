"""OpenAI's Responses API as a provider."""

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Self

from midspan._http.messages import origin_of
from midspan._http.retry import Clock, RetryPolicy
from midspan._http.transport import Transport
from midspan._types.exchange import ModelEvent, ModelRequest, ModelResponse
from midspan.providers.auth import GiveToken
from midspan.providers.openai.client import connect, list_models, model_name
from midspan.providers.openai_responses.decode import StreamDecoder, decode_response
from midspan.providers.openai_responses.encode import request_body
from midspan.providers.openai_responses.profile import PRESET, profile_of
from midspan.providers.provider import WireRequest


class OpenAIResponses:
    """A model of OpenAI by the Responses API, which keeps the reasoning of a model from turn to turn."""

    def __init__(
        self,
        model: str | None = None,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        token: GiveToken | None = None,
        headers: Mapping[str, str] | None = None,
        transport: Transport | None = None,
        retry: RetryPolicy | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._model = model_name(model, PRESET)
        self.profile = profile_of(self._model)
        self._client = connect(
            PRESET, base_url, api_key, token, headers=headers, transport=transport, retry=retry, clock=clock
        )

    @property
    def model(self) -> str:
        return self._model

    def __repr__(self) -> str:
        return f"OpenAIResponses({self._model!r}, {origin_of(self._client.base_url)!r})"

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the parts as they arrive, then the response."""
        wire = self.wire_request(request, stream=True)
        pieces = self._client.stream(wire.path, wire.body, StreamDecoder, on_retry=request.on_retry)
        async with aclosing(pieces):
            async for decoder, events in pieces:  # noqa: B007 - the last one has the response
                for event in events:
                    yield event  # type: ignore[misc]  # the items are events; the type of a reader cannot say so
        yield self._client.checked(decoder.response)

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Return the whole response."""
        wire = self.wire_request(request, stream=False)
        return await self._client.call("POST", wire.path, wire.body, read=decode_response, on_retry=request.on_retry)

    def wire_request(self, request: ModelRequest, *, stream: bool) -> WireRequest:
        """Return what is sent for this request."""
        return WireRequest("responses", request_body(request, stream=stream))

    async def list_models(self) -> list[str]:
        """Return the names of the models of the service."""
        return await list_models(self._client)

    async def aclose(self) -> None:
        await self._client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
