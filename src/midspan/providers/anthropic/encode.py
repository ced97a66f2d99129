"""A conversation as a request of the Messages API.

What Claude sent goes back as it came; messages of other providers are encoded from their parts, without reasoning.
"""

import logging
import re
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Any

import msgspec
from msgspec import Raw

from midspan._types.encoded import MessageEncoder, join_body
from midspan._types.exchange import CachePolicy, ModelRequest, RequestConfig
from midspan._types.messages import History, Message
from midspan._types.parts import Blob, Opaque, Part, Text, Thought, ToolCall, ToolResult
from midspan._types.specs import AnyTool, BuiltinTool, ModelSettings, ThinkingLevel, ToolChoice
from midspan.errors import ConfigError
from midspan.providers.anthropic.profile import ClaudeCapabilities
from midspan.providers.encoding import (
    allowed_tools,
    encode_head,
    encode_items,
    join_turns,
    own_data,
    result_parts,
    result_text,
    unaccepted_media,
    valid_id,
)

_log = logging.getLogger("midspan.providers.anthropic")

ORIGIN = "anthropic"
ID = re.compile(r"[A-Za-z0-9_-]{1,256}")
"""Valid ids of calls."""
_MEDIA_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp", "application/pdf")
"""What is sent in base64: https://platform.claude.com/docs/en/build-with-claude/vision"""
_UNSUPPORTED = ("temperature", "top_p", "top_k", "seed", "presence_penalty", "frequency_penalty")
"""Settings that the API does not have, or no longer has. Older models accept some of them, as `extra`."""
_VERTEX_VERSION = "vertex-2023-10-16"
_JSON_ONLY = "Answer with JSON only."
_EFFORTS: dict[ThinkingLevel, str] = {"minimal": "low", "low": "low", "medium": "medium", "high": "high"}
_BUDGETS: dict[ThinkingLevel, int] = {"minimal": 1_024, "low": 2_048, "medium": 8_192, "high": 16_384}
"""The tokens of each level, for models that accept no level."""
_DEFAULT_BUDGET = 8_192
_MIN_BUDGET = 1_024
_LONG_TTL_SECONDS = 300
"""A prefix is kept for five minutes or for an hour."""


def request_body(
    request: ModelRequest, capabilities: ClaudeCapabilities, *, stream: bool, vertex: bool = False
) -> bytes:
    """Return the JSON that asks for the next turn."""
    config, history = request.config, request.history
    lacks_thinking = _continues_without_thinking(history)
    key = ("anthropic", capabilities, vertex, lacks_thinking)
    head = config.derived(key, lambda: _encode_config(config, capabilities, vertex=vertex, think=not lacks_thinking))
    return join_body(history, _ENCODER, head, b'],"stream":true}' if stream else b"]}")


def _continues_without_thinking(history: History) -> bool:
    """Whether the turn that the model continues has calls that do not follow a thinking block.

    Another provider's model may have made them, or Claude while a call was forced. The API rejects such a turn if
    thinking has a budget.
    """
    turn = takewhile(lambda message: message.role == "model" or message.results, reversed(history.messages))
    return any(message.role == "model" and not any(map(_is_thinking, message.parts)) for message in turn)


def _is_thinking(part: Part) -> bool:
    is_thinking = isinstance(part, Thought) or (isinstance(part, Opaque) and part.name == "redacted_thinking")
    return is_thinking and own_data(part, ORIGIN) is not None


# All fields but the messages


def _encode_config(config: RequestConfig, capabilities: ClaudeCapabilities, *, vertex: bool, think: bool) -> bytes:
    settings, cache = config.settings, config.cache
    fields: dict[str, Any] = {"anthropic_version": _VERTEX_VERSION} if vertex else {"model": config.model}
    system = config.system
    if config.output is not None and config.output.json_schema is None:
        system = f"{system}\n\n{_JSON_ONLY}" if system else _JSON_ONLY
    if system:
        fields["system"] = _with_breakpoint([{"type": "text", "text": system}], cache, "system")
    tools = allowed_tools(config.tools, config.tool_choice)
    if tools:
        fields["tools"] = _with_breakpoint([_encode_tool(tool) for tool in tools], cache, "tools")
        if config.tool_choice is not None:
            fields["tool_choice"] = _encode_choice(config.tool_choice)
    thinking, effort = _encode_thinking(settings, capabilities)
    is_forced = config.tool_choice is not None and config.tool_choice.mode == "required" and bool(tools)
    if thinking is not None and "budget_tokens" in thinking and (is_forced or not think):
        thinking = None  # the API rejects a budget for forced calls and for turns that do not start with thinking
    output_config: dict[str, Any] = {} if effort is None else {"effort": effort}
    if config.output is not None and config.output.json_schema is not None:
        output_config["format"] = {"type": "json_schema", "schema": config.output.json_schema}
    budget = thinking.get("budget_tokens", 0) if thinking else 0
    fields["max_tokens"] = settings.max_tokens or capabilities.default_max_tokens + budget
    fields |= {
        "thinking": thinking,
        "output_config": output_config or None,
        "stop_sequences": settings.stop or None,
    }
    if cache is not None and "messages" in cache.parts and not vertex:
        fields["cache_control"] = _cache_control(cache)
    for name in _UNSUPPORTED:
        if getattr(settings, name) is not None:
            _log.warning("Anthropic has no setting %s; it is ignored", name)
    return encode_head(fields, settings.extra, "messages")


def _encode_tool(tool: AnyTool) -> dict[str, Any]:
    if isinstance(tool, BuiltinTool):
        return {"type": tool.name, **tool.config}
    encoded: dict[str, Any] = {"name": tool.name}
    if tool.description:
        encoded["description"] = tool.description
    encoded["input_schema"] = {"type": "object", **(tool.parameters or {"properties": {}})}
    if tool.examples:
        encoded["input_examples"] = tool.examples
    if tool.strict is not None:
        encoded["strict"] = tool.strict
    return encoded


def _encode_choice(choice: ToolChoice) -> dict[str, Any]:
    if choice.mode == "required" and len(choice.names) == 1:
        encoded: dict[str, Any] = {"type": "tool", "name": choice.names[0]}
    else:
        encoded = {"type": "any" if choice.mode == "required" else choice.mode}
    if choice.parallel is not None and choice.mode != "none":
        encoded["disable_parallel_tool_use"] = not choice.parallel
    return encoded


def _encode_thinking(
    settings: ModelSettings, capabilities: ClaudeCapabilities
) -> tuple[dict[str, Any] | None, str | None]:
    """Return the fields `thinking` and `output_config.effort`."""
    level = settings.thinking
    if level is None and not settings.show_thoughts:
        return None, None
    if level == 0:
        return {"type": "disabled"}, None
    if not capabilities.budget and not capabilities.adaptive:
        _log.warning("this Claude model does not support extended thinking; the setting is ignored")
        return None, None
    effort = None
    is_automatic = level in (None, -1)
    if capabilities.adaptive and (is_automatic or isinstance(level, str) or not capabilities.budget):
        thinking: dict[str, Any] = {"type": "adaptive"}
        if isinstance(level, str):
            effort = _EFFORTS[level]
        elif level is not None and not is_automatic:
            effort = "low" if level <= _BUDGETS["low"] else "medium" if level <= _BUDGETS["medium"] else "high"
    else:
        tokens = (
            _BUDGETS[level] if isinstance(level, str) else _DEFAULT_BUDGET if level is None or is_automatic else level
        )
        if settings.max_tokens is not None:
            if settings.max_tokens <= _MIN_BUDGET:
                _log.warning(
                    "thinking needs more than %d tokens, so max_tokens=%d turns it off",
                    _MIN_BUDGET,
                    settings.max_tokens,
                )
                return None, None
            tokens = min(tokens, settings.max_tokens - 1)  # it must be below the maximum
        thinking = {"type": "enabled", "budget_tokens": max(tokens, _MIN_BUDGET)}
    if settings.show_thoughts is not None and capabilities.adaptive:
        thinking["display"] = "summarized" if settings.show_thoughts else "omitted"
    return thinking, effort


def _cache_control(cache: CachePolicy) -> dict[str, Any]:
    if cache.ttl_seconds is None:
        return {"type": "ephemeral"}
    return {"type": "ephemeral", "ttl": "1h" if cache.ttl_seconds > _LONG_TTL_SECONDS else "5m"}


def _with_breakpoint(blocks: list[dict[str, Any]], cache: CachePolicy | None, part: str) -> list[dict[str, Any]]:
    """Return the blocks with a cache breakpoint at the last one, if the policy covers this part of the prompt."""
    if cache is not None and part in cache.parts:
        blocks[-1]["cache_control"] = _cache_control(cache)
    return blocks


# Messages


def encode_messages(messages: Sequence[Message]) -> list[bytes]:
    """Return the messages of the API; messages of one role in a row become one."""
    encoded: list[bytes] = []
    media: list[Blob] = []
    """Images that a model of another provider made: an assistant message cannot contain them."""
    for turn in join_turns(messages, _is_one_turn):
        if turn[0].role == "user":
            if media:
                turn.append(Message("user", tuple(map(_accepted_part, media))))
            media = []
        else:
            media = [part for message in turn for part in message.parts if isinstance(part, Blob)]
        if message := _encode_turn([message for message in turn if message.parts]):
            encoded.append(message)
    return encoded


def _is_same_role(first: Message, second: Message) -> bool:
    return first.role == second.role


_ENCODER = MessageEncoder("anthropic", encode_messages, _is_same_role)


def _encode_turn(turn: list[Message]) -> bytes:
    if len(turn) == 1 and (raw := own_data(turn[0], ORIGIN)):
        return bytes(raw)
    fields: dict[str, Any] = {}
    blocks: list[Any] = []
    for message in turn:
        if raw := own_data(message, ORIGIN):
            as_sent = msgspec.json.decode(raw, type=dict[str, Raw])
            blocks += msgspec.json.decode(as_sent.pop("content"), type=list[Raw])
            fields |= as_sent
        else:
            blocks += _encode_parts(message)
    role = "user" if turn and turn[0].role == "user" else "assistant"
    return encode_items([{"role": role, **fields, "content": blocks}])[0] if blocks else b""


def _is_one_turn(first: Message, second: Message) -> bool:
    return _is_same_role(first, second) and not _is_separate(first) and not _is_separate(second)


def _is_separate(message: Message) -> bool:
    """Whether it is a message in the API's own form, which may have a role such as `system`."""
    return message.role == "user" and own_data(message, ORIGIN) is not None


def _encode_parts(message: Message) -> Iterable[Any]:
    # Results come first: the API rejects text between a call and its result.
    parts = sorted(message.parts, key=lambda part: not isinstance(part, ToolResult))
    is_model = message.role == "model"
    return [block for part in parts if (block := _encode_part(part, is_model=is_model)) is not None]


def _encode_part(part: Part, *, is_model: bool) -> Any:
    raw = own_data(part, ORIGIN)
    if raw is None:
        return None if is_model and isinstance(part, Blob) else _encode_plain(part)
    if isinstance(part, Opaque):
        return raw
    fields = msgspec.json.decode(raw, type=dict[str, Any])
    if isinstance(part, Thought):
        return raw if fields.get("thinking") == part.text else None  # the signature is of the original text
    return {**fields, **(_encode_plain(part) or {})}


def _encode_plain(part: Part) -> dict[str, Any] | None:
    match part:
        case Text():
            return {"type": "text", "text": part.text} if part.text.strip() else None  # blank text is rejected
        case ToolCall():
            return {"type": "tool_use", "id": valid_id(part.id, ID), "name": part.name, "input": part.arguments}
        case ToolResult():
            return _encode_result(part)
        case Blob():
            return _encode_blob(part)
    return None  # reasoning and opaque parts of another model mean nothing to Claude


def _encode_result(result: ToolResult) -> dict[str, Any]:
    content: Any = result_text(result)
    if result.media or len(result.content) > 1:
        content = [block for part in result_parts(result) if (block := _encode_plain(_accepted_part(part)))]
    encoded = {"type": "tool_result", "tool_use_id": valid_id(result.id, ID), "content": content}
    return {**encoded, "is_error": True} if result.is_error else encoded


def _accepted_part(part: Text | Blob) -> Text | Blob:
    """Return a part of a result or of another model, with a text in place of media that Claude does not accept."""
    return unaccepted_media(part) if isinstance(part, Blob) and not _is_accepted(part) else part


def _is_accepted(blob: Blob) -> bool:
    media_type = _media_type(blob)
    if blob.url is not None:  # its exact type may be unknown
        return not media_type.startswith(("audio/", "video/"))
    return media_type in _MEDIA_TYPES or media_type.startswith("text/")


def _media_type(blob: Blob) -> str:
    return blob.media_type.partition(";")[0].strip().lower()


def _encode_blob(blob: Blob) -> dict[str, Any]:
    if not _is_accepted(blob):
        raise ConfigError(f"Claude accepts JPEG, PNG, GIF and WebP images, PDF and text files, not {blob.media_type}")
    media_type = _media_type(blob)
    is_image = media_type.startswith("image/")
    if blob.url is not None:
        is_url = "://" in blob.url
        source: dict[str, Any] = {"type": "url", "url": blob.url} if is_url else {"type": "file", "file_id": blob.url}
    elif media_type in _MEDIA_TYPES:
        source = {"type": "base64", "media_type": media_type, "data": blob.base64}
    else:
        source = {"type": "text", "media_type": "text/plain", "data": blob.data.decode(errors="replace")}
    if is_image:
        return {"type": "image", "source": source}
    title = {} if blob.name is None else {"title": blob.name}
    return {"type": "document", "source": source, **title}
