"""Tools that are declared by JSON Schemas instead of Python signatures."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from typing import Annotated, Any, Unpack

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from midspan._schema.normalize import normalize
from midspan._schema.tree import TYPES, SchemaTree
from midspan._types.context import RunContext
from midspan._types.specs import ToolSpec
from midspan._types.texts import NOT_JSON
from midspan.errors import ConfigError, SchemaError
from midspan.tools.function import DeclaredToolOptions, Tool, check_name

JsonSchema = dict[str, Any] | str | bytes


def tool_from_schema(
    name: str,
    description: str,
    parameters: JsonSchema,
    callback: Callable[..., Any],
    *,
    response: JsonSchema | None = None,
    **options: Unpack[DeclaredToolOptions],
) -> Tool[..., Any]:
    """Return a tool with these schemas, which are dicts or JSON text.

    The callback gets the valid arguments as one dict, after the caller's context if it takes two values. The options
    are those of `@tool`.
    """
    declaration = {"name": name, "description": description, "parameters": parameters, "response": response}
    return tool_from_spec(declaration, callback, **options)


def tool_from_spec(
    declaration: ToolSpec | Mapping[str, Any], callback: Callable[..., Any], **options: Unpack[DeclaredToolOptions]
) -> Tool[..., Any]:
    """Return a tool from a ToolSpec, or from a dict as OpenAI, Anthropic or MCP write it; see `ToolSpec.of`.

    Callback and options are those of `tool_from_schema`. The options replace those of the declaration.
    """
    spec = ToolSpec.of(declaration)
    check_name(spec.name)
    parameters = _read_schema(spec.name, "parameters", spec.parameters or {"type": "object"})
    response = None if spec.response is None else _read_schema(spec.name, "response", spec.response)
    takes_context = not _takes_values(callback, 1)
    if takes_context and not _takes_values(callback, 2):
        raise ConfigError(f"{spec.name}: the callback must be a function of the arguments, or of context and arguments")

    def bind(arguments: dict[str, Any], context: RunContext[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        copied = deepcopy(arguments)  # the callback may change them, and the conversation must not change with them
        return ((context.user, copied) if takes_context else (copied,)), {}

    spec = replace(spec, parameters=parameters, response=response)
    return Tool(spec, callback, options, bind=bind, enforces_response=True)


def _read_schema(tool: str, label: str, schema: JsonSchema) -> dict[str, Any]:
    """Return a schema as a dict in plain JSON Schema, without the type names of other languages and `nullable`."""
    try:
        document = schema if isinstance(schema, dict) else msgspec.json.decode(schema, type=dict[str, Any])
        schemas = [node.schema for node in SchemaTree(document).nodes]
        has_other_types = any(isinstance(node.get("type"), str) and node["type"] not in TYPES for node in schemas)
        return normalize(document) if has_other_types or any("nullable" in node for node in schemas) else document
    except (SchemaError, *NOT_JSON) as error:
        raise SchemaError(f"failed to create tool {tool}: invalid {label} schema: {error}") from error


def _takes_values(function: Callable[..., Any], count: int) -> bool:
    """Whether a function can be called with this many values, as far as Python can tell."""
    try:
        with suppress(ValueError):  # some functions in C have no signature
            inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    return True


class _Parameter(Struct):
    """A parameter as registries of worker processes describe it; its other keys are keywords of JSON Schema."""

    name: Annotated[str, msgspec.Meta(min_length=1)]
    required: bool | None = None
    validation_json: str | None = None
    """JSON text with further keywords of JSON Schema."""
    validation: Any = None


def spec_from_parameters(name: str, description: str, parameters: Sequence[Mapping[str, Any]]) -> ToolSpec:
    """Return the spec of a tool that is described by a list of parameters, with type names in any spelling."""
    try:
        parsed = msgspec.convert(parameters, list[_Parameter])
        properties = dict(map(_property, parsed, parameters))
    except (SchemaError, msgspec.ValidationError) as error:
        raise SchemaError(f"parameters of {name}: {error}") from error
    if len(properties) < len(parsed):
        raise SchemaError(f"parameters of {name}: two parameters have the same name")
    required = [parameter.name for parameter in parsed if parameter.required]
    schema = {"type": "object", "properties": properties}
    return ToolSpec(name, description, schema | ({"required": required} if required else {}))


def _property(parameter: _Parameter, fields: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    not_keywords = _Parameter.__struct_fields__
    keywords = {key: value for key, value in fields.items() if key not in not_keywords and value not in (None, "")}
    try:
        validation = msgspec.json.decode(parameter.validation_json or "{}", type=dict[str, Any])
        return parameter.name, normalize({"type": "any", **keywords, **validation})
    except (SchemaError, *NOT_JSON) as error:
        raise SchemaError(f"{parameter.name!r}: {error}") from error
