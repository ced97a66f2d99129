"""Where answers come from: a script, a function, a provider, or what the user wrote."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from midspan._schema.normalize import normalize
from midspan._types.exchange import FinishReason, ModelRequest, Output, RequestConfig
from midspan._types.messages import History
from midspan._types.specs import ModelSettings, ToolChoice, ToolSpec
from midspan.emulator.gemini.conversation import Answer, Conversation, Source, answer, to_part
from midspan.emulator.gemini.errors import STATUS_NAMES, ApiError
from midspan.emulator.gemini.script import Script, load_script
from midspan.emulator.gemini.tools import declarations_in, parameters_of, schema_of
from midspan.errors import ConfigError, ProviderError
from midspan.providers.gemini.capabilities import FINISH_REASONS
from midspan.providers.gemini.decode import conversation as decode_conversation
from midspan.providers.gemini.proto import dump
from midspan.providers.gemini.wire import FunctionCallingConfig, GenerationConfig
from midspan.providers.provider import Provider

_RAW_FINISH_REASONS = {
    **{reason: raw for raw, reason in FINISH_REASONS.items()},
    FinishReason.CONTEXT_FULL: "MAX_TOKENS",
    FinishReason.BLOCKED: "SAFETY",
    FinishReason.REFUSED: "PROHIBITED_CONTENT",
}


def source_of(script: Any, model: Provider | None) -> Source:
    """Return what answers for these two arguments of `LocalGemini`."""
    if script is not None and model is not None:
        raise ConfigError("pass either a script or a model, not both")
    if model is not None:
        return _provider_source(model)
    if script is None:
        return _echo
    if isinstance(script, str | Path):
        return load_script(Path(script)).answer
    if isinstance(script, Sequence):
        return Script(script).answer
    source = getattr(script, "answer", script)
    if not callable(source) or isinstance(script, type):
        raise ConfigError(
            "a script must be a list of answers, a function of the conversation or the path of a TOML file, got "
            f"{script!r:.80}"
        )
    return source  # type: ignore[no-any-return]  # what it returns is converted by the server


def _echo(conversation: Conversation) -> Answer:
    if conversation.results:
        return answer(f"Results came from {', '.join(conversation.results)}.")
    return answer(f"You said: {conversation.last_text}")


def _provider_source(provider: Provider) -> Source:
    if not isinstance(provider, Provider) or isinstance(provider, type):
        raise ConfigError(f"model must be a provider, got {provider!r:.80}")

    async def ask(conversation: Conversation) -> Answer:
        try:
            response = await provider.generate(_to_model_request(conversation))
        except ProviderError as error:
            raise ApiError(error.status if error.status in STATUS_NAMES else 500, str(error)) from error
        usage = {"promptTokenCount": response.usage.input, "candidatesTokenCount": response.usage.output}
        return Answer(
            parts=tuple(map(to_part, response.message.parts)),
            finish=response.raw_finish_reason or _RAW_FINISH_REASONS.get(response.finish_reason, "OTHER"),
            finish_message=response.finish_message,
            usage={name: count for name, count in usage.items() if count},
        )

    return ask


def _to_model_request(conversation: Conversation) -> ModelRequest:
    config = conversation.generation_config
    history = History(decode_conversation(dump(content) for content in conversation.contents))
    tools = [
        ToolSpec(declaration.name or "", declaration.description or "", normalize(schema) if schema else None)
        for declaration in declarations_in(conversation.request.tools)
        for schema in [parameters_of(declaration)]
    ]
    request = RequestConfig(
        model=conversation.model,
        system=conversation.system_text or None,
        tools=tuple(tools),
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


def _to_tool_choice(config: FunctionCallingConfig) -> ToolChoice | None:
    names = tuple(config.allowed_function_names or ())
    match config.mode:
        case "AUTO" | "VALIDATED":
            return ToolChoice("auto", names, strict=config.mode == "VALIDATED")
        case "ANY":
            return ToolChoice("any", names)
        case "NONE":
            return ToolChoice("none", names)
    return None


def _to_output(config: GenerationConfig) -> Output | None:
    if config.response_mime_type != "application/json":
        return None
    schema = schema_of(config.response_schema, config.response_json_schema)
    return Output(normalize(schema) if isinstance(schema, dict) else None)
