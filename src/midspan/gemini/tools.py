"""Tools and tool choices that a caller passes, as messages of the API."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from midspan._schema.adapt import adapt_schema
from midspan._types.specs import ToolChoice, ToolSpec
from midspan.errors import ConfigError
from midspan.gemini.types import (
    FunctionDeclaration,
    is_type,
    json_schema_of,
    read,
    schema_field,
    set_fields,
    to_json,
)
from midspan.providers.gemini import wire
from midspan.providers.gemini.capabilities import FUNCTION_NAME, GEMINI_JSON_SCHEMA, Capabilities
from midspan.providers.gemini.encode import tool_config_fields
from midspan.providers.gemini.proto import Proto, from_plain, to_plain
from midspan.tools.execution import LocalTools
from midspan.tools.function import tool_of
from midspan.tools.toolbox import SessionTools, Toolbox

ToolLike = Any
"""A tool or a declaration, a built-in tool, a function, a Toolbox, or a dict as Gemini or OpenAI write a tool."""


def tool_list(tools: ToolLike | Iterable[ToolLike] | None) -> list[ToolLike]:
    """Return the tools that a caller passed: several, one or none."""
    if isinstance(tools, list | tuple):
        return list(tools)
    return [] if tools is None else [tools]


def read_tools(tools: ToolLike | Iterable[ToolLike] | None) -> list[wire.Tool]:
    """Return each built-in tool as a tool, then all functions together as one tool."""
    builtins: list[wire.Tool] = []
    functions: list[wire.FunctionDeclaration] = []
    for at, item in enumerate(tool_list(tools)):
        tool = _read_tool(item, f"tools[{at}]")
        functions += tool.function_declarations or []
        tool = replace(tool, function_declarations=None)
        if tool != wire.Tool():
            builtins.append(tool)
    names = [function.name for function in functions]
    for name in names:
        if not FUNCTION_NAME.fullmatch(name or ""):
            raise ConfigError(f"{name!r} is not a valid function name; use ASCII letters, digits, _ . : and -")
        if names.count(name) > 1:
            raise ConfigError(f"two functions are named {name!r}")
    return [*builtins, wire.Tool(function_declarations=functions)] if functions else builtins


def _read_tool(tool: ToolLike, where: str) -> wire.Tool:
    match tool:
        case wire.McpServer():
            return read(wire.Tool, {"mcp_servers": [tool]}, where)
        case wire.Builtin():
            builtin = tool.as_builtin()
            return read(wire.Tool, {builtin.name: builtin.config}, where)
        case wire.Tool():
            return _read_whole_tool(tool, where)
        case Mapping() if "name" not in tool and "function" not in tool:
            return _read_whole_tool(tool, where)
        case Toolbox():
            return wire.Tool(function_declarations=[*map(_declaration_of, tool.list_tools())])
        case LocalTools() | SessionTools():
            return wire.Tool(function_declarations=[*map(_declaration_of, tool.listing.tools)])
    return wire.Tool(function_declarations=[_read_function(tool, where)])


def _read_whole_tool(tool: wire.Tool | Mapping[str, Any], where: str) -> wire.Tool:
    """Return a tool with any of its fields; its functions may be given in any form."""
    fields = set_fields(wire.Tool, tool, where)
    functions = fields.pop("function_declarations", ())
    declarations = [_read_function(item, f"{where}.function_declarations[{at}]") for at, item in enumerate(functions)]
    return replace(read(wire.Tool, fields, where), function_declarations=declarations or None)


def _read_function(function: Any, where: str) -> wire.FunctionDeclaration:
    if isinstance(function, ToolSpec):
        return _declaration_of(function)
    if isinstance(function, Mapping) and "function" in function:
        return _declaration_of(ToolSpec.of(to_json(function, where)))
    if isinstance(function, wire.FunctionDeclaration | Mapping):
        return _read_declaration(function, where)
    if callable(function) and not isinstance(function, Proto | type(Proto)):
        return declaration_of(function)
    raise ConfigError(
        f"{where} cannot be {function!r:.80}; pass a function, a FunctionDeclaration, a Tool, a Toolbox, a "
        "built-in tool or a dict"
    )


def declaration_of(function: Callable[..., Any]) -> FunctionDeclaration:
    """Return the declaration of a Python function or a tool."""
    return _declaration_of(tool_of(function).spec)


def _declaration_of(spec: ToolSpec) -> FunctionDeclaration:
    adapted = adapt_schema(spec.parameters or {}, GEMINI_JSON_SCHEMA)
    schema = UNSET if adapted.is_empty else adapted.schema
    return FunctionDeclaration(name=spec.name, description=spec.description, parameters_json_schema=schema)


def _read_declaration(declaration: Any, where: str) -> wire.FunctionDeclaration:
    """Return a declaration. Types, and schemas that say more than the API's own can, are sent as JSON Schema."""
    fields = set_fields(wire.FunctionDeclaration, declaration, where)
    for name in ("parameters", "response"):
        json_name = f"{name}_json_schema"
        schema = fields.pop(name, None)
        if is_type(schema):
            fields[json_name] = json_schema_of(schema, arguments=True)
        elif schema is not None:
            fields |= schema_field(schema, f"{where}.{name}", name, json_name)
    return read(wire.FunctionDeclaration, fields, where)


def read_tool_config(
    tools: list[wire.Tool], choice: Any, config: Any, capabilities: Capabilities
) -> wire.ToolConfig | None:
    """Return the tool config for these tools. What the caller set in `config` stays as it is."""
    functions = [function.name or "" for tool in tools for function in tool.function_declarations or []]
    tool_choice = None if choice is None else ToolChoice.of(choice)
    fields = tool_config_fields(functions, tool_choice, capabilities, has_builtins=len(tools) > bool(functions))
    if config is not None:
        mode = {} if tool_choice is None else {"functionCallingConfig": fields.get("functionCallingConfig")}
        fields.pop("functionCallingConfig", None)
        fields = {**fields, **to_plain(read(wire.ToolConfig, config, "tool_config")), **mode}
    return from_plain(wire.ToolConfig, fields) if fields else None
