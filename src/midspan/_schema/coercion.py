"""Change arguments so that they fit their schema, only where the schema allows a single reading.

`DefaultsPlan` fills in defaults in arguments that are otherwise valid; `Coercer` converts values that do not fit.
"""

import re
from decimal import Decimal
from math import isfinite
from typing import Any

import msgspec

from midspan._schema.compiled import MAX_VALUE_DEPTH, CompiledSchema
from midspan._schema.problems import Steps, format_path, quoted
from midspan._schema.tree import SchemaNode, has_type, measure, type_of

_INTEGER = re.compile(r"[+-]?\d{1,300}")
_NUMBER = re.compile(r"[+-]?(\d{1,300}(\.\d{0,300})?|\.\d{1,300})([eE][+-]?\d{1,3})?")
_MAX_DIGITS = 300
_MAX_DEPTH = 100
_MAX_ATTEMPTS = 20_000
"""Unions in unions multiply; a value that takes more attempts than this is left as it is."""
_NEW_TYPES = frozenset(("array", "string"))
"""A single value may become an array of one, and an object or an array JSON text, if no other reading fits."""
_UNCHANGED = object()
_MAX_DEFAULT_VALUES = 1_000


class DefaultsPlan:
    """What to fill in, and at which nodes of a schema there is anything to do, so that a call pays only for those."""

    def __init__(self, compiled: CompiledSchema) -> None:
        self._compiled = compiled
        self._defaults = {id(node): self._usable_defaults(node) for node in compiled.tree.nodes}
        self._active = self._active_nodes()
        for node in compiled.tree.nodes:
            for name, default in self._defaults[id(node)].items():
                self._defaults[id(node)][name] = self._filled_default(default, node.properties[name])

    def is_active(self, node: SchemaNode) -> bool:
        """Return whether there may be something to do in values of this node."""
        return id(node) in self._active

    def defaults(self, node: SchemaNode) -> dict[str, Any]:
        """Return the defaults of the properties of an object."""
        found: dict[str, Any] = {}
        for schema in node.applying:
            found = {**self._defaults.get(id(schema), {}), **found}
        return found

    def apply_defaults(
        self, value: Any, node: SchemaNode, steps: Steps, changes: list[str], *, defaults: bool = True
    ) -> Any:
        """Return the value with everything filled in; the same object if there was nothing to do."""
        if not self.is_active(node):
            return value
        if type(value) is dict:
            # Copies, because the tool may change what it gets. They are filled in already: a default that needs itself
            # as a default would never end here.
            missing = self.defaults(node) if defaults else {}
            changed: Any = {name: msgspec.to_builtins(item) for name, item in missing.items() if name not in value}
            keys: Any = value
        elif type(value) is list:
            changed = {}
            keys = self._indexes(value, node)
        elif type(value) is float and is_integer(node) and value.is_integer():
            changes.append(f"{format_path(steps)}: {value} → {int(value)}")
            return int(value)
        else:
            return value
        for step in keys:
            item = value[step]
            for schema in node.applying:
                item = self.apply_defaults(item, schema.part(step), (*steps, step), changes, defaults=defaults)
            if item is not value[step]:
                changed[step] = item
        filled = _replaced(value, changed) if changed else value
        for variants in (schema.not_null_variants for schema in node.applying):
            fitting = (variant for variant in variants if self._compiled.fits(filled, variant))
            if len(variants) > 1 and (chosen := next(fitting, None)) is not None:
                return self.apply_defaults(filled, chosen, steps, changes, defaults=defaults)
        return filled

    def _indexes(self, value: list[Any], node: SchemaNode) -> range:
        """Return the indexes of items with something to do: none in an array of integers, as most are."""
        items = [item for schema in node.applying for item in (*schema.prefix, schema.items) if self.is_active(item)]
        is_numeric = not any(item.types & {"object", "array"} for item in items)
        return range(0 if is_numeric and float not in map(type, value) else len(value))

    def _usable_defaults(self, node: SchemaNode) -> dict[str, Any]:
        """Return the defaults of properties. One that its own schema forbids (null, mostly) means "may be left out"."""
        props = {name: prop for name, prop in node.properties.items() if "default" in prop.schema}
        return {
            name: prop.schema["default"]
            for name, prop in props.items()
            if self._compiled.fits(prop.schema["default"], prop)
        }

    def _filled_default(self, default: Any, prop: SchemaNode) -> Any:
        """Return a default with the defaults inside it."""
        filled = self.apply_defaults(default, prop, (), [])
        is_small = measure(filled, MAX_VALUE_DEPTH)[0] <= _MAX_DEFAULT_VALUES
        return filled if is_small and self._compiled.fits(filled, prop) else default

    def _active_nodes(self) -> set[int]:
        nodes = self._compiled.tree.nodes
        active = {id(node) for node in nodes if self._defaults[id(node)] or is_integer(node)}
        size = -1
        while active and size < len(active):
            size = len(active)
            for node in reversed(nodes):  # from the inside out, so that once is nearly always enough
                if any(id(inner) in active for inner, _ in node.dependencies):
                    active.add(id(node))
        return active


def is_integer(node: SchemaNode) -> bool:
    """Return whether a number here must be an integer."""
    return "integer" in node.types and "number" not in node.types


def _replaced(value: Any, changed: dict[Any, Any]) -> Any:
    if isinstance(value, dict):
        return {**value, **changed}
    return [changed.get(index, item) for index, item in enumerate(value)]


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
