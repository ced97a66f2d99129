"""Gemini by the Interactions API: requests out, responses in."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from functools import partial
from typing import Any

from midspan._types.exchange import ModelEvent, ModelRequest, ModelResponse
from midspan.errors import InvalidRequest, ProviderError, RateLimited, ServerError
from midspan.providers.interactions.decode import StreamDecoder, decode_response
from midspan.providers.interactions.encode import request_body
from midspan.providers.provider import WireRequest
from midspan.providers.rest import RestClient

HEADERS = {"Api-Revision": "2026-05-20"}
"""The version of the API that returns steps."""


async def stream(client: RestClient, request: ModelRequest) -> AsyncIterator[ModelEvent]:
    """Yield the parts as they arrive, then the response."""
    wire = wire_request(request, stream=True)
    make_decoder = partial(StreamDecoder, event_error)
    pieces = client.stream(wire.path, wire.body, make_decoder, on_retry=request.on_retry)
    async with aclosing(pieces):
        async for decoder, events in pieces:  # noqa: B007 - the last one has the response
            for event in events:
                yield event  # type: ignore[misc]  # the items are events; the type of a reader cannot say so
    yield client.checked(decoder.response)


async def generate(client: RestClient, request: ModelRequest) -> ModelResponse:
    """Return the whole response."""
    wire = wire_request(request, stream=False)
    return await client.call("POST", wire.path, wire.body, read=decode_response, on_retry=request.on_retry)


def wire_request(request: ModelRequest, *, stream: bool) -> WireRequest:
    """Return what is sent for this request."""
    return WireRequest("interactions", request_body(request, stream=stream))


def event_error(_: str, item: Any) -> ProviderError | None:
    """Return the error that an event of a stream reports."""
    if not isinstance(item, dict) or item.get("event_type") != "error":
        return None
    error = item.get("error") or {}
    code, message = str(error.get("code") or "").lower(), f"Gemini: {error.get('message') or 'the stream failed'}"
    if code in ("429", "resource_exhausted", "rate_limit_exceeded"):
        return RateLimited(message)
    if code in ("400", "invalid_argument", "invalid_request"):
        return InvalidRequest(message)
    return ServerError(message)
