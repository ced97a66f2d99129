"""A JSON Schema as a tree of nodes with resolved references, and bounds on the work that it can cause."""

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from midspan.errors import SchemaError

Schema = dict[str, Any]

_MAX_SCHEMA_DEPTH = 128
_MAX_SCHEMA_SIZE = 50_000
_MAX_VALUE_DEPTH = 100
_MAX_VALUE_SIZE = 2_000_000
_MAX_QUADRATIC_CHARS = 10_000
"""The maximum length of a text that is matched against a pattern that takes quadratic time."""
_MAX_BRANCHES = 50_000
_MAX_NESTING = 500
_MAX_STACK = 1_000
"""How deep the validator may recurse; it has no limit of its own, and 512 KiB of stack on some systems."""

_SCHEMA_KEYWORDS = (
    "items additionalItems additionalProperties contains contentSchema unevaluatedItems unevaluatedProperties "
    "propertyNames not if then else"
)
SCHEMA_KEYWORDS = frozenset(_SCHEMA_KEYWORDS.split())
"""Keywords that hold one schema."""
LIST_KEYWORDS = frozenset(["allOf", "anyOf", "oneOf", "prefixItems"])
MAP_KEYWORDS = frozenset(["properties", "patternProperties", "dependentSchemas", "$defs", "definitions"])
"""Keywords that hold schemas by name."""
_DEFINITIONS = frozenset(["$defs", "definitions"])
_IN_PLACE = frozenset(["allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas"])
"""Keywords whose subschemas apply to the same value as the schema itself."""
_UNBOUNDED = frozenset(("$dynamicRef", "$recursiveRef", "uniqueItems"))
"""References that may lead to the schema that they are in, and a keyword that compares whole values."""
_BACKTRACKING = re.compile(r"\(\?<?[=!]|\\[1-9k]")
"""Lookaround and back-references, which the validator matches by backtracking."""
TYPES = ("string", "number", "integer", "boolean", "array", "object", "null")
_ALL_TYPES = frozenset(TYPES)
PYTHON_TYPES = dict(zip((str, float, int, bool, list, dict, type(None)), TYPES, strict=True))


def format_pointer(*steps: str | int) -> str:
    """Return the location of a schema as a JSON Pointer: `/properties/place/items`."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)


def map_subschemas(schema: Schema, change: Callable[[Any, str], Any]) -> dict[str, Any]:
    """Return the keywords that hold schemas, each schema changed by `change(subschema, pointer from this schema)`."""
    changed: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in MAP_KEYWORDS and isinstance(value, dict):
            changed[keyword] = {name: change(item, format_pointer(keyword, name)) for name, item in value.items()}
        elif isinstance(value, list) and (keyword in LIST_KEYWORDS or keyword == "items"):  # as up to draft 2019-09
            changed[keyword] = [change(item, format_pointer(keyword, index)) for index, item in enumerate(value)]
        elif keyword in SCHEMA_KEYWORDS:
            changed[keyword] = change(value, format_pointer(keyword))
    return changed


class SchemaNode:
    """One schema of a document, with its subschemas and the target of its `$ref`."""

    ref_target: "SchemaNode | None" = None
    additional: "SchemaNode"
    """The schema of properties that are not named."""
    items: "SchemaNode"
    """The schema of all items after the prefix."""

    def __init__(self, schema: Any, subschemas: Mapping[str, Any] = MappingProxyType({}), pointer: str = "") -> None:
        self.schema: dict[str, Any] = schema if isinstance(schema, dict) else {}
        self.boolean: bool | None = schema if isinstance(schema, bool) else None
        """True for the schema `true`, which any value fits; False for `false`, which no value fits; else None."""
        self.pointer = pointer
        """The JSON Pointer of the schema in its document."""
        self.subschemas = subschemas
        """By keyword: a node, a list of nodes, or nodes by name."""
        self.properties: Mapping[str, SchemaNode] = subschemas.get("properties", {})
        self.pattern_properties: Mapping[str, SchemaNode] = subschemas.get("patternProperties", {})
        self.all_of: Sequence[SchemaNode] = subschemas.get("allOf", ())
        prefix, items = "prefixItems", "items"
        if isinstance(subschemas.get("items"), list):  # as up to draft 2019-09
            prefix, items = "items", "additionalItems"
        self.prefix: Sequence[SchemaNode] = subschemas.get(prefix, ())
        """The schemas of the first items one by one."""
        if items in subschemas:
            self.items = subschemas[items]
        if "additionalProperties" in subschemas:
            self.additional = subschemas["additionalProperties"]

    @classmethod
    def combine(cls, keyword: str, nodes: "Sequence[SchemaNode]") -> "SchemaNode":
        """Return a node for `{keyword: nodes}` that is not in the document."""
        return cls({keyword: [inner.raw for inner in nodes]}, {keyword: nodes})

    @property
    def raw(self) -> Any:
        """The schema as it is in the document."""
        return self.schema if self.boolean is None else self.boolean

    def item(self, index: int) -> "SchemaNode":
        return self.prefix[index] if index < len(self.prefix) else self.items

    @property
    def unions(self) -> "list[list[SchemaNode]]":
        """The alternatives of `anyOf`, of which a value fits at least one, and of `oneOf`, of which it fits one."""
        return [self.subschemas[keyword] for keyword in ("anyOf", "oneOf") if self.subschemas.get(keyword)]

    @property
    def unions_without_null(self) -> "list[list[SchemaNode]]":
        """The unions, without alternatives that only null fits."""
        return [[variant for variant in union if variant.types != {"null"}] for union in self.unions]

    @property
    def enum_values(self) -> list[Any] | None:
        """The values of `enum`, or the one of `const`."""
        values = [self.schema["const"]] if "const" in self.schema else self.schema.get("enum")
        return values if isinstance(values, list) else None

    @property
    def used_nodes(self) -> "Iterator[tuple[SchemaNode, bool]]":
        """Every node that validation goes on to, and whether it applies to the same value as this node."""
        if self.ref_target is not None:
            yield self.ref_target, True
        for keyword, value in self.subschemas.items():
            if keyword not in _DEFINITIONS:
                nodes = value if isinstance(value, list) else value.values() if isinstance(value, dict) else [value]
                yield from ((node, keyword in _IN_PLACE) for node in nodes)

    @cached_property
    def flattened(self) -> "tuple[SchemaNode, ...]":
        """This node and all others that the same value must fit.

        They are reached, directly or indirectly, through `$ref`, `allOf` and unions with one alternative.
        """
        return self._reachable(lambda node: [union[0] for union in node.unions if len(union) == 1])

    @cached_property
    def flattened_without_null(self) -> "tuple[SchemaNode, ...]":
        """Like `flattened`, for a value other than null: also through unions with one alternative besides null."""
        return self._reachable(lambda node: [union[0] for union in node.unions_without_null if len(union) == 1])

    @cached_property
    def all_properties(self) -> "dict[str, SchemaNode]":
        """The properties that any of the nodes in `flattened_without_null` declares."""
        return {name: prop for node in self.flattened_without_null for name, prop in node.properties.items()}

    @cached_property
    def all_required(self) -> list[str]:
        return list({name: None for node in self.flattened_without_null for name in node.schema.get("required", ())})

    @cached_property
    def with_alternatives(self) -> "tuple[SchemaNode, ...]":
        """The flattened nodes of this schema and of all alternatives in its unions."""
        return self._reachable(lambda node: [variant for union in node.unions for variant in union])

    @cached_property
    def changes_valid_values(self) -> bool:
        """Whether coercion may change a valid value: write 5.0 as the integer 5, or fill in a default."""
        return any(
            node.is_integer or any("default" in prop.schema for prop in node.properties.values())
            for node in self._reachable(lambda node: [inner for inner, _ in node.used_nodes])
        )

    def _reachable(self, following: "Callable[[SchemaNode], list[SchemaNode]]") -> "tuple[SchemaNode, ...]":
        """Return this node and all that follow from it through `$ref`, `allOf` and `following`."""
        reached: dict[int, SchemaNode] = {}
        pending = [self]
        while pending:
            node = pending.pop()
            if id(node) not in reached:
                reached[id(node)] = node
                pending += reversed(([node.ref_target] if node.ref_target else []) + [*node.all_of] + following(node))
        return tuple(reached.values())

    @cached_property
    def types(self) -> frozenset[str]:
        """The JSON types that a value may have. "number" is among them only if the value may have a fraction."""
        self.types = types = _ALL_TYPES  # for a schema that refers to itself
        for node in self.flattened:
            types &= declared_types(node.schema) if node.boolean is not False else frozenset()
            if (values := node.enum_values) is not None:
                types &= {"number" if type(value) is float else type_of(value) for value in values}
            for union in node.unions:
                types &= frozenset[str]().union(*(variant.types for variant in union))
        return types

    @property
    def is_integer(self) -> bool:
        """Whether a number here must be an integer."""
        return "integer" in self.types and "number" not in self.types


ANYTHING = SchemaNode(True)
SchemaNode.additional = SchemaNode.items = ANYTHING


class SchemaTree:
    """The nodes of one schema document. `$ref` is resolved within the document; nothing is ever fetched."""

    def __init__(self, schema: Any) -> None:
        check_size(schema)
        self._document = schema
        self._by_id: dict[int, SchemaNode] = {}
        self._anchors: dict[str, Any] = {}
        self._references: list[SchemaNode] = []
        self.root = self._add(schema, "")
        for node in self._references:  # grows while it is read
            target, fragment = self._find(node.schema["$ref"])
            if isinstance(target, dict | bool):
                # The target may be outside the keywords that hold schemas, so it is added only now.
                node.ref_target = self._add(target, fragment if fragment.startswith("/") else "")

    @property
    def nodes(self) -> list[SchemaNode]:
        """All nodes that are objects."""
        return list(self._by_id.values())

    def node(self, schema: Any) -> SchemaNode:
        """Return the node of a schema in this document, which is known by its identity."""
        return self._by_id.get(id(schema), ANYTHING)

    def validation_cost(self) -> "ValidationCost":
        """Return the cost of validating values. A schema that would take too long is an error."""
        known: dict[int, ValidationCost] = {}
        root = _node_cost(self.root, known)
        branching = max(cost.branching for cost in known.values())
        nesting = max(cost.nesting for cost in known.values())
        if branching > _MAX_BRANCHES:
            raise SchemaError(f"its references unfold into more than {_MAX_BRANCHES:,} checks of one value")
        if any(takes_quadratic_time(pattern) for node in self.nodes for pattern in node.pattern_properties):
            raise SchemaError("patternProperties has a pattern that takes quadratic time; begin it with ^")
        if nesting > _MAX_NESTING:
            raise SchemaError(f"it has a chain of more than {_MAX_NESTING} references")
        return replace(root, branching=branching, nesting=nesting)

    def _add(self, schema: Any, pointer: str) -> SchemaNode:
        if not isinstance(schema, dict):
            return SchemaNode(schema, pointer=pointer)
        if (known := self._by_id.get(id(schema))) is not None:
            return known
        subschemas = map_subschemas(schema, lambda item, path: self._add(item, pointer + path))
        node = self._by_id[id(schema)] = SchemaNode(schema, subschemas, pointer)
        if isinstance(schema.get("$anchor"), str):
            self._anchors[schema["$anchor"]] = schema
        if isinstance(schema.get("$ref"), str):
            self._references.append(node)
        return node

    def _find(self, reference: str) -> tuple[Any, str]:
        """Return what a reference leads to, and the part of it after the `#`."""
        from urllib.parse import unquote  # slow to import

        resource, _, fragment = reference.partition("#")
        fragment = unquote(fragment)
        if resource and resource != str(self.root.schema.get("$id")).removesuffix("#"):
            return None, fragment
        if fragment and not fragment.startswith("/"):
            return self._anchors.get(fragment), fragment
        return find_pointer(self._document, pointer_steps(fragment)), fragment


def pointer_steps(pointer: str) -> list[str]:
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def find_pointer(document: Any, steps: Iterable[str | int]) -> Any:
    """Return what the steps of a JSON Pointer lead to; None if there is nothing."""
    for step in steps:
        try:
            document = document[int(step) if isinstance(document, list) else step]
        except (LookupError, TypeError, ValueError):
            return None
    return document


def declared_types(schema: Schema) -> frozenset[str]:
    """Return the types that `type` allows, with "integer" if a number is allowed; all if there is no `type`."""
    types = schema.get("type", TYPES)
    names = frozenset([types] if isinstance(types, str) else types)
    return names | {"integer"} if "number" in names else names


def type_of(value: Any) -> str:
    """Return the JSON type of a value. A float without a fraction is an integer, as in JSON Schema."""
    if isinstance(value, float) and value.is_integer():
        return "integer"
    return next((PYTHON_TYPES[base] for base in type(value).__mro__ if base in PYTHON_TYPES), "array")


def has_type(value: Any, types: Collection[str]) -> bool:
    """Return whether the value is of one of these JSON types."""
    name = type_of(value)
    return name in types or (name == "integer" and "number" in types)


def check_size(schema: Any) -> None:
    """Reject schemas that are too large to be walked, or nested too deeply for recursion."""
    if measure(schema, _MAX_SCHEMA_DEPTH, _MAX_SCHEMA_SIZE) is None:
        raise SchemaError(f"the schema is nested more than {_MAX_SCHEMA_DEPTH} levels deep, or has too many values")


def measure(value: Any, max_depth: int, max_size: int = _MAX_VALUE_SIZE) -> tuple[int, int] | None:
    """Return the number of values in a value, and its depth; None if either exceeds its limit.

    It goes level by level, so neither a deeply nested value nor one that contains itself can exhaust the stack.
    """
    level, size = [value], 1
    for depth in range(max_depth + 1):
        inner: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                inner.extend(item.values())
            elif isinstance(item, list | tuple):
                inner.extend(item)
            if size + len(inner) > max_size:
                return None
        if not inner:
            return size, depth
        size += len(inner)
        level = inner
    return None


class ValidationCost(Struct, frozen=True):
    """How much work it can take to validate one value, because of references, unions and `allOf`."""

    branching: int = 1
    """The number of schemas that apply to the same value."""
    nesting: int = 1
    """How many of them are nested in each other."""
    expanded_size: float = math.inf
    """The size of the schema with every reference written out; infinite if it refers to itself, or compares values."""

    @property
    def needs_measuring(self) -> bool:
        """Whether a value must be measured before it is validated."""
        return self.expanded_size == math.inf

    @property
    def max_value_depth(self) -> int:
        return max(8, min(_MAX_VALUE_DEPTH, _MAX_STACK // self.nesting))

    def estimate(self, size: int, depth: int) -> float:
        """Return about how many validations a value of this size and depth takes."""
        branches: float = self.branching ** min(depth, 40)
        return size * min(branches, self.expanded_size)


def _node_cost(node: SchemaNode, known: dict[int, ValidationCost]) -> ValidationCost:
    """Return the cost of a node, and add it to those that are known."""
    if id(node) in known:
        return known[id(node)]
    known[id(node)] = ValidationCost()  # for a schema that refers to itself
    branching, nesting = 0, 0
    expanded_size = 1 if _UNBOUNDED.isdisjoint(node.schema) else math.inf
    for inner, is_in_place in node.used_nodes:
        cost = _node_cost(inner, known)
        expanded_size += cost.expanded_size
        if is_in_place:
            branching += cost.branching
            nesting = max(nesting, cost.nesting)
    known[id(node)] = ValidationCost(max(branching, 1), nesting + 1, expanded_size)
    return known[id(node)]


def takes_quadratic_time(pattern: Any) -> bool:
    """Return whether a pattern needs backtracking and is not anchored, so that matching may take quadratic time."""
    if not isinstance(pattern, str) or not _BACKTRACKING.search(pattern):
        return False
    depth = 0
    plain = re.sub(r"\\.|\[(?:\\.|[^\]\\])*\]", "", pattern)  # without escapes and sets of characters
    for character in plain:
        depth += (character == "(") - (character == ")")
        if character == "|" and depth == 0:
            return True
    return not plain.startswith("^")


def limit_pattern_lengths(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema with a maximum length for texts whose pattern takes quadratic time."""
    limited = change_subschemas(schema, limit_pattern_lengths)
    if not takes_quadratic_time(schema.get("pattern")):
        return limited
    limit = {"maxLength": _MAX_QUADRATIC_CHARS}
    search = {"if": limit, "then": {"pattern": limited.pop("pattern")}, "else": limit}
    return {**limited, "allOf": [*limited.get("allOf", ()), search]}


def without_titles(schema: Schema) -> Schema:
    """Return the schema without `title`: it repeats the names, and makes Gemini worse at filling in arguments."""
    # https://github.com/googleapis/python-genai/issues/1732
    return change_subschemas({key: value for key, value in schema.items() if key != "title"}, without_titles)


def change_subschemas(schema: Schema, change: Callable[[Schema], Schema]) -> Schema:
    """Return a copy with every direct subschema changed. Data that looks like a schema, as in `default`, stays."""
    return {**schema, **map_subschemas(schema, lambda item, _: change(item) if isinstance(item, dict) else item)}
