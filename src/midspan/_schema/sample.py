"""Sample values of a schema: the examples of prompts, and the arguments of calls that the local Gemini makes."""

import math
from typing import Any

from midspan._schema.tree import ANYTHING, TYPES, SchemaNode

_MAX_DEPTH = 16
_MAX_OPTIONAL_DEPTH = 3
"""To this depth, a sample has more than the schema requires: an item of each array, a property of each object."""
_MAX_VALUES = 200
_MAX_ITEMS = 50
_MAX_CHARS = 1_000


def sample_object(node: SchemaNode) -> dict[str, Any]:
    """Return an object with the required properties, or with the first one if none is required."""
    return _Sampler().object(node, 0)


class _Sampler:
    """Makes one sample. A schema may ask for any size, so the number of values is limited; further ones are None."""

    def __init__(self) -> None:
        self._values_left = _MAX_VALUES

    def object(self, node: SchemaNode, depth: int) -> dict[str, Any]:
        names = [name for name in node.all_properties if name in node.all_required]
        if not names and depth < _MAX_OPTIONAL_DEPTH:
            names = list(node.all_properties)[:1]
        return {name: self._value(node.all_properties[name], depth + 1) for name in names}

    def _value(self, node: SchemaNode, depth: int) -> Any:
        """Return a value that the schema names, or a simple one of its type."""
        self._values_left -= 1
        parts = node.flattened_without_null
        keywords = {keyword: value for part in reversed(parts) for keyword, value in part.schema.items()}
        values = [*(keywords.get("examples") or ()), *(keywords.get("enum") or ())]
        values += [keywords[keyword] for keyword in ("const", "default") if keyword in keywords]
        unions = [union for part in parts for union in part.unions_without_null if union]
        if values or depth > _MAX_DEPTH or self._values_left < 0:
            return values[0] if values else None
        if unions:
            return self._value(unions[0][0], depth + 1)
        match next((name for name in TYPES if name in node.types), "null"):
            case "string":
                return "text".ljust(min(keywords.get("minLength", len("text")), _MAX_CHARS), "t")
            case "number":
                return _number(keywords)
            case "integer":
                return math.ceil(_number(keywords))
            case "boolean":
                return True
            case "array":
                array = next((part for part in parts if part.prefix or part.items is not ANYTHING), node)
                count = max(keywords.get("minItems", 0), 1 if depth < _MAX_OPTIONAL_DEPTH else 0)
                return [self._value(array.item(index), depth + 1) for index in range(min(count, _MAX_ITEMS))]
            case "object":
                return self.object(node, depth)
        return None


def _number(keywords: dict[str, Any]) -> Any:
    """Return a number within the bounds; 1 if there are none."""
    least = keywords.get("minimum", keywords.get("exclusiveMinimum", 0) + 1)
    return min(least, keywords.get("maximum", math.inf), keywords.get("exclusiveMaximum", math.inf) - 1)
