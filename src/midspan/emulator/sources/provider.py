"""Answers from a model: any provider, asked with what the request says."""

from typing import Any

import msgspec
from msgspec import UNSET

from midspan._schema.normalize import normalize
from midspan._types.exchange import FinishReason, ModelRequest, Output, RequestConfig
from midspan._types.messages import History
from midspan._types.specs import ModelSettings, ToolChoice, ToolSpec
from midspan.emulator.answering.answer import Answer, written
from midspan.emulator.refusal import STATUS_WORDS, Refusal
from midspan.emulator.sources.conversation import Conversation
from midspan.errors import ProviderError
from midspan.providers.gemini.decode import conversation as messages_of
from midspan.providers.gemini.proto import dump, to_plain
from midspan.providers.gemini.wire import FunctionDeclaration, GenerateContentRequest, GenerationConfig
from midspan.providers.provider import Provider

_FINISH = {
    FinishReason.END: "STOP",
    FinishReason.LENGTH: "MAX_TOKENS",
    FinishReason.CONTEXT_FULL: "MAX_TOKENS",
    FinishReason.BLOCKED: "SAFETY",
    FinishReason.REFUSED: "PROHIBITED_CONTENT",
    FinishReason.MALFORMED_CALL: "MALFORMED_FUNCTION_CALL",
    FinishReason.UNEXPECTED_CALL: "UNEXPECTED_TOOL_CALL",
}


class ProviderSource:
    """Asks a provider and says what it said; its calls stand in one chunk together with the reason for stopping."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    async def answer(self, conversation: Conversation) -> Answer:
        try:
            found = await self._provider.generate(request_of(conversation))
        except ProviderError as error:
            code = error.status if error.status in STATUS_WORDS else 500
            raise Refusal(code, str(error)) from error
        usage = {"promptTokenCount": found.usage.input, "candidatesTokenCount": found.usage.output}
        return Answer(
            parts=tuple(map(written, found.message.parts)),
            finish=found.raw_finish_reason or _FINISH.get(found.finish_reason, "OTHER"),
            finish_message=found.finish_message,
            usage={name: count for name, count in usage.items() if count},
        )


def request_of(conversation: Conversation) -> ModelRequest:
    """What the request asks, in our own values."""
    history = History(messages_of(dump(content) for content in conversation.contents))
    return ModelRequest(_config(conversation), history)


def _config(conversation: Conversation) -> RequestConfig:
    setup = conversation.setup
    config = conversation.question.setup.generation_config or GenerationConfig()
    return RequestConfig(
        model=conversation.model,
        system=conversation.system_text or None,
        tools=tuple(_tool(one) for tool in setup.tools or () for one in tool.function_declarations or ()),
        tool_choice=_choice(setup),
        settings=ModelSettings(
            max_tokens=config.max_output_tokens,
            temperature=config.temperature,
            top_p=config.top_p,
            stop=tuple(config.stop_sequences or ()),
            seed=config.seed,
        ),
        output=_output(config),
    )


def _tool(declared: FunctionDeclaration) -> ToolSpec:
    given: Any = declared.parameters_json_schema
    if given is UNSET or given is None:
        given = to_plain(declared.parameters) if declared.parameters is not None else None
    return ToolSpec(declared.name or "", declared.description or "", normalize(given) if given is not None else None)


def _choice(setup: GenerateContentRequest) -> ToolChoice | None:
    config = setup.tool_config.function_calling_config if setup.tool_config is not None else None
    if config is None or not isinstance(config.mode, str) or config.mode == "MODE_UNSPECIFIED":
        return None
    if config.mode == "VALIDATED":
        return ToolChoice("auto", tuple(config.allowed_function_names or ()), strict=True)
    mode = msgspec.convert(config.mode.lower(), ToolChoice.__annotations__["mode"])
    return ToolChoice(mode, tuple(config.allowed_function_names or ()))


def _output(config: GenerationConfig) -> Output | None:
    if config.response_mime_type != "application/json":
        return None
    schema: Any = config.response_json_schema
    if schema is UNSET or schema is None:
        schema = normalize(to_plain(config.response_schema)) if config.response_schema is not None else None
    return Output(schema if isinstance(schema, dict) else None)
