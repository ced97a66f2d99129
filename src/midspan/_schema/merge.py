"""A schema merged with its references and `allOf`: all constraints on one value in one place."""

from collections.abc import Callable
from typing import Any

from msgspec import Struct, field

from midspan._schema.problems import CONSTRAINTS, quoted
from midspan._schema.tree import ANYTHING, SchemaNode, declared_types
from midspan._types.texts import canonical_json

_TIGHTER: dict[str, Callable[[Any, Any], Any]] = {
    **dict.fromkeys(("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"), max),
    **dict.fromkeys(("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"), min),
}
_BOUNDS = frozenset((*_TIGHTER, "pattern", "format"))
_NOTES = CONSTRAINTS.keys() - {*_BOUNDS, "const", "additionalItems"}
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
    prefix: list[SchemaNode] = field(default_factory=list)
    unions: list[list[SchemaNode]] = field(default_factory=list)
    """A value must fit one schema at least of each list."""
    bounds: dict[str, Any] = field(default_factory=dict)
    """`minimum`, `maxLength` and so on, `pattern` and `format`."""
    description: str = ""
    default: Any = None
    examples: list[Any] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Constraints for the description."""
    ref_stack: tuple[int, ...] = ()
    """The references that led here, to know when to stop following them."""

    @property
    def is_constrained(self) -> bool:
        """Whether it says more than the type."""
        has_parts = self.properties or self.required or self.prefix or self.bounds or self.unions
        is_open = self.additional.always is True and self.items.always is True
        return bool(has_parts) or self.enum is not None or not is_open

    def merge(self, other: "MergedSchema") -> None:
        """Add the constraints of another schema. Of two that cannot be combined, the first is kept."""
        if other.types is not None:
            self.types = other.types if self.types is None else self.types & other.types or self.types
        if other.enum is not None:
            self.enum = other.enum if self.enum is None else _shared_values(self.enum, other.enum) or self.enum
        for name, prop in other.properties.items():
            self.properties[name] = all_of(self.properties[name], prop) if name in self.properties else prop
        self.required = list(dict.fromkeys([*self.required, *other.required]))
        self.additional = all_of(self.additional, other.additional)
        if not (self.prefix and other.prefix):
            self.prefix = self.prefix or other.prefix
            self.items = all_of(self.items, other.items)
        self.unions = [*self.unions, *other.unions]
        for keyword, value in other.bounds.items():
            known = self.bounds.setdefault(keyword, value)
            if keyword in _TIGHTER:
                self.bounds[keyword] = _TIGHTER[keyword](known, value)
        self.description = self.description or other.description
        self.default = other.default if self.default is None else self.default
        self.examples = self.examples or other.examples
        self.notes = list(dict.fromkeys([*self.notes, *other.notes]))


def all_of(left: SchemaNode, right: SchemaNode) -> SchemaNode:
    """Return a schema that values must fit both of."""
    if left.always is True or left is right or right.always is False:
        return right
    return left if right.always is True or left.always is False else SchemaNode.combine("allOf", [left, right])


def _shared_values(left: list[Any], right: list[Any]) -> list[Any]:
    others = set(map(canonical_json, right))  # Python takes True for 1, JSON does not
    return [value for value in left if canonical_json(value) in others]


def merge_conjuncts(node: SchemaNode, ref_stack: tuple[int, ...]) -> MergedSchema | None:
    """Return the constraints of a schema and of all that it refers to; None if no value fits it.

    A reference to a schema that it is inside of is followed twice more, and then accepts any value.
    """
    targets = {id(part.target): part.target for part in node.conjuncts if part.target is not None}
    ended = [target for key, target in targets.items() if ref_stack.count(key) > 2]
    skipped = {id(part) for target in ended for part in target.conjuncts}
    result = MergedSchema(ref_stack=(*ref_stack, *targets))
    for part in node.conjuncts:
        if id(part) not in skipped:
            if part.always is False:
                return None
            result.merge(_own(part))
    return result


def _own(node: SchemaNode) -> MergedSchema:
    """Return the constraints of a schema without those of its references and `allOf`."""
    schema = node.schema
    return MergedSchema(
        types=declared_types(schema) if "type" in schema else None,
        enum=node.options,
        properties={**node.properties},
        required=schema.get("required", []),
        additional=_additional(node),
        items=node.items,
        prefix=[*node.prefix],
        bounds={keyword: schema[keyword] for keyword in _BOUNDS & schema.keys()},
        description=schema.get("description", ""),
        default=schema.get("default"),
        examples=schema.get("examples") or ([schema["example"]] if "example" in schema else []),
        unions=[union for union in node.unions if len(union) > 1],
        notes=[
            CONSTRAINTS[keyword].format(quoted(schema[keyword]))
            for keyword in schema
            if keyword in _NOTES and schema[keyword] != _NO_CONSTRAINT.get(keyword)
        ],
    )


def _additional(node: SchemaNode) -> SchemaNode:
    """Return the schema of properties that are not named."""
    patterns = list(node.pattern_properties.values())
    if not patterns or node.additional.always is True:
        return node.additional
    return SchemaNode.combine("anyOf", patterns if node.additional.always is False else [*patterns, node.additional])
