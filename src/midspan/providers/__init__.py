"""Model providers: the protocol that a provider implements, and what helps to write one."""

from typing import TYPE_CHECKING

from midspan._lazy import lazy_attributes

if TYPE_CHECKING:
    from midspan._http.messages import Timeouts as Timeouts
    from midspan._http.retry import RetryPolicy as RetryPolicy
    from midspan._http.transport import Transport as Transport
    from midspan._schema.dialect import SchemaDialect as SchemaDialect
    from midspan._types.exchange import ArgumentsPartDelta as ArgumentsPartDelta
    from midspan._types.exchange import Budget as Budget
    from midspan._types.exchange import CachePolicy as CachePolicy
    from midspan._types.exchange import DataPartDelta as DataPartDelta
    from midspan._types.exchange import FinishReason as FinishReason
    from midspan._types.exchange import ModelEvent as ModelEvent
    from midspan._types.exchange import ModelRequest as ModelRequest
    from midspan._types.exchange import ModelResponse as ModelResponse
    from midspan._types.exchange import PartDelta as PartDelta
    from midspan._types.exchange import PartEnd as PartEnd
    from midspan._types.exchange import PartStart as PartStart
    from midspan._types.exchange import RequestConfig as RequestConfig
    from midspan._types.exchange import TextPartDelta as TextPartDelta
    from midspan._types.exchange import ThoughtPartDelta as ThoughtPartDelta
    from midspan._types.exchange import Usage as Usage
    from midspan.providers.anthropic.client import Anthropic as Anthropic
    from midspan.providers.auth import ApiKey as ApiKey
    from midspan.providers.auth import BearerToken as BearerToken
    from midspan.providers.errors import retry_delay as retry_delay
    from midspan.providers.errors import status_error as status_error
    from midspan.providers.event_decoder import JsonEventReader as JsonEventReader
    from midspan.providers.fallback import Fallback as Fallback
    from midspan.providers.gemini.client import Gemini as Gemini
    from midspan.providers.health import HealthCheck as HealthCheck
    from midspan.providers.openai.client import OpenAI as OpenAI
    from midspan.providers.openai_responses.client import OpenAIResponses as OpenAIResponses
    from midspan.providers.prompted.client import PromptedTools as PromptedTools
    from midspan.providers.provider import ModelProfile as ModelProfile
    from midspan.providers.provider import Provider as Provider
    from midspan.providers.provider import WrapperProvider as WrapperProvider
    from midspan.providers.registry import ProviderFamily as ProviderFamily
    from midspan.providers.registry import provider_of as provider_of
    from midspan.providers.rest import RestClient as RestClient
    from midspan.providers.scripted import ScriptedProvider as ScriptedProvider
    from midspan.providers.stream import StreamAccumulator as StreamAccumulator
    from midspan.providers.stream import collect as collect
    from midspan.providers.stream import events_of as events_of

_NAMES = {
    "midspan._http.messages": "Timeouts",
    "midspan._http.retry": "RetryPolicy",
    "midspan._http.transport": "Transport",
    "midspan._schema.dialect": "SchemaDialect",
    "midspan._types.exchange": (
        "ArgumentsPartDelta Budget CachePolicy DataPartDelta FinishReason ModelEvent ModelRequest "
        "ModelResponse PartDelta PartEnd PartStart RequestConfig TextPartDelta ThoughtPartDelta Usage"
    ),
    "midspan.providers.anthropic.client": "Anthropic",
    "midspan.providers.auth": "ApiKey BearerToken",
    "midspan.providers.fallback": "Fallback",
    "midspan.providers.gemini.client": "Gemini",
    "midspan.providers.health": "HealthCheck",
    "midspan.providers.openai.client": "OpenAI",
    "midspan.providers.openai_responses.client": "OpenAIResponses",
    "midspan.providers.prompted.client": "PromptedTools",
    "midspan.providers.provider": "ModelProfile Provider WrapperProvider",
    "midspan.providers.registry": "ProviderFamily provider_of",
    "midspan.providers.errors": "retry_delay status_error",
    "midspan.providers.event_decoder": "JsonEventReader",
    "midspan.providers.rest": "RestClient",
    "midspan.providers.scripted": "ScriptedProvider",
    "midspan.providers.stream": "StreamAccumulator collect events_of",
}

if not TYPE_CHECKING:  # a type checker would accept any name otherwise
    __all__, __getattr__, __dir__ = lazy_attributes(__name__, _NAMES)
