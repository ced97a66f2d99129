"""Answers from a provider, which is asked with the values of the request."""

from typing import Any

import msgspec

from midspan._schema.normalize import normalize
from midspan._types.exchange import FinishReason, ModelRequest, Output, RequestConfig
from midspan._types.messages import History
from midspan._types.specs import ModelSettings, ToolChoice, ToolSpec
from midspan.emulator.gemini.checks.tools import declarations_in, is_set
from midspan.emulator.gemini.errors import STATUS_NAMES, ApiError
from midspan.emulator.gemini.sources.source import Answer, Conversation, to_part
from midspan.errors import ProviderError
from midspan.providers.gemini.capabilities import FINISH_REASONS
from midspan.providers.gemini.decode import conversation as decode_conversation
from midspan.providers.gemini.proto import dump, to_plain
from midspan.providers.gemini.wire import FunctionCallingConfig, FunctionDeclaration, GenerationConfig
from midspan.providers.provider import Provider

_RAW_FINISH_REASONS = {
    **{reason: raw for raw, reason in FINISH_REASONS.items()},
    FinishReason.CONTEXT_FULL: "MAX_TOKENS",
    FinishReason.BLOCKED: "SAFETY",
    FinishReason.REFUSED: "PROHIBITED_CONTENT",
}


class ProviderSource:
    """Answers with the responses of a provider."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    async def answer(self, conversation: Conversation) -> Answer:
        try:
            response = await self._provider.generate(_to_model_request(conversation))
        except ProviderError as error:
            raise ApiError(error.status if error.status in STATUS_NAMES else 500, str(error)) from error
        usage = {"promptTokenCount": response.usage.input, "candidatesTokenCount": response.usage.output}
        return Answer(
            parts=tuple(map(to_part, response.message.parts)),
            finish=response.raw_finish_reason or _RAW_FINISH_REASONS.get(response.finish_reason, "OTHER"),
            finish_message=response.finish_message,
            usage={name: count for name, count in usage.items() if count},
        )


def _to_model_request(conversation: Conversation) -> ModelRequest:
    config = conversation.generation_config
    history = History(decode_conversation(dump(content) for content in conversation.contents))
    request = RequestConfig(
        model=conversation.model,
        system=conversation.system_text or None,
        tools=tuple(map(_to_tool, declarations_in(conversation.request.tools))),
        tool_choice=_to_tool_choice(conversation.calling_config),
        settings=ModelSettings(
            max_tokens=config.max_output_tokens,
            temperature=config.temperature,
            top_p=config.top_p,
            stop=tuple(config.stop_sequences or ()),
            seed=config.seed,
        ),
        output=_to_output(config),
    )
    return ModelRequest(request, history)


def _to_tool(declaration: FunctionDeclaration) -> ToolSpec:
    schema: Any = declaration.parameters_json_schema
    if not is_set(schema):
        schema = to_plain(declaration.parameters) if declaration.parameters is not None else None
    parameters = normalize(schema) if schema is not None else None
    return ToolSpec(declaration.name or "", declaration.description or "", parameters)


def _to_tool_choice(config: FunctionCallingConfig) -> ToolChoice | None:
    if not isinstance(config.mode, str) or config.mode == "MODE_UNSPECIFIED":
        return None
    names = tuple(config.allowed_function_names or ())
    if config.mode == "VALIDATED":
        return ToolChoice("auto", names, strict=True)
    return ToolChoice(msgspec.convert(config.mode.lower(), ToolChoice.__annotations__["mode"]), names)


def _to_output(config: GenerationConfig) -> Output | None:
    if config.response_mime_type != "application/json":
        return None
    schema: Any = config.response_json_schema
    if not is_set(schema):
        schema = normalize(to_plain(config.response_schema)) if config.response_schema is not None else None
    return Output(schema if isinstance(schema, dict) else None)
