"""One schema with its references and `allOf` folded in: the constraints that hold for a value, in one place."""

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct, field

Types = frozenset[str]
_MOST_COMPARISONS = 1_000_000
ALL_TYPES: Types = frozenset({"string", "number", "integer", "boolean", "array", "object", "null"})


class Flat(Struct):
    """Constraints on one value. Sub-schemas are still as they were written."""

    types: Types | None = None
    enum: list[Any] | None = None
    properties: dict[str, Any] = field(default_factory=dict)
    required: list[str] = field(default_factory=list)
    others: Any = True
    """What other properties must be."""
    items: Any = True
    prefix: list[Any] = field(default_factory=list)
    unions: list[list[Any]] = field(default_factory=list)
    """Of each list, one at least must hold."""
    bounds: dict[str, Any] = field(default_factory=dict)
    """minimum, maxLength and their like, `pattern` and `format`."""
    description: str = ""
    default: Any = None
    examples: list[Any] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What can only be said in words."""
    trail: tuple[int, ...] = ()
    """The references that led here, for those who must stop following them."""

    def limited_to(self, types: Iterable[str]) -> None:
        """Narrow the types; if nothing were left, the wider statement stays."""
        wanted = frozenset(types)
        if self.types is None:
            self.types = wanted
        else:
            self.types = _common(self.types, wanted) or self.types


def _common(one: Types, other: Types) -> Types:
    common = one & other
    if ("number" in one and "integer" in other) or ("integer" in one and "number" in other):
        common |= {"integer"}
    return common


def fold(into: Flat, other: Flat) -> None:
    """Make the first say what both say. Where that cannot be said it stays wider, never narrower."""
    if other.types is not None:
        into.limited_to(other.types)
    if other.enum is not None:
        into.enum = other.enum if into.enum is None else _shared(into.enum, other.enum)
    for name, schema in other.properties.items():
        into.properties[name] = both(into.properties[name], schema) if name in into.properties else schema
    into.required = list(dict.fromkeys([*into.required, *other.required]))
    into.others = both(into.others, other.others)
    if other.prefix and not into.prefix:
        into.prefix, into.items = other.prefix, other.items
    elif not other.prefix and not into.prefix:
        into.items = both(into.items, other.items)
    into.unions = [*into.unions, *other.unions]
    for keyword, value in other.bounds.items():
        known = into.bounds.get(keyword)
        into.bounds[keyword] = value if known is None else _TIGHTER.get(keyword, _first)(known, value)
    into.description = into.description or other.description
    into.default = other.default if into.default is None else into.default
    into.examples = into.examples or other.examples
    into.notes = [*into.notes, *(note for note in other.notes if note not in into.notes)]


def both(one: Any, other: Any) -> Any:
    """A schema that demands both."""
    if one is True or one is other:
        return other
    if other is True:
        return one
    if one is False or other is False:
        return False
    return {"allOf": [one, other]}


def _shared(one: list[Any], other: list[Any]) -> list[Any]:
    if len(one) * len(other) > _MOST_COMPARISONS:
        return one
    return [value for value in one if value in other] or one


def _first(known: Any, _: Any) -> Any:
    return known


_TIGHTER: dict[str, Callable[[Any, Any], Any]] = {
    **dict.fromkeys(("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"), max),
    **dict.fromkeys(("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"), min),
}
