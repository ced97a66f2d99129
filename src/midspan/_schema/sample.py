"""Sample values of a schema: the examples of prompts, and the arguments of calls that the local Gemini makes."""

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from midspan._schema.tree import ANYTHING, TYPES, SchemaNode

_MAX_DEPTH = 16
_MAX_OPTIONAL_DEPTH = 3
"""To this depth, a sample has more than the schema requires: an item of each array, a property of each object."""
_MAX_VALUES = 200
"""A schema may ask for any size. Further values are None."""
_MAX_ITEMS = 50
_MAX_CHARS = 1_000


def sample_object(node: SchemaNode) -> dict[str, Any]:
    """Return an object with the required properties, or with the first one if none is required."""
    return _object(node, 0, iter(range(_MAX_VALUES)))


def _object(node: SchemaNode, depth: int, budget: Iterator[int]) -> dict[str, Any]:
    names = [name for name in node.all_properties if name in node.all_required]
    if not names and depth < _MAX_OPTIONAL_DEPTH:
        names = list(node.all_properties)[:1]
    return {name: _value(node.all_properties[name], depth + 1, budget) for name in names}


def _value(node: SchemaNode, depth: int, budget: Iterator[int]) -> Any:
    """Return a value that the schema names, or a simple one of its type."""
    is_spent = next(budget, None) is None
    parts = node.flattened_without_null
    keywords = {keyword: value for part in reversed(parts) for keyword, value in part.schema.items()}
    values = [*(keywords.get("examples") or ()), *(keywords.get("enum") or ())]
    values += [keywords[keyword] for keyword in ("const", "default") if keyword in keywords]
    unions = [union for part in parts for union in part.unions_without_null if union]
    if values or depth > _MAX_DEPTH or is_spent:
        return values[0] if values else None
    if unions:
        return _value(unions[0][0], depth + 1, budget)
    match next((name for name in TYPES if name in node.types), "null"):
        case "string":
            return "text".ljust(min(keywords.get("minLength", len("text")), _MAX_CHARS), "t")
        case "number" | "integer" as name:
            return _number(keywords, is_integer=name == "integer")
        case "boolean":
            return True
        case "array":
            array = next((part for part in parts if part.prefix or part.items is not ANYTHING), node)
            count = max(keywords.get("minItems", 0), 1 if depth < _MAX_OPTIONAL_DEPTH else 0)
            return [_value(array.item(index), depth + 1, budget) for index in range(min(count, _MAX_ITEMS))]
        case "object":
            return _object(node, depth, budget)
    return None


def _number(keywords: dict[str, Any], *, is_integer: bool) -> int | float:
    """Return a number that fits the bounds and `multipleOf`; 1 if there are none."""
    above, below = keywords.get("exclusiveMinimum", -math.inf), keywords.get("exclusiveMaximum", math.inf)
    low, high = max(above, keywords.get("minimum", -math.inf)), min(below, keywords.get("maximum", math.inf))
    step = Fraction(str(keywords.get("multipleOf", 0)))  # floats are not exact multiples of 0.1
    if is_integer:
        step = Fraction(step.numerator or 1)
    candidates = [low, _plain(step or Fraction(1)), low + 1, high, high - 1]
    numbers: list[int | float] = [number for number in candidates if -math.inf < number < math.inf]
    if high <= low + 1:
        numbers.append(low + (high - low) / 2)
    if step:
        multiples = [Fraction(str(number)) // step for number in numbers]
        numbers = [_plain((multiple + more) * step) for multiple in multiples for more in (0, 1, -1)]
    return next((number for number in numbers if above < number < below and low <= number <= high), numbers[0])


def _plain(number: Fraction) -> int | float:
    return int(number) if number.denominator == 1 else float(number)
