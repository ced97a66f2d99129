"""How each keyword that holds no schema is read, and what a misplaced `enum` means."""

import re
from collections.abc import Callable
from typing import Any


def _number(value: Any) -> int | float | None:
    if isinstance(value, str) and len(value) < 40:
        try:
            return int(value) if value.strip().lstrip("-").isdigit() else float(value)
        except ValueError:
            return None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _step(value: Any) -> int | float | None:
    number = _number(value)
    return number if number is not None and number > 0 else None


def _count(value: Any) -> int | None:
    number = _number(value)
    return int(number) if number is not None and number >= 0 and number == number // 1 < 2**63 else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _identifier(value: Any) -> str | None:
    return value if isinstance(value, str) and not value.partition("#")[2] else None


def _anchor(value: Any) -> str | None:
    return value if isinstance(value, str) and re.fullmatch("[A-Za-z_][-A-Za-z0-9._]*", value) else None


def _flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _names(value: Any) -> list[str] | None:
    if not isinstance(value, list | tuple):
        return None
    return list(dict.fromkeys(name for name in value if isinstance(name, str)))


def _values(value: Any) -> list[Any] | None:
    return list(value) if isinstance(value, list | tuple) and value else None


def _dependent(value: Any) -> dict[str, list[str]] | None:
    if not isinstance(value, dict):
        return None
    return {name: names for name, one in value.items() if (names := _names(one)) is not None}


PLAIN: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _number),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties"), _count),
    **dict.fromkeys(("maxProperties", "minContains", "maxContains"), _count),
    **dict.fromkeys(("title", "description", "format", "pattern", "$ref", "$comment"), _text),
    **dict.fromkeys(("$dynamicRef", "contentEncoding", "contentMediaType"), _text),
    **dict.fromkeys(("uniqueItems", "deprecated", "readOnly", "writeOnly"), _flag),
    "$id": _identifier,
    "$anchor": _anchor,
    "$dynamicAnchor": _anchor,
    "multipleOf": _step,
    "required": _names,
    "enum": _values,
    "examples": _values,
    "dependentRequired": _dependent,
}
"""How a keyword is read that holds no schema; None is what it cannot mean."""


def fit_enum(node: dict[str, Any]) -> None:
    """Values that all contradict the declared type were misplaced or misspelled: 1 and "1", "true" and true."""
    values, declared = node.get("enum"), node.get("type")
    if not values or not isinstance(declared, str) or declared not in _KINDS:
        return
    if any(_is_of(value, declared) for value in values):
        return
    if declared == "object":
        del node["enum"]
    elif declared == "array":
        # The values are those of the items, one level too high.
        items = node.setdefault("items", {})
        if isinstance(items, dict):
            items.setdefault("enum", node.pop("enum"))
    elif None in (fitted := [_FITTING[declared](value) for value in values]):
        del node["type"]
    else:
        node["enum"] = fitted


_KINDS: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": int | float,
    "boolean": bool,
    "array": list,
    "object": dict,
}


def _is_of(value: Any, word: str) -> bool:
    return isinstance(value, _KINDS[word]) and (word == "boolean") == isinstance(value, bool)


_FITTING: dict[Any, Callable[[Any], Any]] = {
    "string": lambda value: str(value) if _number(value) is not None else None,
    "integer": lambda value: number if isinstance(number := _number(value), int) else None,
    "number": _number,
    "boolean": lambda value: {"true": True, "false": False}.get(str(value).lower()),
}
"""How a value becomes one of the type; None if it does not."""
