"""Checks a request like the server: `check` returns the request, or raises an ApiError with the message of the API."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from midspan._schema.tree import SchemaTree
from midspan._types.texts import CHARACTERS_PER_TOKEN
from midspan.emulator.gemini.api import invalid, invalid_fields
from midspan.emulator.gemini.contents import check_contents_size, check_each, check_together, count_tokens
from midspan.emulator.gemini.models import ModelRules
from midspan.emulator.gemini.reading import read
from midspan.errors import SchemaError
from midspan.providers.gemini import wire
from midspan.providers.gemini.capabilities import FUNCTION_NAME, MAX_NAME_CHARS, Api
from midspan.providers.gemini.proto import to_plain

FieldErrors = Iterator[tuple[str, str]]
"""Pairs of the path of a field and the message about it."""
_INVALID_NAME = (
    "Invalid function name. Must start with a letter or an underscore. Must be alphameric (a-z, A-Z, 0-9), "
    "underscores (_), dots (.), colons (:), or dashes (-), with a maximum length of 64."
)
_PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_INVALID_PARAMETER = (
    "Invalid parameter name. Must start with a letter or an underscore. Must be alphameric (a-z, A-Z, 0-9) or "
    "underscores (_), with a maximum length of 64."
)
_DEFAULT_BEHAVIORS = (None, "UNSPECIFIED", "BEHAVIOR_UNSPECIFIED", 0)
_STRING_FORMATS = (None, "", "enum", "date-time")
_BUILTIN_TOOLS = tuple(
    name for name in wire.Tool.__struct_fields__ if name not in ("function_declarations", "mcp_servers", "extra")
)
_MAX_DECLARATIONS = 512
_MAX_SCHEMA_CHARS = 32_768
"""Of property names and enum values, in all functions that may be called. The real limit is not published; this one is
far above what recordings show to be accepted."""
_TOO_MANY_STATES = (
    "The specified schema produces a constraint that has too many states for serving. Typical causes of this error "
    "are schemas with lots of text (for example, very long property or enum names)"
)
_OUT_OF_RANGE = (
    "Unable to submit request because it has a {} value of {} but the supported range is from {} (exclusive). Update "
    "the value and try again."
)
_CACHE_CONFLICT = {
    Api.DEVELOPER: "CachedContent can not be used with GenerateContent request setting system_instruction, tools or "
    "tool_config. Proposed fix: move those values to CachedContent from GenerateContent request.",
    Api.VERTEX: "Tool config, tools and system instruction should not be set in the request when using cached content.",
}


def check(
    body: bytes, rules: ModelRules, *, is_streaming: bool = False, strict_signatures: bool = False
) -> wire.GenerateContentRequest:
    """Return the request in a body if the API accepts it."""
    request = read(wire.GenerateContentRequest, body, rules)
    contents, tools = request.contents or (), request.tools or ()
    config = request.generation_config or wire.GenerationConfig()
    check_each(contents, rules.api)
    if request.system_instruction is not None and not rules.capabilities.system_instruction:
        raise invalid(f"Developer instruction is not enabled for models/{rules.name}")
    if not 0 <= (config.temperature or 0) <= 2:
        raise invalid(_OUT_OF_RANGE.format("temperature", config.temperature, "0 (inclusive) to 2.0001"))
    if (config.candidate_count or 1) < 1:
        raise invalid(_OUT_OF_RANGE.format("candidateCount", config.candidate_count, "1 (inclusive) to 9"))
    if (config.candidate_count or 1) > (1 if is_streaming else rules.max_candidates):
        raise invalid("Multiple candidates is not enabled for this model")
    schemas = config.response_schema, config.response_json_schema
    if errors := list(_either_schema_errors(*schemas, "generation_config.response_schema", rules.api)):
        raise invalid_fields(errors, rules.api)
    _check_thinking(config.thinking_config or wire.ThinkingConfig(), rules)
    if request.cached_content is not None:
        if not rules.capabilities.explicit_cache:
            raise invalid(f"CachedContent is not supported for models/{rules.name}")
        if request.system_instruction is not None or tools or request.tool_config is not None:
            raise invalid(_CACHE_CONFLICT[rules.api])
    check_declarations(tools, rules)
    _check_tools(tools, request.tool_config or wire.ToolConfig(), rules, is_streaming=is_streaming)
    if config.response_mime_type == "application/json" and not rules.capabilities.json_with_functions:
        has_calls = any(part.function_call is not None for content in contents for part in content.parts or ())
        if has_calls or declarations_in(tools):
            raise invalid("Function calling with a response mime type: 'application/json' is unsupported")
    check_together(contents, rules, strict_signatures=strict_signatures)
    return request


def _check_thinking(config: wire.ThinkingConfig, rules: ModelRules) -> None:
    levels = rules.capabilities.thinking_levels
    level = config.thinking_level if config.thinking_level != "THINKING_LEVEL_UNSPECIFIED" else None
    if rules.rejects_thinking and (level is not None or config.thinking_budget or config.include_thoughts):
        raise invalid(f"Thinking is not enabled for models/{rules.name}")
    if level is None or not (levels or rules.capabilities.thinking_budget):
        return
    if config.thinking_budget is not None:
        raise invalid("You can only set only one of thinking budget and thinking level.")
    if not levels:
        raise invalid("Thinking level is not supported for this model.")
    if str(level).lower() not in levels:
        raise invalid(f"Thinking level {level} is not supported for this model.")


def count_request_tokens(body: bytes, rules: ModelRules) -> dict[str, Any]:
    """Return the answer to a countTokens request."""
    request = read(wire.CountTokensRequest, body, rules)
    counted = request.generate_content_request or request
    contents = counted.contents or []
    check_each(contents, rules.api)
    check_contents_size(contents, rules.api)
    check_declarations(counted.tools or (), rules)
    tokens = count_tokens(contents, counted.system_instruction)
    if counted.tools:
        tokens += len(msgspec.json.encode(to_plain(counted.tools))) // CHARACTERS_PER_TOKEN
    return {"totalTokens": tokens, "promptTokensDetails": [{"modality": "TEXT", "tokenCount": tokens}]}


def check_declarations(tools: Sequence[wire.Tool], rules: ModelRules) -> None:
    api = rules.api
    declared = [
        (f"tools[{tool_index}].function_declarations[{index}]", declaration)
        for tool_index, tool in enumerate(tools)
        for index, declaration in enumerate(tool.function_declarations or ())
    ]
    if declared and not rules.capabilities.functions:
        raise invalid(f"Function calling is not enabled for models/{rules.name}")
    if len(declared) > _MAX_DECLARATIONS:
        raise invalid(f"At most {_MAX_DECLARATIONS} function declarations can be specified.")
    errors = [error for path, declaration in declared for error in _declaration_errors(declaration, path, api)]
    if errors:
        raise invalid_fields(errors, api)
    for name, count in Counter(declaration.name for _, declaration in declared).items():
        if count > 1:
            raise invalid(f"Duplicate function declaration found: {name}")


def declarations_in(tools: Sequence[wire.Tool] | None) -> list[wire.FunctionDeclaration]:
    return [declaration for tool in tools or () for declaration in tool.function_declarations or ()]


def _declaration_errors(declaration: wire.FunctionDeclaration, path: str, api: Api) -> FieldErrors:
    if not FUNCTION_NAME.fullmatch(declaration.name or "") or len(declaration.name or "") > MAX_NAME_CHARS:
        yield f"{path}.name", _INVALID_NAME
    parameters = declaration.parameters
    yield from _either_schema_errors(parameters, declaration.parameters_json_schema, f"{path}.parameters", api)
    yield from _either_schema_errors(declaration.response, declaration.response_json_schema, f"{path}.response", api)
    for name in (parameters and parameters.properties) or ():
        if not _PARAMETER.fullmatch(name):
            yield f"{path}.parameters.properties[{name[:80]}]", _INVALID_PARAMETER
    if declaration.behavior not in _DEFAULT_BEHAVIORS:
        yield f"{path}.behavior", "behavior is only supported by the BidiGenerateContent method."


def _either_schema_errors(schema: wire.Schema | None, json_schema: Any, path: str, api: Api) -> FieldErrors:
    """Yield the errors of a schema that is in one of two fields; `path` is the one for the subset of OpenAPI."""
    json_path = f"{path.removesuffix('_schema')}_json_schema"
    if json_schema is not UNSET and not isinstance(json_schema, dict):
        yield json_path, "must be a JSON object"
    if schema is not None:
        yield from _schema_errors(schema, path, api)
        if json_schema is not UNSET:
            yield json_path, f"must not be set when {path.rpartition('.')[2]} is set"


def parameters_of(declaration: wire.FunctionDeclaration) -> Any:
    """Return the schema of the parameters, in whichever of the two fields it is; None if there is none."""
    return schema_of(declaration.parameters, declaration.parameters_json_schema)


def schema_of(schema: wire.Schema | None, json_schema: Any) -> Any:
    return to_plain(schema) if json_schema is UNSET else json_schema


def _schema_errors(schema: wire.Schema, path: str, api: Api) -> FieldErrors:
    """Yield the errors of a schema in the API's subset of OpenAPI. Unknown keywords are found when it is read."""
    if schema.type == "ARRAY" and schema.items is None:
        yield f"{path}.items", "missing field."
    if schema.enum and schema.type not in ("STRING", None):
        yield f"{path}.enum", "only allowed for STRING type"
    for index, value in enumerate(schema.enum or ()):
        if not value:
            yield f"{path}.enum[{index}]", "cannot be empty"
    if schema.type == "STRING" and schema.format not in _STRING_FORMATS and api is Api.DEVELOPER:
        yield f"{path}.format", "only 'enum' and 'date-time' are supported for STRING type"
    properties = schema.properties or {}
    for index, name in enumerate(schema.required or ()):
        if name not in properties:
            yield f"{path}.required[{index}]", "property is not defined"
    for name, inner in properties.items():
        yield from _schema_errors(inner, f"{path}.properties[{name}]", api)
    if schema.items is not None:
        yield from _schema_errors(schema.items, f"{path}.items", api)
    for index, inner in enumerate(schema.any_of or ()):
        yield from _schema_errors(inner, f"{path}.any_of[{index}]", api)


def _check_tools(tools: Sequence[wire.Tool], config: wire.ToolConfig, rules: ModelRules, *, is_streaming: bool) -> None:
    """Check tools of different kinds together, and the config."""
    calling = config.function_calling_config or wire.FunctionCallingConfig()
    shows_calls = config.include_server_side_tool_invocations is True
    if shows_calls and not rules.capabilities.server_side_calls:
        raise invalid(f"Tool call context circulation is not enabled for models/{rules.name}")
    has_builtins = any(getattr(tool, name) is not None for tool in tools for name in _BUILTIN_TOOLS)
    if has_builtins and declarations_in(tools):
        if not rules.capabilities.builtin_with_functions:
            raise invalid("Tool use with function calling is unsupported")
        if rules.capabilities.server_side_calls and not shows_calls:
            raise invalid(
                "Please enable tool_config.include_server_side_tool_invocations to use Built-in tools with Function "
                "calling."
            )
        if shows_calls and calling.mode == "AUTO":
            raise invalid("Function calling mode AUTO is not supported together with built-in tools; use VALIDATED.")
    if rules.capabilities.functions:  # other models ignore the config
        _check_calling(calling, {declaration.name: declaration for declaration in declarations_in(tools)})
    if calling.stream_function_call_arguments and not (is_streaming and rules.capabilities.streamed_arguments):
        raise invalid("stream_function_call_arguments is only supported in streaming requests of Gemini 3 models.")


def _check_calling(calling: wire.FunctionCallingConfig, declared: dict[str | None, wire.FunctionDeclaration]) -> None:
    allowed = calling.allowed_function_names or ()
    if calling.mode not in ("ANY", "VALIDATED"):
        if allowed:
            raise invalid("allowed_function_names should be set only when function calling mode is ANY or VALIDATED.")
        return
    if not declared:
        raise invalid("Function calling config is set without function_declarations.")
    for name in allowed:
        if name not in declared:
            path = "tool_config.function_calling_config.allowed_function_names"
            raise invalid(f"* GenerateContentRequest.{path}: function `{name}` is not declared in tools.")
    # The API compiles the schemas of calls that must be valid to a constraint of limited size.
    try:
        trees = [SchemaTree(parameters_of(declared[name])) for name in allowed or declared]
    except SchemaError as error:  # too many values
        raise invalid(_TOO_MANY_STATES) from error
    texts = (text for tree in trees for node in tree.nodes for text in (*node.properties, *(node.enum_values or ())))
    if sum(len(str(text)) for text in texts) > _MAX_SCHEMA_CHARS:
        raise invalid(_TOO_MANY_STATES)
