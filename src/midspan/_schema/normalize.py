"""Read a schema as people write it, and return the JSON Schema (2020-12) that it means, which is what we enforce."""

import ast
import functools
import re
from typing import TYPE_CHECKING, Any

import msgspec

from midspan._schema.tree import (
    LISTS,
    MAPS,
    SchemaTree,
    check_size,
    find_pointer,
    format_pointer,
    has_type,
    map_subschemas,
)
from midspan.errors import SchemaError

if TYPE_CHECKING:
    import jsonschema_rs

Path = tuple[str, ...]
Schema = dict[str, Any]

_COMPONENTS = "#/components/schemas/"
_TYPE_NUMBERS = ("any", "string", "number", "integer", "boolean", "array", "object", "null")
"""`google.ai.generativelanguage.Type`, by number."""
_ANNOTATIONS = frozenset(("$defs", "definitions", "title", "description", "default", "examples", "nullable"))
"""Keywords that constrain nothing."""


def normalize(schema: Any) -> Schema:
    """Return the schema in plain JSON Schema, as a new dict.

    Type names of Python and Java, older drafts, OpenAPI's `nullable` and malformed keywords are read for what they
    mean. Only what is not a schema at all is an error, with its location.
    """
    return normalize_tree(schema).root.schema


def normalize_tree(schema: Any) -> SchemaTree:
    """Return the normalized schema as a tree, without keywords that could not be read or lead out of the document."""
    check_size(schema)
    components = find_pointer(schema, "/components/schemas")
    if isinstance(components, dict):  # of OpenAPI
        definitions = schema.get("$defs")
        schema = {**schema, "$defs": {**components, **(definitions if isinstance(definitions, dict) else {})}}
    root = _Normalizer(schema).schema(schema, ())
    if isinstance(root, bool):
        root = {} if root else {"not": {}}
    tree = SchemaTree(root)
    _drop_malformed(tree)
    for node in tree.unresolved:  # what is not in the document is never fetched
        del node.schema["$ref"]
    return tree


class _Normalizer:
    def __init__(self, document: Any) -> None:
        declared = document.get("$schema") if isinstance(document, dict) else None
        draft = re.search(r"draft-0(\d)", declared) if isinstance(declared, str) else None
        self._draft = int(draft[1]) if draft else 20

    def schema(self, schema: Any, path: Path) -> Schema | bool:
        if isinstance(schema, str):
            schema = schema.lower() == "true" if schema.lower() in ("true", "false") else {"type": schema}
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, dict):
            raise SchemaError(f"no schema at {_place(path)}: {schema!r:.80} is neither an object nor a boolean")
        if (wrong := next((key for key in schema if not isinstance(key, str)), None)) is not None:
            raise SchemaError(f"no schema at {_place(path)}: its key {wrong!r} is not a string")
        node = self._modernize(schema)
        declared, is_nullable = node.pop("type", None), node.pop("nullable", None) is True
        properties = node.get("properties")
        node |= map_subschemas(node, lambda item, steps: self.schema(item, (*path, *steps)))
        self._add_type(node, declared, path)
        if isinstance(properties, dict):
            _hoist_required(node, properties)
        _fix_enum(node)
        return _with_null(node) if is_nullable else node

    def _modernize(self, schema: Schema) -> Schema:
        """Return the schema with the keywords of older drafts in today's spelling, and without empty keywords."""
        node = {
            keyword: _corrected(keyword, value)
            for keyword, value in schema.items()
            if keyword not in ("$schema", "$vocabulary") and (value is not None or keyword in ("default", "const"))
            if value or keyword not in ("enum", "examples", *LISTS)
        }
        if self._draft <= 4 and isinstance(node.get("id"), str):
            node.setdefault("$id", node.pop("id"))
        if str(node.get("$id", "")).startswith("#"):
            node["$anchor"] = node.pop("$id")[1:]  # how draft 7 wrote anchors; generators put pointers there
        if isinstance(node.get("$ref"), str):
            node["$ref"] = node["$ref"].replace(_COMPONENTS, "#/$defs/")
            if self._draft <= 7:  # a reference is alone in its schema, whatever is beside it
                node = {key: value for key, value in node.items() if key in _ANNOTATIONS or key == "$ref"}
        if isinstance(node.get("items"), list):
            node["prefixItems"] = node.pop("items")
            if "additionalItems" in node:
                node["items"] = node.pop("additionalItems")
        node.pop("additionalItems", None)
        for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
            if isinstance(node.get(exclusive), bool) and node.pop(exclusive) and bound in node:
                node[exclusive] = node.pop(bound)
        if isinstance(node.get("required"), bool):
            del node["required"]  # draft 3 has it in the property
        dependencies = node.pop("dependencies", None)
        for name, dependency in dependencies.items() if isinstance(dependencies, dict) else ():
            keyword = "dependentRequired" if isinstance(dependency, list) else "dependentSchemas"
            others = node.get(keyword)
            node[keyword] = {name: dependency, **(others if isinstance(others, dict) else {})}
        return node

    def _add_type(self, node: Schema, declared: Any, path: Path) -> None:
        names = list(declared) if isinstance(declared, list | tuple) else [] if declared is None else [declared]
        meanings = [self._meaning(name, path) for name in names]
        if not all(meanings) or not meanings:
            return
        if all("type" in meaning for meaning in meanings):
            types = dict.fromkeys(name for meaning in meanings for name in _as_list(meaning["type"]))
            node["type"] = next(iter(types)) if len(types) == 1 else list(types)
            if len(meanings) == 1:
                for keyword, value in meanings[0].items():
                    node.setdefault(keyword, value)
        else:
            node.setdefault("allOf", []).append(meanings[0] if len(meanings) == 1 else {"anyOf": meanings})

    def _meaning(self, name: Any, path: Path) -> Schema:
        if isinstance(name, dict):
            inner = self.schema(name, (*path, "type"))
            return inner if isinstance(inner, dict) else {}
        if name is None:
            return {"type": "null"}
        if type(name) is int and 0 <= name < len(_TYPE_NUMBERS):
            name = _TYPE_NUMBERS[name]
        meaning = _alias(name) if isinstance(name, str) and len(name) <= _MAX_ALIAS_CHARS else None
        if meaning is None:
            raise SchemaError(f"unknown type {name!r:.80} at {_place(path)}")
        return meaning


def _corrected(keyword: str, value: Any) -> Any:
    """Return the value of a keyword in the form that JSON Schema has for it."""
    if keyword in MAPS:
        return value or {}  # the [] of a PHP program is empty, too
    if keyword in LISTS and isinstance(value, dict):
        return [value]
    if type(value) is float and value.is_integer() and keyword.startswith(("min", "max")):
        return int(value)
    return list(value) if isinstance(value, tuple) else value


def _drop_malformed(tree: SchemaTree) -> None:
    """Delete keywords with a value that the meta-schema rejects, such as `"minLength": "many"`."""
    meta = _meta_validator()
    try:
        nodes = [] if meta.is_valid(tree.root.schema) else tree.nodes
        for node in nodes:
            own = {keyword: value for keyword, value in node.schema.items() if keyword not in node.subschemas}
            for keyword, value in own.items():
                if not meta.is_valid({keyword: value}):
                    del node.schema[keyword]
    except ValueError:
        return  # something in it that is not JSON, which compiling the schema reports


@functools.cache
def _meta_validator() -> "jsonschema_rs.Validator":
    import jsonschema_rs  # slow to import

    return jsonschema_rs.validator_for({"$ref": "https://json-schema.org/draft/2020-12/schema"})


def _hoist_required(node: Schema, properties: Schema) -> None:
    """Move `required: true` of a property, as in draft 3, to the object."""
    required = [name for name, prop in properties.items() if isinstance(prop, dict) and prop.get("required") is True]
    if required:
        declared = node["required"] if isinstance(node.get("required"), list) else []
        node["required"] = list(dict.fromkeys([*declared, *required]))


def _with_null(node: Schema) -> Schema:
    if "const" in node:
        node["enum"] = [node.pop("const")]
    if isinstance(node.get("enum"), list) and None not in node["enum"]:
        node["enum"] = [*node["enum"], None]
    if "type" in node:
        node["type"] = list(dict.fromkeys([*_as_list(node["type"]), "null"]))
        return node
    outside = {key: value for key, value in node.items() if key in _ANNOTATIONS}
    constraints = {key: value for key, value in node.items() if key not in outside}
    return {**outside, "anyOf": [constraints, {"type": "null"}]} if constraints else node


def _fix_enum(node: Schema) -> None:
    """Convert or move enum values that all contradict the declared type: "1" for 1, "true" for true."""
    values, declared = node.get("enum"), node.get("type")
    if not isinstance(values, list) or not isinstance(declared, str):
        return
    if any(has_type(value, [declared]) for value in values):
        return
    if declared == "array":  # the values are those of the items, one level too high
        items = node.setdefault("items", {})
        if isinstance(items, dict):
            items.setdefault("enum", node.pop("enum"))
    elif None in (converted := [_as_type(value, declared) for value in values]):
        del node["type"]
    else:
        node["enum"] = converted


def _as_type(value: Any, name: str) -> Any:
    """Return a value in another type, if it can be read as one; otherwise None."""
    if name == "string":
        return str(value) if type(value) in (int, float) else None
    try:
        converted = msgspec.json.decode(str(value).lower())
    except (msgspec.DecodeError, ValueError):
        return None
    return converted if has_type(converted, [name]) else None


def _place(path: Path) -> str:
    return format_pointer(path) or "the root"


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


# Type names of Python, Java and TypeScript, which people write instead of those of JSON Schema.
_ALIASES: tuple[tuple[Schema, str], ...] = (
    ({"type": "string"}, "str string text char character varchar charsequence unicode"),
    ({"type": "integer"}, "int integer long short byte bigint biginteger int8 int16 int32 int64"),
    ({"type": "integer"}, "uint uint8 uint16 uint32 uint64 ulong"),
    ({"type": "number"}, "float double number numeric num decimal bigdecimal real float32 float64"),
    ({"type": "boolean"}, "bool boolean"),
    ({"type": "null"}, "null none nonetype nil void undefined"),
    (
        {"type": "array"},
        "array list tuple set frozenset sequence iterable collection arraylist linkedlist vector queue",
    ),
    ({"type": "array"}, "deque stack hashset linkedhashset treeset immutablelist"),
    ({"type": "object"}, "object dict dictionary map hashmap hashtable treemap linkedhashmap mapping record struct"),
    ({"type": "object"}, "typeddict defaultdict ordereddict json_object"),
    ({"type": "string", "format": "date"}, "date"),
    ({"type": "string", "format": "date-time"}, "datetime date-time timestamp"),
    ({"type": "string", "format": "time"}, "time"),
    ({"type": "string", "format": "duration"}, "duration timedelta"),
    ({"type": "string", "format": "uuid"}, "uuid"),
    ({"type": "string", "format": "uri"}, "uri url"),
    ({"type": "string", "format": "email"}, "email"),
    ({"type": "string", "format": "byte"}, "bytes binary"),
    ({}, "any anything mixed unknown variant jsonvalue *"),
)
_SCHEMAS: dict[str, Schema] = {"": {}, **{alias: schema for schema, names in _ALIASES for alias in names.split()}}
_MAX_ALIAS_CHARS = 200
_BRACKETS = str.maketrans("<>", "[]")


def _alias(text: str) -> Schema | None:
    """Return the schema of a type name in any case, as in `List[int]`, `HashMap<String, Long>`, `string[]`, `int?`.

    `{}` stands for any value; None means that the name is unknown.
    """
    text = text.strip()
    if text.lower() in _SCHEMAS:
        return dict(_SCHEMAS[text.lower()])
    if text.endswith("?"):
        return _union([_alias(text[:-1]), {"type": "null"}])
    if text.endswith("[]"):
        return _with_items({"type": "array"}, "items", _alias(text[:-2]))
    try:
        return _type_expression(ast.parse(text.translate(_BRACKETS), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _type_expression(node: ast.expr) -> Schema | None:
    """Return the schema of a type as Python writes it."""
    match node:
        case ast.Constant(value=None):
            return {"type": "null"}
        case ast.Name(id=name) | ast.Attribute(attr=name):  # `typing.List` is `List`
            known = _SCHEMAS.get(name.lower())
            return None if known is None else dict(known)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _union([_type_expression(left), _type_expression(right)])
        case ast.Subscript(value=ast.Name(id=name) | ast.Attribute(attr=name), slice=inner):
            elements = inner.elts if isinstance(inner, ast.Tuple) else [inner]
            return _generic(name.lower(), [_type_expression(element) for element in elements])
    return None


def _generic(name: str, arguments: list[Schema | None]) -> Schema | None:
    if name in ("optional", "union"):
        return _union([*arguments, {"type": "null"}] if name == "optional" else arguments)
    outer = _SCHEMAS.get(name)
    if outer == {"type": "object"} and len(arguments) == 2:
        return _with_items(outer, "additionalProperties", arguments[1])
    if outer == {"type": "array"} and name != "tuple" and len(arguments) == 1:
        return _with_items(outer, "items", arguments[0])
    return None if outer is None else dict(outer)


def _with_items(outer: Schema, keyword: str, items: Schema | None) -> Schema:
    return {**outer, keyword: items} if items else dict(outer)


def _union(schemas: list[Schema | None]) -> Schema | None:
    known = [schema for schema in schemas if schema is not None]
    if len(known) < len(schemas):
        return None
    if all(schema.keys() == {"type"} for schema in known):
        return {"type": list(dict.fromkeys(name for schema in known for name in _as_list(schema["type"])))}
    return {"anyOf": known} if all(known) else {}
