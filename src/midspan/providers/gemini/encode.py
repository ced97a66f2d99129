"""A request to Gemini as JSON, joined from pieces that were encoded once: the config, and each message.

What Gemini sent goes back unchanged; messages of another provider's model are encoded again.
"""

import logging
from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from midspan._types.encoded import EncodedMessage, MessageEncoder, join_body
from midspan._types.exchange import ModelRequest, RequestConfig
from midspan._types.messages import Message
from midspan._types.parts import NO_BYTES, Blob, Opaque, Part, Text, Thought, ToolCall, ToolResult, is_local_id
from midspan._types.specs import BuiltinTool, ModelSettings, ThinkingLevel, ToolChoice, ToolSpec
from midspan.errors import ConfigError
from midspan.providers.encoding import encode_json, join_turns
from midspan.providers.gemini.capabilities import Capabilities
from midspan.providers.gemini.decode import ORIGIN, Signed, fields_of, join_contents, read_part
from midspan.providers.reading import READ_ERRORS

_log = logging.getLogger("midspan.providers.gemini")

HEAD = b'{"contents":['
SKIP_SIGNATURE = "skip_thought_signature_validator"
"""For calls that Gemini did not make itself: https://ai.google.dev/gemini-api/docs/thought-signatures"""


def request_body(request: ModelRequest, capabilities: Capabilities, continuation_token: str | None = None) -> bytes:
    """Return the JSON that asks for the next turn."""
    config = request.config
    encoder, head, tail = config.derived(capabilities, _encode_config, config, capabilities)
    if continuation_token is not None:
        tail = b'%b,"continuationToken":%b}' % (tail[:-1], encode_json(continuation_token))
    return join_body(request.history, encoder, head, tail)


@cache
def message_encoder(capabilities: Capabilities) -> MessageEncoder:
    """Return the encoder of messages for a model."""
    return MessageEncoder(capabilities, partial(encode_messages, capabilities=capabilities), _is_one_turn)


def encode_messages(messages: Sequence[Message], capabilities: Capabilities) -> list[EncodedMessage]:
    """Return the contents for these messages. Messages that Gemini wants as one turn are joined."""
    contents: list[EncodedMessage] = []
    previous: Message | None = None
    for message in messages:
        if previous is not None and _is_one_turn(previous, message):
            turns = join_turns(messages, _is_one_turn)
            return [content for turn in turns if (content := _encode_turn(turn, capabilities))]
        if content := encode_message(message, capabilities):
            contents.append(content)
        previous = message
    return contents


def _is_one_turn(first: Message, second: Message) -> bool:
    """Whether two messages in a row must be one content.

    The server rejects a call that follows other text of the model, and results of one turn in several contents. The
    histories of other APIs have both. What Gemini sent itself stays as it is.
    """
    if first.role != second.role:
        return False
    if first.role == "user":
        return all(type(part) is ToolResult for message in (first, second) for part in message.parts)
    return not (_sent_bytes(first) and _sent_bytes(second))


def _encode_turn(turn: Sequence[Message], capabilities: Capabilities) -> EncodedMessage:
    if len(turn) == 1:
        return encode_message(turn[0], capabilities)
    contents: list[Raw] = []
    for message in turn:
        if content := encode_message(message, capabilities):
            contents.append(Raw(content))
        if message.calls:
            capabilities = replace(capabilities, signatures=False)  # only the first call of a turn needs a signature
    return join_contents(contents) if contents else b""


def _sent_bytes(value: Message | Part) -> Raw:
    """Return the bytes of a message or a part as Gemini sent it; none if it did not."""
    data = value.provider_data
    return data.raw if data is not None and data.origin == ORIGIN else NO_BYTES


def encode_message(message: Message, capabilities: Capabilities) -> EncodedMessage:
    """Return one content; nothing for a message without parts, because the API rejects a content without parts."""
    sent = _sent_bytes(message) if message.parts else NO_BYTES
    if sent and not _needs_changes(message.parts, capabilities):
        return sent
    try:
        parts = _encode_parts(message, capabilities)
        if not parts:
            return b""
        return encode_json({**fields_of(sent), "parts": parts} if sent else {"role": message.role, "parts": parts})
    except (TypeError, UnicodeEncodeError, RecursionError) as error:
        raise ConfigError(f"a message of the {message.role} is not JSON serializable: {error}") from error


def _needs_changes(parts: tuple[Part, ...], capabilities: Capabilities) -> bool:
    """Whether this model rejects something in a content that another model of Gemini sent."""
    if capabilities.signatures:
        for part in parts:
            if type(part) is ToolCall:
                if thought_signature(part) is None:
                    return True
                break
    return (not capabilities.call_ids and any(map(_has_id, parts))) or (
        not capabilities.server_side_parts and any(map(_is_server_side, parts))
    )


def _has_id(part: Part) -> bool:
    """Whether a part has an id that may be sent. Ids that Midspan made up (`local_id`) are never sent."""
    return isinstance(part, ToolCall | ToolResult) and not is_local_id(part.id)


def _is_server_side(part: Part) -> bool:
    """Whether it is a call that the server made itself, or the result of one."""
    return isinstance(part, Opaque) and part.name in ("toolCall", "toolResponse")


def _encode_parts(message: Message, capabilities: Capabilities) -> list[Any]:
    needs_signature = capabilities.signatures and message.role == "model"
    parts: list[Any] = []
    media: list[Any] = []
    for part in message.parts:
        if part.provider_data is not None and (raw := _sent_bytes(part)):
            encoded = _encode_sent_part(part, raw, capabilities)
        elif type(part) is Thought and message.provider_data is not None and message.provider_data.origin == ORIGIN:
            encoded = {"text": part.text, "thought": True}
        else:
            encoded = _encode_plain_part(part, capabilities)
        if encoded is None:
            continue
        if needs_signature and type(part) is ToolCall:  # only the first call of a turn must have a signature
            needs_signature = False
            if thought_signature(part) is None:
                fields = fields_of(encoded) if isinstance(encoded, Raw) else encoded
                encoded = {**fields, "thoughtSignature": SKIP_SIGNATURE}
        parts.append(encoded)
        if type(part) is ToolResult and part.content and not capabilities.media_in_results:
            media += map(encode_blob, part.media)
    return parts + media if media else parts


def _encode_sent_part(part: Part, raw: Raw, capabilities: Capabilities) -> Any:
    """Return a part that Gemini sent: its bytes if they can be sent back, else its current value with its signature."""
    if isinstance(part, Opaque):
        return raw if capabilities.server_side_parts or not _is_server_side(part) else None
    as_sent, _ = read_part(raw, lambda: part.id)  # type: ignore[union-attr]  # only calls and results need an id
    is_unchanged = encode_json(as_sent) == encode_json(part)
    is_accepted = capabilities.media_in_results or not isinstance(part, ToolResult)
    if is_unchanged and is_accepted and (capabilities.call_ids or not _has_id(part)):
        return raw
    rest = {name: value for name, value in fields_of(raw).items() if name not in _PART_FIELDS}
    plain = {"text": part.text} if isinstance(part, Text | Thought) else _encode_plain_part(part, capabilities)
    return {**plain, **({"thought": True} if isinstance(part, Thought) else {}), **rest}


_PART_FIELDS = frozenset(("text", "thought", "functionCall", "functionResponse", "inlineData", "fileData"))


def _encode_plain_part(part: Part, capabilities: Capabilities) -> Any:
    """Return a part by its value; None for an empty text, and for thoughts and opaque parts of other models."""
    if isinstance(part, ToolResult):
        return {"functionResponse": _encode_result(part, capabilities)}
    if isinstance(part, Text):
        return {"text": part.text} if part.text else None
    if isinstance(part, ToolCall):
        call: dict[str, Any] = {"name": part.name, "args": part.arguments}
        return {"functionCall": {"id": part.id, **call} if capabilities.call_ids and _has_id(part) else call}
    return encode_blob(part) if isinstance(part, Blob) else None


def encode_blob(blob: Blob) -> dict[str, Any]:
    """Return the part for a file."""
    if blob.url is not None:
        return {"fileData": {"fileUri": blob.url, "mimeType": blob.media_type}}
    return {"inlineData": {"mimeType": blob.media_type, "data": blob.base64}}


def _encode_result(result: ToolResult, capabilities: Capabilities) -> dict[str, Any]:
    value, media = (result.model_value, result.media) if result.content else (result.value, ())
    if result.is_error:
        value = value if isinstance(value, dict) and value.get("error") else {"error": value}
    elif not isinstance(value, dict):
        value = {capabilities.result_key: value}
    if result.hint is not None:
        if "note" in value:
            value = {"error" if result.is_error else capabilities.result_key: value}
        value = {**value, "note": result.hint}
    response: dict[str, Any] = {"name": result.name, "response": value}
    if capabilities.call_ids and not is_local_id(result.id):
        response["id"] = result.id
    if media and capabilities.media_in_results:
        response["parts"] = [encode_blob(blob) for blob in media]
    return response


def _encode_config(config: RequestConfig, capabilities: Capabilities) -> tuple[MessageEncoder, bytes, bytes]:
    """Return the encoder of the contents of a request, and the JSON before and after the contents."""
    head = HEAD
    fields = prompt_fields(config, capabilities)
    if generation_config := _generation_config(config, capabilities):
        fields["generationConfig"] = generation_config
    fields = _merged(fields, _extra_fields(config.settings))
    if config.system and not capabilities.system_instruction and "cachedContent" not in fields:
        head = head_with({"role": "user", "parts": [{"text": config.system}]})
    tail = b"],%b" % encode_json(fields)[1:] if fields else b"]}"
    return message_encoder(capabilities), head, tail


def head_with(system: Any) -> bytes:
    """Return the head of a request whose first content is the system prompt, for models without system instructions."""
    return HEAD + encode_json(system) + b","


def prompt_fields(config: RequestConfig, capabilities: Capabilities) -> dict[str, Any]:
    """Return the system prompt and the tools, which a cache can hold, or the name of the cache that holds them."""
    fields: dict[str, Any] = {}
    if config.cache is not None and config.cache.key:
        if not capabilities.explicit_cache:
            raise ConfigError(f"{config.model!r} has no explicit caches; it caches long prefixes by itself")
        fields["cachedContent"] = config.cache.key  # the API rejects the other three fields in the same request
    else:
        if config.system and capabilities.system_instruction:
            fields["systemInstruction"] = {"parts": [{"text": config.system}]}
        fields["tools"] = _tools(config)
        functions = [tool.name for tool in config.tools if isinstance(tool, ToolSpec)]
        tool_config = tool_config_fields(functions, config.tool_choice, capabilities, has_builtins=config.has_builtins)
        fields["toolConfig"] = tool_config
    return {name: value for name, value in fields.items() if value}


def _tools(config: RequestConfig) -> list[dict[str, Any]]:
    """Return each built-in tool as a tool, then all functions as one tool."""
    tools = [{tool.name: tool.config} for tool in config.tools if isinstance(tool, BuiltinTool)]
    functions = [_declaration(tool) for tool in config.tools if isinstance(tool, ToolSpec)]
    return [*tools, {"functionDeclarations": functions}] if functions else tools


def _declaration(tool: ToolSpec) -> dict[str, Any]:
    fields = {"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.parameters}
    return {name: value for name, value in fields.items() if value}


_MODES = {"auto": "AUTO", "required": "ANY", "none": "NONE"}


def tool_config_fields(
    functions: Sequence[str], choice: ToolChoice | None, capabilities: Capabilities, *, has_builtins: bool
) -> dict[str, Any]:
    """Return the toolConfig for these declared functions, with what the API requires for built-in tools."""
    fields: dict[str, Any] = {}
    if functions and has_builtins:
        if not capabilities.builtin_with_functions:
            raise ConfigError("this model accepts functions or built-in tools, not both; use a Gemini 3 model")
        if capabilities.server_side_calls:
            fields["includeServerSideToolInvocations"] = True
            if choice is None or choice.mode == "auto":
                choice = ToolChoice("auto", strict=True)  # AUTO is rejected where the two are combined
    if choice is None:
        return fields
    if choice.mode == "required" and not functions:
        raise ConfigError("tool_choice requires a call, but no functions are declared")
    missing = [name for name in choice.names if name not in functions]
    if missing:
        declared = ", ".join(functions) or "none"
        raise ConfigError(
            f"tool_choice names {', '.join(map(repr, missing))}, but the declared functions are: {declared}"
        )
    if choice.parallel is False:
        raise ConfigError("Gemini cannot be limited to one call at a time; remove parallel=False")
    mode = "VALIDATED" if choice.strict and choice.mode == "auto" else _MODES[choice.mode]
    names = list(choice.names) if mode in ("ANY", "VALIDATED") else []
    fields["functionCallingConfig"] = {"mode": mode, "allowedFunctionNames": names} if names else {"mode": mode}
    return fields


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
        fields["thinkingLevel"] = nearest_level(thinking, levels)
    elif thinking is not None and capabilities.thinking_budget:
        fields["thinkingBudget"] = _budget(thinking)
    if levels or capabilities.thinking_budget:
        fields["includeThoughts"] = settings.show_thoughts
    return {name: value for name, value in fields.items() if value is not None}


_BUDGETS: dict[ThinkingLevel, int] = {"minimal": 0, "low": 1_024, "medium": 8_192, "high": 24_576}
"""The token budget of each level, as in Google's OpenAI-compatible endpoint."""


def _budget(thinking: ThinkingLevel | int) -> int:
    return thinking if isinstance(thinking, int) else _BUDGETS[thinking]


def nearest_level(thinking: ThinkingLevel | int, levels: tuple[ThinkingLevel, ...]) -> str | None:
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
            raise ConfigError(f"settings: extra must not have {name!r}, which Midspan builds from the history")
    return fields


def _merged(fields: dict[str, Any], extra: dict[str, Any]) -> dict[str, Any]:
    merged = {**fields, **extra}
    for name, value in extra.items():
        if isinstance(fields.get(name), dict) and isinstance(value, dict):
            merged[name] = _merged(fields[name], value)
    return merged


_read_signature = msgspec.json.Decoder(Signed).decode


def thought_signature(part: Part) -> str | None:
    """Return the thought signature of a part that Gemini sent."""
    raw = _sent_bytes(part)
    try:
        return _read_signature(raw).thought_signature if raw else None
    except READ_ERRORS:
        return None
