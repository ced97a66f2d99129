"""Convert a JSON Schema to the form that a model family accepts. Other constraints move to the description."""

import math
from typing import Any

from msgspec.structs import replace

from midspan._schema.dialect import AdaptedSchema, NameRule, SchemaDialect, valid_names
from midspan._schema.merge import CONSTRAINTS_BY_TYPE, MergedSchema, all_of, merge_flattened
from midspan._schema.normalize import normalize_tree
from midspan._schema.problems import describe_constraint, quoted
from midspan._schema.tree import ANYTHING, TYPES, Schema, SchemaNode, has_type, pointer_steps, type_of
from midspan._types.specs import ToolSpec

_MAX_DEPTH = 40
_MAX_NODES = 6_000
_ARRAY_DEPTH = 2
_NOT_STRICT = {"strict": False, "closed": False, "all_required": False}
_ALLOWED_WITH_REF = frozenset({"$ref", "title", "description", "default", "$defs", "definitions"})
_TYPE_ORDER = ("object", "array", "string", "integer", "number", "boolean", "null")


def adapt_schema(schema: Any, dialect: SchemaDialect, *, arguments: bool = True) -> AdaptedSchema:
    """Return the schema as the dialect can express it, wider where it cannot.

    It is narrower in two cases only: arrays of any items are nested at most two deep if every schema needs a type, and
    objects accept no other properties if the dialect is `closed`.

    With `arguments` the root is an object, as every provider requires for parameters; otherwise it is what the schema
    says. If references are inlined, recursion is unrolled twice.
    """
    tree = normalize_tree(schema)
    nodes = tree.nodes
    # All names of the document, so that a valid name replaces the same one everywhere.
    properties = (name for node in nodes for name in (*node.properties, *node.schema.get("required", ())))
    names = valid_names(properties, dialect.properties)
    adapter = _Adapter(dialect, names)
    result = adapter.document(tree.root, arguments=arguments)
    if dialect.strict and not adapter.is_strict:
        return adapt_schema(schema, replace(dialect, **_NOT_STRICT), arguments=arguments)
    renamed = {valid: name for name, valid in names.items() if name != valid}
    original = tree.root if renamed else ANYTHING
    return AdaptedSchema(result, renamed, original, dialect.strict)


def adapt_spec(spec: ToolSpec, dialect: SchemaDialect) -> tuple[ToolSpec, AdaptedSchema]:
    """Return a tool with parameters as the dialect can express them, and their schema. The tool keeps its name."""
    schema = adapt_schema(spec.parameters or {}, dialect)
    strict = spec.strict if spec.strict is not None else schema.strict or None
    return replace(spec, parameters=None if schema.is_empty else schema.schema, strict=strict), schema


class _Adapter:
    """Adapts one document. When the result has too many nodes, the rest of it accepts any value."""

    def __init__(self, dialect: SchemaDialect, names: dict[str, str]) -> None:
        self.is_strict = True
        """Whether all objects are closed and all values have a type."""
        self._nodes = 0
        self._dialect = dialect
        self._names = names
        self._null: Schema = {"type": dialect.types["null"]}
        self._definitions: list[tuple[str, SchemaNode]] = []
        """The targets of references that are kept, with their names in `$defs`."""

    def document(self, root: SchemaNode, *, arguments: bool) -> Schema:
        merged = self._merged(root)
        if arguments:
            self._merge_variants(merged)
            merged.types, merged.enum = frozenset({"object"}), None
        result = self._emit(merged)
        definitions = {name: self.schema(node) for name, node in self._definitions}  # grows while it is read
        return {**result, "$defs": definitions} if definitions else result

    def _merge_variants(self, merged: MergedSchema) -> None:
        """Merge the unions of an object into one object that accepts what any of their variants accepts."""
        unions, merged.unions = merged.unions, []
        for union in unions:
            variants = [self._merged(node, merged.ref_stack) for node in union if node.types]
            objects = [variant for variant in variants if variant.types is None or "object" in variant.types]
            for variant in objects:
                self._merge_variants(variant)
                merged.ref_stack += variant.ref_stack[len(merged.ref_stack) :]
            if objects:
                _merge_objects(merged, objects)

    def schema(self, node: SchemaNode, ref_stack: tuple[int, ...] = (), depth: int = 0) -> Schema:
        if depth > _MAX_DEPTH:
            return self._anything()
        if self._dialect.references and node.ref_target is not None and not node.schema.keys() - _ALLOWED_WITH_REF:
            return self._reference(node, node.ref_target)
        return self._emit(self._merged(node, ref_stack), depth)

    def _merged(self, node: SchemaNode, ref_stack: tuple[int, ...] = ()) -> MergedSchema:
        self._nodes += len(node.flattened)
        base = MergedSchema(ref_stack=ref_stack)
        return base if self._nodes > _MAX_NODES else merge_flattened(node, base)

    def _reference(self, node: SchemaNode, target: SchemaNode) -> Schema:
        name = next((name for name, known in self._definitions if known is target), None)
        if name is None:
            name = NameRule().replace_invalid((pointer_steps(target.pointer) or ["root"])[-1])
            while name in dict(self._definitions):
                name += "_"
            self._definitions.append((name, target))
        annotations = MergedSchema(description=node.schema.get("description", ""), default=node.schema.get("default"))
        schema = {"$ref": f"#/$defs/{name}"}
        annotated = self._annotate({"anyOf": [schema]}, annotations)  # `$ref` itself allows no other keywords
        return schema if annotated.keys() == {"anyOf"} else annotated

    # Unions

    def _alternatives(self, merged: MergedSchema) -> list[MergedSchema]:
        """Return the variants of the first union that has more than `required`, each with all other constraints."""
        unions, merged.unions = merged.unions, []
        chosen: list[MergedSchema] = []
        for union in unions:
            variants = [(node, self._merged(node, merged.ref_stack)) for node in union if node.types]
            if not variants or chosen or all(_only_requires(node) for node, _ in variants):
                required = [" and ".join(variant.required) for _, variant in variants if variant.required]
                if required:
                    merged.notes.append(quoted("needs " + ", or ".join(required)).strip('"'))
                continue
            constraints = replace(merged, description="", default=None, examples=[], notes=[])
            for node, variant in variants:
                if constraints.types is None or variant.types is None or constraints.types & variant.types:
                    chosen.append(merge_flattened(node, constraints))
        return chosen

    # Output

    def _emit(self, merged: MergedSchema, depth: int = 0) -> Schema:
        return self._annotate(self._join(self._branches(merged, depth)), merged)

    def _branches(self, merged: MergedSchema, depth: int) -> list[Schema]:
        """Return the forms that a value may have."""
        if alternatives := self._alternatives(merged):
            return [self._emit(part, depth + 1) for part in alternatives]
        if merged.enum is not None:
            return self._enum(merged, depth)
        if merged.types is None and self._dialect.untyped:
            return [self._untyped(merged, depth)]
        types = merged.types or frozenset(TYPES)
        wanted = [name for name in _TYPE_ORDER if name in types and not (name == "integer" and "number" in types)]
        return [self._typed(merged, name, depth) for name in wanted]

    def _enum(self, merged: MergedSchema, depth: int) -> list[Schema]:
        """Return the values if the dialect can list them, otherwise their types."""
        options = merged.enum or []
        values = [value for value in options if merged.types is None or has_type(value, merged.types)]
        schemas = []
        for name, group in _by_type(values or options).items():
            if name == "null":
                schemas.append(self._null)
            elif name in self._dialect.enum_types and (self._dialect.empty_strings or "" not in group):
                schemas.append({"type": self._dialect.types[name], "enum": group})
            else:
                schemas.append(self._typed(replace(merged, enum=None), name, depth))
                merged.notes.append("one of " + ", ".join(map(quoted, group[:20])))
        return schemas

    def _untyped(self, merged: MergedSchema, depth: int) -> Schema:
        self.is_strict = False
        schema: Schema = {}
        for name in ("object", "array", "string", "number"):
            schema |= self._typed(merged, name, depth)
        del schema["type"]
        if merged.items.boolean is True and not merged.prefix:
            schema.pop("items")
        return schema

    def _typed(self, merged: MergedSchema, name: str, depth: int) -> Schema:
        """Return the constraints on values of this type."""
        schema: Schema = {"type": self._dialect.types[name]}
        if name == "object":
            self._object(schema, merged, depth)
        elif name == "array":
            self._array(schema, merged, depth)
        formats = self._dialect.formats
        for keyword in (keyword for keyword in CONSTRAINTS_BY_TYPE.get(name, ()) if keyword in merged.bounds):
            limit = merged.bounds[keyword]
            is_declared = keyword in self._dialect.keywords
            if keyword == "format" and formats is not None:
                is_declared = limit in formats.get(name, ())
            note = describe_constraint(keyword, limit)
            if is_declared:
                schema[keyword] = limit
            elif note not in merged.notes:
                merged.notes.append(note)
        return schema

    def _object(self, schema: Schema, merged: MergedSchema, depth: int) -> None:
        declared = dict(merged.properties)
        for name in merged.required:
            declared.setdefault(name, merged.additional)
        properties = {}
        for name, node in declared.items():
            if self._nodes > _MAX_NODES and name not in merged.required:
                merged.additional = ANYTHING
            elif node.boolean is not False or name not in merged.properties:
                properties[self._names[name]] = self.schema(node, merged.ref_stack, depth + 1)
        required = [self._names[name] for name in merged.required if self._names[name] in properties]
        if self._dialect.all_required:
            for name in properties.keys() - set(required):
                prop = properties[name]
                if self._null["type"] not in prop.get("type", ()) and self._null not in prop.get("anyOf", ()):
                    properties[name] = self._join([prop, self._null])
            required = list(properties)
        if properties:
            schema["properties"] = properties
        if required:
            schema["required"] = required
        self._additional(schema, merged, depth)

    def _additional(self, schema: Schema, merged: MergedSchema, depth: int) -> None:
        additional = merged.additional
        if self._dialect.closed:
            if additional.boolean is None or (additional.boolean is True and "properties" not in schema):
                self.is_strict = False
            elif additional.boolean is True:
                schema["additionalProperties"] = False
                return
        if additional is ANYTHING:  # nothing is declared about other properties
            return
        if "additionalProperties" not in self._dialect.keywords:
            if additional.boolean is None and additional.schema:
                merged.notes.append("other properties fit " + quoted(additional.raw))
        elif additional.boolean is not None:
            schema["additionalProperties"] = additional.boolean
        else:
            schema["additionalProperties"] = self.schema(additional, merged.ref_stack, depth + 1) or True

    def _array(self, schema: Schema, merged: MergedSchema, depth: int) -> None:
        size = len(merged.prefix)
        limit = min(merged.bounds.get("maxItems", math.inf), size if merged.items.boolean is False else math.inf)
        is_closed = limit <= size
        if is_closed:
            merged.bounds = {**merged.bounds, "maxItems": limit}
        rest = merged.items
        if merged.prefix and "prefixItems" in self._dialect.keywords:
            schema["prefixItems"] = [self.schema(item, merged.ref_stack, depth + 1) for item in merged.prefix]
        elif merged.prefix:
            rest = SchemaNode.combine("anyOf", merged.prefix if is_closed else [*merged.prefix, rest])
        schema["items"] = self._anything() if rest.boolean is True else self.schema(rest, merged.ref_stack, depth + 1)

    def _annotate(self, schema: Schema, merged: MergedSchema) -> Schema:
        """Add the description, with everything that could not be declared otherwise."""
        is_alone = self._dialect.union_alone and "anyOf" in schema
        if merged.default is not None:
            is_scalar = not isinstance(merged.default, dict | list)
            if "default" in self._dialect.keywords and not is_alone and is_scalar:
                schema = {**schema, "default": merged.default}
            else:
                merged.notes.append("default " + quoted(merged.default))
        if merged.examples:
            merged.notes.append("for example " + ", ".join(map(quoted, merged.examples[:3])))
        notes = f" ({'; '.join(merged.notes)})" if merged.notes else ""
        description = f"{merged.description}{notes}".strip()
        if not description:
            return schema
        if is_alone:
            first, *others = schema["anyOf"]
            return {"anyOf": [_describe(first, description), *others]}
        return _describe(schema, description)

    def _anything(self, array_depth: int = _ARRAY_DEPTH) -> Schema:
        """Return the schema of any value: a union of all types where every schema needs a type.

        An array needs the schema of its items, so nested arrays are limited in depth.
        """
        self.is_strict = False
        if self._dialect.untyped:
            self._nodes += 1
            return {}
        types = self._dialect.types
        branches: list[Schema] = [{"type": types[name]} for name in ("string", "number", "boolean", "object")]
        if array_depth:
            branches.append({"type": types["array"], "items": self._anything(array_depth - 1)})
        self._nodes += len(branches)
        return self._join([*branches, self._null])

    def _join(self, schemas: list[Schema]) -> Schema:
        """Return the union of these schemas."""
        branches: list[Schema] = []
        for schema in schemas:
            for branch in schema["anyOf"] if schema.keys() == {"anyOf"} else [schema]:
                if branch not in branches:
                    branches.append(branch)
        if {} in branches:
            return {}
        if len(branches) > 1 and self._null in branches:
            branches.remove(self._null)
            first, null = branches[0], self._null["type"]
            json_type = first.get("type")
            if self._dialect.nullable:
                branches[0] = {**first, "nullable": True}
            elif len(branches) == 1 and isinstance(json_type, str) and json_type != null and "enum" not in first:
                branches[0] = {**first, "type": [json_type, null]}
            else:
                branches.append(self._null)
        return branches[0] if len(branches) == 1 else {"anyOf": branches}


def _merge_objects(merged: MergedSchema, variants: list[MergedSchema]) -> None:
    """Add the properties of all variants to an object."""
    for name in dict.fromkeys(name for variant in variants for name in variant.properties):
        alternatives = [variant.properties.get(name, variant.additional) for variant in variants]
        possible = [prop for prop in alternatives if prop.boolean is not False]
        possible.sort(key=lambda prop: prop.boolean is True)
        if possible:
            combined = SchemaNode.combine("anyOf", possible)
            merged.properties[name] = all_of(merged.properties.get(name, ANYTHING), combined)
    shared = [name for name in variants[0].required if all(name in variant.required for variant in variants)]
    merged.required = list(dict.fromkeys([*merged.required, *shared]))
    if all(variant.additional.boolean is False for variant in variants):
        merged.additional = variants[0].additional
    merged.description = merged.description or "; or ".join(filter(None, (part.description for part in variants)))


def _only_requires(node: SchemaNode) -> bool:
    """Return whether a schema only says which properties an object must have."""
    keywords = {keyword for part in node.flattened for keyword in part.schema}
    return keywords <= {"type", "required", "title", "description"} and "object" in node.types


def _by_type(values: list[Any]) -> dict[str, list[Any]]:
    """Return the values of an `enum` in groups of one type. Numbers are one group, of integers if all are."""
    groups: dict[str, list[Any]] = {}
    for value in values:
        groups.setdefault(type_of(value), []).append(value)
    if "number" in groups and "integer" in groups:
        groups["number"] += groups.pop("integer")
    return groups


def _describe(schema: Schema, description: str) -> Schema:
    existing = schema.get("description")
    is_new = existing and existing != description
    return {**schema, "description": f"{description} {existing}" if is_new else description}
