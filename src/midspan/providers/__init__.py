"""Model providers: the protocol that a provider implements, and what helps to write one."""

from typing import TYPE_CHECKING

from midspan._lazy import lazy_attributes

if TYPE_CHECKING:
    from midspan._schema.dialects.dialect import SchemaDialect as SchemaDialect
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
    from midspan.providers.fallback import Fallback as Fallback
    from midspan.providers.family import HealthCheck as HealthCheck
    from midspan.providers.family import ProviderFamily as ProviderFamily
    from midspan.providers.openai.client import OpenAI as OpenAI
    from midspan.providers.openai_responses.client import OpenAIResponses as OpenAIResponses
    from midspan.providers.prompted.client import PromptedStep as PromptedStep
    from midspan.providers.prompted.client import PromptedTools as PromptedTools
    from midspan.providers.provider import ModelProfile as ModelProfile
    from midspan.providers.provider import Provider as Provider
    from midspan.providers.provider import WrapperProvider as WrapperProvider
    from midspan.providers.registry import provider_of as provider_of
    from midspan.providers.rest import JsonEventReader as JsonEventReader
    from midspan.providers.rest import RestClient as RestClient
    from midspan.providers.rest import retry_delay as retry_delay
    from midspan.providers.rest import status_error as status_error
    from midspan.providers.scripted import ScriptedProvider as ScriptedProvider
    from midspan.providers.stream import StreamAccumulator as StreamAccumulator
    from midspan.providers.stream import collect as collect
    from midspan.providers.stream import events_of as events_of

_HOMES = {
    "Anthropic": "midspan.providers.anthropic.client",
    "ApiKey": "midspan.providers.auth",
    "ArgumentsPartDelta": "midspan._types.exchange",
    "BearerToken": "midspan.providers.auth",
    "Budget": "midspan._types.exchange",
    "CachePolicy": "midspan._types.exchange",
    "DataPartDelta": "midspan._types.exchange",
    "Fallback": "midspan.providers.fallback",
    "FinishReason": "midspan._types.exchange",
    "HealthCheck": "midspan.providers.family",
    "JsonEventReader": "midspan.providers.rest",
    "ModelEvent": "midspan._types.exchange",
    "ModelProfile": "midspan.providers.provider",
    "ModelRequest": "midspan._types.exchange",
    "ModelResponse": "midspan._types.exchange",
    "OpenAI": "midspan.providers.openai.client",
    "OpenAIResponses": "midspan.providers.openai_responses.client",
    "PartDelta": "midspan._types.exchange",
    "PartEnd": "midspan._types.exchange",
    "PartStart": "midspan._types.exchange",
    "PromptedStep": "midspan.providers.prompted.client",
    "PromptedTools": "midspan.providers.prompted.client",
    "Provider": "midspan.providers.provider",
    "ProviderFamily": "midspan.providers.family",
    "RequestConfig": "midspan._types.exchange",
    "RestClient": "midspan.providers.rest",
    "SchemaDialect": "midspan._schema.dialects.dialect",
    "ScriptedProvider": "midspan.providers.scripted",
    "StreamAccumulator": "midspan.providers.stream",
    "TextPartDelta": "midspan._types.exchange",
    "ThoughtPartDelta": "midspan._types.exchange",
    "Usage": "midspan._types.exchange",
    "WrapperProvider": "midspan.providers.provider",
    "collect": "midspan.providers.stream",
    "events_of": "midspan.providers.stream",
    "provider_of": "midspan.providers.registry",
    "retry_delay": "midspan.providers.rest",
    "status_error": "midspan.providers.rest",
}

__all__ = [*_HOMES]  # noqa: PLE0604 - the table is the list

if not TYPE_CHECKING:  # a type checker would accept any name otherwise
    __getattr__, __dir__ = lazy_attributes(__name__, _HOMES)
