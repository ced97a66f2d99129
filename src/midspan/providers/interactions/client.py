"""Gemini by the Interactions API: requests out, responses in."""

from collections.abc import AsyncIterator

from midspan._types.exchange import ModelEvent, ModelRequest, ModelResponse
from midspan.providers.event_decoder import stream_response
from midspan.providers.interactions.decode import StreamDecoder, decode_response
from midspan.providers.interactions.encode import request_body
from midspan.providers.provider import WireRequest
from midspan.providers.rest import RestClient

HEADERS = {"Api-Revision": "2026-05-20"}
"""The version of the API that returns steps."""


def stream(client: RestClient, request: ModelRequest) -> AsyncIterator[ModelEvent]:
    """Yield the parts as they arrive, then the response."""
    return stream_response(client, request, wire_request(request, stream=True), StreamDecoder)


async def generate(client: RestClient, request: ModelRequest) -> ModelResponse:
    """Return the whole response."""
    wire = wire_request(request, stream=False)
    return await client.call("POST", wire.path, wire.body, read=decode_response, on_retry=request.on_retry)


def wire_request(request: ModelRequest, *, stream: bool) -> WireRequest:
    """Return what is sent for this request."""
    return WireRequest("interactions", request_body(request, stream=stream))
