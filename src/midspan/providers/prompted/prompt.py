"""Writes the system prompt: the tools, and the form of a call. The same tools give the same prompt."""

from collections.abc import Sequence
from typing import Any

import msgspec

from midspan._schema.tree import ANYTHING, TYPES, SchemaNode
from midspan._types.specs import ToolChoice, ToolSpec
from midspan.providers.prompted.scanner import parameters_of, properties_of

_MAX_DEPTH = 4
_EXAMPLES: dict[str, Any] = {"string": "text", "integer": 1, "number": 1.5, "boolean": True, "null": None}


def system_prompt(tools: Sequence[ToolSpec], marker: str) -> str:
    """Return the description of the tools for the prompt. Calls start with `marker`."""
    schemas = {tool.name: parameters_of(tool) for tool in tools}
    with_parameters = [tool for tool in tools if properties_of(schemas[tool.name])]
    without = [tool for tool in tools if tool not in with_parameters]
    examples = [example_call(tool, marker) for tool in (*with_parameters[:2], *without[:1])[:2]]
    return "\n".join(
        [
            "Available tools:",
            *(line for tool in tools for line in _describe_tool(tool, schemas[tool.name])),
            "",
            "When you need to use a tool, respond in EXACT format:",
            f'{marker}: tool_name({{"arg1": "value1", "arg2": "value2"}})',
            "",
            "For example:",
            *examples,
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
    arguments = tool.examples[0] if tool.examples else _example_object(parameters_of(tool), 0)
    return f"{marker}: {tool.name}({_json(arguments)})"


def _describe_tool(tool: ToolSpec, schema: SchemaNode) -> list[str]:
    head = f"- {tool.name}" + _description(tool.description)
    parameters = _describe_properties(schema, "    ", 0)
    if not parameters:
        return [head, "  Parameters: (none)"]
    return [head, "  Parameters:", *parameters, *_required(schema, "  ")]


def _describe_properties(node: SchemaNode, indent: str, depth: int) -> list[str]:
    lines = []
    for name, prop in properties_of(node).items():
        description = _description(_keywords(prop).get("description"))
        lines.append(f"{indent}- {name} ({_type(prop)}){description}{_values(prop)}")
        inner = prop if properties_of(prop) else _items(prop)
        if depth < _MAX_DEPTH:
            lines += _describe_properties(inner, indent + "  ", depth + 1)
            lines += _required(inner, indent + "  ")
    return lines


def _description(text: Any) -> str:
    return f": {' '.join(str(text).split())}" if text else ""


def _required(node: SchemaNode, indent: str) -> list[str]:
    names = _keywords(node).get("required")
    return [f"{indent}Required: {', '.join(names)}"] if names and properties_of(node) else []


def _type(node: SchemaNode, depth: int = 0) -> str:
    if node.types >= set(TYPES):
        return "any"
    names = [name for name in TYPES if name in node.types and not (name == "integer" and "number" in node.types)]
    items = _items(node)
    array = "array" if items is ANYTHING or depth == _MAX_DEPTH else f"array of {_type(items, depth + 1)}"
    return " or ".join(array if name == "array" else name for name in names)


def _values(node: SchemaNode) -> str:
    """Return which values a parameter accepts, and its default."""
    keywords = _keywords(node)
    enum = keywords.get("enum") or _keywords(_items(node)).get("enum")
    text = f" One of: {', '.join(map(_json, enum))}." if enum else ""
    text += f" Always {_json(keywords['const'])}." if "const" in keywords else ""
    return text + (f" Default: {_json(keywords['default'])}." if "default" in keywords else "")


def _example(node: SchemaNode, depth: int) -> Any:
    """Return a value that has the type of a schema."""
    keywords = _keywords(node)
    values = [*(keywords.get("examples") or ()), *(keywords.get("enum") or ())]
    values += [keywords[keyword] for keyword in ("default", "const") if keyword in keywords]
    if values:
        return values[0]
    name = next((name for name in TYPES if name in node.types), "null")
    if name == "object":
        return _example_object(node, depth)
    if name == "array":
        return [_example(_items(node), depth + 1)] if depth < _MAX_DEPTH else []
    return _EXAMPLES[name]


def _example_object(node: SchemaNode, depth: int) -> dict[str, Any]:
    properties, required = properties_of(node), _keywords(node).get("required") or ()
    names = [name for name in properties if name in required] or list(properties)[:1]
    return {name: _example(properties[name], depth + 1) for name in names} if depth < _MAX_DEPTH else {}


def _keywords(node: SchemaNode) -> dict[str, Any]:
    """Return the keywords of a schema and of those that it refers to."""
    return {keyword: value for part in reversed(node.applying) for keyword, value in part.schema.items()}


def _items(node: SchemaNode) -> SchemaNode:
    return next((part.items for part in node.applying if part.items is not ANYTHING), ANYTHING)


def _json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=0).decode()
