"""What a text-only model reads: the system prompt with the tools, and the conversation.

The text of the model is sent back unchanged. Results become text of the user, one line of JSON each. Start marks of
calls in results are escaped, so a model that repeats them makes no call.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from midspan._schema.sample import sample_object
from midspan._schema.tree import TYPES, SchemaNode
from midspan._types.messages import History, Message
from midspan._types.parts import Blob, Opaque, Part, Text, Thought, ToolCall, ToolResult
from midspan._types.specs import ToolChoice, ToolSpec
from midspan.providers.encoding import json_text, own_data
from midspan.providers.prompted.forms import escape_marks
from midspan.providers.prompted.reader import rejected_call
from midspan.providers.prompted.scanner import parameters_of


def system_prompt(tools: Sequence[ToolSpec], marker: str) -> str:
    """Return the description of the tools for the prompt. Calls start with `marker`."""
    schemas = {tool.name: parameters_of(tool) for tool in tools}
    with_parameters_first = sorted(tools, key=lambda tool: not schemas[tool.name].all_properties)
    return "\n".join(
        [
            "Available tools:",
            *(line for tool in tools for line in _describe_tool(tool, schemas[tool.name])),
            "",
            "When you need to use a tool, respond in EXACT format:",
            f'{marker}: tool_name({{"arg1": "value1", "arg2": "value2"}})',
            "",
            "For example:",
            *(example_call(tool, marker) for tool in with_parameters_first[:2]),
            "",
            "Rules:",
            f"- A call is one line: {marker}, a colon, the name of the tool, and in parentheses one JSON object.",
            "- Write valid JSON: double quotes around names and strings, \\n for line breaks in strings, no comments.",
            "- Give every required parameter, and only parameters of the tool. A tool without parameters gets ({}).",
            "- You may write several calls, each on its own line. They run one after another.",
            "- After your calls, stop. You will get each result on a line that begins with TOOL_RESULT or TOOL_ERROR.",
            "- Never write such a line yourself, and never invent a result.",
            "- When you need no tool, answer in plain words.",
        ]
    )


def choice_rule(choice: ToolChoice | None) -> str:
    """Return what the caller's tool choice adds to the prompt."""
    if choice is None or choice.mode not in ("required", "none"):
        return ""
    if choice.mode == "none":
        return "\n\nDo not call any tool now. Answer in words, with the information you have."
    tools = f"one of these tools: {', '.join(choice.names)}" if choice.names else "at least one tool"
    return f"\n\nYou must call {tools} in this answer."


def example_call(tool: ToolSpec, marker: str) -> str:
    """Return a call of this tool as the model should write it."""
    arguments = tool.examples[0] if tool.examples else sample_object(parameters_of(tool))
    return f"{marker}: {tool.name}({_json(arguments)})"


def _describe_tool(tool: ToolSpec, schema: SchemaNode) -> list[str]:
    head = f"- {tool.name}{_description(tool.description)}"
    if not schema.all_properties:
        return [head, "  Parameters: (none)"]
    lines = [head, "  Parameters:", *(_describe_parameter(name, prop) for name, prop in schema.all_properties.items())]
    if schema.all_required:
        lines.append(f"  Required: {', '.join(schema.all_required)}")
    definitions = [schema.schema[keyword] for keyword in ("$defs", "definitions") if keyword in schema.schema]
    return [*lines, *(f"  Definitions: {_json(value)}" for value in definitions)]


def _describe_parameter(name: str, node: SchemaNode) -> str:
    type_names = [kind for kind in TYPES if kind in node.types and not (kind == "integer" and "number" in node.types)]
    types = "any" if node.types >= set(TYPES) else " or ".join(type_names)
    more = {keyword: value for keyword, value in node.schema.items() if keyword not in ("type", "description")}
    schema = f" Schema: {_json(more)}" if more else ""
    return f"    - {name} ({types}){_description(node.schema.get('description'))}{schema}"


def _description(text: Any) -> str:
    return f": {' '.join(str(text).split())}" if text else ""


def _json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=0).decode()


ORIGIN = "prompted"
_NUMBERED_ID = re.compile(r"gemini_call_(\d{1,9})")


class TurnData(Struct, frozen=True):
    """What a turn of the model keeps in addition to its parts: the message of the inner provider, and the nonce."""

    message: Message
    nonce: str


def turn_data(message: Message) -> TurnData | None:
    data = own_data(message, ORIGIN)
    return None if data is None else msgspec.json.decode(data, type=TurnData)


def next_call_number(history: History) -> int:
    """Return the number of the next call in a conversation."""
    numbers = (_NUMBERED_ID.fullmatch(call.id) for message in history for call in message.calls)
    return max((int(number[1]) + 1 for number in numbers if number), default=0)


def render(history: History, marker: str) -> History:
    """Return the conversation as text; each message is rendered once. Calls of other providers begin with `marker`.

    The result keeps what the inner provider derives from it, such as encoded bytes.
    """

    def extend(rendered: History | None, new: tuple[Message, ...]) -> History:
        rendered = History() if rendered is None else rendered
        before = history.messages[len(rendered) - 1] if len(rendered) else None
        messages = [
            _model_message(message, marker) if message.role == "model" else _user_message(previous, message)
            for previous, message in zip((before, *new), new, strict=False)
        ]
        return rendered.append(*messages)

    return history.derived((ORIGIN, marker), extend)


def _user_message(before: Message | None, message: Message) -> Message:
    """Return the message as text, after the errors of calls in the turn before that it does not report itself."""
    rejected = filter(None, map(rejected_call, before.parts if before is not None else ()))
    parts: list[Part] = [Text(f"TOOL_ERROR {call.error}\n") for call in rejected if call.error not in message.text]
    for part in message.parts:
        parts += _result(part) if type(part) is ToolResult else [part]
    return message if parts == list(message.parts) else Message("user", tuple(parts))


def _result(result: ToolResult) -> Iterator[Part]:
    status = "TOOL_ERROR" if result.is_error else "TOOL_RESULT"
    note = "" if result.hint is None else f"\nNote: {escape_marks(json_text(result.hint))}"
    yield Text(f"{status} {result.id} {result.name}: {escape_marks(json_text(result.model_value))}{note}\n")
    yield from result.media


def _model_message(message: Message, marker: str) -> Message:
    """Return what the model wrote; of a turn of another provider, or one that was edited, its calls in our form."""
    data = turn_data(message)
    if data is not None:
        return data.message
    if not any(type(part) in (ToolCall, ToolResult, Opaque) for part in message.parts):
        return message
    parts: list[Part] = []
    for part in message.parts:
        match part:
            case ToolCall():
                parts.append(Text(f"\n{marker}: {part.name}({json_text(part.arguments)})\n"))
            case Text() | Thought() | Blob():
                parts.append(part)
            case Opaque() if (rejected := rejected_call(part)) is not None:
                parts.append(Text(rejected.text))
    return Message("model", tuple(parts))
