"""A `RequestConfig` as fields of Gemini's request: system, tools, modes, settings. Encoded once per config."""

import logging
from typing import Any

from midspan._types.exchange import RequestConfig
from midspan._types.specs import BuiltinTool, ModelSettings, ThinkingLevel, ToolChoice, ToolSpec
from midspan.errors import ConfigError
from midspan.providers.gemini.capabilities import Capabilities
from midspan.providers.gemini.decode import encode_json

_log = logging.getLogger("midspan.providers.gemini")

HEAD = b'{"contents":['


def encode_config(config: RequestConfig, capabilities: Capabilities) -> tuple[bytes, bytes]:
    """Return what stands before the contents of a request and what stands after them."""
    head, tail = HEAD, b""
    if config.system and not capabilities.system_instruction and _cache_name(config) is None:
        # For models without a system prompt it is the first thing that the user says.
        head += encode_json({"role": "user", "parts": [{"text": config.system}]}) + b","
    fields = _overlaid(config_fields(config, capabilities), config.settings.extra)
    if fields:
        tail = b"," + encode_json(fields)[1:-1]
    return head, tail


def config_fields(config: RequestConfig, capabilities: Capabilities) -> dict[str, Any]:
    """The same as plain values; also what a cache is made of."""
    fields: dict[str, Any] = {}
    cache = _cache_name(config)
    if cache is not None:
        if not capabilities.explicit_cache:
            raise ConfigError(f"{config.model!r} has no explicit caches; it caches long prefixes by itself")
        # The API refuses all three beside a cache: they are in it already.
        fields["cachedContent"] = cache
    else:
        if config.system and capabilities.system_instruction:
            fields["systemInstruction"] = {"parts": [{"text": config.system}]}
        if config.tools:
            fields["tools"] = _tools(config)
        tool_config = _tool_config(config, capabilities)
        if tool_config:
            fields["toolConfig"] = tool_config
    generation = _generation(config, capabilities)
    if generation:
        fields["generationConfig"] = generation
    return fields


def _tools(config: RequestConfig) -> list[dict[str, Any]]:
    """Each built-in tool for itself, then all functions as one tool."""
    tools = [{tool.name: tool.config} for tool in config.tools if isinstance(tool, BuiltinTool)]
    functions = [_declaration(tool) for tool in config.tools if isinstance(tool, ToolSpec)]
    return [*tools, {"functionDeclarations": functions}] if functions else tools


def _declaration(tool: ToolSpec) -> dict[str, Any]:
    declaration: dict[str, Any] = {"name": tool.name}
    if tool.description:
        declaration["description"] = tool.description
    # A function without parameters leaves the schema out; an object without properties is refused by some versions.
    if tool.parameters and not _is_empty_schema(tool.parameters):
        declaration["parametersJsonSchema"] = tool.parameters
    return declaration


def _is_empty_schema(schema: dict[str, Any]) -> bool:
    present = {name for name, value in schema.items() if value not in ({}, [], None, False, True)}
    return present <= {"type", "title", "description", "$schema", "$id"}


def _tool_config(config: RequestConfig, capabilities: Capabilities) -> dict[str, Any]:
    functions = [tool.name for tool in config.tools if isinstance(tool, ToolSpec)]
    mixed = bool(functions) and any(isinstance(tool, BuiltinTool) for tool in config.tools)
    if mixed and not capabilities.builtin_with_functions:
        raise ConfigError(f"{config.model!r} takes functions or built-in tools, not both; use a Gemini 3 model")
    choice = config.tool_choice
    if choice is not None and choice.mode == "any" and not config.tools:
        raise ConfigError("tool choice 'any' demands a call, but there are no tools")
    fields: dict[str, Any] = {}
    if mixed and capabilities.server_side_calls:
        fields["includeServerSideToolInvocations"] = True
        if choice is None or choice.mode == "auto":
            choice = ToolChoice("auto", strict=True)  # AUTO is refused where the two are combined
    if choice is not None:
        fields["functionCallingConfig"] = _calling_config(choice, functions)
    return fields


def _calling_config(choice: ToolChoice, functions: list[str]) -> dict[str, Any]:
    missing = [name for name in choice.names if name not in functions]
    if missing:
        raise ConfigError(
            f"tool choice asks for {', '.join(missing)}, but the tools are: {', '.join(functions) or 'none'}"
        )
    mode = calling_mode(choice)
    fields: dict[str, Any] = {"mode": mode}
    if choice.names and mode in ("ANY", "VALIDATED"):
        fields["allowedFunctionNames"] = list(choice.names)
    return fields


def calling_mode(choice: ToolChoice) -> str:
    """Gemini's word for a tool choice."""
    if choice.parallel is False:
        raise ConfigError("Gemini cannot be told to make one call at a time; leave out parallel=False")
    return "VALIDATED" if choice.strict and choice.mode == "auto" else choice.mode.upper()


def _generation(config: RequestConfig, capabilities: Capabilities) -> dict[str, Any]:
    settings = config.settings
    fields: dict[str, Any] = {
        "maxOutputTokens": settings.max_tokens,
        "stopSequences": list(settings.stop) or None,
        "seed": settings.seed,
        "presencePenalty": settings.presence_penalty,
        "frequencyPenalty": settings.frequency_penalty,
        "thinkingConfig": _thinking(settings, capabilities) or None,
    }
    sampling = {"temperature": settings.temperature, "topP": settings.top_p, "topK": settings.top_k}
    if capabilities.sampling:
        fields |= sampling
    elif any(value is not None for value in sampling.values()):
        _log.warning("%s ignores temperature, top_p and top_k, so they are not sent", config.model)
    if config.output is not None:
        if config.tools and not capabilities.json_with_functions:
            raise ConfigError(f"{config.model!r} takes tools or structured output, not both; use a Gemini 3 model")
        fields |= {"responseMimeType": "application/json", "responseJsonSchema": config.output.json_schema}
    return {name: value for name, value in fields.items() if value is not None}


def _thinking(settings: ModelSettings, capabilities: Capabilities) -> dict[str, Any]:
    config: dict[str, Any] = {}
    if capabilities.thinking_levels and settings.thinking is not None:
        config["thinkingLevel"] = _level(settings.thinking, capabilities.thinking_levels)
    elif capabilities.thinking_budget and settings.thinking is not None:
        config["thinkingBudget"] = _budget(settings.thinking)
    if settings.show_thoughts is not None and (capabilities.thinking_levels or capabilities.thinking_budget):
        config["includeThoughts"] = settings.show_thoughts
    return {name: value for name, value in config.items() if value is not None}


# How much thinking a level stands for, as Google's own OpenAI-compatible endpoint has it.
_BUDGETS: dict[ThinkingLevel, int] = {"minimal": 0, "low": 1_024, "medium": 8_192, "high": 24_576}


def _budget(thinking: ThinkingLevel | int) -> int:
    return thinking if isinstance(thinking, int) else _BUDGETS[thinking]


def _level(thinking: ThinkingLevel | int, levels: tuple[ThinkingLevel, ...]) -> str | None:
    """The level that the model has nearest to what was asked for; None lets it decide."""
    wanted = _budget(thinking)
    return None if wanted < 0 else min(levels, key=lambda level: abs(_BUDGETS[level] - wanted)).upper()


def _cache_name(config: RequestConfig) -> str | None:
    """The context cache to use; without one Gemini caches long prefixes by itself."""
    return None if config.cache is None else config.cache.key


def _overlaid(fields: dict[str, Any], extra: dict[str, Any]) -> dict[str, Any]:
    """The fields with those of the caller laid over them, in whatever casing he wrote them."""
    if not extra:
        return fields
    from midspan.providers.gemini import wire  # loaded with the first extra field
    from midspan.providers.gemini.proto import from_plain, to_plain

    given = to_plain(from_plain(wire.GenerateContentRequest, extra))
    for name in ("contents", "continuationToken"):
        if name in given:
            raise ConfigError(f"{name} cannot be given as an extra setting; it is made of the history")
    return _merged(fields, given)


def _merged(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    both = {**under, **over}
    for name, value in over.items():
        if isinstance(under.get(name), dict) and isinstance(value, dict):
            both[name] = _merged(under[name], value)
    return both
