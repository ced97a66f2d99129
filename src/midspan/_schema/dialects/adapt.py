"""The walk from a schema to its form in a dialect."""

from typing import Any

from msgspec.structs import replace

from midspan._schema.dialects.dialect import AdaptedSchema, SchemaDialect
from midspan._schema.dialects.merge import ALL_TYPES, ONE_OF_TWO, Flat, Flattener, both, fold, shortened
from midspan._schema.dialects.names import renaming_of, valid_names
from midspan._schema.dialects.typed import Typed
from midspan._schema.dialects.unions import joined, values_by_type
from midspan._schema.normalize import read
from midspan._schema.positions import subschemas
from midspan._schema.references import Document

Way = tuple[str, ...]
Schema = dict[str, Any]

DEEPEST_OUTPUT = 40
_UNROLLED = (2, 1, 0)
_ORDER = ("object", "array", "string", "integer", "number", "boolean")


def adapt_schema(schema: Any, dialect: SchemaDialect, *, arguments: bool = True) -> AdaptedSchema:
    """Return the schema as the dialect can express it: wider where it cannot, never narrower.

    With `arguments` the root is an object, as every provider demands of parameters; otherwise it is whatever the schema
    says. Recursion is unrolled as far as the limit on the size of the result allows.
    """
    root, losses = read(schema)
    document = Document(root)
    names = valid_names(_property_names(document), dialect.properties)
    for unrolled in _UNROLLED:
        lowering = _Lowering(dialect, Flattener(document, unrolled=unrolled), names)
        result = lowering.root(root) if arguments else lowering.node(root, (), (), 0)
        if not lowering.flattener.exhausted:
            break
    originals = {legal_name: name for name, legal_name in names.items() if name != legal_name}
    renaming = renaming_of(result, originals) if originals else None
    return AdaptedSchema(result, (*losses, *lowering.flattener.dropped.values()), renaming)


def _property_names(document: Document) -> list[str]:
    """All of them, so that a name stands for the same one wherever it is."""
    names: dict[str, None] = {}
    waiting: list[Any] = [document.root, *document.targets.values()]
    seen: set[int] = set()
    while waiting:
        node = waiting.pop()
        if not isinstance(node, dict) or id(node) in seen:
            continue
        seen.add(id(node))
        names.update(dict.fromkeys((*node.get("properties", ()), *node.get("required", ()))))
        waiting.extend(inner for _, _, inner in subschemas(node))
    return list(names)


class _Lowering:
    def __init__(self, dialect: SchemaDialect, flattener: Flattener, names: dict[str, str]) -> None:
        self.flattener = flattener
        self._dialect = dialect
        self._types = Typed(dialect, flattener, names, self.node)

    def root(self, schema: Schema) -> Schema:
        """Parameters: one object, whatever alternatives the schema gives for it."""
        flat = self.flattener.flat(schema, (), ())
        if flat is None:
            self.flattener.lose((), "not", "nothing at all would fit: anything")
            flat = Flat()
        if flat.types is not None and "object" not in flat.types:
            self.flattener.lose((), "type", "parameters are always an object")
        if flat.enum is not None:
            self.flattener.lose((), "enum", "parameters are not chosen as a whole")
        self._melt(flat, ())
        flat.types, flat.enum = frozenset({"object"}), None
        return self._emitted(flat, (), 0)

    def node(self, schema: Any, way: Way, trail: tuple[int, ...], level: int) -> Schema:
        if level > DEEPEST_OUTPUT:
            self.flattener.lose(way, "$ref", "nested too deeply: anything from here on")
            return self._types.anything(way)
        flat = self.flattener.flat(schema, way, trail)
        if flat is None:
            self.flattener.lose(way, "not", "nothing at all would fit: anything")
            return self._types.anything(way)
        return self._emitted(flat, way, level)

    def _emitted(self, flat: Flat, way: Way, level: int) -> Schema:
        branches, null = self._branches(flat, way, level)
        schema = joined(self._dialect, branches, null=null)
        return self._annotated(schema, flat)

    def _branches(self, flat: Flat, way: Way, level: int) -> tuple[list[Schema], bool]:
        """The forms that a value may have, and whether null is one of them."""
        parts = self._alternatives(flat, way)
        if parts:
            schemas = [self._emitted(part, way, level + 1) for part in parts if part.types != frozenset({"null"})]
            return schemas, len(schemas) < len(parts)
        if flat.enum is not None:
            return self._values(flat, way, level)
        if flat.types is None and self._dialect.untyped:
            return [self._untyped(flat, way, level)], False
        types = ALL_TYPES if flat.types is None else flat.types
        if flat.types is None and not _constrained(flat):
            return [self._types.anything(way)], False
        return [self._types.schema(flat, word, way, level) for word in _wanted(types)], "null" in types

    def _alternatives(self, flat: Flat, way: Way) -> list[Flat]:
        """Of the first union that says more than what is required, each branch with all that holds beside it."""
        unions, flat.unions = flat.unions, []
        chosen: list[Flat] = []
        for union in unions:
            branches = [self.flattener.flat(one, (*way, "anyOf", str(at)), flat.trail) for at, one in enumerate(union)]
            parts = [part for part in branches if part is not None]
            if not parts or chosen or all(_only_requires(part) for part in parts):
                self._lose_union(flat, parts, way)
                continue
            bare = replace(flat, description="", default=None, examples=[], notes=[])
            chosen = [merged for part in parts if (merged := self._merged(bare, part, way)) is not None]
        return chosen

    def _merged(self, base: Flat, part: Flat, way: Way) -> Flat | None:
        """Both at once; None if their types exclude each other."""
        if base.types is not None and part.types is not None:
            probe = Flat(types=base.types)
            probe.limited_to(part.types)
            if probe.types is base.types and not base.types & part.types and not _numeric(base.types, part.types):
                return None
        merged = replace(base, properties=base.properties.copy(), bounds=base.bounds.copy())
        for keyword in fold(merged, part):
            self.flattener.lose(way, keyword, ONE_OF_TWO)
        merged.trail = part.trail
        return merged

    def _lose_union(self, flat: Flat, parts: list[Flat], way: Way) -> None:
        self.flattener.lose(way, "anyOf", "alternatives that the provider does not see")
        required = [" and ".join(part.required) for part in parts if part.required]
        if required:
            flat.notes.append(shortened("needs " + ", or ".join(required)).strip('"'))

    def _melt(self, flat: Flat, way: Way) -> None:
        """All unions of an object into one object that takes what any of their branches takes."""
        unions, flat.unions = flat.unions, []
        for union in unions:
            branches = [self.flattener.flat(one, (*way, "anyOf", str(at)), flat.trail) for at, one in enumerate(union)]
            parts = [part for part in branches if part and (part.types is None or "object" in part.types)]
            for part in parts:
                self._melt(part, way)
                flat.trail += tuple(one for one in part.trail[len(flat.trail) :])
            self.flattener.lose(way, "anyOf", "parameters cannot be alternatives: all of them at once")
            _melt_parts(flat, parts)

    def _values(self, flat: Flat, way: Way, level: int) -> tuple[list[Schema], bool]:
        """An `enum`: its values where the dialect can list them, their types where it cannot."""
        values = [value for value in flat.enum or () if _fits(value, flat.types)]
        if not values:
            self.flattener.lose(way, "type", "none of the values is of it")
            values = flat.enum or []
        groups = values_by_type(values)
        null = bool(groups.pop("null", None))
        schemas = []
        for word, group in groups.items():
            if word in self._dialect.enum_types and (self._dialect.empty_strings or "" not in group):
                schemas.append({"type": self._dialect.types[word], "enum": group})
                self._types.lose_bounds(flat, word, way)
                continue
            schemas.append(self._types.schema(replace(flat, enum=None), word, way, level))
            flat.notes.append("one of " + ", ".join(shortened(value) for value in group[:20]))
            self.flattener.lose(way, "enum", f"values of type {word} are not listed")
        return schemas, null

    def _untyped(self, flat: Flat, way: Way, level: int) -> Schema:
        schema: Schema = {}
        for word in ("object", "array", "string", "number"):
            schema |= self._types.schema(flat, word, way, level)
        del schema["type"]
        if flat.items is True and not flat.prefix:
            schema.pop("items")
        return schema

    def _annotated(self, schema: Schema, flat: Flat) -> Schema:
        """The schema with its description, and in it what could not be said otherwise."""
        alone = self._dialect.union_alone and "anyOf" in schema
        if flat.default is not None:
            if "default" in self._dialect.keywords and not alone and not isinstance(flat.default, dict | list):
                schema = {**schema, "default": flat.default}
            else:
                flat.notes.append("default " + shortened(flat.default))
        if flat.examples:
            flat.notes.append("for example " + ", ".join(shortened(one) for one in flat.examples[:3]))
        words = f"{flat.description} ({'; '.join(flat.notes)})" if flat.notes else flat.description
        if not words:
            return schema
        if alone:
            first, *others = schema["anyOf"]
            return {"anyOf": [_described(first, words.strip()), *others]}
        return _described(schema, words.strip())


def _described(schema: Schema, words: str) -> Schema:
    known = schema.get("description")
    return {**schema, "description": f"{words} {known}" if known and known != words else words}


def _numeric(one: frozenset[str], other: frozenset[str]) -> bool:
    numbers = {"integer", "number"}
    return bool(one & numbers) and bool(other & numbers)


def _melt_parts(flat: Flat, parts: list[Flat]) -> None:
    if not parts:
        return
    for name in dict.fromkeys(name for part in parts for name in part.properties):
        alternatives = [part.properties.get(name, part.others) for part in parts]
        possible = sorted((one for one in alternatives if one is not False), key=lambda one: one is True)
        melted: Any = {"anyOf": possible} if len(possible) > 1 else possible[0] if possible else False
        flat.properties[name] = both(flat.properties.get(name, True), melted)
    shared = [name for name in parts[0].required if all(name in part.required for part in parts)]
    flat.required = list(dict.fromkeys([*flat.required, *shared]))
    if all(part.others is False for part in parts):
        flat.others = False
    flat.description = flat.description or "; or ".join(part.description for part in parts if part.description)


def _only_requires(part: Flat) -> bool:
    return part.types in (None, frozenset({"object"})) and not _constrained(replace(part, required=[]))


def _constrained(flat: Flat) -> bool:
    return bool(
        flat.properties
        or flat.required
        or flat.prefix
        or flat.bounds
        or flat.unions
        or flat.enum is not None
        or flat.others is not True
        or flat.items is not True
    )


def _wanted(types: frozenset[str]) -> list[str]:
    return [word for word in _ORDER if word in types and not (word == "integer" and "number" in types)]


def _fits(value: Any, types: frozenset[str] | None) -> bool:
    if types is None:
        return True
    word = next(iter(values_by_type([value])))
    return word in types or (word == "integer" and "number" in types)
