"""A `RequestConfig` as fields of Gemini's request: system prompt, tools, tool choice, settings. Encoded once each."""

import logging
from collections.abc import Sequence
from typing import Any

from midspan._types.exchange import RequestConfig
from midspan._types.specs import BuiltinTool, ModelSettings, ThinkingLevel, ToolChoice, ToolSpec
from midspan.errors import ConfigError
from midspan.providers.gemini.capabilities import Capabilities
from midspan.providers.gemini.structs import encode_json

_log = logging.getLogger("midspan.providers.gemini")

HEAD = b'{"contents":['


def encode_config(config: RequestConfig, capabilities: Capabilities) -> tuple[bytes, bytes]:
    """Return what stands before the contents of a request, and what stands after them."""
    head = HEAD
    if config.system and not capabilities.system_instruction and _cache_name(config) is None:
        head = head_with({"role": "user", "parts": [{"text": config.system}]})
    fields = _merged(config_fields(config, capabilities), _extra_fields(config.settings))
    return head, b"," + encode_json(fields)[1:-1] if fields else b""


def head_with(system: Any) -> bytes:
    """Return the head of a request whose first content is the system prompt, for models that have no other place."""
    return HEAD + encode_json(system) + b","


def config_fields(config: RequestConfig, capabilities: Capabilities) -> dict[str, Any]:
    """Return the same as plain values; a cache is made of them."""
    fields: dict[str, Any] = {}
    cache = _cache_name(config)
    if cache is not None:
        if not capabilities.explicit_cache:
            raise ConfigError(f"{config.model!r} has no explicit caches; it caches long prefixes by itself")
        fields["cachedContent"] = cache  # which holds the other three; the API rejects them beside it
    else:
        if config.system and capabilities.system_instruction:
            fields["systemInstruction"] = {"parts": [{"text": config.system}]}
        if config.tools:
            fields["tools"] = _tools(config)
        functions = [tool.name for tool in config.tools if isinstance(tool, ToolSpec)]
        tool_config = tool_config_fields(functions, config.tool_choice, capabilities, has_builtins=config.has_builtins)
        if tool_config:
            fields["toolConfig"] = tool_config
    generation = _generation_config(config, capabilities)
    if generation:
        fields["generationConfig"] = generation
    return fields


def _cache_name(config: RequestConfig) -> str | None:
    """The context cache to use; without one Gemini caches long prefixes by itself."""
    return None if config.cache is None else config.cache.key


def _tools(config: RequestConfig) -> list[dict[str, Any]]:
    """Return each built-in tool as a tool, then all functions as one tool."""
    tools = [{tool.name: tool.config} for tool in config.tools if isinstance(tool, BuiltinTool)]
    functions = [_declaration(tool) for tool in config.tools if isinstance(tool, ToolSpec)]
    return [*tools, {"functionDeclarations": functions}] if functions else tools


def _declaration(tool: ToolSpec) -> dict[str, Any]:
    declaration: dict[str, Any] = {"name": tool.name}
    if tool.description:
        declaration["description"] = tool.description
    # A function without parameters leaves the schema out; an object without properties is rejected by some versions.
    if tool.parameters and not _is_empty_schema(tool.parameters):
        declaration["parametersJsonSchema"] = tool.parameters
    return declaration


def _is_empty_schema(schema: dict[str, Any]) -> bool:
    # `additionalProperties: true` is a parameter: the function takes arguments of any name.
    present = {name for name, value in schema.items() if value not in ({}, [], None) and value is not False}
    return present <= {"type", "title", "description", "$schema", "$id"}


def tool_config_fields(
    functions: Sequence[str], choice: ToolChoice | None, capabilities: Capabilities, *, has_builtins: bool
) -> dict[str, Any]:
    """Return the toolConfig for these declared functions, with what the API requires beside built-in tools."""
    fields: dict[str, Any] = {}
    if functions and has_builtins:
        if not capabilities.builtin_with_functions:
            raise ConfigError("this model accepts functions or built-in tools, not both; use a Gemini 3 model")
        if capabilities.server_side_calls:
            fields["includeServerSideToolInvocations"] = True
            if choice is None or choice.mode == "auto":
                choice = ToolChoice("auto", strict=True)  # AUTO is rejected where the two are combined
    if choice is not None:
        fields["functionCallingConfig"] = _function_calling_config(choice, functions)
    return fields


def _function_calling_config(choice: ToolChoice, functions: Sequence[str]) -> dict[str, Any]:
    if choice.mode == "any" and not functions:
        raise ConfigError("tool_choice requires a call, but no functions are declared")
    missing = [name for name in choice.names if name not in functions]
    if missing:
        declared = ", ".join(functions) or "none"
        raise ConfigError(
            f"tool_choice names {', '.join(map(repr, missing))}, but the declared functions are: {declared}"
        )
    if choice.parallel is False:
        raise ConfigError("Gemini cannot be limited to one call at a time; remove parallel=False")
    mode = "VALIDATED" if choice.strict and choice.mode == "auto" else choice.mode.upper()
    names = list(choice.names) if mode in ("ANY", "VALIDATED") else []
    return {"mode": mode, "allowedFunctionNames": names} if names else {"mode": mode}


def check_json_with_tools(capabilities: Capabilities) -> None:
    """Raise an error if the model cannot answer in JSON of a schema while tools are declared."""
    if not capabilities.json_with_functions:
        raise ConfigError("this model accepts tools or structured output, not both; use a Gemini 3 model")


def _generation_config(config: RequestConfig, capabilities: Capabilities) -> dict[str, Any]:
    settings = config.settings
    fields: dict[str, Any] = {
        "maxOutputTokens": settings.max_tokens,
        "stopSequences": list(settings.stop) or None,
        "seed": settings.seed,
        "presencePenalty": settings.presence_penalty,
        "frequencyPenalty": settings.frequency_penalty,
        "thinkingConfig": _thinking_config(settings, capabilities) or None,
    }
    sampling = {"temperature": settings.temperature, "topP": settings.top_p, "topK": settings.top_k}
    if capabilities.sampling:
        fields |= sampling
    elif any(value is not None for value in sampling.values()):
        _log.warning("%s ignores temperature, top_p and top_k; they are not sent", config.model)
    if config.output is not None:
        if config.tools:
            check_json_with_tools(capabilities)
        fields |= {"responseMimeType": "application/json", "responseJsonSchema": config.output.json_schema}
    return {name: value for name, value in fields.items() if value is not None}


def _thinking_config(settings: ModelSettings, capabilities: Capabilities) -> dict[str, Any]:
    levels, thinking = capabilities.thinking_levels, settings.thinking
    fields: dict[str, Any] = {}
    if thinking is not None and levels:
        fields["thinkingLevel"] = _nearest_level(thinking, levels)
    elif thinking is not None and capabilities.thinking_budget:
        fields["thinkingBudget"] = _budget(thinking)
    if levels or capabilities.thinking_budget:
        fields["includeThoughts"] = settings.show_thoughts
    return {name: value for name, value in fields.items() if value is not None}


_BUDGETS: dict[ThinkingLevel, int] = {"minimal": 0, "low": 1_024, "medium": 8_192, "high": 24_576}
"""The tokens that each level stands for, as in Google's OpenAI-compatible endpoint."""


def _budget(thinking: ThinkingLevel | int) -> int:
    return thinking if isinstance(thinking, int) else _BUDGETS[thinking]


def _nearest_level(thinking: ThinkingLevel | int, levels: tuple[ThinkingLevel, ...]) -> str | None:
    """Return the level of the model that is nearest to the requested one; None lets the model decide."""
    budget = _budget(thinking)
    return None if budget < 0 else min(levels, key=lambda level: abs(_BUDGETS[level] - budget)).upper()


def _extra_fields(settings: ModelSettings) -> dict[str, Any]:
    """Return the fields that the caller adds to a request, in camelCase."""
    if not settings.extra:
        return {}
    from midspan.providers.gemini import wire  # loaded with the first extra field
    from midspan.providers.gemini.proto import from_plain, to_plain

    fields: dict[str, Any] = to_plain(from_plain(wire.GenerateContentRequest, settings.extra))
    for name in ("contents", "continuationToken"):
        if name in fields:
            raise ConfigError(f"settings: extra must not have {name!r}, which is made of the history")
    return fields


def _merged(fields: dict[str, Any], extra: dict[str, Any]) -> dict[str, Any]:
    merged = {**fields, **extra}
    for name, value in extra.items():
        if isinstance(fields.get(name), dict) and isinstance(value, dict):
            merged[name] = _merged(fields[name], value)
    return merged
