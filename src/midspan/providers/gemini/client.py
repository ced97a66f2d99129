"""Gemini as a provider: requests out, responses in."""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, Self

from msgspec.structs import replace

from midspan.errors import ConfigError, InvalidRequest, ProviderError
from midspan.http.messages import origin_of
from midspan.providers.auth import HiddenArguments
from midspan.providers.gemini import decode
from midspan.providers.gemini.capabilities import DEFAULT_MODEL, Capabilities, capabilities_of, successor_of
from midspan.providers.gemini.connection import GeminiApi, connected
from midspan.providers.gemini.encode import request_body
from midspan.providers.gemini.long_decode import LongDecode
from midspan.providers.gemini.profile import profile_of
from midspan.providers.provider import WireRequest
from midspan.types.exchange import ModelEvent, ModelRequest, ModelResponse, RequestConfig
from midspan.types.specs import ToolChoice

_log = logging.getLogger("midspan.providers.gemini")


class Gemini:
    """A Gemini model, by the Developer API or by Vertex."""

    def __init__(
        self, model: str = DEFAULT_MODEL, *, capabilities: Capabilities | None = None, api: GeminiApi | None = None,
        **connection: Any,
    ) -> None:  # fmt: skip
        """`connection` is what `connect` takes: api_key, base_url, vertex, project, token, headers, retry, …"""
        connection = HiddenArguments(connection)
        warn_if_retired(model)
        if capabilities is not None and not isinstance(capabilities, Capabilities):
            raise ConfigError(f"capabilities is a Capabilities, as capabilities_of(…) gives, not {capabilities!r}")
        if api is not None and not isinstance(api, GeminiApi):
            raise ConfigError(f"api is a GeminiApi, as connect(…) gives, not {api!r}")
        self._model = model
        self.api = api or connected(connection)
        where = self.api.endpoint
        self.capabilities = capabilities or capabilities_of(model, where.api, where.version)
        self.profile = profile_of(self.capabilities)
        self._path = where.model(model)

    @property
    def model(self) -> str:
        return self._model

    def __repr__(self) -> str:
        return f"Gemini({self._model!r}, {origin_of(self.api.endpoint.base_url)!r})"

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the parts as they arrive, then the response. A paused response is continued, see `LongDecode`."""
        request = apply_known_fallback(request)
        long_decode = LongDecode(request.budget)
        first_index, has_output = 0, False
        while True:
            wire = self.wire_request(request, stream=True, token=long_decode.next_token)
            pieces = self.api.stream(wire.path, wire.body, self._make_reader(first_index))
            try:
                async with aclosing(pieces):
                    async for reader, events in pieces:
                        answer = reader
                        for event in events:
                            has_output = True
                            yield event  # type: ignore[misc]  # the reader's items are events; its type cannot say so
            except ProviderError as error:
                error.partial_response = long_decode.partial_response()
                if has_output:
                    raise  # asking again would repeat what the caller has seen
                request = fallback_request(request, error)
                continue
            long_decode.add(answer.response(), answer.continuation_token)
            first_index = answer.next_index
            if long_decode.next_token is None:
                break
        yield self._with_citations(long_decode.response(), request)

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Return the whole response."""
        request = apply_known_fallback(request)
        long_decode = LongDecode(request.budget)
        while True:
            wire = self.wire_request(request, stream=False, token=long_decode.next_token)
            try:
                long_decode.add(*await self.api.call("POST", wire.path, wire.body, read=self._read))
            except ProviderError as error:
                error.partial_response = long_decode.partial_response()
                request = fallback_request(request, error)
                continue
            if long_decode.next_token is None:
                return self._with_citations(long_decode.response(), request)

    def wire_request(self, request: ModelRequest, *, stream: bool, token: str | None = None) -> WireRequest:
        """Return what is sent for this request; `token` continues a paused response."""
        mode = "streamGenerateContent?alt=sse" if stream else "generateContent"
        return WireRequest(f"{self._path}:{mode}", request_body(request, self.capabilities, token))

    def _with_citations(self, response: ModelResponse, request: ModelRequest) -> ModelResponse:
        if not request.config.has_builtins:
            return response
        return replace(response, citations=decode.citations_of(response))

    def _read(self, body: bytes) -> tuple[ModelResponse, str | None]:
        return decode.response_and_token(body, self.capabilities.api)

    def _make_reader(self, first_index: int) -> Callable[[], decode.ResponseStream]:
        return lambda: decode.ResponseStream(self.capabilities.api, first_index=first_index)

    async def aclose(self) -> None:
        await self.api.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


# In mode VALIDATED the server compiles the schemas of all tools, and refuses large ones. The same tools pass in mode
# AUTO, and arguments are validated here in any case. Mode ANY stays: without it the answer would be another one.

_TOO_LARGE = "too many states"
_SAYS_NOTHING = "Request contains an invalid argument."
"""What the server says to many a mistake, and to this one as well."""


class _SchemaFallback:
    """What is known of a config that the server refused; kept beside it, so that it is refused once."""

    config: RequestConfig | None = None


def apply_known_fallback(request: ModelRequest) -> ModelRequest:
    """Return the request without server-side validation, if the server is known to refuse that."""
    choice = request.config.tool_choice
    if choice is None or not choice.strict:
        return request
    known = request.config.derived(_SchemaFallback, _SchemaFallback).config
    return request if known is None else replace(request, config=known)


def fallback_request(request: ModelRequest, error: ProviderError) -> ModelRequest:
    """Return the request without server-side validation if that may help; raise the error otherwise."""
    config, words = request.config, str(error)
    choice = config.tool_choice
    if not isinstance(error, InvalidRequest) or error.status != 400:
        raise error
    # Beside built-in tools the server accepts no other mode.
    if choice is None or choice.mode != "auto" or not choice.strict or config.has_builtins:
        raise error
    is_certain = _TOO_LARGE in words
    if not is_certain and not words.endswith(_SAYS_NOTHING):
        raise error
    _log.warning("the tools are too large to be validated by the server, so the model calls them freely")
    looser = replace(config, tool_choice=ToolChoice("auto", parallel=choice.parallel))
    if is_certain:
        config.derived(_SchemaFallback, _SchemaFallback).config = looser
    return replace(request, config=looser)


def warn_if_retired(model: str) -> None:
    """A word in the log about a model that was shut down."""
    if not isinstance(model, str) or not model.strip() or not model.isprintable():
        raise ConfigError(f"{model!r} is no name of a model")
    successor = successor_of(model)
    if successor is not None:
        _log.warning("%s was shut down; use %s", model, successor)
