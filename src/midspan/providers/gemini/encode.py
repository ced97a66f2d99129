"""Our values as Gemini's: the body of a request, joined from pieces that were encoded once.

Above is the client, which sends the body. This module knows which model and API the body is for only through
`Capabilities`. What Gemini sent goes back as it came; what another provider's model said is encoded anew.
"""

from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from midspan.errors import ConfigError
from midspan.providers.gemini.capabilities import Capabilities
from midspan.providers.gemini.decode import ORIGIN, encode_json, part_of, signature_of
from midspan.providers.gemini.lenient import fields_of
from midspan.types.exchange import ModelRequest, RequestConfig
from midspan.types.messages import History, Message
from midspan.types.parts import Blob, Opaque, Part, ProviderData, Text, Thought, ToolCall, ToolResult, is_local_id
from midspan.types.specs import BuiltinTool, ModelSettings, ThinkingLevel, ToolChoice, ToolSpec

Encoded = bytes | memoryview | Raw

# For calls that Gemini did not make itself: https://ai.google.dev/gemini-api/docs/thought-signatures
SKIP_SIGNATURE = "skip_thought_signature_validator"
_HEAD = b'{"contents":['


def request_body(request: ModelRequest, capabilities: Capabilities, continuation_token: str | None = None) -> bytes:
    """Return the JSON that asks for the next turn."""
    config = request.config
    head, tail = config.derived(("gemini", capabilities), lambda: _encode_config(config, capabilities))
    if continuation_token is not None:
        tail += b',"continuationToken":' + encode_json(continuation_token)
    return body_of(request.history, tail, capabilities, head=head)


def body_of(history: History, tail: bytes, capabilities: Capabilities, *, head: bytes = _HEAD) -> bytes:
    """Return a request of these contents between `head` and the fields of `tail`.

    Only new messages are encoded; the bytes of the others are copied, once.
    """
    body = b""

    def extend(known: Encoded | None, messages: tuple[Message, ...]) -> Encoded:
        nonlocal body
        contents: list[Encoded] = [known] if known else []
        for message in messages:
            content = encode_message(message, capabilities)
            if content:
                contents += (b",", content) if contents else (content,)
        body = _joined(head, contents, tail)
        # The bytes are kept as a view into this body, not copied out of it.
        return memoryview(body)[len(head) : -len(tail) - 2]

    contents = history.derived(capabilities.contents_dialect, extend)
    return body or _joined(head, [contents] if contents else [], tail)


def _joined(head: bytes, contents: list[Encoded], tail: bytes) -> bytes:
    return b"".join((head if contents else head.removesuffix(b","), *contents, b"]", tail, b"}"))


def encode_message(message: Message, capabilities: Capabilities) -> Encoded:
    """Return one content; nothing for a message without parts, because the API refuses a content without parts."""
    try:
        data = message.provider_data
        if data is not None and data.raw and data.origin == ORIGIN and message.parts:
            return _as_sent(message, data.raw, capabilities)
        parts = _parts(message, capabilities)
        return encode_json({"role": message.role, "parts": parts}) if parts else b""
    except (TypeError, UnicodeEncodeError, RecursionError) as error:
        raise ConfigError(f"a message of the {message.role} is not JSON serializable: {error}") from error


def _as_sent(message: Message, raw: Raw, capabilities: Capabilities) -> Encoded:
    """Return what Gemini sent, untouched, unless this model refuses something that another one gave."""
    unsigned = capabilities.signatures and _lacks_signature(message.parts)
    with_ids = not capabilities.call_ids and any(map(_has_id, message.parts))
    foreign = not capabilities.server_side_parts and any(map(_is_server_side, message.parts))
    if not (unsigned or with_ids or foreign):
        return raw
    content = msgspec.json.decode(raw)
    parts = [
        part for part in content["parts"] if not foreign or not isinstance(part, dict) or not _SERVER_SIDE & part.keys()
    ]
    if unsigned:
        _sign_first_call(parts)
    if with_ids:
        _drop_ids(parts)
    return encode_json({**content, "parts": parts}) if parts else b""


def _lacks_signature(parts: tuple[Part, ...]) -> bool:
    """Whether the first call has no signature; the others need none."""
    for part in parts:
        if type(part) is ToolCall:
            return signature_of(part) is None
    return False


_SERVER_SIDE = frozenset(("toolCall", "toolResponse"))


def _has_id(part: Part) -> bool:
    return isinstance(part, ToolCall | ToolResult) and not is_local_id(part.id)


def _is_server_side(part: Part) -> bool:
    return isinstance(part, Opaque) and part.name in _SERVER_SIDE


def _drop_ids(parts: list[Any]) -> None:
    for part in parts:
        for kind in ("functionCall", "functionResponse"):
            if isinstance(part, dict) and isinstance(part.get(kind), dict):
                part[kind].pop("id", None)


def _parts(message: Message, capabilities: Capabilities) -> list[Any]:
    data = message.provider_data
    is_ours = data is not None and data.origin == ORIGIN
    parts: list[Any] = []
    needs_signature = capabilities.signatures and message.role == "model"
    for part in message.parts:
        encoded = _part(part, is_ours, capabilities)
        if encoded is None:
            continue
        if needs_signature and type(part) is ToolCall:
            encoded, needs_signature = _signed(encoded, signature_of(part)), False  # only the first call must have one
        parts.append(encoded)
    if not capabilities.media_in_results:
        parts += [_blob(blob) for result in message.results if result.content for blob in result.media]
    return parts


def _signed(call: Any, signature: str | None) -> Any:
    """Return an encoded call with a signature: its own, or the value that tells the server not to check it."""
    if isinstance(call, Raw):
        return call if signature is not None else {**fields_of(call), "thoughtSignature": SKIP_SIGNATURE}
    return {**call, "thoughtSignature": call.get("thoughtSignature") or SKIP_SIGNATURE}


def _sign_first_call(parts: list[Any]) -> None:
    for part in parts:
        if isinstance(part, dict) and isinstance(part.get("functionCall"), dict):
            part["thoughtSignature"] = part.get("thoughtSignature") or SKIP_SIGNATURE
            return


def _part(part: Part, is_ours: bool, capabilities: Capabilities) -> Any:
    """A part of a message that Gemini did not send, or that was edited since."""
    data = part.provider_data
    if data is not None and data.origin == ORIGIN and data.raw:
        return _sent_part(part, data.raw, capabilities)
    if is_ours and isinstance(part, Thought):
        return {"text": part.text, "thought": True}
    return _plain_part(part, capabilities)


def _sent_part(part: Part, raw: Raw, capabilities: Capabilities) -> Any:
    """A part that Gemini sent: the very bytes if they can go back, else what the part says now with its signature."""
    if isinstance(part, Opaque):
        return raw if capabilities.server_side_parts or not _is_server_side(part) else None
    again = part_of(raw, lambda: part.id)  # type: ignore[union-attr]  # only calls and results have an id to be made
    is_unchanged = encode_json(again) == encode_json(part)
    if is_unchanged and (capabilities.media_in_results or not isinstance(part, ToolResult)):
        return raw if capabilities.call_ids or not _has_id(part) else _without_id(raw)
    rest = {name: value for name, value in fields_of(raw).items() if name not in _PART_KINDS}
    plain = {"text": part.text} if isinstance(part, Text | Thought) else _plain_part(part, capabilities)
    return {**plain, **({"thought": True} if isinstance(part, Thought) else {}), **rest}


def _without_id(raw: Raw) -> Any:
    plain = msgspec.json.decode(raw)
    _drop_ids([plain])
    return plain


_PART_KINDS = frozenset(("text", "thought", "functionCall", "functionResponse", "inlineData", "fileData"))


def _plain_part(part: Part, capabilities: Capabilities) -> Any:
    """A part that the user, a tool or another provider's model made.

    The thoughts of another model are not Gemini's, and its opaque parts are nonsense to it.
    """
    if isinstance(part, ToolResult):
        return {"functionResponse": _response(part, capabilities)}
    if isinstance(part, Text):
        return {"text": part.text} if part.text else None
    if isinstance(part, ToolCall):
        call: dict[str, Any] = {"name": part.name, "args": part.arguments}
        return {"functionCall": {"id": part.id, **call} if _sends_id(part.id, capabilities) else call}
    return _blob(part) if isinstance(part, Blob) else None


def signed(part: Part, signature: str) -> Part:
    """Return a part with a thought signature, as Gemini would have sent it."""
    plain = _part(part, True, _EVERYTHING)
    raw = encode_json({**plain, "thoughtSignature": signature})
    return replace(part, provider_data=ProviderData(ORIGIN, Raw(raw)))


_EVERYTHING = Capabilities(signatures=False)


def _blob(blob: Blob) -> dict[str, Any]:
    if blob.url is not None:
        return {"fileData": {"fileUri": blob.url, "mimeType": blob.media_type}}
    return {"inlineData": {"mimeType": blob.media_type, "data": blob.base64}}


def _response(result: ToolResult, capabilities: Capabilities) -> dict[str, Any]:
    value = result.model_value if result.content else result.value
    if result.is_error:
        value = value if isinstance(value, dict) and "error" in value else {"error": value}
    elif not isinstance(value, dict):
        value = {capabilities.result_key: value}
    if result.hint is not None:
        value = {**value, "note": result.hint}
    response: dict[str, Any] = {"name": result.name, "response": value}
    if _sends_id(result.id, capabilities):
        response["id"] = result.id
    if result.content and capabilities.media_in_results and result.media:
        response["parts"] = [_blob(blob) for blob in result.media]
    return response


def _sends_id(id: str, capabilities: Capabilities) -> bool:
    """Whether the server gave this id and takes it back; one of ours is never sent."""
    return capabilities.call_ids and not is_local_id(id)


# The fields of a request beside its contents: system, tools, modes, settings. They are encoded once per config.


def _encode_config(config: RequestConfig, capabilities: Capabilities) -> tuple[bytes, bytes]:
    """Return what stands before the contents of a request and what stands after them."""
    head, tail = _HEAD, b""
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
    if capabilities.sampling:
        fields |= {"temperature": settings.temperature, "topP": settings.top_p, "topK": settings.top_k}
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
