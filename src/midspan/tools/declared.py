"""Tools that are declared by JSON Schemas instead of Python signatures."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Unpack

import msgspec
from msgspec.structs import asdict, replace

from midspan._schema.normalize import normalize
from midspan._types.context import RunContext
from midspan._types.specs import ToolSpec
from midspan.errors import ConfigError, SchemaError
from midspan.tools.function import Tool, ToolKeywords, ToolOptions, check_name, takes_values

JsonSchema = dict[str, Any] | str | bytes

_JSON_TYPES = frozenset(("string", "number", "integer", "boolean", "array", "object", "null"))
_MAX_DEPTH = 100
_UNSET = ToolSpec("")


def tool_from_schema(
    name: str,
    description: str,
    parameters: JsonSchema,
    callback: Callable[..., Any],
    *,
    response: JsonSchema | None = None,
    **options: Unpack[ToolKeywords],
) -> Tool[..., Any]:
    """Return a tool with these schemas, which are dicts or JSON text.

    The callback gets the valid arguments as one dict, after the caller's context if it takes two values. The options
    are those of `@tool`.
    """
    check_name(name)
    try:
        takes = _read_schema(parameters, "parameters")
        returns = None if response is None else _read_schema(response, "response")
    except SchemaError as error:
        raise SchemaError(f"failed to create tool {name}: {error}") from error
    return _declared_tool(ToolSpec(name, description, takes, returns), callback, ToolOptions.of(options))


def tool_from_spec(
    declaration: ToolSpec | Mapping[str, Any], callback: Callable[..., Any], **options: Unpack[ToolKeywords]
) -> Tool[..., Any]:
    """Return a tool from a ToolSpec, or from a dict as OpenAI, Anthropic or MCP write it; see `ToolSpec.of`.

    Callback and options are those of `tool_from_schema`. Options that are given replace those of the declaration.
    """
    spec = ToolSpec.of(declaration)
    try:
        takes = _read_schema(spec.parameters or {"type": "object"}, "parameters")
        returns = None if spec.response is None else _read_schema(spec.response, "response")
    except SchemaError as error:
        raise SchemaError(f"failed to create tool {spec.name}: {error}") from error
    settings = ToolOptions.of({"final": spec.final, **options})
    return _declared_tool(replace(spec, parameters=takes, response=returns), callback, settings)


def _declared_tool(spec: ToolSpec, callback: Callable[..., Any], options: ToolOptions) -> Tool[..., Any]:
    name = spec.name
    if not callable(callback) or not (takes_values(callback, 1) or takes_values(callback, 2)):
        raise ConfigError(f"{name}: the callback must be a function of the arguments, or of context and arguments")
    takes_context = not takes_values(callback, 1)

    def bind(arguments: dict[str, Any], context: RunContext[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        own = _copy(arguments)  # the callback may change it, and the conversation must not change with it
        return ((context.user, own) if takes_context else (own,)), {}

    assert spec.parameters is not None, "the callers have read it"
    options_spec = options.spec(name, spec.description, spec.parameters, spec.response)
    given = {field: value for field, value in asdict(options_spec).items() if value != getattr(_UNSET, field)}
    return Tool(replace(spec, **given), callback, bind=bind, options=options, enforces_response=True)


def _copy(value: Any) -> Any:
    if type(value) is dict:
        return {name: _copy(item) for name, item in value.items()}
    return [_copy(item) for item in value] if type(value) is list else value


def _read_schema(schema: JsonSchema, label: str) -> dict[str, Any]:
    """Return a schema as a dict. Type names of Python and other languages are replaced by those of JSON Schema."""
    if not isinstance(schema, dict | str | bytes):
        raise SchemaError(f"invalid {label} schema: expected a dict or JSON text, got {schema!r}")
    try:
        read = schema if isinstance(schema, dict) else msgspec.json.decode(schema)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SchemaError(f"invalid {label} schema: {error}") from error
    if not isinstance(read, dict):
        raise SchemaError(f"invalid {label} schema: expected an object, got {type(read).__name__}")
    return normalize(read) if _has_other_types(read) else read


def _has_other_types(schema: Any, depth: int = 0) -> bool:
    """Whether a type is not one of JSON Schema: `dict`, `float`, `STRING`."""
    if depth > _MAX_DEPTH:
        return False  # the validator rejects it for its depth
    if isinstance(schema, list):
        return any(_has_other_types(item, depth + 1) for item in schema)
    if not isinstance(schema, dict):
        return False
    name = schema.get("type")
    is_other = isinstance(name, str) and name not in _JSON_TYPES
    return is_other or any(_has_other_types(item, depth + 1) for item in schema.values())


def spec_from_parameters(name: str, description: str, parameters: Iterable[Mapping[str, Any]]) -> ToolSpec:
    """Return the spec of a tool that is described by a list of parameters, as registries of worker processes have it.

    A parameter is a dict with a name, a type in any spelling and further schema keywords. Its `required` is a bool;
    its `validation_json` is JSON text with further keywords of JSON Schema.
    """
    if not isinstance(name, str) or not name:
        raise SchemaError(f"the name of a tool must be a non-empty str, got {name!r}")
    if not isinstance(description, str):
        raise SchemaError(f"{name}: description must be a str, got {description!r}")
    if isinstance(parameters, str | bytes | Mapping) or not isinstance(parameters, Iterable):
        raise SchemaError(f"{name}: parameters must be a list of dicts, got {parameters!r}")
    properties: dict[str, Any] = {}
    required = []
    for parameter in parameters:
        if not isinstance(parameter, Mapping):
            raise SchemaError(f"{name}: a parameter must be a dict with a name and a type, got {parameter!r}")
        key = parameter.get("name")
        if not isinstance(key, str) or not key:
            raise SchemaError(f"a parameter of {name} has no name: {dict(parameter)!r}")
        if key in properties:
            raise SchemaError(f"{name} has two parameters named {key!r}")
        properties[key] = _parameter_schema(name, key, parameter)
        if parameter.get("required") not in (True, False, None):
            raise SchemaError(f"parameter {key!r} of {name}: required must be a bool, got {parameter['required']!r}")
        if parameter.get("required"):
            required.append(key)
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    return ToolSpec(name, description, schema | ({"required": required} if required else {}))


_PARAMETER_KEYS = frozenset(("name", "required", "validation_json", "validation"))
"""Keys of a parameter that are not keywords of its schema."""


def _parameter_schema(tool: str, name: str, parameter: Mapping[str, Any]) -> dict[str, Any]:
    items = parameter.items()
    keywords = {key: value for key, value in items if key not in _PARAMETER_KEYS and value not in (None, "")}
    try:
        text = parameter.get("validation_json") or "{}"
        if not isinstance(text, str | bytes):
            raise SchemaError(f"validation_json must be JSON text, got {text!r}")
        more = msgspec.json.decode(text)
        if not isinstance(more, dict):
            raise SchemaError(f"validation_json must be a JSON object, got {text!r}")
        return normalize({"type": "any", **keywords, **more})
    except (SchemaError, TypeError, msgspec.DecodeError) as error:
        raise SchemaError(f"parameter {name!r} of {tool}: {error}") from error
