"""A fallback chain: if a request to the first model fails, even after its retries, it is sent to the next one."""

import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing

from msgspec.structs import replace

from midspan import errors
from midspan._schema.dialect import NameRule
from midspan._types.closing import close_all
from midspan._types.exchange import ModelEvent, ModelRequest, ModelResponse, RequestConfig
from midspan._types.specs import AnyTool
from midspan.providers.encoding import adapted_tool
from midspan.providers.openai.profile import JSON_SCHEMA
from midspan.providers.provider import ModelProfile, Provider, ensure_aclose

_log = logging.getLogger("midspan.providers")
_LASTING_ERRORS = (errors.QuotaExhaustedError, errors.AuthenticationError, errors.PermissionDeniedError)
SHARED_DIALECT = replace(JSON_SCHEMA, functions=NameRule(), properties=NameRule())
"""With names that every provider accepts. The schemas are adapted to each provider when it is asked."""


class Fallback:
    """A chain of models. A request goes to the first that works; once a model has sent output, no other is tried.

    After an error that can be retried, an exhausted quota or rejected credentials, a model is asked last for
    `pause_seconds`. A missing key is a ConfigError, and a prompt that a safety filter blocked a PromptBlockedError:
    these are raised, and no other model is asked.
    """

    def __init__(self, providers: Sequence[Provider], *, pause_seconds: float = 60.0) -> None:
        if not providers:
            raise errors.ConfigError("a chain of models needs at least one model")
        self.providers = tuple(providers)
        self.model = self.providers[0].model
        self._pause_seconds = pause_seconds
        self._paused_until = [0.0] * len(self.providers)
        profiles = [provider.profile for provider in self.providers]
        self.profile = ModelProfile(
            service=" or ".join(dict.fromkeys(profile.service for profile in profiles)),
            schema=SHARED_DIALECT,
            supports_tools=all(profile.supports_tools for profile in profiles),
            supports_prompted_tools=all(profile.supports_prompted_tools for profile in profiles),
            supports_json_with_tools=all(profile.supports_json_with_tools for profile in profiles),
            output_is_object=any(profile.output_is_object for profile in profiles),
            output_is_strict=any(profile.output_is_strict for profile in profiles),
            output_schema=next((profile.output_schema for profile in profiles if profile.output_is_strict), None),
            calls_in_order=any(profile.calls_in_order for profile in profiles),
        )

    def __repr__(self) -> str:
        return f"Fallback({', '.join(map(repr, self.providers))})"

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the events of the first model that answers."""
        order = self._order()
        for position, index in enumerate(order):
            provider, has_output = self.providers[index], False
            try:
                async with aclosing(ensure_aclose(provider.stream(_adapted(request, provider)))) as events:
                    async for event in events:
                        has_output = True
                        yield event
                return
            except errors.ProviderError as error:
                if has_output:
                    raise
                self._fall_back(request, index, order[position + 1 :], error)

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Return the response of the first model that answers."""
        order = self._order()
        for position, index in enumerate(order):
            provider = self.providers[index]
            try:
                return await provider.generate(_adapted(request, provider))
            except errors.ProviderError as error:
                self._fall_back(request, index, order[position + 1 :], error)
        raise AssertionError("the last model either answers or raises")

    def _order(self) -> list[int]:
        """Return the models to ask, in order; those that failed recently come last."""
        now = time.monotonic()
        return sorted(range(len(self.providers)), key=lambda index: self._paused_until[index] > now)

    def _fall_back(self, request: ModelRequest, index: int, others: Sequence[int], error: errors.ProviderError) -> None:
        """Note that a model failed, and report to the run which one is next; raise the error if there is none."""
        if not others or isinstance(error, errors.PromptBlockedError):
            raise error
        if error.retryable or isinstance(error, _LASTING_ERRORS):
            # Other errors are about this request only.
            self._paused_until[index] = time.monotonic() + self._pause_seconds
        model = self.providers[others[0]].model
        _log.warning("%s failed, falling back to %s: %s", self.providers[index].model, model, error)
        if request.on_retry is not None:
            request.on_retry(1, 0.0, error, model)

    async def aclose(self) -> None:
        await close_all(provider.aclose() for provider in self.providers)


def _adapted(request: ModelRequest, provider: Provider) -> ModelRequest:
    """Return the request as one of the models gets it."""
    config = request.config
    adapted = config.derived((Fallback, id(provider)), lambda: _adapted_config(config, provider))
    return replace(request, config=adapted)


def _adapted_config(config: RequestConfig, provider: Provider) -> RequestConfig:
    profile = provider.profile
    output, dialect = config.output, profile.output_schema or profile.schema
    if output is not None and output.json_schema is not None and dialect is not None:
        from midspan._schema.adapt import adapt_schema  # loaded for typed answers

        schema = adapt_schema(output.json_schema, dialect, arguments=False)
        output = replace(output, json_schema=schema.schema, strict=schema.strict)
    tools: tuple[AnyTool, ...] = tuple(adapted_tool(tool, profile) for tool in config.tools)
    return replace(config, model=provider.model, tools=tools, output=output)
