"""Change arguments so that they fit their schema, only where the schema allows a single reading."""

import re
from decimal import Decimal
from math import isfinite
from typing import Any

import msgspec

from midspan._schema.compiled import CompiledSchema
from midspan._schema.problems import Steps, format_path, quoted
from midspan._schema.tree import SchemaNode, has_type, type_of

_INTEGER = re.compile(r"[+-]?\d{1,300}")
_NUMBER = re.compile(r"[+-]?(\d{1,300}(\.\d{0,300})?|\.\d{1,300})([eE][+-]?\d{1,3})?")
_MAX_DIGITS = 300
_MAX_DEPTH = 100
_MAX_ATTEMPTS = 20_000
"""Unions in unions multiply; a value that takes more attempts than this is left as it is."""
_NEW_TYPES = frozenset(("array", "string"))
"""A single value may become an array of one, and an object or an array JSON text, if no other reading fits."""
_UNCHANGED = object()


class Coercer:
    """One attempt to make a value fit its schema. `changes` describes what it changed in the copy that it returns."""

    def __init__(
        self, compiled: CompiledSchema, attempts: "list[int] | None" = None, *, new_types: frozenset[str] = _NEW_TYPES
    ) -> None:
        self._compiled = compiled
        self._new_types = new_types
        self._attempts = [_MAX_ATTEMPTS] if attempts is None else attempts
        self.changes: list[str] = []

    def coerce(self, value: Any, node: SchemaNode, steps: Steps = (), depth: int = 0) -> Any:
        """Return the value, changed where it does not fit and the schema leaves no doubt what was meant."""
        self._attempts[0] -= 1
        if depth > _MAX_DEPTH or self._attempts[0] < 0 or self._compiled.fits(value, node):
            return value
        for part in [*([node.target] if node.target else []), *node.all_of]:
            value = self.coerce(value, part, steps, depth + 1)
        if node.variants:
            value = self._variant(value, node, steps, depth)
        value = self._retype(value, node, steps, depth)
        if isinstance(value, dict):
            return self._object(value, node, steps, depth)
        if isinstance(value, list):
            items = enumerate(value)
            return [self.coerce(item, node.item(index), (*steps, index), depth + 1) for index, item in items]
        return value

    def _variant(self, value: Any, node: SchemaNode, steps: Steps, depth: int) -> Any:
        """Return the value as the first variant that it can be made to fit, preferably without wrapping it."""
        for new_types in dict.fromkeys((frozenset[str](), self._new_types)):
            for variant in node.variants:
                attempt = Coercer(self._compiled, self._attempts, new_types=new_types)
                candidate = attempt.coerce(value, variant, steps, depth + 1)
                if self._compiled.fits(candidate, variant):
                    self.changes += attempt.changes
                    return candidate
        others = node.not_null_variants
        return self.coerce(value, others[0], steps, depth + 1) if len(others) == 1 else value

    def _object(self, value: dict[str, Any], node: SchemaNode, steps: Steps, depth: int) -> dict[str, Any]:
        result = {}
        for name, original in value.items():
            item = self.coerce(original, node.part(name), (*steps, name), depth + 1)
            prop = node.properties.get(name)
            if prop is not None and name not in node.schema.get("required", ()) and self._means_absent(item, prop):
                self._note((*steps, name), f"{quoted(item)} dropped, it may be left out")
            else:
                result[name] = item
        return result

    def _means_absent(self, value: Any, node: SchemaNode) -> bool:
        """Return whether this is null, or the default, and does not fit the schema: both mean "not given"."""
        default = node.schema.get("default")
        # Python takes False for 0, JSON does not.
        is_default = type(value) is type(default) and value == default
        return (value is None or is_default) and not self._compiled.fits(value, node)

    def _retype(self, value: Any, node: SchemaNode, steps: Steps, depth: int) -> Any:
        """Convert the value to a type that the schema expects, and find an option in another case."""
        options = node.options
        types = _expected_types(node)
        if types and not has_type(value, types):
            converted = _convert(value, types)
            if converted is _UNCHANGED:
                converted = self._wrap(value, node, self._new_types.intersection(types), steps, depth)
            if converted is not _UNCHANGED:
                self._note(steps, f"{quoted(value)} → {quoted(converted)}")
                value = converted
        if isinstance(value, str) and options and value not in options:
            value = self._option(value, options, steps)
        return value

    def _wrap(self, value: Any, node: SchemaNode, types: frozenset[str], steps: Steps, depth: int) -> Any:
        if "array" in types and _is_single(value, steps):
            coercer = Coercer(self._compiled, self._attempts, new_types=frozenset({"array"}))
            candidate = coercer.coerce([value], node, steps, depth + 1)
        elif "string" in types and _is_document(value):
            candidate = msgspec.json.encode(value).decode()
        else:
            return _UNCHANGED
        return candidate if self._compiled.fits(candidate, node) else _UNCHANGED

    def _option(self, value: str, options: list[Any], steps: Steps) -> str:
        wanted = value.strip().casefold()
        same = [option for option in options if isinstance(option, str) and option.strip().casefold() == wanted]
        if len(same) != 1:
            return value
        self._note(steps, f"{quoted(value)} → {quoted(same[0])}")
        return same[0]

    def _note(self, steps: Steps, change: str) -> None:
        self.changes.append(f"{format_path(steps)}: {change}" if steps else change)


def _expected_types(node: SchemaNode) -> list[str]:
    types = node.schema.get("type")
    if types is None:
        return list(dict.fromkeys(type_of(option) for option in node.options or ()))
    return types if isinstance(types, list) else [types]


def _is_single(value: Any, steps: Steps) -> bool:
    """Return whether the value may be meant as the only item of an array.

    Not inside an array: a row is not a table of one column. And not a text that begins like an array or an object and
    is not valid JSON.
    """
    if value is None or (steps and isinstance(steps[-1], int)):
        return False
    return not (isinstance(value, str) and value.lstrip()[:1] in ("[", "{") and not isinstance(_parse(value), dict))


def _is_document(value: Any) -> bool:
    """Return whether the value can only be meant as JSON text. An array of plain values may be a list of texts."""
    if isinstance(value, list):
        return any(isinstance(item, dict | list) for item in value)
    return isinstance(value, dict) and bool(value)


def _convert(value: Any, types: list[str]) -> Any:
    if isinstance(value, str):
        return _from_text(value.strip(), types)
    if "string" in types and isinstance(value, int | float):
        return str(value).lower() if isinstance(value, bool) else str(value)
    return _UNCHANGED


def _from_text(text: str, types: list[str]) -> Any:
    if ("integer" in types or "number" in types) and _NUMBER.fullmatch(text):
        return _to_number(text, types)
    if "boolean" in types and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if "null" in types and text.lower() in ("null", "none"):
        return None
    for name, opening, expected in (("array", "[", list), ("object", "{", dict)):
        if name in types and text.startswith(opening):
            parsed = _parse(text)
            return parsed if isinstance(parsed, expected) else _UNCHANGED
    return _UNCHANGED


def _to_number(text: str, types: list[str]) -> Any:
    exact = Decimal(text)
    is_whole = exact.adjusted() < _MAX_DIGITS and exact == exact.to_integral_value()
    if is_whole and ("integer" in types or _INTEGER.fullmatch(text)):
        return int(exact)
    if "number" in types and isfinite(number := float(text)):
        return number
    return _UNCHANGED


def _parse(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return None
