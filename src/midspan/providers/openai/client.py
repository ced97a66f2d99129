"""OpenAI's Chat Completions API as a provider, and services that are compatible with it."""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any, Self

import msgspec

from midspan._http.messages import origin_of
from midspan._http.retry import Clock, RetryPolicy
from midspan._http.transport import Transport
from midspan._types.exchange import ModelEvent, ModelRequest, ModelResponse
from midspan.errors import (
    AuthenticationError,
    ConfigError,
    CredentialsError,
    InvalidRequest,
    PermissionDenied,
    ProviderError,
    QuotaExhausted,
    RateLimited,
    ServerError,
    UnknownModel,
)
from midspan.providers.auth import ApiKey, Auth, BearerToken, GiveToken, Hidden
from midspan.providers.openai.decode import StreamDecoder, decode_response
from midspan.providers.openai.encode import request_body
from midspan.providers.openai.profile import PRESETS, Preset, profile_of
from midspan.providers.provider import WireRequest
from midspan.providers.rest import Response, RestClient, retry_delay, status_error


class OpenAI:
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
        token: GiveToken | None = None,
        headers: Mapping[str, str] | None = None,
        transport: Transport | None = None,
        retry: RetryPolicy | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._preset = preset = preset_of(preset)
        self._model = model_name(model, preset)
        self.profile = profile_of(preset)
        self._client = connect(
            preset, base_url, api_key, token, headers=headers, transport=transport, retry=retry, clock=clock
        )
        self._decode = partial(decode_response, preset=preset)

    @property
    def model(self) -> str:
        return self._model

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._model!r}, {origin_of(self._client.base_url)!r})"

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the parts as they arrive, then the response."""
        wire = self.wire_request(request, stream=True)
        make_decoder = partial(StreamDecoder, self._preset, partial(event_error, self._preset.service))
        pieces = self._client.stream(wire.path, wire.body, make_decoder, on_retry=request.on_retry)
        async with aclosing(pieces):
            async for decoder, events in pieces:  # noqa: B007 - the last one has the response
                for event in events:
                    yield event  # type: ignore[misc]  # the items are events; the type of a reader cannot say so
        yield decoder.response()

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Return the whole response."""
        wire = self.wire_request(request, stream=False)
        return await self._client.call("POST", wire.path, wire.body, read=self._decode, on_retry=request.on_retry)

    def wire_request(self, request: ModelRequest, *, stream: bool) -> WireRequest:
        """Return what is sent for this request."""
        return WireRequest("chat/completions", request_body(request, self._preset, stream=stream))

    async def list_models(self) -> list[str]:
        """Return the names of the models of the service."""
        return await list_models(self._client)

    async def aclose(self) -> None:
        await self._client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


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
    preset: Preset, base_url: str | None, api_key: str | None, token: GiveToken | None, **options: Any
) -> RestClient:
    """Return the client of a service. Credentials are looked for when the first request is sent."""
    if token is not None:
        auth: Auth = BearerToken(token)
    elif api_key is not None:
        auth = _key(api_key, preset)
    else:
        auth = EnvironmentKey(preset)
    url = base_url or service_url(preset)
    return RestClient(url, auth, partial(parse_error, preset.service), preset.service, **options)


def service_url(preset: Preset, environment: Mapping[str, str] = os.environ) -> str:
    """Return the address of a service, which the environment may change."""
    url = environment.get(preset.url_variable or "", "").strip() or preset.base_url
    if not url:
        raise ConfigError(f"{preset.service} needs an address: pass base_url=…, or set {preset.url_variable}")
    if preset.name == "azure" and "/openai" not in url:
        return f"{url.rstrip('/')}/openai/v1"
    if preset.name == "ollama" and url != preset.base_url:
        url = url if "://" in url else f"http://{url}"
        return url if "/" in url.partition("://")[2] else f"{url}/v1"
    return url


def _key(key: str, preset: Preset) -> ApiKey:
    return ApiKey(key, "api-key") if preset.name == "azure" else ApiKey(key, prefix="Bearer ")


class EnvironmentKey:
    """The key in the environment, which is looked for when the first request is sent."""

    is_static = True

    def __init__(self, preset: Preset) -> None:
        self._preset = preset

    async def headers(self) -> Mapping[str, str]:
        preset = self._preset
        for name in preset.key_variables:
            if key := os.environ.get(name, "").strip():
                return await _key(Hidden(key), preset).headers()
        if not preset.needs_key:
            return {}
        names = " or ".join(preset.key_variables)
        error = CredentialsError(f"no key for {preset.service}: set {names}, or pass api_key=…")
        error.shell_message = f"no key for {preset.service}: set {names}, or name another model with --model"
        raise error


async def list_models(client: RestClient) -> list[str]:
    """Return the names of the models that a service lists."""
    page = msgspec.json.decode(await client.call("GET", "models"))
    models = page if isinstance(page, list) else page.get("data") or []  # Together sends the list itself
    return [str(model["id"]) for model in models if isinstance(model, dict) and model.get("id")]


# Errors


def parse_error(service: str, response: Response, body: bytes) -> ProviderError:
    """Return the error that a response with an error status reports."""
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        document = None
    code, message = _error_fields(document)
    message = f"{service} answered {response.status}: {message or body[:200].decode(errors='replace').strip()}"
    error_type = _ERRORS.get(code)
    if error_type is None:
        return status_error(response, message)
    return error_type(message, status=response.status, retry_delay_seconds=retry_delay(response))


def event_error(service: str, name: str, item: Any) -> ProviderError | None:
    """Return the error that an event of a stream reports."""
    if not isinstance(item, dict) or (not item.get("error") and name != "error" and item.get("type") != "error"):
        return None
    code, message = _error_fields(item if item.get("error") else {"error": item})
    text = f"{service} sent an error: {message or item}"
    return _ERRORS.get(code, _STATUS_ERRORS.get(code, ServerError))(text)


def _error_fields(document: Any) -> tuple[str, str]:
    """Return the code and the message of an error; services write them in several places."""
    error = document.get("error") if isinstance(document, dict) else None
    if isinstance(error, dict):
        codes = (error.get("code"), error.get("type"))
        code = next((str(code) for code in codes if code is not None and str(code) in _ERRORS), str(codes[0]))
        return code, str(error.get("message") or "")
    if isinstance(document, dict):
        return str(document.get("code") or document.get("type")), str(error or document.get("message") or "")
    return "", ""


_ERRORS: dict[str, type[ProviderError]] = {
    "invalid_api_key": AuthenticationError,
    "authentication_error": AuthenticationError,
    "model_not_found": UnknownModel,
    "insufficient_quota": QuotaExhausted,
    "billing_hard_limit_reached": QuotaExhausted,
    "rate_limit_exceeded": RateLimited,
    "server_error": ServerError,
    "overloaded_error": ServerError,
    "context_length_exceeded": InvalidRequest,
}
_STATUS_ERRORS: dict[str, type[ProviderError]] = {
    "400": InvalidRequest,
    "401": AuthenticationError,
    "402": QuotaExhausted,
    "403": PermissionDenied,
    "404": UnknownModel,
    "429": RateLimited,
}
"""Errors within a stream, which has no status: some services write one as the code."""
