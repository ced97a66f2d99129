"""A conversation as a request of the Interactions API.

Nothing is stored on the server: each request has all steps of the conversation, with the model's signed thoughts.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from midspan._types.encoded import MessageEncoder, join_body
from midspan._types.exchange import ModelRequest, RequestConfig
from midspan._types.messages import Message
from midspan._types.parts import Blob, Opaque, Part, Text, Thought, ToolCall, ToolResult
from midspan._types.specs import AnyTool, BuiltinTool, ToolChoice
from midspan.providers.encoding import encode_head, encode_items, own_data, result_parts, result_text
from midspan.providers.gemini.capabilities import capabilities_of
from midspan.providers.gemini.encode import nearest_level

ORIGIN = "gemini-interactions"


def request_body(request: ModelRequest, *, stream: bool) -> bytes:
    """Return the JSON that asks for the next turn."""
    config = request.config
    head = config.derived(ORIGIN, _encode_config, config)
    return join_body(request.history, _ENCODER, head, b'],"stream":true}' if stream else b"]}")


# All fields but the input


def _encode_config(config: RequestConfig) -> bytes:
    fields: dict[str, Any] = {
        "model": config.model,
        "store": False,
        "system_instruction": config.system or None,
        "tools": [_encode_tool(tool) for tool in config.tools] or None,
        "generation_config": _encode_settings(config) or None,
    }
    if config.output is not None:
        fields["response_format"] = {"type": "text", "mime_type": "application/json"}
        if config.output.json_schema is not None:
            fields["response_format"]["schema"] = config.output.json_schema
    return encode_head(fields, config.settings.extra, "input")


def _encode_tool(tool: AnyTool) -> dict[str, Any]:
    if isinstance(tool, BuiltinTool):
        return {"type": _snake_case(tool.name), **tool.config}
    encoded: dict[str, Any] = {"type": "function", "name": tool.name}
    if tool.description:
        encoded["description"] = tool.description
    if tool.parameters is not None:
        encoded["parameters"] = tool.parameters
    return encoded


def _snake_case(name: str) -> str:
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name)


def _encode_settings(config: RequestConfig) -> dict[str, Any]:
    settings, choice = config.settings, config.tool_choice if config.tools else None
    levels = capabilities_of(config.model).thinking_levels
    level = nearest_level(settings.thinking, levels) if isinstance(settings.thinking, str) and levels else None
    optional = {
        "max_output_tokens": settings.max_tokens,
        "seed": settings.seed,
        "stop_sequences": settings.stop or None,
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "thinking_level": None if level is None else level.lower(),
        "thinking_summaries": None if settings.show_thoughts is None else "auto" if settings.show_thoughts else "none",
        "tool_choice": None if choice is None else _encode_choice(choice),
    }
    return {name: value for name, value in optional.items() if value is not None}


_MODES = {"auto": "auto", "required": "any", "none": "none"}


def _encode_choice(choice: ToolChoice) -> Any:
    mode = "validated" if choice.strict and choice.mode == "auto" else _MODES[choice.mode]
    return {"allowed_tools": {"mode": mode, "tools": choice.names}} if choice.names else mode


# Messages


def encode_messages(messages: Sequence[Message]) -> list[bytes]:
    """Return the steps of a conversation."""
    return encode_items(step for message in messages for step in _steps(message))


_ENCODER = MessageEncoder(ORIGIN, encode_messages)


def _steps(message: Message) -> Iterator[Any]:
    if raw := own_data(message, ORIGIN):
        yield from msgspec.json.decode(raw, type=list[Raw])
        return
    content: list[Any] = []
    for part in message.parts:
        if isinstance(part, ToolResult):
            yield _encode_result(part)
        elif isinstance(part, ToolCall):
            if content:
                yield {"type": "model_output", "content": content}
                content = []
            yield {"type": "function_call", "id": part.id, "name": part.name, "arguments": part.arguments}
        elif isinstance(part, Thought | Opaque):
            if raw := own_data(part, ORIGIN):
                yield raw
        elif encoded := _encode_content(part):
            content.append(encoded)
    if content:
        yield {"type": "user_input" if message.role == "user" else "model_output", "content": content}


def _encode_content(part: Part) -> dict[str, Any] | None:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text} if part.text else None
    if not isinstance(part, Blob):
        return None
    category = part.media_type.partition("/")[0]
    is_media = category in ("image", "audio", "video")
    content = {"type": category if is_media else "document", "mime_type": part.media_type}
    return {**content, "uri": part.url} if part.url is not None else {**content, "data": part.base64}


def _encode_result(result: ToolResult) -> dict[str, Any]:
    value: Any = result.value if isinstance(result.value, dict) and result.hint is None else result_text(result)
    if result.media:
        value = [content for part in result_parts(result) if (content := _encode_content(part))]
    encoded = {"type": "function_result", "call_id": result.id, "name": result.name, "result": value}
    return {**encoded, "is_error": True} if result.is_error else encoded
