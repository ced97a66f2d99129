"""What stays the same from turn to turn, in Gemini's words: system, tools, modes, settings. Written once, then kept."""

from typing import Any

import msgspec

from midspan.errors import ConfigError
from midspan.providers.gemini import wire
from midspan.providers.gemini.capabilities import Capabilities
from midspan.providers.gemini.proto import from_plain, to_plain
from midspan.types.exchange import Setup
from midspan.types.specs import BuiltinTool, ModelSettings, ThinkingLevel, ToolChoice, ToolSpec


def encode_setup(setup: Setup, capabilities: Capabilities) -> bytes:
    """The fields of a request beside its contents, each with a comma before it."""
    kept: dict[Capabilities, bytes] = setup.__dict__.setdefault("gemini", {})
    written = kept.get(capabilities)
    if written is None:
        fields = _overlaid(setup_fields(setup, capabilities), setup.settings.extra)
        written = kept[capabilities] = b"," + _encode(fields)[1:-1] if fields else b""
    return written


def encode_system_as_content(setup: Setup, capabilities: Capabilities) -> bytes:
    """The system prompt as the first thing the user says, with a comma after it, for models that know no other way."""
    if capabilities.system_instruction or not setup.system or setup.cache is not None:
        return b""
    return _encode({"role": "user", "parts": [{"text": setup.system}]}) + b","


def setup_fields(setup: Setup, capabilities: Capabilities) -> dict[str, Any]:
    """The same as plain values; also what a cache is made of."""
    fields: dict[str, Any] = {}
    if setup.cache is not None:
        if not capabilities.explicit_cache:
            raise ConfigError(f"{setup.model!r} has no explicit caches; it caches long prefixes by itself")
        # The API refuses all three beside a cache: they are in it already.
        fields["cachedContent"] = setup.cache
    else:
        if setup.system and capabilities.system_instruction:
            fields["systemInstruction"] = {"parts": [{"text": setup.system}]}
        if setup.tools:
            fields["tools"] = _tools(setup)
        config = _tool_config(setup, capabilities)
        if config:
            fields["toolConfig"] = config
    generation = _generation(setup, capabilities)
    if generation:
        fields["generationConfig"] = generation
    return fields


def _tools(setup: Setup) -> list[dict[str, Any]]:
    """Each built-in tool for itself, then all functions as one tool."""
    tools = [{tool.name: tool.config} for tool in setup.tools if isinstance(tool, BuiltinTool)]
    functions = [_declaration(tool) for tool in setup.tools if isinstance(tool, ToolSpec)]
    return [*tools, {"functionDeclarations": functions}] if functions else tools


def _declaration(tool: ToolSpec) -> dict[str, Any]:
    declaration: dict[str, Any] = {"name": tool.name}
    if tool.description:
        declaration["description"] = tool.description
    # A function without parameters leaves the schema out; an object without properties is refused by some versions.
    if tool.parameters and not _says_nothing(tool.parameters):
        declaration["parametersJsonSchema"] = tool.parameters
    return declaration


def _says_nothing(schema: dict[str, Any]) -> bool:
    said = {name for name, value in schema.items() if value not in ({}, [], None, False, True)}
    return said <= {"type", "title", "description", "$schema", "$id"}


def _tool_config(setup: Setup, capabilities: Capabilities) -> dict[str, Any]:
    functions = [tool.name for tool in setup.tools if isinstance(tool, ToolSpec)]
    mixed = bool(functions) and any(isinstance(tool, BuiltinTool) for tool in setup.tools)
    if mixed and not capabilities.builtin_with_functions:
        raise ConfigError(f"{setup.model!r} takes functions or built-in tools, not both; use a Gemini 3 model")
    choice = setup.tool_choice
    if choice is not None and choice.mode == "any" and not setup.tools:
        raise ConfigError("tool choice 'any' demands a call, but there are no tools")
    config: dict[str, Any] = {}
    if mixed and capabilities.server_side_calls:
        config["includeServerSideToolInvocations"] = True
        if choice is None or choice.mode == "auto":
            choice = ToolChoice("validated")  # AUTO is refused where the two are combined
    if choice is not None:
        config["functionCallingConfig"] = _mode(choice, functions)
    return config


def _mode(choice: ToolChoice, functions: list[str]) -> dict[str, Any]:
    missing = [name for name in choice.names if name not in functions]
    if missing:
        raise ConfigError(
            f"tool choice asks for {', '.join(missing)}, but the tools are: {', '.join(functions) or 'none'}"
        )
    mode: dict[str, Any] = {"mode": choice.mode.upper()}
    if choice.names and choice.mode in ("any", "validated"):
        mode["allowedFunctionNames"] = list(choice.names)
    return mode


def _generation(setup: Setup, capabilities: Capabilities) -> dict[str, Any]:
    settings = setup.settings
    config: dict[str, Any] = {
        "maxOutputTokens": settings.max_tokens,
        "stopSequences": list(settings.stop) or None,
        "seed": settings.seed,
        "presencePenalty": settings.presence_penalty,
        "frequencyPenalty": settings.frequency_penalty,
        "thinkingConfig": _thinking(settings, capabilities) or None,
    }
    if capabilities.sampling:
        config |= {"temperature": settings.temperature, "topP": settings.top_p, "topK": settings.top_k}
    if setup.output is not None:
        if setup.tools and not capabilities.json_with_functions:
            raise ConfigError(f"{setup.model!r} takes tools or structured output, not both; use a Gemini 3 model")
        config |= {"responseMimeType": "application/json", "responseJsonSchema": setup.output.json_schema}
    return {name: value for name, value in config.items() if value is not None}


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


def _overlaid(fields: dict[str, Any], extra: dict[str, Any]) -> dict[str, Any]:
    """The fields with those of the caller laid over them, in whatever casing he wrote them."""
    if not extra:
        return fields
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


_encode = msgspec.json.Encoder().encode
