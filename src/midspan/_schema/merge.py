"""A schema merged with its references and `allOf`: all constraints on one value in one place."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from midspan._schema.problems import CONSTRAINTS, describe_constraint
from midspan._schema.tree import ANYTHING, SchemaNode, declared_types
from midspan._types.texts import canonical_json

CONSTRAINTS_BY_TYPE = {
    "string": ("minLength", "maxLength", "pattern", "format"),
    **dict.fromkeys(("integer", "number"), ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "format")),
    "array": ("minItems", "maxItems"),
    "object": ("minProperties", "maxProperties"),
}
_CONSTRAINT_KEYWORDS = frozenset(keyword for keywords in CONSTRAINTS_BY_TYPE.values() for keyword in keywords)
_NOTES = CONSTRAINTS.keys() - {*_CONSTRAINT_KEYWORDS, "const", "additionalItems"}
"""Constraints that only the description can express."""
_NO_CONSTRAINT = {"uniqueItems": False, "unevaluatedProperties": True, "unevaluatedItems": True}


class MergedSchema(Struct):
    """All constraints on one value. Subschemas are still nodes."""

    types: frozenset[str] | None = None
    """With "integer" wherever there is "number"."""
    enum: list[Any] | None = None
    properties: dict[str, SchemaNode] = field(default_factory=dict)
    required: list[str] = field(default_factory=list)
    additional: SchemaNode = ANYTHING
    items: SchemaNode = ANYTHING
    prefix: Sequence[SchemaNode] = ()
    unions: list[list[SchemaNode]] = field(default_factory=list)
    """A value must fit at least one schema of each list."""
    bounds: dict[str, Any] = field(default_factory=dict)
    """`minimum`, `maxLength` and so on, `pattern` and `format`."""
    description: str = ""
    default: Any = None
    examples: list[Any] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Constraints for the description."""
    ref_stack: tuple[int, ...] = ()
    """The references that led here, to know when to stop following them."""

    def add(self, node: SchemaNode) -> None:
        """Add the constraints of one schema. Types and enums are intersected if they overlap; the first bound stays."""
        schema, values = node.schema, node.enum_values
        if "type" in schema:
            types = declared_types(schema)
            self.types = types if self.types is None else self.types & types or self.types
        if values is not None:
            allowed = set(map(canonical_json, values))  # True == 1 in Python, not in JSON
            shared = [value for value in self.enum or () if canonical_json(value) in allowed]
            self.enum = shared or self.enum or values
        for name, prop in node.properties.items():
            self.properties[name] = all_of(self.properties.get(name, ANYTHING), prop)
        self.required = list(dict.fromkeys([*self.required, *schema.get("required", ())]))
        self.additional = all_of(self.additional, _additional(node))
        if not (self.prefix and node.prefix):
            self.prefix = self.prefix or node.prefix
            self.items = all_of(self.items, node.items)
        self.unions = [*self.unions, *(union for union in node.unions if len(union) > 1)]
        self.bounds = {keyword: schema[keyword] for keyword in schema if keyword in _CONSTRAINT_KEYWORDS} | self.bounds
        self.description = self.description or schema.get("description", "")
        self.default = schema.get("default") if self.default is None else self.default
        example = [schema["example"]] if "example" in schema else []  # as in OpenAPI
        self.examples = self.examples or schema.get("examples") or example
        for keyword, limit in schema.items():
            if keyword in _NOTES and limit != _NO_CONSTRAINT.get(keyword):
                self.notes = list(dict.fromkeys([*self.notes, describe_constraint(keyword, limit)]))


def all_of(left: SchemaNode, right: SchemaNode) -> SchemaNode:
    """Return the conjunction of two schemas."""
    if left.boolean is True or left is right or right.boolean is False:
        return right
    return left if right.boolean is True or left.boolean is False else SchemaNode.combine("allOf", [left, right])


def merge_flattened(node: SchemaNode, base: MergedSchema) -> MergedSchema:
    """Return `base` with the constraints of a schema and of all that it refers to.

    A recursive reference is followed twice more, and then accepts any value.
    """
    targets = {id(part.ref_target): part.ref_target for part in node.flattened if part.ref_target is not None}
    ended = [target for key, target in targets.items() if base.ref_stack.count(key) > 2]
    skipped = {id(part) for target in ended for part in target.flattened}
    stack = (*base.ref_stack, *targets)
    result = replace(base, properties=base.properties.copy(), ref_stack=stack)
    for part in node.flattened:
        if id(part) not in skipped:
            result.add(part)
    return result


def _additional(node: SchemaNode) -> SchemaNode:
    """Return the schema of properties that are not named."""
    patterns = list(node.pattern_properties.values())
    if not patterns or node.additional.boolean is True:
        return node.additional
    return SchemaNode.combine("anyOf", patterns if node.additional.boolean is False else [*patterns, node.additional])
