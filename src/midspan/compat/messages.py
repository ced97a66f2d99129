"""Messages as dicts: roles user, assistant and tool; blocks of text, tool_call and tool_response."""

from typing import Any

import msgspec

from midspan._types.messages import ROLES, Message
from midspan._types.parts import Part, Text, ToolCall, ToolResult, local_id
from midspan.errors import ConfigError

MessageDict = dict[str, Any]


def to_message(message: MessageDict) -> Message:
    """Return a message from its dict. An unknown role counts as the user's."""
    content = message.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not isinstance(blocks, list):
        raise ConfigError(f"the content of a message must be a string or a list of blocks, got {content!r:.80}")
    return Message(ROLES.get(str(message.get("role")), "user"), tuple(_to_part(block) for block in blocks))


def _to_part(block: Any) -> Part:
    match block:
        case {"type": "text", "text": str(text)}:
            return Text(text)
        case {"type": "tool_call", "tool_call": {"name": str(name), **fields}}:
            arguments: Any = parse_json(fields.get("arguments")) or {}
            if not isinstance(arguments, dict):
                raise ConfigError(f"the arguments of a call must be a dict, got {arguments!r:.80}")
            return ToolCall(str(fields.get("id") or local_id()), name, arguments)
        case {"type": "tool_response", "tool_response": {"name": str(name), **fields}}:
            return ToolResult(str(fields.get("tool_call_id") or name), name, parse_json(fields.get("content")))
    raise ConfigError(f"unknown block {block!r:.120}; known types: text, tool_call, tool_response")


def to_dict(message: Message, *, is_complete: bool = True) -> MessageDict:
    """Return a message of a model as a dict. A call that must not be executed has an `error`."""
    blocks: list[MessageDict] = []
    for part in message.parts:
        if isinstance(part, Text) and part.text:
            blocks.append({"type": "text", "text": part.text})
        elif isinstance(part, ToolCall):
            call = {"id": part.id, "name": part.name, "arguments": part.arguments}
            error = part.arguments_error or (None if is_complete else "the response was cut off; make the call again")
            blocks.append({"type": "tool_call", "tool_call": {**call, "error": error} if error else call})
    return {"role": "assistant", "content": blocks}


def parse_json(content: Any) -> Any:
    """Return the value of a string that is JSON; everything else as it is."""
    if not isinstance(content, str):
        return content
    try:
        return msgspec.json.decode(content)
    except msgspec.DecodeError:
        return content
