"""OpenAI's Chat Completions API as a provider, and services that are compatible with it."""

import os
import re
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from midspan._http.messages import host_and_port
from midspan._http.retry import Clock, RetryPolicy
from midspan._http.transport import Transport
from midspan._types.exchange import ModelEvent, ModelRequest, ModelResponse
from midspan.errors import ConfigError, MalformedResponseError
from midspan.providers.auth import ApiKey, Auth, BearerToken, EnvironmentKey, GetToken
from midspan.providers.errors import parse_error
from midspan.providers.event_decoder import EventDecoder, stream_response
from midspan.providers.openai.decode import OPENAI_CODES, StreamDecoder, decode_response
from midspan.providers.openai.encode import request_body
from midspan.providers.openai.profile import PRESETS, Preset, profile_of
from midspan.providers.provider import ClosedOnExit, WireRequest
from midspan.providers.rest import RestClient


class OpenAI(ClosedOnExit):
    """A model of OpenAI, or of a compatible service.

    `preset` names one of the services in `PRESETS`; `base_url` is the address of any other one.
    """

    def __init__(
        self,
        model: str | None = None,
        *,
        preset: str | Preset = "openai",
        api_key: str | None = None,
        base_url: str | None = None,
        token: GetToken | None = None,
        headers: Mapping[str, str] | None = None,
        transport: Transport | None = None,
        retry: RetryPolicy | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._preset = preset = preset_of(preset)
        self.model = model_name(model, preset)
        self.profile = profile_of(preset)
        self._client = connect(
            preset, base_url, api_key, token, headers=headers, transport=transport, retry=retry, clock=clock
        )
        self._decode: Callable[[bytes], ModelResponse] = partial(decode_response, preset=preset)
        self._make_decoder: Callable[[], EventDecoder] = partial(StreamDecoder, preset)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r}, {host_and_port(self._client.base_url)!r})"

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the parts as they arrive, then the response."""
        return stream_response(self._client, request, self.wire_request(request, stream=True), self._make_decoder)

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Return the whole response."""
        wire = self.wire_request(request, stream=False)
        return await self._client.call("POST", wire.path, wire.body, read=self._decode, on_retry=request.on_retry)

    def wire_request(self, request: ModelRequest, *, stream: bool) -> WireRequest:
        """Return what is sent for this request."""
        return WireRequest("chat/completions", request_body(request, self._preset, stream=stream))

    async def list_models(self) -> list[str]:
        """Return the names of the models that the service lists."""
        page: Any = await self._client.call("GET", "models", read=msgspec.json.decode)
        models = page.get("data") if isinstance(page, dict) else page  # Together sends the list itself
        if not isinstance(models, list):
            raise MalformedResponseError(f"{self._preset.service} did not answer with a list of models")
        return [str(model["id"]) for model in models if isinstance(model, dict) and model.get("id")]

    async def aclose(self) -> None:
        await self._client.aclose()


# Addresses and credentials


def preset_of(preset: str | Preset) -> Preset:
    """Return a service by its name."""
    if isinstance(preset, Preset):
        return preset
    if preset not in PRESETS:
        raise ConfigError(f"unknown preset {preset!r}; known: {', '.join(PRESETS)}; or pass base_url=…")
    return PRESETS[preset]


def model_name(model: str | None, preset: Preset) -> str:
    model = preset.default_model if model is None else model
    if model is None:
        raise ConfigError(f"{preset.service} has no default model; name one, as {preset.name}:model")
    if not isinstance(model, str) or not model.strip() or not model.isprintable():
        raise ConfigError(f"{model!r} is not a valid model name")
    return model


def connect(
    preset: Preset, base_url: str | None, api_key: str | None, token: GetToken | None, **options: Any
) -> RestClient:
    """Return the client of a service. Credentials are looked for when the first request is sent."""
    header = ("api-key", "") if preset.name == "azure" else ("authorization", "Bearer ")
    if token is not None:
        auth: Auth = BearerToken(token)
    elif api_key is not None:
        auth = ApiKey(api_key, *header)
    else:
        variables = dict.fromkeys(preset.key_variables, header)
        auth = EnvironmentKey(preset.service, variables, is_optional=not preset.needs_key)
    url = service_url(preset, base_url)
    return RestClient(url, auth, partial(parse_error, preset.service, OPENAI_CODES), preset.service, **options)


def service_url(preset: Preset, base_url: str | None = None) -> str:
    """Return the address of a service, which the caller or the environment may change."""
    url = base_url
    if url is None:
        url = os.environ.get(preset.url_variable or "", "").strip() or preset.base_url
    if not url:
        raise ConfigError(f"{preset.service} needs an address: pass base_url=…, or set {preset.url_variable}")
    if preset.name == "azure":
        return _azure_url(url)
    return _ollama_url(url) if preset.name == "ollama" and base_url is None else url


def _azure_url(url: str) -> str:
    """Return the base URL of Azure's API for the endpoint of a resource, as the portal shows it."""
    address, _, query = url.partition("?")
    _, _, path = address.partition("://")[2].partition("/")
    if path.strip("/"):
        return url
    return f"{address.rstrip('/')}/openai/v1{'?' + query if query else ''}"


def _ollama_url(host: str) -> str:
    """Return the base URL for a value of OLLAMA_HOST, which may be a host alone."""
    scheme, _, rest = host.rpartition("://")
    host, _, path = rest.partition("/")
    host = re.sub(r"^0\.0\.0\.0", "127.0.0.1", host)  # where a server listens, not where it is reached
    if not re.search(r":\d+$", host) and scheme != "https":
        host += ":11434"
    return f"{scheme or 'http'}://{host}/{path.strip('/') or 'v1'}"
