"""Makes answers follow the request: forced and forbidden calls, and thoughts only if they are asked for."""

from typing import Any

from msgspec.structs import replace

from midspan.emulator.gemini.checks.tools import declarations_in
from midspan.emulator.gemini.sources.source import Answer, Conversation, call
from midspan.providers.gemini.proto import to_plain
from midspan.providers.gemini.wire import FunctionDeclaration, ThinkingConfig

_MAX_DEPTH = 16


def apply_tool_choice(answer: Answer, conversation: Conversation) -> Answer:
    """Return the answer that the function calling config of the request allows."""
    if answer.documents or answer.blocked:
        return answer
    answer = _without_hidden_thoughts(answer, conversation)
    mode = conversation.calling_config.mode
    called = [part["functionCall"].get("name") for part in answer.parts if "functionCall" in part]
    allowed = _allowed_functions(conversation)
    if mode == "NONE":
        return _without_calls(answer) if called else answer
    if mode == "ANY" and allowed:
        is_allowed = called and all(name in allowed for name in called)
        return answer if is_allowed else replace(answer, parts=(_forced_call(allowed),), finish="STOP")
    if mode == "VALIDATED" and allowed:
        return answer if all(name in allowed for name in called) else _without_calls(answer)
    if called and not conversation.request.tools:
        return Answer(finish="UNEXPECTED_TOOL_CALL", finish_message="Model tried to call an undeclared function.")
    return answer


def _without_hidden_thoughts(answer: Answer, conversation: Conversation) -> Answer:
    thinking = conversation.generation_config.thinking_config or ThinkingConfig()
    if thinking.include_thoughts or not any("thought" in part for part in answer.parts):
        return answer
    return replace(answer, parts=tuple(part for part in answer.parts if not part.get("thought")))


def _without_calls(answer: Answer) -> Answer:
    parts = tuple(part for part in answer.parts if "functionCall" not in part)
    return replace(answer, parts=parts or ({"text": "No function may be called here."},))


def _allowed_functions(conversation: Conversation) -> dict[str, FunctionDeclaration]:
    declared = {declaration.name or "": declaration for declaration in declarations_in(conversation.request.tools)}
    names = conversation.calling_config.allowed_function_names
    return {name: declared[name] for name in names if name in declared} if names else declared


def _forced_call(allowed: dict[str, FunctionDeclaration]) -> dict[str, Any]:
    name, declaration = next(iter(allowed.items()))
    plain = to_plain(declaration)
    schema = plain.get("parametersJsonSchema", plain.get("parameters"))
    arguments = _sample(schema, _definitions(schema)) if schema else {}
    return call(name, **(arguments if isinstance(arguments, dict) else {}))


def _definitions(schema: dict[str, Any]) -> dict[str, Any]:
    return schema.get("$defs") or schema.get("defs") or {}


def _sample(schema: Any, definitions: dict[str, Any], depth: int = 0) -> Any:
    """Return a value of a schema, in JSON Schema or in the API's subset of OpenAPI."""
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return "text"
    reference = schema.get("$ref") or schema.get("ref")
    if isinstance(reference, str):
        return _sample(definitions.get(reference.rsplit("/", 1)[-1], {}), definitions, depth + 1)
    for keyword in ("const", "default"):
        if keyword in schema:
            return schema[keyword]
    if schema.get("enum"):
        return schema["enum"][0]
    for keyword in ("anyOf", "oneOf", "allOf"):
        if schema.get(keyword):
            return _sample(schema[keyword][0], definitions, depth + 1)
    return _sample_of_type(schema, definitions, depth)


def _sample_of_type(schema: dict[str, Any], definitions: dict[str, Any], depth: int) -> Any:
    types = schema.get("type", "object" if "properties" in schema else "string")
    match str(types[0] if isinstance(types, list) and types else types).lower():
        case "object":
            properties = schema.get("properties") or {}
            required = schema.get("required") or ()
            return {name: _sample(properties.get(name), definitions, depth + 1) for name in required}
        case "array":
            return [_sample(schema.get("items"), definitions, depth + 1)] * int(schema.get("minItems") or 0)
        case "integer" | "number":
            minimum = schema.get("minimum", schema.get("exclusiveMinimum", 0) or 0)
            smallest = int(minimum) + ("exclusiveMinimum" in schema)
            return max(smallest, 1 if schema.get("maximum", 1) >= 1 else int(minimum))
        case "boolean":
            return True
        case "null":
            return None
    return "text".ljust(int(schema.get("minLength") or 0), "t")
