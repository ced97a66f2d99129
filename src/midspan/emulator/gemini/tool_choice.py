"""Makes answers follow the request: forced and forbidden calls, and thoughts only if they are asked for."""

from typing import Any

from msgspec.structs import replace

from midspan._schema.normalize import normalize_tree
from midspan._schema.tree import SchemaNode
from midspan.emulator.gemini.conversation import Answer, Conversation, call
from midspan.emulator.gemini.tools import declarations_in, parameters_of
from midspan.providers.gemini.wire import FunctionDeclaration

_MAX_DEPTH = 16
_TYPES = ("object", "array", "string", "integer", "number", "boolean", "null")
"""In the order in which a sample prefers them."""


def apply_tool_choice(answer: Answer, conversation: Conversation) -> Answer:
    """Return the answer that the function calling config of the request allows."""
    if answer.documents or answer.blocked:
        return answer
    if not conversation.thinking_config.include_thoughts:
        answer = replace(answer, parts=tuple(part for part in answer.parts if not part.get("thought")))
    mode = conversation.calling_config.mode
    called = [part["functionCall"].get("name") for part in answer.parts if "functionCall" in part]
    allowed = _allowed_functions(conversation)
    is_allowed = all(name in allowed for name in called)
    if mode == "NONE" or (mode == "VALIDATED" and allowed and not is_allowed):
        return _without_calls(answer) if called else answer
    if mode == "ANY" and allowed:
        forced = _forced_call(next(iter(allowed.values())))
        return answer if called and is_allowed else replace(answer, parts=(forced,), finish="STOP")
    if called and not conversation.request.tools:
        return Answer(finish="UNEXPECTED_TOOL_CALL", finish_message="Model tried to call an undeclared function.")
    return answer


def _without_calls(answer: Answer) -> Answer:
    parts = tuple(part for part in answer.parts if "functionCall" not in part)
    return replace(answer, parts=parts or ({"text": "No function may be called here."},))


def _allowed_functions(conversation: Conversation) -> dict[str, FunctionDeclaration]:
    declared = {declaration.name or "": declaration for declaration in declarations_in(conversation.request.tools)}
    names = conversation.calling_config.allowed_function_names
    return {name: declared[name] for name in names if name in declared} if names else declared


def _forced_call(declaration: FunctionDeclaration) -> dict[str, Any]:
    schema = parameters_of(declaration)
    arguments = _sample(normalize_tree(schema)[0].root) if schema else {}
    return call(declaration.name or "", **(arguments if isinstance(arguments, dict) else {}))


def _sample(node: SchemaNode, depth: int = 0) -> Any:
    """Return a value of a schema."""
    schema = {keyword: value for part in node.conjuncts for keyword, value in part.schema.items()}
    options = [option for part in node.conjuncts for option in part.options or ()]
    variants = [variant for part in node.conjuncts for variant in part.variants]
    if options or "default" in schema:
        return schema.get("default", next(iter(options), None))
    if depth > _MAX_DEPTH:
        return "text"
    if variants:
        return _sample(variants[0], depth + 1)
    match next((name for name in _TYPES if name in node.types), None):
        case "object":
            properties = {name: inner for part in node.conjuncts for name, inner in part.properties.items()}
            names = [name for part in node.conjuncts for name in part.schema.get("required", ()) if name in properties]
            return {name: _sample(properties[name], depth + 1) for name in names}
        case "array":
            return [_sample(node.item(at), depth + 1) for at in range(int(schema.get("minItems", 0)))]
        case "integer" | "number":
            minimum = schema.get("minimum", schema.get("exclusiveMinimum", 0))
            smallest = int(minimum) + ("exclusiveMinimum" in schema)
            return max(smallest, 1 if schema.get("maximum", 1) >= 1 else int(minimum))
        case "boolean":
            return True
        case "null":
            return None
    return "text".ljust(int(schema.get("minLength", 0)), "t")
