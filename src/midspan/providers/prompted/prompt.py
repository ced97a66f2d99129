"""Writes the system prompt: the tools, and the form of a call. The same tools give the same prompt."""

from collections.abc import Sequence
from typing import Any

import msgspec

from midspan._schema.sample import sample_object
from midspan._schema.tree import TYPES, SchemaNode
from midspan._types.specs import ToolChoice, ToolSpec
from midspan.providers.prompted.scanner import parameters_of, properties_of


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
    arguments = tool.examples[0] if tool.examples else sample_object(parameters_of(tool))
    return f"{marker}: {tool.name}({_json(arguments)})"


def _describe_tool(tool: ToolSpec, schema: SchemaNode) -> list[str]:
    head = f"- {tool.name}{_description(tool.description)}"
    properties = properties_of(schema)
    if not properties:
        return [head, "  Parameters: (none)"]
    lines = [head, "  Parameters:", *(_describe_parameter(name, prop) for name, prop in properties.items())]
    required = dict.fromkeys(name for part in schema.applying for name in part.schema.get("required") or ())
    if required:
        lines.append(f"  Required: {', '.join(required)}")
    if "$defs" in schema.schema:
        lines.append(f"  Definitions: {_json(schema.schema['$defs'])}")
    return lines


def _describe_parameter(name: str, node: SchemaNode) -> str:
    names = [name for name in TYPES if name in node.types and not (name == "integer" and "number" in node.types)]
    types = "any" if node.types >= set(TYPES) else " or ".join(names)
    more = {keyword: value for keyword, value in node.schema.items() if keyword not in ("type", "description")}
    schema = f" Schema: {_json(more)}" if more else ""
    return f"    - {name} ({types}){_description(node.schema.get('description'))}{schema}"


def _description(text: Any) -> str:
    return f": {' '.join(str(text).split())}" if text else ""


def _json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=0).decode()
