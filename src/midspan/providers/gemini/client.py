"""Gemini as a provider: requests out, responses in."""

import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, Unpack

from msgspec import Raw
from msgspec.structs import replace

from midspan._types.exchange import (
    Budget,
    Citation,
    FinishReason,
    ModelEvent,
    ModelRequest,
    ModelResponse,
    RequestConfig,
    Usage,
)
from midspan._types.messages import Message
from midspan._types.parts import ProviderData
from midspan._types.specs import ToolChoice
from midspan.errors import InvalidRequestError, ProviderError
from midspan.providers.auth import HiddenArguments
from midspan.providers.gemini.capabilities import DEFAULT_MODEL, Capabilities, capabilities_of, profile_of, successor_of
from midspan.providers.provider import ClosedOnExit, WireRequest

if TYPE_CHECKING:
    from midspan.providers.gemini import wire
    from midspan.providers.gemini.api import ConnectionOptions, GeminiApi

_log = logging.getLogger("midspan.providers.gemini")
_MAX_REQUESTS = 100
"""For one response that the model continues again and again."""


class Gemini(ClosedOnExit):
    """A Gemini model, by the Developer API or by Vertex."""

    _repr = "Gemini(not connected)"  # until the constructor is done; a traceback may show it earlier

    def __init__(
        self,
        model: str = DEFAULT_MODEL,
        *,
        capabilities: Capabilities | None = None,
        api: "GeminiApi | Literal['interactions'] | None" = None,
        **connection: "Unpack[ConnectionOptions]",
    ) -> None:
        """With `api="interactions"` requests go to the Interactions API, which streams the arguments of calls."""
        from midspan._http.messages import origin_of  # loaded with the first model, as the API is
        from midspan.providers.gemini.api import connect

        hidden: Any = HiddenArguments(connection)  # no traceback shows the key
        del connection
        self._interactions: Any = None
        if api == "interactions":
            from midspan.providers.interactions import client as interactions  # loaded for this API only

            api, self._interactions = None, interactions
            hidden["headers"] = {**interactions.HEADERS, **(hidden.get("headers") or {})}
        self._model = model
        self.api = api or connect(hidden)
        endpoint = self.api.endpoint
        path = endpoint.model(model)
        warn_if_retired(model)
        self.capabilities = capabilities or capabilities_of(model, endpoint.api, endpoint.version)
        self.profile = profile_of(self.capabilities)
        self._generate_path = f"{path}:generateContent"
        self._stream_path = f"{path}:streamGenerateContent?alt=sse"
        self._repr = f"Gemini({model!r}, {origin_of(endpoint.base_url)!r})"

    @property
    def model(self) -> str:
        return self._model

    @cached_property
    def _encode(self) -> Callable[[ModelRequest, Capabilities, str | None], bytes]:
        from midspan.providers.gemini.encode import request_body  # loaded with the first request

        return request_body

    @cached_property
    def _read(self) -> Callable[[bytes], tuple[ModelResponse, str | None]]:
        from midspan.providers.gemini.decode import response_and_token  # as above

        return partial(response_and_token, api=self.capabilities.api)

    def __repr__(self) -> str:
        return self._repr

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the parts as they arrive, then the response. A paused response is continued, see `LongDecode`."""
        if self._interactions is not None:
            async with aclosing(self._interactions.stream(self.api, request)) as items:
                async for item in items:
                    yield item
            return
        from midspan.providers.gemini.stream import StreamDecoder  # a run without streaming does not need it

        request = apply_known_fallback(request)
        long_decode = LongDecode(request.budget)
        first_index, has_output = 0, False
        while True:
            wire_request = self.wire_request(request, stream=True, token=long_decode.next_token)
            make_decoder = partial(StreamDecoder, self.capabilities.api, first_index=first_index)
            pieces = self.api.stream(wire_request.path, wire_request.body, make_decoder, on_retry=request.on_retry)
            try:
                async with aclosing(pieces):
                    async for decoder, events in pieces:  # noqa: B007 - the last one has the response
                        for event in events:
                            has_output = True
                            yield event  # type: ignore[misc]  # the items are events; the type of a reader cannot say so
            except ProviderError as error:
                error.partial_response = long_decode.response()
                if has_output:
                    raise  # a second request would repeat what the caller has seen
                request = fallback_request(request, error)
                continue
            long_decode.add(decoder.response(), decoder.continuation_token)
            first_index = decoder.next_index
            if long_decode.next_token is None:
                break
        response = long_decode.response()
        assert response is not None, "one was added"
        yield _with_citations(response) if request.config.has_builtins else response

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Return the whole response."""
        if self._interactions is not None:
            response: ModelResponse = await self._interactions.generate(self.api, request)
            return response
        if request.config.tool_choice is not None:
            request = apply_known_fallback(request)
        long_decode: LongDecode | None = None
        token = None
        while True:
            body = self._encode(request, self.capabilities, token)
            try:
                response, token = await self.api.call(
                    "POST", self._generate_path, body, read=self._read, on_retry=request.on_retry
                )
            except ProviderError as error:
                error.partial_response = None if long_decode is None else long_decode.response()
                request = fallback_request(request, error)
                continue
            if long_decode is None:
                if token is None:
                    break
                long_decode = LongDecode(request.budget)
            long_decode.add(response, token)
            token = long_decode.next_token
            if token is None:
                response = long_decode.response() or response
                break
        return _with_citations(response) if request.config.has_builtins else response

    def wire_request(self, request: ModelRequest, *, stream: bool, token: str | None = None) -> WireRequest:
        """Return what is sent for this request; `token` continues a paused response."""
        if self._interactions is not None:
            shown: WireRequest = self._interactions.wire_request(request, stream=stream)
            return shown
        body = self._encode(request, self.capabilities, token)
        return WireRequest(self._stream_path if stream else self._generate_path, body)

    async def aclose(self) -> None:
        await self.api.aclose()


def warn_if_retired(model: str) -> None:
    """Log a warning if the model was shut down."""
    successor = successor_of(model)
    if successor is not None:
        _log.warning("%s was shut down; use %s", model, successor)


class LongDecode:
    """A response that takes several requests: the model pauses, and is asked to continue with the token it gave.

    https://ai.google.dev/gemini-api/docs/long-decode
    """

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._responses: list[ModelResponse] = []
        self._tokens: list[str | None] = []

    def add(self, response: ModelResponse, token: str | None) -> None:
        self._responses.append(response)
        self._tokens.append(token)

    @property
    def next_token(self) -> str | None:
        """The token to continue with; None if the response is complete, over budget, or makes no progress."""
        if not self._responses or self._responses[-1].finish_reason is not FinishReason.CONTINUES:
            return None
        if len(self._responses) >= _MAX_REQUESTS or self._is_over_budget():
            return None
        is_stuck = len(self._tokens) > 1 and self._tokens[-2] == self._tokens[-1]
        return None if is_stuck else self._tokens[-1]

    def _is_over_budget(self) -> bool:
        requests, tokens = self._budget.max_requests, self._budget.max_tokens
        if requests is not None and len(self._responses) >= requests:
            return True
        return tokens is not None and sum(response.usage.total for response in self._responses) >= tokens

    def response(self) -> ModelResponse | None:
        """Return all responses so far as one: all parts in one message, all tokens counted."""
        if len(self._responses) < 2:
            return self._responses[0] if self._responses else None
        last = self._responses[-1]
        finish = last.finish_reason
        if not last.message.parts and finish is FinishReason.END:
            finish = FinishReason.CUT  # a model that paused and then says nothing did not finish its answer
        return replace(
            last,
            message=self._message(),
            finish_reason=finish,
            usage=sum((response.usage for response in self._responses), Usage()),
            raw=tuple(raw for response in self._responses for raw in response.raw),
            requests=len(self._responses),
        )

    def _message(self) -> Message:
        from midspan.providers.gemini.decode import ORIGIN, encode_json, fields_of, raw_parts

        messages = [response.message for response in self._responses if response.message.parts]
        contents = [message.provider_data.raw for message in messages if message.provider_data is not None]
        content: dict[str, Any] = {name: value for raw in contents for name, value in fields_of(raw).items()}
        content["parts"] = [part for raw in contents for part in raw_parts(raw)]
        parts = tuple(part for message in messages for part in message.parts)
        return Message("model", parts, ProviderData(ORIGIN, Raw(encode_json(content) if parts else b"")))


def _with_citations(response: ModelResponse) -> ModelResponse:
    """Add the sources that Google searched or read for a response, each once, in the order in which it names them."""
    from midspan.providers.gemini import wire  # messages of the API that a plain run does not need
    from midspan.providers.gemini.proto import load

    citations: dict[str, Citation] = {}
    for document in response.raw:
        for candidate in load(wire.GenerateContentResponse, document).candidates or []:
            for citation in _citations_of(candidate):
                citations.setdefault(citation.url, citation)
    return replace(response, citations=tuple(citations.values()))


def _citations_of(candidate: "wire.Candidate") -> Iterator[Citation]:
    grounding, pages = candidate.grounding_metadata, candidate.url_context_metadata
    for chunk in (grounding and grounding.grounding_chunks) or []:
        for source in (chunk.web, chunk.retrieved_context, chunk.maps, chunk.image):
            if source is not None and (url := source.uri or source.source_uri):
                yield Citation(url, source.title or "")
    for page in (pages and pages.url_metadata) or []:
        if page.retrieved_url:
            yield Citation(page.retrieved_url)


# In mode VALIDATED the server compiles the schemas of all tools, and rejects large ones. The same tools pass in mode
# AUTO, and arguments are validated here in any case. Mode ANY stays: without it the answer would be another one.

_TOO_MANY_STATES = "too many states"
_UNSPECIFIC = "Request contains an invalid argument."
"""The server's message for many errors, this one among them."""


class _SchemaFallback:
    """The config to use instead of one that the server rejected; kept beside it, so that it is rejected once."""

    config: RequestConfig | None = None


def apply_known_fallback(request: ModelRequest) -> ModelRequest:
    """Return the request without server-side validation, if the server is known to reject that."""
    choice = request.config.tool_choice
    if choice is None or not choice.strict:
        return request
    known = request.config.derived(_SchemaFallback, _SchemaFallback).config
    return request if known is None else replace(request, config=known)


def fallback_request(request: ModelRequest, error: ProviderError) -> ModelRequest:
    """Return the request without server-side validation if that may have caused the error; raise it otherwise."""
    config, choice = request.config, request.config.tool_choice
    is_about_schemas = _TOO_MANY_STATES in str(error) or str(error).endswith(_UNSPECIFIC)
    if not is_about_schemas or not isinstance(error, InvalidRequestError) or error.status != 400:
        raise error
    if choice is None or choice.mode != "auto" or not choice.strict or config.has_builtins:
        raise error  # beside built-in tools the server accepts no other mode
    _log.warning("the server cannot validate tools of this size, so the model calls them unvalidated")
    looser = replace(config, tool_choice=ToolChoice("auto", parallel=choice.parallel))
    if _TOO_MANY_STATES in str(error):
        config.derived(_SchemaFallback, _SchemaFallback).config = looser
    return replace(request, config=looser)
