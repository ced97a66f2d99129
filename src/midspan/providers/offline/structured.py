"""Answers in JSON: results as they are, or put into the shape that a schema asks for."""

import json
from typing import Any

from midspan.providers.offline.declared.parameters import resolved, type_of
from midspan.providers.offline.situation import Done

_DEEPEST = 8
_EMPTY: dict[str, Any] = {"string": "", "integer": 0, "number": 0, "boolean": False, "array": [], "object": {}}


def structured(schema: dict[str, Any] | None, done: tuple[Done, ...], text: str) -> str:
    """What the calls have said as JSON; `text` where they have said nothing.

    Under a schema each property gets what a result has under the same name, and else the least that is legal.
    """
    values = {call.name: result.value for call, result in done}
    if schema is None:
        value: Any = next(iter(values.values())) if len(values) == 1 else values or {"answer": text}
    else:
        value = _shaped(schema, schema, [*values.values()], text, 0)
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (RecursionError, ValueError):  # deeper than JSON goes, or in a circle
        return json.dumps({"answer": text}, ensure_ascii=False)


def _shaped(schema: Any, root: dict[str, Any], found: list[Any], text: str, depth: int) -> Any:
    schema = resolved(schema, root)
    kind = type_of(schema)
    if isinstance(schema.get("enum"), list) and schema["enum"]:
        known = [value for value in _leaves(found) if value in schema["enum"]]
        return known[0] if known else schema["enum"][0]
    if kind == "object" and depth < _DEEPEST:
        properties = schema.get("properties") if isinstance(schema.get("properties"), dict) else {}
        needed = schema.get("required") if isinstance(schema.get("required"), list) else []
        made = {}
        for name, inner in properties.items():
            given = [value for value in (_named(one, name) for one in found) if value is not None]
            if given or name in needed:
                made[name] = _shaped(inner, root, given, text, depth + 1)
        return made
    fitting = [value for value in found if _is(value, kind)]
    if fitting:
        return fitting[0]
    if kind == "string":
        return json.dumps(found[0], ensure_ascii=False, default=str) if found else text if depth <= 1 else ""
    return found if kind == "array" and found else _EMPTY.get(kind)


def _named(value: Any, name: str, depth: int = 0) -> Any:
    """What stands under this name, at the top or deeper."""
    if isinstance(value, dict):
        if name in value:
            return value[name]
        value = list(value.values())
    if isinstance(value, list) and depth < _DEEPEST:
        return next((got for one in value[:200] if (got := _named(one, name, depth + 1)) is not None), None)
    return None


def _leaves(values: list[Any]) -> list[Any]:
    return [leaf for one in values for leaf in (one.values() if isinstance(one, dict) else [one])]


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind in ("boolean", "any")
    forms: dict[str, Any] = {"string": str, "integer": int, "number": int | float, "array": list, "object": dict}
    return kind == "any" or isinstance(value, forms.get(kind, ()))
