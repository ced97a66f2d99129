"""Claude as a provider: requests to the Messages API, of Anthropic or of Vertex, and their responses."""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from midspan._http.messages import host_and_port
from midspan._http.retry import Clock, RetryPolicy
from midspan._http.transport import Transport
from midspan._types.exchange import FinishReason, ModelEvent, ModelRequest, ModelResponse
from midspan._types.messages import Message
from midspan._types.parts import ProviderData
from midspan.errors import ConfigError, MalformedResponseError, ProviderError
from midspan.providers.anthropic.decode import StreamDecoder, decode_response, parse_error
from midspan.providers.anthropic.encode import ORIGIN, request_body
from midspan.providers.anthropic.profile import (
    DEFAULT_MODEL,
    KEY_VARIABLES,
    PROFILE,
    ClaudeCapabilities,
    capabilities_of,
)
from midspan.providers.auth import ApiKey, Auth, BearerToken, EnvironmentKey, GetToken
from midspan.providers.provider import ClosedOnExit, WireRequest, may_continue
from midspan.providers.rest import RestClient

_URL = "https://api.anthropic.com"
_API_VERSION = "2023-06-01"
_MAX_PAGES = 100


class Anthropic(ClosedOnExit):
    """A Claude model, by Anthropic's own API or by Vertex."""

    profile = PROFILE

    def __init__(
        self,
        model: str = DEFAULT_MODEL,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        vertex: bool = False,
        project: str | None = None,
        location: str | None = None,
        token: GetToken | None = None,
        capabilities: ClaudeCapabilities | None = None,
        headers: Mapping[str, str] | None = None,
        transport: Transport | None = None,
        retry: RetryPolicy | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`token` is a function that returns an access token; `project` and `location` are for Vertex."""
        if not isinstance(model, str) or not model.strip() or not model.isprintable():
            raise ConfigError(f"{model!r} is not a valid model name")
        self.model = model
        self._capabilities = capabilities or capabilities_of(model)
        self._vertex = vertex
        if vertex:
            url, auth = _vertex(base_url, project, location, api_key, token)
        else:
            url = base_url or os.environ.get("ANTHROPIC_BASE_URL") or _URL
            auth = _credentials(api_key, token)
            headers = {"anthropic-version": _API_VERSION, **(headers or {})}
        self._client = RestClient(
            url, auth, parse_error, "Anthropic", transport=transport, retry=retry, clock=clock, headers=headers
        )

    def __repr__(self) -> str:
        return f"Anthropic({self.model!r}, {host_and_port(self._client.base_url)!r})"

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the parts as they arrive, then the response. A paused response is continued."""
        paused = PausedResponse(request)
        while True:
            wire = self.wire_request(paused.request, stream=True)
            make_decoder = partial(StreamDecoder, first_index=paused.next_index)
            pieces = self._client.stream(wire.path, wire.body, make_decoder, on_retry=request.on_retry)
            try:
                async with aclosing(pieces):
                    async for decoder, events in pieces:  # noqa: B007 - the last one has the response
                        for event in events:
                            yield event
            except ProviderError as error:
                error.partial_response = paused.response
                raise
            if not paused.add(self._client.checked(decoder.response), decoder.accumulator.next_index):
                break
        assert paused.response is not None
        yield paused.response

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Return the whole response."""
        paused = PausedResponse(request)
        while True:
            wire = self.wire_request(paused.request, stream=False)
            try:
                response = await self._client.call(
                    "POST", wire.path, wire.body, read=decode_response, on_retry=request.on_retry
                )
            except ProviderError as error:
                error.partial_response = paused.response
                raise
            if not paused.add(response):
                break
        assert paused.response is not None
        return paused.response

    def wire_request(self, request: ModelRequest, *, stream: bool) -> WireRequest:
        """Return what is sent for this request."""
        body = request_body(request, self._capabilities, stream=stream, vertex=self._vertex)
        if not self._vertex:
            return WireRequest("v1/messages", body)
        return WireRequest(f"{self.model}:{'streamRawPredict' if stream else 'rawPredict'}", body)

    async def list_models(self) -> list[str]:
        """Return the names of the models that the key may use."""
        if self._vertex:
            raise ConfigError("Vertex does not list Claude models; see its Model Garden")
        names: list[str] = []
        after = ""
        for _ in range(_MAX_PAGES):
            page: Any = await self._client.call("GET", f"v1/models?limit=1000{after}", read=msgspec.json.decode)
            if not isinstance(page, dict) or "data" not in page:
                raise MalformedResponseError("Anthropic did not answer with a list of models")
            names += [model["id"] for model in page["data"]]
            if not page.get("has_more"):
                break
            after = f"&after_id={page['last_id']}"
        return names

    async def aclose(self) -> None:
        await self._client.aclose()


class PausedResponse:
    """A response that takes several requests: the API pauses a long turn with its own tools until it is asked again."""

    def __init__(self, request: ModelRequest) -> None:
        self.request = request
        """The next request."""
        self.response: ModelResponse | None = None
        """All responses so far, as one."""
        self.next_index = 0

    def add(self, response: ModelResponse, next_index: int = 0) -> bool:
        """Add the response to the last request, and return whether it has to be continued."""
        self.next_index = next_index
        self.response = response if self.response is None else _joined(self.response, response)
        is_paused = response.finish_reason is FinishReason.CONTINUES and bool(response.message.parts)
        if not is_paused or not may_continue(self.response, self.request.budget):
            return False
        self.request = replace(self.request, history=self.request.history.append(response.message))
        return True


def _joined(first: ModelResponse, second: ModelResponse) -> ModelResponse:
    raws = [message.provider_data.raw for message in (first.message, second.message) if message.provider_data]
    data = ProviderData(ORIGIN)
    if len(raws) == 2 and all(raws):  # otherwise the parts are encoded one by one
        contents = [msgspec.json.decode(raw, type=dict[str, Raw])["content"] for raw in raws]
        blocks = [block for content in contents for block in msgspec.json.decode(content, type=list[Raw])]
        data = ProviderData(ORIGIN, Raw(msgspec.json.encode({"role": "assistant", "content": blocks})))
    return replace(
        second,
        message=Message("model", first.message.parts + second.message.parts, data),
        usage=first.usage + second.usage,
        raw=first.raw + second.raw,
        citations=first.citations + second.citations,
        requests=first.requests + second.requests,
    )


# Credentials and addresses


def _credentials(api_key: str | None, token: GetToken | None) -> Auth:
    if token is not None:
        return BearerToken(token)
    if api_key is not None:
        return ApiKey(api_key, "x-api-key")
    key, bearer = KEY_VARIABLES
    return EnvironmentKey("Anthropic", {key: ("x-api-key", ""), bearer: ("authorization", "Bearer ")})


def _vertex(
    base_url: str | None, project: str | None, location: str | None, api_key: str | None, token: GetToken | None
) -> tuple[str, Auth]:
    from midspan.providers.gemini.api import google_credentials, vertex_url
    from midspan.providers.gemini.capabilities import Api

    project = project or os.environ.get("ANTHROPIC_VERTEX_PROJECT_ID") or os.environ.get("GOOGLE_CLOUD_PROJECT")
    if not project:
        raise ConfigError("Vertex needs a project: pass project=…, or set GOOGLE_CLOUD_PROJECT")
    location = location or os.environ.get("GOOGLE_CLOUD_LOCATION") or "global"
    url = (base_url or vertex_url(location)).rstrip("/")
    auth = google_credentials(Api.VERTEX, api_key, token)
    return f"{url}/v1/projects/{project}/locations/{location}/publishers/anthropic/models", auth
