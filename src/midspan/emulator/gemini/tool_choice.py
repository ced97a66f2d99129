"""Makes answers follow the request: forced and forbidden calls, and thoughts only if they are asked for."""

from typing import Any

from msgspec.structs import replace

from midspan._schema.normalize import normalize_tree
from midspan._schema.tree import SchemaNode
from midspan.emulator.gemini.conversation import Answer, Conversation, call
from midspan.emulator.gemini.tools import declarations_in, parameters_of
from midspan.providers.gemini.wire import FunctionDeclaration

_MAX_DEPTH = 16


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
        others = tuple(part for part in answer.parts if "functionCall" not in part)
        return replace(answer, parts=others or ({"text": "No function may be called here."},)) if called else answer
    if mode == "ANY" and allowed:
        forced = _forced_call(next(iter(allowed.values())))
        return answer if called and is_allowed else replace(answer, parts=(forced,), finish_reason="STOP")
    if called and not conversation.request.tools:
        return Answer(
            finish_reason="UNEXPECTED_TOOL_CALL", finish_message="Model tried to call an undeclared function."
        )
    return answer


def _allowed_functions(conversation: Conversation) -> dict[str, FunctionDeclaration]:
    declared = {declaration.name or "": declaration for declaration in declarations_in(conversation.request.tools)}
    names = conversation.calling_config.allowed_function_names
    return {name: declared[name] for name in names if name in declared} if names else declared


def _forced_call(declaration: FunctionDeclaration) -> dict[str, Any]:
    schema = parameters_of(declaration)
    arguments = _sample(normalize_tree(schema).root) if schema else {}
    return call(declaration.name or "", **(arguments if isinstance(arguments, dict) else {}))


def _sample(node: SchemaNode, depth: int = 0) -> Any:
    """Return a value of a schema."""
    schema = {keyword: value for part in node.conjuncts for keyword, value in part.schema.items()}
    options = [option for part in node.conjuncts for option in part.options or ()]
    variants = [variant for part in node.conjuncts for variant in part.variants]
    if "default" in schema or options:
        return schema.get("default", next(iter(options), None))
    if variants and depth < _MAX_DEPTH:
        return _sample(variants[0], depth + 1)
    if "object" in node.types and depth < _MAX_DEPTH:
        properties = {name: inner for part in node.conjuncts for name, inner in part.properties.items()}
        required = [name for part in node.conjuncts for name in part.schema.get("required", ())]
        return {name: _sample(properties[name], depth + 1) for name in required if name in properties}
    if "array" in node.types and depth < _MAX_DEPTH:
        return [_sample(node.item(at), depth + 1) for at in range(schema.get("minItems", 0))]
    if "string" in node.types:
        return "text".ljust(schema.get("minLength", 0), "t")
    if "integer" in node.types or "number" in node.types:
        return schema.get("minimum", schema.get("maximum", schema.get("exclusiveMinimum", 0) + 1))
    return True if "boolean" in node.types else None
