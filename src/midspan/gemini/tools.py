"""Tools and tool choices that a caller passes, as messages of the API."""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from midspan._types.specs import ToolChoice, ToolSpec
from midspan.errors import ConfigError
from midspan.gemini.output import adapt, is_type, parameters_schema, schema_field
from midspan.gemini.types import FunctionDeclaration, describe, is_valid, read, set_fields, to_json
from midspan.providers.gemini import wire
from midspan.providers.gemini.capabilities import FUNCTION_NAME, Capabilities
from midspan.providers.gemini.encode import tool_config_fields
from midspan.providers.gemini.proto import Proto, from_plain
from midspan.tools.execution import LocalTools
from midspan.tools.toolbox import SessionTools, Toolbox

ToolLike = Any
"""A tool or a declaration, a built-in tool, a function, a Toolbox, or a dict as Gemini or OpenAI write a tool."""

_MAX_NAME_CHARS = 128  # as documented; the server decides about names of more than 64


def read_tools(tools: ToolLike | Iterable[ToolLike] | None) -> list[wire.Tool]:
    """Return each built-in tool as a tool, then all functions together as one tool."""
    if tools is None:
        tools = ()
    elif not isinstance(tools, Iterable) or isinstance(tools, Mapping | str | type):
        tools = (tools,)
    builtins: list[wire.Tool] = []
    functions: list[wire.FunctionDeclaration] = []
    for at, item in enumerate(tools):
        tool = _read_tool(item, f"tools[{at}]")
        functions += tool.function_declarations or []
        tool = replace(tool, function_declarations=None)
        if tool != wire.Tool():
            builtins.append(tool)
    _check_names([declaration.name for declaration in functions])
    return [*builtins, wire.Tool(function_declarations=functions)] if functions else builtins


def _check_names(names: list[str | None]) -> None:
    for name in names:
        if not isinstance(name, str) or not FUNCTION_NAME.fullmatch(name) or len(name) > _MAX_NAME_CHARS:
            raise ConfigError(
                f"{describe(name)} is not a valid function name; use at most {_MAX_NAME_CHARS} ASCII letters, digits, "
                "_ . : and -, not starting with a digit"
            )
        if names.count(name) > 1:
            raise ConfigError(f"two functions are named {name!r}")


def _read_tool(tool: ToolLike, where: str) -> wire.Tool:
    match tool:
        case wire.McpServer():
            return wire.Tool(mcp_servers=[read(wire.McpServer, tool, where)])
        case wire.Builtin():
            builtin = tool.as_builtin()
            return _read_whole_tool(wire.Tool(extra={builtin.name: builtin.config}), where)
        case wire.Tool():
            return _read_whole_tool(tool, where)
        case Mapping() if "name" not in tool and not isinstance(tool.get("function"), Mapping):
            return _read_whole_tool(tool, where)
        case ToolSpec():
            return wire.Tool(function_declarations=[_declaration_of(tool)])
        case Toolbox():
            return wire.Tool(function_declarations=[*map(_declaration_of, tool.list_tools())])
        case LocalTools() | SessionTools():
            return wire.Tool(function_declarations=[*map(_declaration_of, tool.listing.tools)])
    if isinstance(tool, type) and issubclass(tool, Proto):
        raise ConfigError(f"{where} is the class {tool.__name__}; pass an instance, {tool.__name__}()")
    return wire.Tool(function_declarations=[_read_function(tool, where)])


def _read_whole_tool(tool: wire.Tool | Mapping[str, Any], where: str) -> wire.Tool:
    """Return a tool with any of its fields; its functions may be given in any form."""
    fields = set_fields(wire.Tool, tool, where)
    functions = fields.pop("function_declarations", [])
    place = f"{where}.function_declarations"
    if not isinstance(functions, list | tuple):
        raise ConfigError(f"{place} cannot be {describe(functions)}; pass a list of FunctionDeclaration")
    declarations = [_read_function(item, f"{place}[{at}]") for at, item in enumerate(functions)]
    return replace(read(wire.Tool, fields, where), function_declarations=declarations or None)


def _read_function(function: Any, where: str) -> wire.FunctionDeclaration:
    if isinstance(function, Mapping) and isinstance(function.get("function"), Mapping):
        return _declaration_of(ToolSpec.of(to_json(function, where)))
    if isinstance(function, wire.FunctionDeclaration | Mapping):
        return _read_declaration(function, where)
    if callable(function) and not isinstance(function, Proto):
        return declaration_of(function)
    raise ConfigError(
        f"{where} cannot be {describe(function)}; pass a function, a FunctionDeclaration, a Tool, a Toolbox, a "
        "built-in tool or a dict"
    )


def declaration_of(function: Callable[..., Any]) -> FunctionDeclaration:
    """Return the declaration of a Python function or a tool."""
    if not callable(function):
        raise ConfigError(f"{describe(function)} is not a function")
    try:
        return _cached_declaration(function)
    except TypeError:  # it may be unhashable
        return _cached_declaration.__wrapped__(function)


@lru_cache(maxsize=256)
def _cached_declaration(function: Callable[..., Any]) -> FunctionDeclaration:
    from midspan.tools.function import tool_of  # loaded with the first tool

    return _declaration_of(tool_of(function).spec)


def _declaration_of(spec: ToolSpec) -> FunctionDeclaration:
    adapted = adapt(spec.parameters or {}, arguments=True)
    schema = UNSET if adapted.is_empty else adapted.schema
    return FunctionDeclaration(name=spec.name, description=spec.description, parameters_json_schema=schema)


def _read_declaration(declaration: Any, where: str) -> wire.FunctionDeclaration:
    """Return a declaration. Types, and schemas that say more than the API's own can, are sent as JSON Schema."""
    if isinstance(declaration, wire.FunctionDeclaration) and is_valid(wire.FunctionDeclaration, declaration):
        return declaration
    fields = set_fields(wire.FunctionDeclaration, declaration, where)
    for name in ("parameters", "response"):
        json_name = f"{name}_json_schema"
        for place in (name, json_name):
            if is_type(fields.get(place)):
                fields[json_name] = parameters_schema(fields.pop(place), f"{where}.{place}")
        if isinstance(fields.get(name), Mapping | wire.Schema):
            fields |= schema_field(to_json(fields.pop(name), f"{where}.{name}"), f"{where}.{name}", name, json_name)
        if not isinstance(fields.get(json_name, {}), Mapping):
            raise ConfigError(f"{where}.{json_name} cannot be {describe(fields[json_name])}; pass a dict or a type")
    return read(wire.FunctionDeclaration, fields, where)


def read_tool_config(
    tools: list[wire.Tool], choice: Any, config: Any, capabilities: Capabilities
) -> wire.ToolConfig | None:
    """Return the tool config for these tools. What the caller set in `config` stays as it is."""
    functions = [function.name or "" for tool in tools for function in tool.function_declarations or []]
    tool_choice = None if choice is None else ToolChoice.of(choice)
    fields = tool_config_fields(functions, tool_choice, capabilities, has_builtins=len(tools) > bool(functions))
    message = from_plain(wire.ToolConfig, fields)
    if config is not None:
        required = message
        message = read(wire.ToolConfig, config, "tool_config")
        if message.include_server_side_tool_invocations is None:
            invocations = required.include_server_side_tool_invocations
            message = replace(message, include_server_side_tool_invocations=invocations)
        if tool_choice is not None:
            message = replace(message, function_calling_config=required.function_calling_config)
    return message if message != wire.ToolConfig() else None
