"""`Gemini`, the provider for Gemini models."""

import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, Unpack

from msgspec import Struct
from msgspec.structs import replace

from midspan._types.exchange import CONTINUES, Budget, Citation, FinishReason, ModelEvent, ModelRequest, ModelResponse
from midspan._types.messages import Message
from midspan._types.parts import ProviderData
from midspan.errors import ProviderError
from midspan.providers.auth import HiddenValues
from midspan.providers.gemini.capabilities import DEFAULT_MODEL, Capabilities, capabilities_of, profile_of, successor_of
from midspan.providers.provider import ClosedOnExit, WireRequest, may_continue

if TYPE_CHECKING:
    from midspan._types.specs import AnyTool
    from midspan.providers.gemini import wire
    from midspan.providers.gemini.api import ConnectionOptions, GeminiApi

_log = logging.getLogger("midspan.providers.gemini")
_Encode = Callable[[ModelRequest, Capabilities, str | None], bytes]
_Read = Callable[[bytes], tuple[ModelResponse, str | None]]
_TOO_MANY_STATES = "too many states"
_UNSPECIFIC = "Request contains an invalid argument."
"""What the server answers to many errors, sometimes instead of _TOO_MANY_STATES."""


class Gemini(ClosedOnExit):
    """A Gemini model, through the Developer API or Vertex."""

    def __init__(
        self,
        model: str = DEFAULT_MODEL,
        *,
        capabilities: Capabilities | None = None,
        api: "GeminiApi | Literal['interactions'] | None" = None,
        **connection: "Unpack[ConnectionOptions]",
    ) -> None:
        """With `api="interactions"` requests go to the Interactions API, which streams the arguments of calls."""
        from midspan.providers.gemini.api import connect  # loaded with the first model

        self.model = model
        options: Any = HiddenValues(connection)  # no traceback shows the key
        del connection
        self._interactions: Any = None
        if api == "interactions":
            from midspan.providers.interactions import client as interactions  # loaded for this API only

            api = None
            self._interactions = interactions
            options["headers"] = {**interactions.HEADERS, **(options.get("headers") or {})}
        self.api = api or connect(options)
        endpoint = self.api.endpoint
        path = endpoint.model(model)
        warn_if_retired(model)
        self.capabilities = capabilities or capabilities_of(model, endpoint.api, endpoint.version)
        self.profile = profile_of(self.capabilities)
        self._generate_path = f"{path}:generateContent"
        self._stream_path = f"{path}:streamGenerateContent?alt=sse"
        self._unvalidated: deque[tuple[AnyTool, ...]] = deque(maxlen=16)
        """Tools that are too large for the server to validate."""

    @cached_property
    def _codec(self) -> tuple[_Encode, _Read]:
        """Encodes requests and decodes responses that are not streamed."""
        from midspan.providers.gemini.decode import response_and_token  # loaded with the first request
        from midspan.providers.gemini.encode import request_body

        return request_body, partial(response_and_token, api=self.capabilities.api)

    def __repr__(self) -> str:
        return f"Gemini({self.model!r})"

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the parts as they arrive, then the response. A paused response is continued."""
        if self._interactions is not None:
            async with aclosing(self._interactions.stream(self.api, request)) as items:
                async for item in items:
                    yield item
            return
        from midspan.providers.gemini.stream import StreamDecoder  # a run without streaming does not need it

        if request.config.tools in self._unvalidated:
            request = _without_validation(request)
        paused = PausedResponse(request.budget)
        first_index, has_output = 0, False
        while True:
            wire_request = self.wire_request(request, stream=True, token=paused.next_token)
            make_decoder = partial(StreamDecoder, self.capabilities.api, first_index=first_index)
            updates = self.api.stream(wire_request.path, wire_request.body, make_decoder, on_retry=request.on_retry)
            try:
                async with aclosing(updates):
                    async for decoder, events in updates:  # noqa: B007 - the last one has the response
                        for event in events:
                            has_output = True
                            yield event
            except ProviderError as error:
                error.partial_response = paused.response
                if has_output:
                    raise  # a second request would repeat what the caller has seen
                request = self._retry_unvalidated(request, error)
                continue
            response = paused.add(decoder.response(), decoder.candidate.continuation_token)
            first_index = decoder.accumulator.next_index
            if paused.next_token is None:
                break
        yield _with_citations(response) if request.config.has_builtins else response

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Return the whole response."""
        if self._interactions is not None:
            response: ModelResponse = await self._interactions.generate(self.api, request)
            return response
        if request.config.tools in self._unvalidated:
            request = _without_validation(request)
        encode, read = self._codec
        paused = PausedResponse(request.budget)
        while True:
            body = encode(request, self.capabilities, paused.next_token)
            try:
                response, token = await self.api.call(
                    "POST", self._generate_path, body, read=read, on_retry=request.on_retry
                )
            except ProviderError as error:
                error.partial_response = paused.response
                request = self._retry_unvalidated(request, error)
                continue
            if token is None and paused.response is None:
                break  # as most responses
            response = paused.add(response, token)
            if paused.next_token is None:
                break
        return _with_citations(response) if request.config.has_builtins else response

    def _retry_unvalidated(self, request: ModelRequest, error: ProviderError) -> ModelRequest:
        """Return the request without server-side validation, or raise the error if validation cannot have caused it."""
        message, unvalidated = str(error), _without_validation(request)
        is_too_large = _TOO_MANY_STATES in message
        if unvalidated is request or not (is_too_large or message.endswith(_UNSPECIFIC)):
            raise error
        _log.warning("the server cannot validate tools of this size, so the model calls them unvalidated")
        if is_too_large:
            self._unvalidated.append(request.config.tools)
        return unvalidated

    def wire_request(self, request: ModelRequest, *, stream: bool, token: str | None = None) -> WireRequest:
        """Return what is sent for this request; `token` continues a paused response."""
        if self._interactions is not None:
            encoded: WireRequest = self._interactions.wire_request(request, stream=stream)
            return encoded
        encode, _ = self._codec
        body = encode(request, self.capabilities, token)
        return WireRequest(self._stream_path if stream else self._generate_path, body)

    async def aclose(self) -> None:
        await self.api.aclose()


def warn_if_retired(model: str) -> None:
    """Log a warning if the model was shut down."""
    if (successor := successor_of(model)) is not None:
        _log.warning("%s was shut down; use %s", model, successor)


class PausedResponse(Struct):
    """A response that takes several requests: the model pauses, and is asked to continue with the token it gave.

    https://ai.google.dev/gemini-api/docs/long-decode
    """

    budget: Budget
    response: ModelResponse | None = None
    """All responses so far as one: all parts in one message, all tokens counted."""
    next_token: str | None = None
    """The token to continue with; None if the response is complete, over budget, or makes no progress."""

    def add(self, response: ModelResponse, token: str | None) -> ModelResponse:
        """Add the response to a request, and return the whole so far."""
        self.response = response = response if self.response is None else _continued(self.response, response)
        is_paused = response.finish_reason is CONTINUES and token != self.next_token
        self.next_token = token if is_paused and may_continue(response, self.budget) else None
        return response


def _continued(first: ModelResponse, second: ModelResponse) -> ModelResponse:
    """Return a response and its continuation as one."""
    from midspan.providers.gemini.decode import ORIGIN, join_contents

    message, finish_reason = first.message, second.finish_reason
    if not second.message.parts and finish_reason is FinishReason.END:
        finish_reason = FinishReason.CUT  # a model that paused and then says nothing did not finish its answer
    contents = [turn.provider_data.raw for turn in (message, second.message) if turn.parts and turn.provider_data]
    if contents:
        data = ProviderData(ORIGIN, join_contents(contents))
        message = Message("model", message.parts + second.message.parts, data)
    return replace(
        second,
        message=message,
        finish_reason=finish_reason,
        usage=first.usage + second.usage,
        raw=first.raw + second.raw,
        requests=first.requests + 1,
    )


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
        if isinstance(url := page.get("retrievedUrl"), str):
            yield Citation(url)


def _without_validation(request: ModelRequest) -> ModelRequest:
    """Change the mode of a request from VALIDATED to AUTO; return all other requests as they are.

    In mode VALIDATED the server compiles the schemas of all tools, and rejects large ones. The same tools pass in mode
    AUTO, and arguments are validated here in any case. Mode ANY stays: without it the model could answer with text.
    """
    config, choice = request.config, request.config.tool_choice
    if choice is None or choice.mode != "auto" or not choice.strict or config.has_builtins:
        return request  # with built-in tools the server accepts no other mode
    relaxed = config.derived("gemini unvalidated", lambda: replace(config, tool_choice=replace(choice, strict=False)))
    return replace(request, config=relaxed)
