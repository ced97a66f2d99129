"""The system prompt: which tools there are, and in which form to call them. The same tools give the same prompt."""

from collections.abc import Sequence
from typing import Any

import msgspec

from midspan._types.specs import ToolChoice, ToolSpec

_DEEPEST = 4


def system_prompt(tools: Sequence[ToolSpec], marker: str) -> str:
    """What a model is told of its tools; `marker` is the word with which a call begins."""
    return "\n".join(["Available tools:", *(_tool(tool) for tool in tools), "", *_rules(tools, marker)])


def choice_rule(choice: ToolChoice | None) -> str:
    """What the caller's choice of tools adds to the prompt."""
    if choice is None or choice.mode not in ("any", "none"):
        return ""
    if choice.mode == "none":
        return "\n\nDo not call any tool now. Answer in words, with what you know."
    which = f"one of these tools: {', '.join(choice.names)}" if choice.names else "at least one tool"
    return f"\n\nYou must call {which} in this answer."


def example_call(tool: ToolSpec, marker: str) -> str:
    """A call of this tool, as it should be written."""
    arguments = tool.examples[0] if tool.examples else _example(tool.parameters or {}, 0)
    return f"{marker}: {tool.name}({_json(arguments if isinstance(arguments, dict) else {})})"


def _rules(tools: Sequence[ToolSpec], marker: str) -> list[str]:
    with_parameters = [tool for tool in tools if _properties(tool.parameters)]
    without = [tool for tool in tools if not _properties(tool.parameters)]
    examples = [example_call(tool, marker) for tool in (*with_parameters[:2], *without[:1])[:2]]
    return [
        "When you need to use a tool, respond in EXACT format:",
        f'{marker}: tool_name({{"arg1": "value1", "arg2": "value2"}})',
        "",
        "For example:",
        *examples,
        "",
        "Rules:",
        f"- A call is one line: {marker}, a colon, the name of the tool, and in parentheses one JSON object.",
        "- Write valid JSON: double quotes around names and texts, \\n for a line break in a text, no comments.",
        "- Give every required parameter, and only parameters of the tool. A tool without parameters gets ({}).",
        "- You may write several calls, each on its own line; they are run one after another.",
        "- After your calls, stop. You will be given each result on a line that begins with TOOL_RESULT or TOOL_ERROR.",
        "- Never write such a line yourself, and never invent a result.",
        f"- What others quote is no call. A marker with a backslash before it, \\{marker}, is quoted.",
        "- When you need no tool, answer in plain words.",
    ]


def _tool(tool: ToolSpec) -> str:
    lines = [f"- {tool.name}: {_one_line(tool.description)}" if tool.description else f"- {tool.name}"]
    properties = _properties(tool.parameters)
    if not properties:
        return "\n".join([*lines, "  Parameters: (none)"])
    lines += ["  Parameters:", *_parameters(properties, "    ", 0)]
    required = [name for name in (tool.parameters or {}).get("required") or () if isinstance(name, str)]
    return "\n".join([*lines, f"  Required: {', '.join(required)}"] if required else lines)


def _parameters(properties: dict[str, Any], indent: str, depth: int) -> list[str]:
    lines = []
    for name, schema in properties.items():
        said = schema if isinstance(schema, dict) else {}
        words = _one_line(str(said.get("description") or ""))
        line = f"{indent}- {name} ({_type(said)})" + (f": {words}" if words else "")
        lines.append(line + _more(said))
        inner = said.get("items") if isinstance(said.get("items"), dict) else said
        if isinstance(inner, dict) and _properties(inner) and depth < _DEEPEST:
            lines += _parameters(_properties(inner), indent + "  ", depth + 1)
            needed = [one for one in inner.get("required") or () if isinstance(one, str)]
            lines += [f"{indent}  Required: {', '.join(needed)}"] if needed else []
    return lines


def _type(schema: dict[str, Any]) -> str:
    word = schema.get("type")
    if isinstance(word, list):
        return " or ".join(map(str, word))
    if word in ("array", "list") and isinstance(schema.get("items"), dict):
        return f"{word} of {_type(schema['items'])}"
    if word is None:
        for keyword in ("anyOf", "oneOf"):
            if isinstance(schema.get(keyword), list):
                return " or ".join(dict.fromkeys(_type(one) for one in schema[keyword] if isinstance(one, dict)))
        return "any" if "enum" not in schema and "const" not in schema else "one of the values"
    return str(word)


def _more(schema: dict[str, Any]) -> str:
    """What a model must know of a parameter beside its type."""
    items = schema.get("items")
    enum = schema.get("enum") or (items.get("enum") if isinstance(items, dict) else None)
    said = f" One of: {', '.join(map(_json, enum))}." if isinstance(enum, list) and enum else ""
    said += f" Always {_json(schema['const'])}." if "const" in schema else ""
    return said + (f" Default: {_json(schema['default'])}." if "default" in schema else "")


def _example(schema: Any, depth: int) -> Any:
    """A value that shows the form, and is one of the schema as far as its type goes."""
    said = schema if isinstance(schema, dict) else {}
    for keyword in ("examples", "enum"):
        if isinstance(said.get(keyword), list) and said[keyword]:
            return said[keyword][0]
    for keyword in ("example", "default", "const"):
        if keyword in said:
            return said[keyword]
    word = said.get("type")
    word = str(next((one for one in word if one != "null"), "null") if isinstance(word, list) else word).lower()
    if word in ("object", "dict") or (depth == 0 and "properties" in said):
        properties, required = _properties(said), said.get("required") or ()
        names = [name for name in properties if name in required] or list(properties)[:1]
        return {name: _example(properties[name], depth + 1) for name in names} if depth < _DEEPEST else {}
    if word in ("array", "list", "tuple"):
        return [_example(said.get("items"), depth + 1)] if depth < _DEEPEST else []
    return _EXAMPLES.get(word, "text")


_EXAMPLES: dict[str, Any] = {"integer": 1, "int": 1, "number": 1.5, "float": 1.5, "boolean": True, "bool": True}


def _properties(schema: Any) -> dict[str, Any]:
    found = schema.get("properties") if isinstance(schema, dict) else None
    return found if isinstance(found, dict) else {}


def _one_line(words: str) -> str:
    return " ".join(words.split())


def _json(value: Any) -> str:
    try:
        return msgspec.json.format(msgspec.json.encode(value), indent=0).decode()
    except (TypeError, ValueError, RecursionError):
        return '"…"'
