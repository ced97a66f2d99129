"""Writes the system prompt: the tools, and the form of a call. The same tools give the same prompt."""

from collections.abc import Sequence
from typing import Any

import msgspec

from midspan._types.specs import ToolChoice, ToolSpec

_MAX_DEPTH = 4
_EXAMPLES: dict[str, Any] = {"integer": 1, "int": 1, "number": 1.5, "float": 1.5, "boolean": True, "bool": True}


def system_prompt(tools: Sequence[ToolSpec], marker: str) -> str:
    """Return what a model is told about its tools. `marker` is what a call begins with."""
    return "\n".join(["Available tools:", *map(_describe_tool, tools), "", *_rules(tools, marker)])


def choice_rule(choice: ToolChoice | None) -> str:
    """Return what the caller's tool choice adds to the prompt."""
    if choice is None or choice.mode not in ("any", "none"):
        return ""
    if choice.mode == "none":
        return "\n\nDo not call any tool now. Answer in words, with the information you have."
    tools = f"one of these tools: {', '.join(choice.names)}" if choice.names else "at least one tool"
    return f"\n\nYou must call {tools} in this answer."


def example_call(tool: ToolSpec, marker: str) -> str:
    """Return a call of this tool as the model should write it."""
    arguments = tool.examples[0] if tool.examples else _example(tool.parameters or {}, 0)
    return f"{marker}: {tool.name}({_json(arguments if isinstance(arguments, dict) else {})})"


def _rules(tools: Sequence[ToolSpec], marker: str) -> list[str]:
    with_parameters = [tool for tool in tools if _properties(tool.parameters)]
    without = [tool for tool in tools if not _properties(tool.parameters)]
    examples = [example_call(tool, marker) for tool in (*with_parameters[:2], *without[:1])[:2]]
    word, bracket, nonce = marker.partition("[")
    quoted = f", and so is {word}: without {bracket}{nonce}" if nonce else ""
    return [
        "When you need to use a tool, respond in EXACT format:",
        f'{marker}: tool_name({{"arg1": "value1", "arg2": "value2"}})',
        "",
        "For example:",
        *examples,
        "",
        "Rules:",
        f"- A call is one line: {marker}, a colon, the name of the tool, and in parentheses one JSON object.",
        "- Write valid JSON: double quotes around names and strings, \\n for a line break in a string, no comments.",
        "- Give every required parameter, and only parameters of the tool. A tool without parameters gets ({}).",
        "- You may write several calls, each on its own line. They run one after another.",
        "- After your calls, stop. You will get each result on a line that begins with TOOL_RESULT or TOOL_ERROR.",
        "- Never write such a line yourself, and never invent a result.",
        f"- A marker with a backslash before it, \\{word}, is a quotation{quoted}.",
        "- When you need no tool, answer in plain words.",
    ]


def _describe_tool(tool: ToolSpec) -> str:
    lines = [f"- {tool.name}: {_one_line(tool.description)}" if tool.description else f"- {tool.name}"]
    properties = _properties(tool.parameters)
    if not properties:
        return "\n".join([*lines, "  Parameters: (none)"])
    lines += ["  Parameters:", *_describe_parameters(properties, "    ", 0)]
    return "\n".join([*lines, *_required(tool.parameters, "  ")])


def _describe_parameters(properties: dict[str, Any], indent: str, depth: int) -> list[str]:
    lines = []
    for name, prop in properties.items():
        schema = prop if isinstance(prop, dict) else {}
        description = _one_line(str(schema.get("description") or ""))
        line = f"{indent}- {name} ({_type(schema)})" + (f": {description}" if description else "")
        lines.append(line + _values(schema))
        inner = schema.get("items") if isinstance(schema.get("items"), dict) else schema
        if _properties(inner) and depth < _MAX_DEPTH:
            lines += _describe_parameters(_properties(inner), indent + "  ", depth + 1)
            lines += _required(inner, indent + "  ")
    return lines


def _required(schema: Any, indent: str) -> list[str]:
    names = [name for name in schema.get("required") or () if isinstance(name, str)]
    return [f"{indent}Required: {', '.join(names)}"] if names else []


def _type(schema: dict[str, Any]) -> str:
    name = schema.get("type")
    if isinstance(name, list):
        return " or ".join(map(str, name))
    if name in ("array", "list") and isinstance(schema.get("items"), dict):
        return f"{name} of {_type(schema['items'])}"
    if name is not None:
        return str(name)
    for keyword in ("anyOf", "oneOf"):
        if isinstance(schema.get(keyword), list):
            branches = [_type(branch) for branch in schema[keyword] if isinstance(branch, dict)]
            return " or ".join(dict.fromkeys(branches))
    return "any" if "enum" not in schema and "const" not in schema else "one of the values"


def _values(schema: dict[str, Any]) -> str:
    """Return which values a parameter accepts, and its default."""
    items = schema.get("items")
    enum = schema.get("enum") or (items.get("enum") if isinstance(items, dict) else None)
    text = f" One of: {', '.join(map(_json, enum))}." if isinstance(enum, list) and enum else ""
    text += f" Always {_json(schema['const'])}." if "const" in schema else ""
    return text + (f" Default: {_json(schema['default'])}." if "default" in schema else "")


def _example(prop: Any, depth: int) -> Any:
    """Return a value that has the type of a schema."""
    schema = prop if isinstance(prop, dict) else {}
    for keyword in ("examples", "enum"):
        if isinstance(schema.get(keyword), list) and schema[keyword]:
            return schema[keyword][0]
    for keyword in ("example", "default", "const"):
        if keyword in schema:
            return schema[keyword]
    names = schema.get("type")
    name = next((name for name in names if name != "null"), "null") if isinstance(names, list) else names
    name = str(name).lower()
    if name in ("object", "dict") or (depth == 0 and "properties" in schema):
        properties, required = _properties(schema), schema.get("required") or ()
        keys = [key for key in properties if key in required] or list(properties)[:1]
        return {key: _example(properties[key], depth + 1) for key in keys} if depth < _MAX_DEPTH else {}
    if name in ("array", "list", "tuple"):
        return [_example(schema.get("items"), depth + 1)] if depth < _MAX_DEPTH else []
    return _EXAMPLES.get(name, "text")


def _properties(schema: Any) -> dict[str, Any]:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return properties if isinstance(properties, dict) else {}


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _json(value: Any) -> str:
    try:
        return msgspec.json.format(msgspec.json.encode(value), indent=0).decode()
    except (TypeError, ValueError, RecursionError):
        return '"…"'
