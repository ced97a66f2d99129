"""Sample values of a schema: the examples of prompts, and the arguments of calls that the local Gemini makes."""

from typing import Any

from midspan._schema.tree import ANYTHING, TYPES, SchemaNode

_MAX_DEPTH = 16
_MAX_OPTIONAL_DEPTH = 3
"""To this depth, a sample has more than the schema requires: an item of each array, a property of each object."""


def sample_object(node: SchemaNode, depth: int = 0) -> dict[str, Any]:
    """Return an object with the required properties, or with the first one if none is required."""
    properties = {name: prop for part in node.applying for name, prop in part.properties.items()}
    required = {name for part in node.applying for name in part.schema.get("required") or ()}
    names = [name for name in properties if name in required]
    if not names and depth < _MAX_OPTIONAL_DEPTH:
        names = list(properties)[:1]
    return {name: _sample(properties[name], depth + 1) for name in names}


def _sample(node: SchemaNode, depth: int) -> Any:
    """Return a value that the schema names, or a simple one of its type."""
    keywords = {keyword: value for part in reversed(node.applying) for keyword, value in part.schema.items()}
    values = [*(keywords.get("examples") or ()), *(keywords.get("enum") or ())]
    values += [keywords[keyword] for keyword in ("const", "default") if keyword in keywords]
    variants = [variant for part in node.applying for variant in part.not_null_variants]
    if values or depth > _MAX_DEPTH:
        return values[0] if values else None
    if variants:
        return _sample(variants[0], depth + 1)
    match next((name for name in TYPES if name in node.types), "null"):
        case "string":
            return "text".ljust(keywords.get("minLength", 0), "t")
        case "number" | "integer":
            return keywords.get("minimum", keywords.get("maximum", keywords.get("exclusiveMinimum", 0) + 1))
        case "boolean":
            return True
        case "array":
            array = next((part for part in node.applying if part.prefix or part.items is not ANYTHING), node)
            count = max(keywords.get("minItems", 0), 1 if depth < _MAX_OPTIONAL_DEPTH else 0)
            return [_sample(array.item(index), depth + 1) for index in range(count)]
        case "object":
            return sample_object(node, depth)
    return None
