"""What a caller gives as tools, and how they may be chosen, as the API has it."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from midspan._types.specs import ToolChoice
from midspan.errors import ConfigError
from midspan.gemini.checking import fitting_json, given_fields, plain, read, read_plain, shown
from midspan.gemini.output import is_type, schema_of, told_as
from midspan.gemini.types import FunctionDeclaration
from midspan.providers.gemini import wire
from midspan.providers.gemini.capabilities import Capabilities
from midspan.providers.gemini.config import tool_config_fields
from midspan.providers.gemini.proto import Proto, from_plain

Toolish = Any
"""A tool or a declaration of this package, a built-in tool, a Python function, or a dict as the API has it."""

_BUILTIN: dict[type[Proto], str] = {
    wire.GoogleSearch: "google_search",
    wire.GoogleSearchRetrieval: "google_search_retrieval",
    wire.UrlContext: "url_context",
    wire.CodeExecution: "code_execution",
    wire.GoogleMaps: "google_maps",
    wire.FileSearch: "file_search",
    wire.ComputerUse: "computer_use",
    wire.EnterpriseWebSearch: "enterprise_web_search",
}
# «Must start with a letter or an underscore. Must be alphameric, underscores, dots, colons, or dashes»
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}")


def tools_of(tools: Toolish | Iterable[Toolish] | None) -> list[wire.Tool]:
    """Each built-in tool for itself, then all functions together as one tool."""
    builtin: list[wire.Tool] = []
    functions: list[wire.FunctionDeclaration] = []
    for at, one in enumerate(_several(tools)):
        made = _tool(one, f"tools[{at}]")
        functions += made.function_declarations or []
        rest = msgspec.structs.replace(made, function_declarations=None)
        if rest != wire.Tool():
            builtin.append(rest)
    _check_names([declared.name for declared in functions])
    return [*builtin, wire.Tool(function_declarations=functions)] if functions else builtin


def _several(tools: Any) -> Iterable[Any]:
    """One tool or many, or none."""
    if tools is None:
        return ()
    return tools if isinstance(tools, Iterable) and not isinstance(tools, Mapping | str | type) else (tools,)


def _check_names(names: list[str | None]) -> None:
    for name in names:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ConfigError(
                f"{shown(name)} cannot be the name of a function; the API takes letters of ASCII, digits, _ . : and -, "
                "not beginning with a digit, at most 128"
            )
        if names.count(name) > 1:
            raise ConfigError(f"two functions are called {name!r}; the API refuses that")


def declaration_of(function: Callable[..., Any]) -> FunctionDeclaration:
    """The declaration of a Python function or tool."""
    from midspan._schema.dialects.adapt import adapt_schema
    from midspan.providers.gemini.profile import GEMINI_JSON_SCHEMA  # loaded with the first tool
    from midspan.tools.function import tool_of

    if not callable(function):
        raise ConfigError(f"{shown(function)} is no function, so it cannot be declared as one")
    spec = tool_of(function).spec
    lowered = adapt_schema(spec.parameters or {}, GEMINI_JSON_SCHEMA)
    schema = msgspec.UNSET if lowered.is_empty else lowered.schema
    return FunctionDeclaration(name=spec.name, description=spec.description, parameters_json_schema=schema)


def _tool(one: Toolish, where: str) -> wire.Tool:
    match one:
        case wire.FunctionDeclaration():
            return wire.Tool(function_declarations=[_declaration(one, where)])
        case wire.McpServer():
            return wire.Tool(mcp_servers=[read(wire.McpServer, one, where)])
        case Proto() if type(one) in _BUILTIN:
            return read_plain(wire.Tool, {_BUILTIN[type(one)]: plain(one, where)}, where, names=False)
        case Mapping() if "name" in one:
            return wire.Tool(function_declarations=[_declaration(one, where)])
        case wire.Tool() | Mapping():
            return _whole(one, where)
    if isinstance(one, type) and issubclass(one, Proto):
        raise ConfigError(f"{one.__name__} is the kind of a tool; the tool is {one.__name__}()")
    if callable(one):
        return wire.Tool(function_declarations=[declaration_of(one)])
    raise ConfigError(
        f"{shown(one)} is no tool: give a Tool, a FunctionDeclaration, a built-in tool, a function or a dict"
    )


def _whole(one: wire.Tool | Mapping[str, Any], where: str) -> wire.Tool:
    """A tool of any number of kinds; its functions may be given in any way, too."""
    fields = given_fields(wire.Tool, one, where)
    given = fields.pop("function_declarations", [])
    made = read_plain(wire.Tool, plain(fields, where), where, names=isinstance(one, Mapping))
    place = f"{where}.function_declarations"
    if not isinstance(given, list | tuple):
        raise ConfigError(f"{place} cannot be {shown(given)}; it takes a list of FunctionDeclaration")
    functions = [_function(item, f"{place}[{at}]") for at, item in enumerate(given)]
    return msgspec.structs.replace(made, function_declarations=functions or None)


def _function(one: Any, where: str) -> wire.FunctionDeclaration:
    if isinstance(one, wire.FunctionDeclaration | Mapping):
        return _declaration(one, where)
    if callable(one):
        return declaration_of(one)
    raise ConfigError(f"{where} cannot be {shown(one)}; give a FunctionDeclaration, a function or a dict")


def _declaration(one: Any, where: str) -> wire.FunctionDeclaration:
    """A declaration; a schema that says more than the API's own can is sent as JSON Schema, and so is a type."""
    if isinstance(one, Proto) and fitting_json(wire.FunctionDeclaration, one) is not None:
        return cast("wire.FunctionDeclaration", one)
    fields = given_fields(wire.FunctionDeclaration, one, where)
    for typed in ("parameters", "response"):
        free = f"{typed}_json_schema"
        for name in (typed, free):
            if is_type(fields.get(name)):
                fields[free] = schema_of(fields.pop(name), f"{where}.{name}")
        if isinstance(fields.get(typed), Mapping | wire.Schema):
            fields |= told_as(plain(fields.pop(typed), f"{where}.{typed}"), typed, free)
        if isinstance(fields.get(free, {}), Mapping):
            continue
        raise ConfigError(f"{where}.{free} cannot be {shown(fields[free])}; it takes a dict or a Python type")
    names = isinstance(one, Mapping)
    return read_plain(wire.FunctionDeclaration, plain(fields, where), where, names=names)


def tool_config_of(
    tools: list[wire.Tool], choice: Any, config: Any, capabilities: Capabilities
) -> wire.ToolConfig | None:
    """How the model may call, with what the API requires where functions stand beside built-in tools.

    What the caller says in `tool_config` stays as it is.
    """
    functions = [declared.name or "" for made in tools for declared in made.function_declarations or []]
    has_builtins = len(tools) > bool(functions)
    chosen = None if choice is None else _choice(choice)
    fields = tool_config_fields(functions, chosen, capabilities, has_builtins=has_builtins)
    made = from_plain(wire.ToolConfig, fields)
    if config is not None:
        given = read(wire.ToolConfig, config, "tool_config")
        if given.include_server_side_tool_invocations is None:
            given = replace(given, include_server_side_tool_invocations=made.include_server_side_tool_invocations)
        made = given if chosen is None else replace(given, function_calling_config=made.function_calling_config)
    return made if made != wire.ToolConfig() else None


def _choice(choice: Any) -> ToolChoice:
    try:
        made = ToolChoice.of(choice)
        return msgspec.convert(msgspec.to_builtins(made), ToolChoice)
    except Exception as error:  # of something in it that is no name, or has a repr that fails
        if isinstance(error, ConfigError) and len(str(error)) <= _LONGEST_WORDS:
            raise
        words = "give 'optional', 'required_any', 'none', 'validated' or {'type': 'required', 'tool': name}"
        raise ConfigError(f"tool_choice cannot be {shown(choice)}; {words}") from error


_LONGEST_WORDS = 300
"""Beyond this an error quotes more of what was given than anybody wants to read."""
