"""One schema with its references and `allOf` folded in: the constraints that hold for a value, in one place.

It is made within bounds that no chain or fan of references can break.
"""

import json
from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct, field

from midspan._schema.dialects.dialect import DroppedConstraint
from midspan._schema.positions import pointer
from midspan._schema.references import Document
from midspan._schema.type_aliases import TYPES

Types = frozenset[str]
_MOST_COMPARISONS = 1_000_000
ONE_OF_TWO = "two of them hold, and only one is said"
ALL_TYPES: Types = frozenset(TYPES)

MOST_NODES = 6_000
DEEPEST = 40
_IN_WORDS = {
    "not": "must not fit {}",
    "if": "conditions apply",
    "contains": "one item must fit {}",
    "propertyNames": "names of properties must fit {}",
    "dependentRequired": "if the first is given the others must be: {}",
    "dependentSchemas": "conditions apply",
    "unevaluatedProperties": "no other properties",
    "unevaluatedItems": "no other items",
    "uniqueItems": "no item twice",
    "multipleOf": "a multiple of {}",
    "contentEncoding": "encoded as {}",
    "contentMediaType": "of media type {}",
}
"""Constraints that only words can carry."""
_NOTHING_SAID = {
    "uniqueItems": (False,),
    "unevaluatedProperties": (True,),
    "unevaluatedItems": (True,),
    "contains": (True,),
    "propertyNames": (True,),
    "dependentRequired": ({},),
    "dependentSchemas": ({},),
}
_BOUNDS = frozenset(
    [
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "minProperties",
        "maxProperties",
        "pattern",
        "format",
    ]
)
_LONGEST_WORD = 120


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


def fold(into: Flat, other: Flat) -> list[str]:
    """Make the first say what both say. Where that cannot be said it stays wider, never narrower: by these keywords."""
    wider = []
    if other.types is not None:
        if into.types is not None and not _common(into.types, other.types):
            wider.append("type")
        into.limited_to(other.types)
    if other.enum is not None:
        shared = other.enum if into.enum is None else _shared(into.enum, other.enum)
        if not shared:
            wider.append("enum")
        into.enum = shared or into.enum
    for name, schema in other.properties.items():
        into.properties[name] = both(into.properties[name], schema) if name in into.properties else schema
    into.required = list(dict.fromkeys([*into.required, *other.required]))
    into.others = both(into.others, other.others)
    length = max(len(into.prefix), len(other.prefix))
    into.prefix = [both(_item(into, at), _item(other, at)) for at in range(length)]
    into.items = both(into.items, other.items)
    into.unions = [*into.unions, *other.unions]
    for keyword, value in other.bounds.items():
        known = into.bounds.setdefault(keyword, value)
        if keyword in _TIGHTER:
            into.bounds[keyword] = _TIGHTER[keyword](known, value)
        elif known != value:
            wider.append(keyword)
    into.description = into.description or other.description
    into.default = other.default if into.default is None else into.default
    into.examples = into.examples or other.examples
    into.notes = [*into.notes, *(note for note in other.notes if note not in into.notes)]
    return wider


def _item(flat: Flat, at: int) -> Any:
    return flat.prefix[at] if at < len(flat.prefix) else flat.items


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
    """The values of both; none if there are too many to compare."""
    return [] if len(one) * len(other) > _MOST_COMPARISONS else [value for value in one if value in other]


_TIGHTER: dict[str, Callable[[Any, Any], Any]] = {
    **dict.fromkeys(("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"), max),
    **dict.fromkeys(("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"), min),
}


class Flattener:
    """Folds references and `allOf` together, counting every step; when the count is used up, all is widened."""

    def __init__(self, document: Document, *, unrolled: int) -> None:
        self.dropped: dict[tuple[str, str], DroppedConstraint] = {}
        self.exhausted = False
        self._document = document
        self._unrolled = unrolled
        self._left = MOST_NODES

    def flat(self, schema: Any, way: tuple[str, ...], trail: tuple[int, ...], depth: int = 0) -> Flat | None:
        """The constraints of this schema; None if no value at all fits it."""
        if schema is False:
            return None
        if schema is True or not self._spent(way, depth):
            return Flat(trail=trail)
        result = self._own(schema, way)
        result.trail = trail
        for inner, inner_trail in self._conjuncts(schema, way, trail):
            part = self.flat(inner, way, inner_trail, depth + 1)
            if part is None:
                return None
            for keyword in fold(result, part):
                self.lose(way, keyword, ONE_OF_TWO)
            result.trail += tuple(one for one in part.trail[len(trail) :] if one not in result.trail[len(trail) :])
        return result

    def lose(self, way: tuple[str, ...], keyword: str, what: str) -> None:
        path = pointer(way)
        self.dropped.setdefault((path, keyword), DroppedConstraint(path, keyword, what))

    def spend(self, nodes: int) -> None:
        """Count what the answer grows by."""
        self._left -= nodes
        self.exhausted = self._left < 0

    def _spent(self, way: tuple[str, ...], depth: int) -> bool:
        self.spend(1)
        if self.exhausted:
            self.lose(way, "$ref", "the schema unfolds too far: anything from here on")
        elif depth > DEEPEST:
            self.lose(way, "$ref", "too many references in a row: anything from here on")
        return not self.exhausted and depth <= DEEPEST

    def _conjuncts(
        self, schema: dict[str, Any], way: tuple[str, ...], trail: tuple[int, ...]
    ) -> list[tuple[Any, tuple[int, ...]]]:
        parts = [(one, trail) for one in schema.get("allOf", ())]
        parts += [(schema[word][0], trail) for word in ("anyOf", "oneOf") if len(schema.get(word, ())) == 1]
        if "$ref" not in schema:
            return parts
        target = self._document.targets.get(id(schema), True)
        if trail.count(id(target)) > self._unrolled:
            self.lose(way, "$ref", "refers to itself without end: anything from here on")
            return parts
        return [(target, (*trail, id(target))), *parts]

    def _own(self, schema: dict[str, Any], way: tuple[str, ...]) -> Flat:
        result = Flat(
            properties=schema.get("properties", {}).copy(),
            required=schema.get("required", []),
            others=_others(schema),
            items=schema.get("items", True),
            prefix=schema.get("prefixItems", []),
            bounds={keyword: schema[keyword] for keyword in _BOUNDS & schema.keys()},
            description=schema.get("description", ""),
            default=schema.get("default"),
            examples=schema.get("examples") or ([schema["example"]] if "example" in schema else []),
        )
        if "type" in schema:
            words = schema["type"]
            result.types = frozenset([words] if isinstance(words, str) else words)
        if "enum" in schema or "const" in schema:
            result.enum = schema["enum"] if "enum" in schema else [schema["const"]]
            if "const" in schema and schema["const"] not in result.enum:
                self.lose(way, "const", ONE_OF_TWO)
            elif "const" in schema:
                result.enum = [schema["const"]]
        self._union(result, schema, way)
        self._put_in_words(result, schema, way)
        return result

    def _union(self, result: Flat, schema: dict[str, Any], way: tuple[str, ...]) -> None:
        for keyword in ("anyOf", "oneOf"):
            if len(schema.get(keyword, ())) > 1:
                result.unions.append(schema[keyword])
        if len(schema.get("oneOf", ())) > 1:
            self.lose(way, "oneOf", "one at least, where exactly one was meant")

    def _put_in_words(self, result: Flat, schema: dict[str, Any], way: tuple[str, ...]) -> None:
        if "patternProperties" in schema:
            self.lose(way, "patternProperties", "other properties may have any name")
        for keyword in schema:
            if keyword in _IN_WORDS and schema[keyword] not in _NOTHING_SAID.get(keyword, ()):
                result.notes.append(_IN_WORDS[keyword].format(shortened(schema[keyword])))
                self.lose(way, keyword, "not enforced by the provider")
            elif keyword in ("$dynamicRef", "$recursiveRef"):
                self.lose(way, keyword, "a dynamic reference: anything")


def _others(schema: dict[str, Any]) -> Any:
    """What a property that is not named must be."""
    others = schema.get("additionalProperties", True)
    patterns = list(schema.get("patternProperties", {}).values())
    if not patterns or others is True:
        return others
    return {"anyOf": patterns if others is False else [*patterns, others]}


def shortened(value: Any) -> str:
    """A value as JSON-like words of bounded length."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _LONGEST_WORD else text[: _LONGEST_WORD - 1] + "…"
