"""A conversation as a request of the Responses API.

Nothing is stored on the server: each request has the whole conversation, with the encrypted reasoning of the model.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from midspan._types.encoded import MessageEncoder, join_body
from midspan._types.exchange import ModelRequest, RequestConfig
from midspan._types.messages import Message
from midspan._types.parts import Blob, Opaque, Part, Text, Thought, ToolCall, ToolResult
from midspan._types.specs import AnyTool, BuiltinTool, ModelSettings, ToolChoice
from midspan.providers.encoding import (
    arguments_text,
    encode_head,
    encode_items,
    encode_json,
    own_data,
    result_parts,
    result_text,
    valid_id,
)
from midspan.providers.openai.encode import encode_effort, output_name

ORIGIN = "openai-responses"
ID = re.compile(r"\S{1,64}")
"""Valid ids of calls."""
_REASONING_MODEL = re.compile(r"(?:[\w.-]+/)?(?:o\d|gpt-(?:[5-9]|\d\d))(?!.*-chat)")


def request_body(request: ModelRequest, *, stream: bool) -> bytes:
    """Return the JSON that asks for the next turn."""
    config = request.config
    head = config.derived(ORIGIN, _encode_config, config)
    return join_body(request.history, _ENCODER, head, b'],"stream":true}' if stream else b"]}")


# All fields but the input


def _encode_config(config: RequestConfig) -> bytes:
    settings, choice = config.settings, config.tool_choice
    fields: dict[str, Any] = {"model": config.model, "store": False}
    if _REASONING_MODEL.match(config.model):
        fields["include"] = ["reasoning.encrypted_content"]
    instructions = config.system or ""
    if config.output is not None and config.output.json_schema is None:
        instructions = f"{instructions}\n\nAnswer with JSON only.".strip()  # the API demands that JSON is mentioned
    if config.tools:
        fields["tools"] = [_encode_tool(tool) for tool in config.tools]
        if choice is not None:
            fields |= {"tool_choice": _encode_choice(choice), "parallel_tool_calls": choice.parallel}
    fields |= {
        "instructions": instructions or None,
        "text": _encode_output(config),
        "reasoning": _encode_reasoning(settings, config.model),
        "max_output_tokens": settings.max_tokens,
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "prompt_cache_key": config.cache.key if config.cache is not None else None,
    }
    return encode_head(fields, settings.extra, "input")


def _encode_tool(tool: AnyTool) -> dict[str, Any]:
    if isinstance(tool, BuiltinTool):
        return {"type": tool.name, **tool.config}
    encoded: dict[str, Any] = {"type": "function", "name": tool.name}
    if tool.description:
        encoded["description"] = tool.description
    encoded["parameters"] = tool.parameters or {"type": "object", "properties": {}}
    encoded["strict"] = bool(tool.strict)  # the default of the API is True, which rejects most schemas
    return encoded


def _encode_choice(choice: ToolChoice) -> Any:
    mode = choice.mode
    if not choice.names or mode == "none":
        return mode
    functions = [{"type": "function", "name": name} for name in choice.names]
    if len(functions) == 1 and mode == "required":
        return functions[0]
    return {"type": "allowed_tools", "mode": mode, "tools": functions}


def _encode_output(config: RequestConfig) -> dict[str, Any] | None:
    if config.output is None:
        return None
    schema, strict = config.output.json_schema, config.output.strict
    if schema is None:
        return {"format": {"type": "json_object"}}
    return {"format": {"type": "json_schema", "name": output_name(schema), "schema": schema, "strict": strict}}


def _encode_reasoning(settings: ModelSettings, model: str) -> dict[str, Any] | None:
    effort = encode_effort(settings, model)
    fields = {} if effort is None else {"effort": effort}
    if settings.show_thoughts:
        fields["summary"] = "auto"
    return fields or None


# Messages


def encode_messages(messages: Sequence[Message]) -> list[bytes]:
    """Return the items of the input: a message, a call and a result are items of their own."""
    return encode_items(item for message in messages for item in _items(message))


_ENCODER = MessageEncoder(ORIGIN, encode_messages)


def _items(message: Message) -> Iterator[Any]:
    raw = own_data(message, ORIGIN)
    if raw is not None and all(ID.fullmatch(part.id) for part in message.parts if isinstance(part, ToolCall)):
        items = msgspec.json.decode(raw, type=list[Raw])
        if not all(_is_reasoning(part) for part in message.parts):
            yield from items  # reasoning alone, of an answer that was cut, would be rejected
    elif message.role == "model":
        yield from _model_items(message)
    else:
        yield from _user_items(message)


def _is_reasoning(part: Part) -> bool:
    return isinstance(part, Thought) or (isinstance(part, Opaque) and part.name == "reasoning")


def _model_items(message: Message) -> Iterator[Any]:
    media: list[Part] = []
    for part in message.parts:
        if (raw := _as_sent(part)) is not None:
            yield raw
        elif isinstance(part, Text) and part.text:
            yield {"role": "assistant", "content": part.text}
        elif isinstance(part, ToolCall):
            fields = {"call_id": valid_id(part.id, ID), "name": part.name, "arguments": arguments_text(part)}
            yield {"type": "function_call", **fields}
        elif isinstance(part, Blob):
            media.append(part)
    if media and not message.calls:  # images that a model made: only messages of the user can contain them
        yield from _user_items(Message("user", tuple(media)))


def _as_sent(part: Part) -> Raw | None:
    """Return the item that the API sent for a part; None if it sent none, or the part was changed."""
    raw = own_data(part, ORIGIN)
    if raw is None or isinstance(part, Opaque | Thought):
        return raw  # reasoning is only read by the API itself
    item = msgspec.json.decode(raw)
    if isinstance(part, ToolCall) and (item.get("call_id"), item.get("name")) == (part.id, part.name):
        return Raw(encode_json({**item, "call_id": valid_id(part.id, ID), "arguments": arguments_text(part)}))
    if isinstance(part, Text) and [content.get("text") for content in item.get("content") or []] == [part.text]:
        return raw
    return None


def _user_items(message: Message) -> Iterator[Any]:
    content: list[Any] = []
    for part in message.parts:
        if isinstance(part, ToolResult):
            yield _encode_result(part)
        elif isinstance(part, Text):
            content.append({"type": "input_text", "text": part.text})
        elif isinstance(part, Blob):
            content.append(_encode_blob(part))
        elif isinstance(part, Opaque) and (raw := own_data(part, ORIGIN)) is not None:
            if part.name.startswith("input_"):
                content.append(raw)
            else:
                yield raw  # an item of its own
    if len(content) == 1 and isinstance(content[0], dict) and content[0]["type"] == "input_text":
        content = content[0]["text"]
    if content:
        yield {"role": "user", "content": content}


def _encode_result(result: ToolResult) -> dict[str, Any]:
    output: Any = result_text(result)
    if result.media:
        output = [
            _encode_blob(part) if isinstance(part, Blob) else {"type": "input_text", "text": part.text}
            for part in result_parts(result)
        ]
    return {"type": "function_call_output", "call_id": valid_id(result.id, ID), "output": output}


def _encode_blob(blob: Blob) -> dict[str, Any]:
    media_type = blob.media_type.partition(";")[0].strip().lower()
    is_id = blob.url is not None and "://" not in blob.url
    data = blob.url or f"data:{media_type};base64,{blob.base64}"
    if media_type.startswith("image/"):
        return {"type": "input_image", "detail": "auto", ("file_id" if is_id else "image_url"): data}
    if blob.url is not None:
        return {"type": "input_file", ("file_id" if is_id else "file_url"): data}
    return {"type": "input_file", "filename": blob.name or "file", "file_data": data}
