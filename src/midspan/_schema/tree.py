"""A JSON Schema as a tree of nodes with resolved references. Everything that walks a schema walks this tree."""

from collections.abc import Callable, Collection, Iterator
from functools import cached_property
from typing import Any

from midspan._schema.paths import format_pointer, measure
from midspan.errors import SchemaError

MAX_DEPTH = 128
MAX_VALUES = 50_000

SINGLE = frozenset({"items", "additionalItems", "additionalProperties", "contains", "contentSchema"}) | frozenset(
    {"unevaluatedItems", "unevaluatedProperties", "propertyNames", "not", "if", "then", "else"}
)
"""Keywords that hold one schema."""
LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
MAPS = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"})
_DEFINITIONS = frozenset({"$defs", "definitions"})
_IN_PLACE = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas"})
"""Keywords whose schemas look at the very value that their parent looks at."""
TYPES = ("string", "number", "integer", "boolean", "array", "object", "null")
_ALL_TYPES = frozenset(TYPES)


class SchemaNode:
    """One schema of a document, with its subschemas and the target of its `$ref`."""

    def __init__(self, schema: Any, path: tuple[str, ...] = ()) -> None:
        self.schema: dict[str, Any] = schema if isinstance(schema, dict) else {}
        self.always: bool | None = schema if isinstance(schema, bool) else None
        """True for the schema `true`, which any value fits, and False for `false`, which no value fits."""
        self.pointer = format_pointer(path)
        """Where it is in the document."""
        self.target: SchemaNode | None = None
        self.single: dict[str, SchemaNode] = {}
        self.lists: dict[str, list[SchemaNode]] = {}
        self.maps: dict[str, dict[str, SchemaNode]] = {}
        self._types: frozenset[str] | None = None

    @classmethod
    def combine(cls, keyword: str, nodes: "list[SchemaNode]") -> "SchemaNode":
        """Return a node that stands for `{keyword: nodes}` and has no place in the document."""
        node = cls({keyword: [inner.raw for inner in nodes]})
        node.lists[keyword] = nodes
        return node

    @property
    def raw(self) -> Any:
        """The schema as it is in the document."""
        return self.schema if self.always is None else self.always

    @property
    def properties(self) -> "dict[str, SchemaNode]":
        return self.maps.get("properties", {})

    @property
    def pattern_properties(self) -> "dict[str, SchemaNode]":
        return self.maps.get("patternProperties", {})

    @property
    def additional(self) -> "SchemaNode":
        """The schema of properties that are not named."""
        return self.single.get("additionalProperties", ANYTHING)

    def names_property(self, name: str) -> bool:
        """Return whether the schema itself says something about a property of this name."""
        return name in self.properties or name in self.schema.get("required", ())

    def possible_properties(self, name: str) -> "list[SchemaNode]":
        """Return the schemas that may apply to a property, whatever patterns its name matches."""
        named = self.properties.get(name)
        return [named] if named is not None else [self.additional, *self.pattern_properties.values()]

    @property
    def prefix(self) -> "list[SchemaNode]":
        """The schemas of the first items one by one, as any draft writes them."""
        return self.lists.get("items") or self.lists.get("prefixItems", [])

    @property
    def items(self) -> "SchemaNode":
        """The schema of all items after the prefix."""
        return self.single.get("additionalItems" if "items" in self.lists else "items", ANYTHING)

    def item(self, index: int) -> "SchemaNode":
        """The schema of one item."""
        prefix = self.prefix
        return prefix[index] if index < len(prefix) else self.items

    @property
    def all_of(self) -> "list[SchemaNode]":
        return self.lists.get("allOf", [])

    @property
    def variants(self) -> "list[SchemaNode]":
        """The alternatives of the schema, of which `anyOf` wants one at least and `oneOf` exactly one."""
        return self.lists.get("anyOf") or self.lists.get("oneOf", [])

    @property
    def not_null_variants(self) -> "list[SchemaNode]":
        return [variant for variant in self.variants if variant.schema.get("type") != "null"]

    @property
    def options(self) -> list[Any] | None:
        """The values of `const` or `enum`."""
        values = [self.schema["const"]] if "const" in self.schema else self.schema.get("enum")
        return values if isinstance(values, list) else None

    @property
    def children(self) -> "Iterator[tuple[str, SchemaNode]]":
        """Every direct subschema with its keyword."""
        yield from self.single.items()
        for keyword, nodes in self.lists.items():
            yield from ((keyword, node) for node in nodes)
        for keyword, members in self.maps.items():
            yield from ((keyword, node) for node in members.values())

    @property
    def dependencies(self) -> "Iterator[tuple[SchemaNode, bool]]":
        """Every node that validating a value may lead to, and whether it looks at that same value."""
        if self.target is not None:
            yield self.target, True
        for keyword, node in self.children:
            if keyword not in _DEFINITIONS:
                yield node, keyword in _IN_PLACE

    @cached_property
    def conjuncts(self) -> "tuple[SchemaNode, ...]":
        """This node and all others that each value of it must fit as well: through `$ref` and `allOf`, to their end."""
        return self._closure(lambda _: [])

    @cached_property
    def applying(self) -> "tuple[SchemaNode, ...]":
        """The conjuncts, and those of a schema that is the only alternative to null."""
        return self._closure(lambda node: node.not_null_variants if len(node.not_null_variants) == 1 else [])

    @cached_property
    def possible(self) -> "tuple[SchemaNode, ...]":
        """The conjuncts, and those of all alternatives."""
        return self._closure(lambda node: [*node.lists.get("anyOf", ()), *node.lists.get("oneOf", ())])

    def _closure(self, variants: "Callable[[SchemaNode], list[SchemaNode]]") -> "tuple[SchemaNode, ...]":
        found: dict[int, SchemaNode] = {}
        pending = [self]
        while pending:
            node = pending.pop()
            if id(node) not in found:
                found[id(node)] = node
                pending += reversed(([node.target] if node.target else []) + node.all_of + variants(node))
        return tuple(found.values())

    @property
    def types(self) -> frozenset[str]:
        """The JSON types that a value may have. "number" is among them only if the value may have a fraction."""
        if self._types is not None:
            return self._types
        self._types = types = _ALL_TYPES  # for a schema that refers to itself
        for node in self.conjuncts:
            types &= node._declared_types()
            for keyword in ("anyOf", "oneOf"):
                if keyword in node.lists:
                    allowed: set[str] = set()
                    for variant in node.lists[keyword]:
                        allowed |= variant.types
                    types &= allowed
        self._types = types
        return types

    def _declared_types(self) -> frozenset[str]:
        if self.always is False:
            return frozenset()
        declared = self.schema.get("type", TYPES)
        types = frozenset([declared] if isinstance(declared, str) else declared)
        if "number" in types:
            types |= {"integer"}
        if (options := self.options) is not None:
            types &= {"number" if type(option) is float else type_of(option) for option in options}
        return types


ANYTHING = SchemaNode(True)


class SchemaTree:
    """The nodes of one schema document. `$ref` is resolved within the document; nothing is ever fetched."""

    def __init__(self, schema: Any) -> None:
        check_size(schema)
        self._by_id: dict[int, SchemaNode] = {}
        self._resources: dict[str, Any] = {"": schema}
        self._anchors: dict[tuple[str, str], Any] = {}
        self._references: list[tuple[SchemaNode, str]] = []
        self.unresolved_dynamic: list[SchemaNode] = []
        """Nodes whose `$dynamicRef` cannot lead to any place in the document."""
        self.root = self._add(schema, (), "")
        for node, base in self._references:  # grows while it is read
            self._resolve(node, base)

    @property
    def nodes(self) -> list[SchemaNode]:
        """All nodes that are objects."""
        return list(self._by_id.values())

    def node(self, schema: Any) -> SchemaNode:
        """Return the node of a schema in this document, which is known by its identity."""
        return self._by_id.get(id(schema), ANYTHING)

    @property
    def unresolved(self) -> list[SchemaNode]:
        """Nodes whose `$ref` leads out of the document, or nowhere."""
        return [node for node in self.nodes if isinstance(node.schema.get("$ref"), str) and node.target is None]

    def _add(self, schema: Any, path: tuple[str, ...], base: str) -> SchemaNode:
        if not isinstance(schema, dict):
            return SchemaNode(schema, path)
        if (known := self._by_id.get(id(schema))) is not None:
            return known
        node = self._by_id[id(schema)] = SchemaNode(schema, path)
        base = self._register(schema, base)
        if isinstance(schema.get("$ref"), str) or isinstance(schema.get("$dynamicRef"), str):
            self._references.append((node, base))
        for keyword, value in schema.items():
            # Up to draft 2019-09 `items` may be a list, too.
            if isinstance(value, list) and (keyword in LISTS or keyword == "items"):
                node.lists[keyword] = [
                    self._add(item, (*path, keyword, str(index)), base) for index, item in enumerate(value)
                ]
            elif keyword in SINGLE:
                node.single[keyword] = self._add(value, (*path, keyword), base)
            elif keyword in MAPS and isinstance(value, dict):
                node.maps[keyword] = {
                    name: self._add(item, (*path, keyword, name), base) for name, item in value.items()
                }
        return node

    def _register(self, schema: dict[str, Any], base: str) -> str:
        """Remember the names of a schema; return the base URI for the references inside it."""
        if isinstance(schema.get("$id"), str):
            resource, _, anchor = _join(base, schema["$id"]).partition("#")
            if anchor:
                self._anchors[resource, anchor] = schema
            else:
                base = resource
                self._resources.setdefault(base, schema)
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(schema.get(keyword), str):
                self._anchors[base, schema[keyword]] = schema
        return base

    def _resolve(self, node: SchemaNode, base: str) -> None:
        reference, dynamic = node.schema.get("$ref"), node.schema.get("$dynamicRef")
        if isinstance(dynamic, str) and not isinstance(self._find(base, dynamic)[0], dict | bool):
            self.unresolved_dynamic.append(node)
        if isinstance(reference, str):
            target, resource, fragment = self._find(base, reference)
            if isinstance(target, dict | bool):
                # It may be where no keyword puts a schema, such as `#/components/…`, and is added now.
                node.target = self._add(target, tuple(pointer_steps(fragment)), resource)

    def _find(self, base: str, reference: str) -> tuple[Any, str, str]:
        from urllib.parse import unquote  # slow to import

        resource, _, fragment = _join(base, reference).partition("#")
        fragment = unquote(fragment)
        if fragment and not fragment.startswith("/"):
            return self._anchors.get((resource, fragment)), resource, fragment
        return find_pointer(self._resources.get(resource), fragment), resource, fragment


def _join(base: str, reference: str) -> str:
    if reference.startswith("#"):
        return base + reference
    try:
        from urllib.parse import urljoin  # slow to import

        return urljoin(base, reference)
    except ValueError:
        return reference


def pointer_steps(pointer: str) -> list[str]:
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def find_pointer(document: Any, pointer: str) -> Any:
    """Return what a JSON Pointer leads to; None if there is nothing."""
    for step in pointer_steps(pointer):
        if isinstance(document, dict):
            document = document.get(step)
        elif isinstance(document, list) and step.isascii() and step.isdigit() and int(step[:9]) < len(document):
            document = document[int(step[:9])]
        else:
            return None
    return document


def type_of(value: Any) -> str:
    """Return the JSON type of a value. A float without a fraction is an integer, as in JSON Schema."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "object" if isinstance(value, dict) else "array"


def has_type(value: Any, types: Collection[str]) -> bool:
    """Return whether the value is of one of these JSON types."""
    name = type_of(value)
    return name in types or (name == "integer" and "number" in types)


def check_size(schema: Any) -> None:
    """Reject schemas that are too large to be walked, or nested too deeply for recursion."""
    size, depth = measure(schema, MAX_DEPTH, MAX_VALUES)
    if size > MAX_VALUES:
        raise SchemaError(f"the schema is too large: more than {MAX_VALUES:,} values")
    if depth > MAX_DEPTH:
        raise SchemaError(f"the schema is nested more than {MAX_DEPTH} levels deep")
