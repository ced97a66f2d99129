"""Change arguments so that they fit their schema, only where the schema allows a single reading."""

import operator
from collections.abc import Callable
from typing import Any

import msgspec

from midspan._schema.compiled import CompiledSchema
from midspan._schema.problems import Steps, format_path, quoted
from midspan._schema.tree import SchemaNode, has_type, type_of

_MAX_DEPTH = 100
_MAX_ATTEMPTS = 20_000
"""Unions in unions multiply; a value that takes more attempts than this is left as it is."""
_NEW_TYPES = frozenset(("array", "string"))
"""A single value may become an array of one, and an object or an array JSON text, if no other reading fits."""
_UNCHANGED = object()
_MAX_EXACT = 2**53
"""Below this, a float represents every integer exactly."""
_WORDS = {"true": True, "false": False, "null": None, "none": None}
CHANGEABLE = frozenset((dict, list, float))
"""Types of values that `Coercer.fill` may change."""
_DEFAULT_DEPTH = 25
"""What a default counts towards the depth, so that a default that contains itself ends after a few levels."""


class Coercer:
    """One attempt to make a value fit its schema. `changes` describes what it changed in the copy that it returns."""

    def __init__(
        self,
        compiled: CompiledSchema,
        *,
        defaults: bool = True,
        new_types: frozenset[str] = _NEW_TYPES,
        attempts: "list[int] | None" = None,
    ) -> None:
        self._compiled = compiled
        self._defaults = defaults
        self._new_types = new_types
        self._attempts = [_MAX_ATTEMPTS] if attempts is None else attempts
        self.changes: list[str] = []

    def fill(self, value: Any, node: SchemaNode, steps: Steps = (), depth: int = 0) -> Any:
        """Return a value with its defaults, and 5.0 as 5 for an integer; the same object if there was nothing to do."""
        if depth > _MAX_DEPTH:
            return value
        if type(value) is float and node.is_integer and value.is_integer():
            self._note(steps, f"{value} → {int(value)}")
            return int(value)
        if not isinstance(value, dict | list) or (type(value) is list and CHANGEABLE.isdisjoint(map(type, value))):
            return value
        for schema in node.applying:
            value = self._parts(value, schema, self.fill, steps, depth)
        for variants in (schema.not_null_variants for schema in node.applying):
            fitting = (variant for variant in variants if self._compiled.fits(value, variant))
            if len(variants) > 1 and (chosen := next(fitting, None)) is not None:
                return self.fill(value, chosen, steps, depth + 1)
        return value

    def coerce(self, value: Any, node: SchemaNode, steps: Steps = (), depth: int = 0) -> Any:
        """Return the value, changed where it does not fit and the schema leaves no doubt what was meant."""
        if self._compiled.fits(value, node):
            return self.fill(value, node, steps, depth)
        self._attempts[0] -= 1
        if depth > _MAX_DEPTH or self._attempts[0] < 0:
            return value
        for part in [*([node.target] if node.target else []), *node.all_of]:
            value = self.coerce(value, part, steps, depth + 1)
        if node.variants:
            value = self._variant(value, node, steps, depth)
        return self._parts(self._retype(value, node, steps, depth), node, self.coerce, steps, depth)

    def _parts(self, value: Any, node: SchemaNode, change: Callable[..., Any], steps: Steps, depth: int) -> Any:
        """Return a container with its parts changed, and an object with its defaults and without absent properties."""
        if isinstance(value, list):
            items = [change(item, node.item(index), (*steps, index), depth + 1) for index, item in enumerate(value)]
            return value if all(map(operator.is_, items, value)) else items
        if not isinstance(value, dict):
            return value
        result = {}
        for name, item in value.items():
            result[name] = change(item, node.part(name), (*steps, name), depth + 1)
            prop = node.properties.get(name)
            if prop is None or name in node.schema.get("required", ()) or change == self.fill:
                continue
            if self._means_absent(result[name], prop):
                self._note((*steps, name), f"{quoted(result.pop(name))} dropped, it may be left out")
        if self._defaults:
            result |= self._missing(result, node, depth)
        is_same = result.keys() == value.keys() and all(map(operator.is_, result.values(), value.values()))
        return value if is_same else result

    def _missing(self, value: dict[str, Any], node: SchemaNode, depth: int) -> dict[str, Any]:
        """Return the defaults of absent properties, except those that their own schema forbids: often null."""
        missing = {}
        for name, prop in node.properties.items():
            if name not in value and "default" in prop.schema and self._compiled.fits(prop.schema["default"], prop):
                default = msgspec.to_builtins(prop.schema["default"])  # a copy: the tool may change it
                filled = self.fill(default, prop, (name,), depth + _DEFAULT_DEPTH)
                missing[name] = filled if self._compiled.fits(filled, prop) else default
        return missing

    def _variant(self, value: Any, node: SchemaNode, steps: Steps, depth: int) -> Any:
        """Return the value as the first variant that it can be made to fit, preferably without wrapping it."""
        for new_types in dict.fromkeys((frozenset[str](), self._new_types)):
            for variant in node.variants:
                attempt = self._attempt(new_types)
                candidate = attempt.coerce(value, variant, steps, depth + 1)
                if self._compiled.fits(candidate, variant):
                    self.changes += attempt.changes
                    return candidate
        others = node.not_null_variants
        return self.coerce(value, others[0], steps, depth + 1) if len(others) == 1 else value

    def _attempt(self, new_types: frozenset[str]) -> "Coercer":
        return Coercer(self._compiled, defaults=self._defaults, new_types=new_types, attempts=self._attempts)

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
            candidate = self._attempt(frozenset({"array"})).coerce([value], node, steps, depth + 1)
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
    """Return the value that a text contains as JSON, or as Python writes True and None, if it has one of the types."""
    word = text.lower()
    parsed = _WORDS[word] if word in _WORDS else _parse(text)
    if parsed is _UNCHANGED or isinstance(parsed, str) or not has_type(parsed, types):
        return _UNCHANGED
    if isinstance(parsed, float) and "number" not in types:
        return int(parsed) if abs(parsed) < _MAX_EXACT else _UNCHANGED
    return parsed


def _parse(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return _UNCHANGED
