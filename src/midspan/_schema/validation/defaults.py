"""Fill in defaults, and convert whole numbers that arrived as floats, in arguments that are otherwise valid."""

from typing import Any

import msgspec

from midspan._schema.paths import Steps, format_path, measure
from midspan._schema.tree import SchemaNode
from midspan._schema.validation.compiled import MAX_VALUE_DEPTH, CompiledSchema

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
            parts: Any = ((name, self._property_schemas(node, name)) for name in value)
        elif type(value) is list:
            changed = {}
            parts = ((index, [schema.item(index) for schema in node.applying]) for index in self._indexes(value, node))
        elif type(value) is float and is_integer(node) and value.is_integer():
            changes.append(f"{format_path(steps)}: {value} → {int(value)}")
            return int(value)
        else:
            return value
        for step, schemas in parts:
            item = value[step]
            for schema in schemas:
                item = self.apply_defaults(item, schema, (*steps, step), changes, defaults=defaults)
            if item is not value[step]:
                changed[step] = item
        filled = _replaced(value, changed) if changed else value
        for variants in (schema.not_null_variants for schema in node.applying):
            fitting = (variant for variant in variants if self._compiled.fits(filled, variant))
            if len(variants) > 1 and (chosen := next(fitting, None)) is not None:
                return self.apply_defaults(filled, chosen, steps, changes, defaults=defaults)
        return filled

    def _property_schemas(self, node: SchemaNode, name: str) -> list[SchemaNode]:
        return [prop for schema in node.applying for prop in self._compiled.property_schemas(schema, name)]

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
